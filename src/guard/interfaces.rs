//! Interface names for events, by index.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType, netdevice};

/// Names already looked up; asking the kernel for each packet would cost a system call.
#[derive(Debug)]
pub(super) struct Interfaces {
    socket: Option<OwnedFd>,
    names: HashMap<u32, Option<String>, ahash::RandomState>,
    /// The one that was asked for last, which most often is asked for again.
    latest: (u32, Option<String>),
}

impl Interfaces {
    pub(super) fn new() -> Self {
        // Any socket will do to ask by, and a confined guard may open this one; without one, events have no
        // names.
        let socket = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None).ok();
        Self { socket, names: HashMap::default(), latest: (0, None) }
    }

    /// The name of interface `index`, `None` for 0 and for one that is gone.
    pub(super) fn name(&mut self, index: u32) -> Option<&str> {
        if index == 0 {
            return None;
        }
        if self.latest.0 != index {
            let socket = &self.socket;
            let look_up = || netdevice::index_to_name(socket.as_ref()?, index).ok();
            self.latest = (index, self.names.entry(index).or_insert_with(look_up).clone());
        }
        self.latest.1.as_deref()
    }

    /// The index of the interface `name`, 0 where there is none.
    pub(super) fn index(&self, name: &str) -> u32 {
        let socket = self.socket.as_ref();
        socket.and_then(|socket| netdevice::name_to_index(socket, name).ok()).unwrap_or_default()
    }

    /// Forgets all names, since interfaces come, go and are renamed.
    pub(super) fn forget(&mut self) {
        self.names.clear();
        self.latest = (0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_its_name_and_nothing_has_none() {
        let mut interfaces = Interfaces::new();
        assert_eq!(interfaces.name(1), Some("lo"));
        assert_eq!(interfaces.name(0), None);
        assert_eq!([interfaces.index("lo"), interfaces.index("nowhere")], [1, 0]);
        assert_eq!(interfaces.name(u32::MAX), None);
        interfaces.forget();
        assert_eq!(interfaces.name(1), Some("lo"));
    }
}
