//! Lookup of interface names by index, for events.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType, netdevice};

/// Cache of interface names. Without it each packet would cost a system call.
#[derive(Debug)]
pub(super) struct InterfaceNameCache {
    socket: Option<OwnedFd>,
    names: HashMap<u32, Option<String>, ahash::RandomState>,
    /// The last index and its name. The next packet most often has the same index.
    latest: (u32, Option<String>),
}

impl InterfaceNameCache {
    pub(super) fn new() -> Self {
        // Any socket serves for the query, and a confined guard may open this one. Without a socket, events
        // have no interface names.
        let socket = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None).ok();
        Self { socket, names: HashMap::default(), latest: (0, None) }
    }

    /// Returns the name of interface `index`, or `None` for 0 and for an interface that is gone.
    pub(super) fn name(&mut self, index: u32) -> Option<&str> {
        if index == 0 {
            return None;
        }
        // Most packets of a queue use the same interface as the one before.
        if self.latest.0 != index {
            let socket = &self.socket;
            let look_up = || netdevice::index_to_name(socket.as_ref()?, index).ok();
            self.latest = (index, self.names.entry(index).or_insert_with(look_up).clone());
        }
        self.latest.1.as_deref()
    }

    /// Returns the index of the interface `name`, or 0 if it does not exist.
    pub(super) fn index(&self, name: &str) -> u32 {
        let socket = self.socket.as_ref();
        socket.and_then(|socket| netdevice::name_to_index(socket, name).ok()).unwrap_or_default()
    }

    /// Clears the cache, since interfaces come, go and are renamed.
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
        let mut interfaces = InterfaceNameCache::new();
        assert_eq!(interfaces.name(1), Some("lo"));
        assert_eq!(interfaces.name(0), None);
        assert_eq!([interfaces.index("lo"), interfaces.index("nowhere")], [1, 0]);
        assert_eq!(interfaces.name(u32::MAX), None);
        interfaces.forget();
        assert_eq!(interfaces.name(1), Some("lo"));
    }
}
