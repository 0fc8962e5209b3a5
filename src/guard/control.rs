//! The control socket: `bannerwall reload` asks a running guard, and gets its answer.
//!
//! A Unix socket, mode 0600; besides, only root and the guard's own user are heard (`SO_PEERCRED`). A
//! request is one line of JSON, `{"command":"reload"}`, and so is the answer: `{"ok":true,"rules":120}` or
//! `{"ok":false,"error":"…"}`. One request a connection, one connection at a time, both bounded in
//! octets and time.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use serde::{Deserialize, Serialize};

use super::Message;
use super::private_socket::{PrivateSocket, is_trusted};
use crate::privileges::User;

/// Octets of a request.
const REQUEST: u64 = 4 << 10;
/// Octets of an answer: every diagnostic that a load of rules keeps, and more.
const ANSWER: u64 = 4 << 20;
/// How long a peer may take to ask, or to take the answer.
const PEER: Duration = Duration::from_secs(2);
/// How long the guard may take to read its rules.
const WORK: Duration = Duration::from_secs(60);
/// Where sockets are made unless somebody says where.
pub(super) const FOLDER: &str = "/run/bannerwall";

/// What is asked of a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
enum Request {
    /// Read the rules again.
    Reload,
}

/// What the guard says to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Whether it did what was asked.
    pub ok: bool,
    /// The number of rules that are in force now.
    pub rules: usize,
    /// Why it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Why a guard could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens there.
    #[error("no guard listens at {}: {source}", path.display())]
    Nobody {
        /// Where.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The guard did not answer as it should.
    #[error("the guard at {} did not answer: {source}", path.display())]
    Silent {
        /// Where.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
}

impl ControlError {
    /// Whether a permission is missing.
    pub fn is_unsupported(&self) -> bool {
        let (Self::Nobody { source, .. } | Self::Silent { source, .. }) = self;
        source.kind() == io::ErrorKind::PermissionDenied
    }
}

/// The socket of the guard whose first queue is `queue`, in the network namespace of this process:
/// queues are numbered in each namespace anew. Which namespace is the machine's own would need a look
/// at process 1, which a confined guard may not take; so each is named by its number.
///
/// A guard that has gone on as another user makes it in that user's folder.
pub fn default_path(queue: u16, user: Option<&User>) -> PathBuf {
    let namespace = std::fs::metadata("/proc/self/ns/net").map_or(0, |found| found.ino());
    folder(user).join(format!("guard-{queue}-{namespace}.sock"))
}

/// Where sockets and accounts are: in a folder of its own where a guard goes on as another user.
pub(super) fn folder(user: Option<&User>) -> PathBuf {
    let shared = PathBuf::from(FOLDER);
    user.map_or_else(|| shared.clone(), |user| shared.join(user.number().to_string()))
}

/// Where such a guard may listen: at [`default_path`], or in the folder of a user that it has gone on as.
///
/// Several where a guard of another user was killed, even long ago in a namespace whose number this one has got:
/// nobody has taken away its socket.
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

/// Has the guard that listens at one of these places read its rules again.
///
/// # Errors
/// Where no guard listens or answers; that rules were refused is an answer.
pub fn reload(places: &[PathBuf]) -> Result<Answer, ControlError> {
    let (path, stream) = connect(places)?;
    exchange(&stream).map_err(|source| ControlError::Silent { path: path.to_owned(), source })
}

/// The first that somebody listens at. What is told of none is that of one which may live, else of one that is there.
fn connect(places: &[PathBuf]) -> Result<(&Path, UnixStream), ControlError> {
    let weight = |error: &io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => 0,
        io::ErrorKind::NotFound => 2,
        _ => 1,
    };
    let mut nobody: Option<(&Path, io::Error)> = None;
    for path in places.iter().map(PathBuf::as_path) {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok((path, stream)),
            Err(error) => {
                if nobody.as_ref().is_none_or(|(_, known)| weight(&error) < weight(known)) {
                    nobody = Some((path, error));
                }
            }
        }
    }
    let (path, source) = nobody.unwrap_or_else(|| (Path::new(FOLDER), io::ErrorKind::NotFound.into()));
    Err(ControlError::Nobody { path: path.to_owned(), source })
}

fn exchange(mut stream: &UnixStream) -> io::Result<Answer> {
    stream.set_read_timeout(Some(WORK + PEER))?;
    stream.set_write_timeout(Some(PEER))?;
    stream.write_all(&line(&Request::Reload)?)?;
    let mut answer = String::new();
    BufReader::new(stream.take(ANSWER)).read_line(&mut answer)?;
    serde_json::from_str(&answer).map_err(io::Error::from)
}

fn line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut octets = serde_json::to_vec(value)?;
    octets.push(b'\n');
    Ok(octets)
}

/// The socket of a guard, and the thread that serves it; both end with this value.
#[derive(Debug)]
pub(super) struct Control {
    _socket: PrivateSocket,
}

impl Control {
    /// Listens at `path`, in place of a socket that a dead guard left there.
    pub(super) fn start(path: &Path, messages: Sender<Message>) -> io::Result<Self> {
        let mut socket = PrivateSocket::bind(path)?;
        socket.serve("control", move |stream| {
            // A peer that goes away or asks nonsense is its own affair.
            let _ = answer(&stream, &messages);
            ControlFlow::Continue(())
        })?;
        Ok(Self { _socket: socket })
    }
}

fn answer(mut stream: &UnixStream, messages: &Sender<Message>) -> io::Result<()> {
    stream.set_read_timeout(Some(PEER))?;
    stream.set_write_timeout(Some(PEER))?;
    let refuse = |error: &str| Answer { ok: false, rules: 0, error: Some(error.to_owned()) };
    let answer = if is_trusted(stream)? {
        let mut request = String::new();
        BufReader::new(stream.take(REQUEST)).read_line(&mut request)?;
        match serde_json::from_str(&request) {
            Ok(Request::Reload) => ask(messages).unwrap_or_else(|| refuse("the guard is busy or ends")),
            Err(error) => refuse(&format!("not a request: {error}")),
        }
    } else {
        refuse("only root and the guard's own user are heard")
    };
    stream.write_all(&line(&answer)?)
}

fn ask(messages: &Sender<Message>) -> Option<Answer> {
    let (sender, receiver) = bounded(1);
    messages.send(Message::ReloadRules(Some(sender))).ok()?;
    receiver.recv_timeout(WORK).ok()
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;
    use std::thread::JoinHandle;

    use super::*;

    /// A guard that says `answer` to every request.
    fn guard(path: &Path, answer: Answer) -> (Control, JoinHandle<()>) {
        let (sender, messages) = bounded(1);
        let control = Control::start(path, sender).unwrap();
        let main = std::thread::spawn(move || {
            for message in messages {
                if let Message::ReloadRules(Some(reply)) = message {
                    let _ = reply.send(answer.clone());
                }
            }
        });
        (control, main)
    }

    fn reload_at(path: &Path) -> Result<Answer, ControlError> {
        reload(&[path.to_owned()])
    }

    #[test]
    fn an_answer_comes_back_whole_and_nonsense_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guard.sock");
        let refused = Answer { ok: false, rules: 3, error: Some("a fault\nin two lines".into()) };
        let (control, main) = guard(&path, refused.clone());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(reload_at(&path).unwrap(), refused);
        for nonsense in [b"{}\n".to_vec(), vec![b'x'; 10_000], b"\xff\n".to_vec(), Vec::new()] {
            let mut stream = UnixStream::connect(&path).unwrap();
            // The guard may be done with it before all is sent.
            let _ = stream.write_all(&nonsense);
            let _ = stream.shutdown(Shutdown::Write);
            let mut said = String::new();
            let _ = stream.read_to_string(&mut said);
            assert!(!said.contains("true"), "{said}");
        }
        assert_eq!(reload_at(&path).unwrap(), refused, "it still listens");
        drop(control);
        main.join().unwrap();
        assert!(!path.exists());
        assert!(matches!(reload_at(&path), Err(ControlError::Nobody { .. })));
    }

    #[test]
    fn a_dead_guard_s_socket_is_replaced_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guard.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "left behind");
        let (control, main) = guard(&path, Answer { ok: true, rules: 1, error: None });
        let (sender, _messages) = bounded(1);
        let second = Control::start(&path, sender.clone()).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        assert!(reload_at(&path).unwrap().ok, "the first one was not disturbed");
        drop(control);
        main.join().unwrap();
        std::fs::write(&path, "mine").unwrap();
        assert_eq!(Control::start(&path, sender).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
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
        let asks = || reload(&places_in(folder.path(), &shared));
        let says = |asked: Result<Answer, ControlError>| asked.unwrap_err().to_string();
        assert!(says(asks()).contains("guard-0-4026532000.sock: No such file"), "{}", says(asks()));
        drop([&shared, &dead].map(|path| UnixListener::bind(path).unwrap()));
        assert!(says(asks()).contains("refused"), "{}", says(asks()));
        let (control, main) = guard(&lives, Answer { ok: true, rules: 7, error: None });
        assert_eq!(asks().unwrap().rules, 7);
        drop(control);
        main.join().unwrap();
        assert!(says(asks()).contains("refused"), "{}", says(asks()));
    }
}
