//! The control socket, through which commands such as `bannerwall reload` and `bannerwall status` reach a
//! running guard.
//!
//! A request is one line of JSON, `{"command":"reload"}`, and so is the reply: `{"result":{"rules":120}}` or
//! `{"error":"…"}`. A connection carries one request. Requests, replies and the time of both are bounded.
//!
//! The mode of the socket is 0600, or 0660 if the guard runs as another user: root, that user and its group
//! may connect.

mod client;
mod server;

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::client::{ControlError, ask};
pub(super) use self::server::ControlServer;
use crate::guard::BanCommand;
use crate::privileges::UnprivilegedUser;

/// Maximum length of a request, in bytes.
const REQUEST: u64 = 4 << 10;
/// Maximum length of a reply, in bytes: more than all diagnostics that a load of rules keeps.
const REPLY: u64 = 4 << 20;
/// Limit of the time for which a peer may send a request or read the reply.
const PEER: Duration = Duration::from_secs(2);
/// Limit of the time for which the guard may read its rules.
const RELOAD: Duration = Duration::from_secs(60);
/// Limit of the time for any other request.
const WORK: Duration = Duration::from_secs(5);
/// Folder of the sockets without `--control`.
pub(super) const FOLDER: &str = "/run/bannerwall";

/// A request to a guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum ControlRequest {
    /// Read the rules again. The result is a [`RulesInForce`].
    Reload,
    /// Report the state of the run. The result is a [`GuardStatus`](super::GuardStatus).
    Status,
    /// Report the blocks of an address. The result is a [`WhyReport`](super::WhyReport).
    Why {
        /// The address of a client or a server.
        address: IpAddr,
        /// Its port; absent for all ports.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
    },
    /// Show or change the bans. The result is a [`BanList`](crate::guard::BanList).
    Bans {
        /// The command.
        order: BanCommand,
    },
}

/// Returns the limit of the time for a request.
pub(super) const fn work(request: &ControlRequest) -> Duration {
    match request {
        ControlRequest::Reload => RELOAD,
        ControlRequest::Status | ControlRequest::Why { .. } | ControlRequest::Bans { .. } => WORK,
    }
}

/// The reply of the guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ControlReply<T> {
    /// The result of the request.
    Result(T),
    /// The reason for which it failed.
    Error(String),
}

/// Result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesInForce {
    /// Number of rules in force now.
    pub rules: usize,
}

/// Returns the path of the socket of the guard whose first queue is `queue`, in the network namespace of this
/// process. Each namespace numbers its queues on its own. A confined guard may not look at process 1 to find
/// the initial namespace, so each socket is named after the inode of its namespace.
///
/// A guard that runs as another user makes the socket in that user's folder.
pub fn default_path(queue: u16, user: Option<&UnprivilegedUser>) -> PathBuf {
    let namespace = std::fs::metadata("/proc/self/ns/net").map_or(0, |found| found.ino());
    folder(user).join(format!("guard-{queue}-{namespace}.sock"))
}

/// Returns the folder of sockets and accounts. A guard that runs as another user has its own.
pub(super) fn folder(user: Option<&UnprivilegedUser>) -> PathBuf {
    let shared = PathBuf::from(FOLDER);
    user.map_or_else(|| shared.clone(), |user| shared.join(user.number().to_string()))
}

/// Returns the paths at which a guard of this queue may listen: [`default_path`], and the same name in the
/// folder of each user.
///
/// A killed guard leaves its socket behind, even in a namespace whose inode is used again, so there may be
/// several.
pub fn places(queue: u16) -> Vec<PathBuf> {
    let path = default_path(queue, None);
    places_in(Path::new(FOLDER), &path)
}

fn places_in(folder: &Path, path: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let others = folders.filter_map(|folder| Some(folder.path().join(path.file_name()?)));
    let others = others.filter(|other| other.exists());
    std::iter::once(path.to_owned()).chain(others).collect()
}

fn line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::Shutdown;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;
    use crate::guard::private_socket::{SocketAccess, UnboundSocket};

    /// A guard that gives this reply to every request.
    fn guard(path: &Path, reply: Result<usize, &str>) -> io::Result<ControlServer> {
        let reply = reply.map(|rules| serde_json::json!({ "rules": rules })).map_err(str::to_owned);
        ControlServer::start(path, UnboundSocket::open(SocketAccess::Owner)?, move |_| reply.clone())
    }

    fn reload_at(path: &Path) -> Result<RulesInForce, ControlError> {
        ask(&[path.to_owned()], &ControlRequest::Reload)
    }

    #[test]
    fn a_reply_comes_back_whole_and_nonsense_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guard.sock");
        let control = guard(&path, Err("a fault\nin two lines")).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let refused = || match reload_at(&path) {
            Err(ControlError::Refused(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(), "a fault\nin two lines");
        for nonsense in [b"{}\n".to_vec(), vec![b'x'; 10_000], b"\xff\n".to_vec(), Vec::new()] {
            let mut stream = UnixStream::connect(&path).unwrap();
            // The guard may be done with it before all is sent.
            let _ = stream.write_all(&nonsense);
            let _ = stream.shutdown(Shutdown::Write);
            let mut said = String::new();
            let _ = stream.read_to_string(&mut said);
            assert!(!said.contains("result"), "{said}");
        }
        assert_eq!(refused(), "a fault\nin two lines", "it still listens");
        drop(control);
        assert!(!path.exists());
        assert!(matches!(reload_at(&path), Err(ControlError::NoGuard { .. })));
    }

    #[test]
    fn a_group_may_connect_if_it_is_given_access() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guard.sock");
        let _control = ControlServer::start(&path, UnboundSocket::open(SocketAccess::Group).unwrap(), |_| {
            Err(String::new())
        })
        .unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    }

    #[test]
    fn a_dead_guard_s_socket_is_replaced_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guard.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "left behind");
        let control = guard(&path, Ok(1)).unwrap();
        let second = guard(&path, Ok(2)).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(reload_at(&path).unwrap().rules, 1, "the first one was not disturbed");
        drop(control);
        std::fs::write(&path, "mine").unwrap();
        assert_eq!(guard(&path, Ok(3)).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }

    #[test]
    fn a_guard_of_another_user_is_found_beside_what_dead_ones_left() {
        let folder = tempfile::tempdir().unwrap();
        let shared = folder.path().join("guard-0-4026532000.sock");
        for user in ["7", "8", "9"] {
            std::fs::create_dir(folder.path().join(user)).unwrap();
        }
        let [dead, lives] = ["7", "8"].map(|user| folder.path().join(user).join("guard-0-4026532000.sock"));
        let asks = || ask::<RulesInForce>(&places_in(folder.path(), &shared), &ControlRequest::Reload);
        let says = |asked: Result<RulesInForce, ControlError>| asked.unwrap_err().to_string();
        assert!(says(asks()).contains("guard-0-4026532000.sock: No such file"), "{}", says(asks()));
        drop([&shared, &dead].map(|path| UnixListener::bind(path).unwrap()));
        assert!(says(asks()).contains("refused"), "{}", says(asks()));
        let control = guard(&lives, Ok(7)).unwrap();
        assert_eq!(asks().unwrap().rules, 7);
        drop(control);
        assert!(says(asks()).contains("refused"), "{}", says(asks()));
    }
}
