//! Messages to the service manager: `sd_notify(3)`, a datagram to the socket that it names.
//!
//! The verdict loops send through it, so a message without a descriptor never blocks: if the manager does not
//! read, the message is lost. All crates for this purpose block, so none of them is used.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Limit of the wait for a manager whose receive buffer is full, and the interval between tries.
const FULL: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// The connection to the service manager that started this process.
#[derive(Debug)]
pub(super) struct ServiceNotifier {
    socket: UnixDatagram,
    manager: SocketAddr,
}

impl ServiceNotifier {
    /// Returns the manager that `NOTIFY_SOCKET` names, if it is set.
    ///
    /// # Errors
    ///
    /// The name is no address, or the system has no free descriptor.
    pub(super) fn from_environment() -> io::Result<Option<Self>> {
        std::env::var_os("NOTIFY_SOCKET")
            .filter(|name| !name.is_empty())
            .map(|name| Self::to(&name))
            .transpose()
    }

    pub(super) fn to(name: &OsStr) -> io::Result<Self> {
        // `@` stands for the null byte of an abstract address (sd_notify(3)).
        let manager = match name.as_bytes().split_first() {
            Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        // The guard's user may have no access to the path later. If the manager's socket does not exist yet,
        // the guard connects later.
        let _ = socket.connect_addr(&manager);
        Ok(Self { socket, manager })
    }

    /// Connects again if `error` shows that the manager has made its socket again. Returns true on success.
    fn reconnects(&self, error: &io::Error) -> bool {
        let is_lost = matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotConnected);
        is_lost && self.socket.connect_addr(&self.manager).is_ok()
    }

    /// Sends assignments, one per line.
    pub(super) fn send(&self, assignments: &str) {
        // Errors are ignored: a missing manager must not stop the guard.
        if let Err(error) = self.socket.send(assignments.as_bytes())
            && self.reconnects(&error)
        {
            let _ = self.socket.send(assignments.as_bytes());
        }
    }

    /// Sends assignments with an optional descriptor, and waits for a limited time while the manager's buffer
    /// is full: this message must not be lost.
    ///
    /// # Errors
    ///
    /// The manager is gone, or does not read.
    pub(super) fn send_surely(
        &self,
        assignments: &str,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let deadline = Instant::now() + FULL;
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if let Some(descriptors) = descriptor.as_ref().map(std::slice::from_ref) {
                control.push(SendAncillaryMessage::ScmRights(descriptors));
            }
            let octets = [IoSlice::new(assignments.as_bytes())];
            match sendmsg(&self.socket, &octets, &mut control, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN | Errno::INTR) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                Err(error) if Instant::now() < deadline && self.reconnects(&error.into()) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns the interval at which the manager expects a sign of life; none if it does not expect one from this
/// process.
pub(super) fn watchdog() -> Option<Duration> {
    interval(std::env::var_os("WATCHDOG_USEC"), std::env::var_os("WATCHDOG_PID"), std::process::id())
}

fn interval(microseconds: Option<OsString>, process: Option<OsString>, own: u32) -> Option<Duration> {
    if process.is_some_and(|process| process.to_str().and_then(|text| text.parse().ok()) != Some(own)) {
        return None;
    }
    let microseconds = microseconds?.to_str()?.parse().ok()?;
    (microseconds > 0).then(|| Duration::from_micros(microseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_found_by_path_and_by_abstract_name_and_never_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let abstracted = format!("bannerwall-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstracted).unwrap();
        let managers = [
            (path.clone().into_os_string(), UnixDatagram::bind(&path).unwrap()),
            (format!("@{abstracted}").into(), UnixDatagram::bind_addr(&address).unwrap()),
        ];
        for (name, manager) in managers {
            let notifier = ServiceNotifier::to(&name).unwrap();
            // Far more than a socket holds: the rest is lost, and nobody hangs.
            (0..100_000).for_each(|_| notifier.send("READY=1"));
            let mut buffer = [0; 16];
            assert_eq!(manager.recv(&mut buffer).unwrap(), 7);
            assert_eq!(&buffer[..7], b"READY=1");
            drop(manager);
            notifier.send("STOPPING=1");
        }
        assert!(ServiceNotifier::to(OsStr::new(&"x".repeat(1000))).is_err());
    }

    #[test]
    fn only_the_process_that_is_meant_feeds_the_watchdog() {
        let text = |text: &str| Some(OsString::from(text));
        assert_eq!(interval(text("5000000"), None, 7), Some(Duration::from_secs(5)));
        assert_eq!(interval(text("5000000"), text("7"), 7), Some(Duration::from_secs(5)));
        for (microseconds, process) in [
            (None, None),
            (text("5000000"), text("8")),
            (text("0"), None),
            (text("soon"), None),
            (text("1"), text("")),
        ] {
            assert_eq!(interval(microseconds, process, 7), None);
        }
    }
}
