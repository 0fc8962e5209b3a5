//! The control socket, through which commands such as `bannerwall reload` and `bannerwall status` reach a
//! running guard.
//!
//! A request is one line of JSON, `{"command":"reload"}`, and so is the reply: `{"result":{"rules":120}}` or
//! `{"error":"…"}`. A connection carries one request. Requests, replies and the time of both are bounded.
//!
//! The mode of the socket is 0600, or 0660 if the guard runs as another user: root, that user and its group
//! may connect.

mod client;
mod message;
mod server;
pub(super) mod socket_path;

pub use self::client::{ControlError, ask};
pub(super) use self::message::work;
pub use self::message::{ControlRequest, RulesInForce};
pub(super) use self::server::ControlServer;
pub use self::socket_path::{default_path, places};

#[cfg(test)]
mod tests {
    use std::io::{self, Read as _, Write as _};
    use std::net::Shutdown;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;

    use super::socket_path::places_in;
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
