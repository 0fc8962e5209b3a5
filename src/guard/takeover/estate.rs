//! The new guard's side: sockets first, while the old one still judges, and what it knew when all is ready
//! here.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::state::{QueueState, RunState, StateError, unsealed};
use super::wire::{Word, hear, say, wait_up_to};
use super::{Kept, METRICS, QUEUE, RUN, STATE, Store, Terms};
use crate::diagnostics::tell;
use crate::guard::GuardError;
use crate::guard::config::GuardConfig;
use crate::guard::private_socket::is_trusted;
use crate::privileges::User;

/// How long the old guard may take for a word: it may be amid a look at the hook.
const PEER: Duration = Duration::from_secs(15);

/// Time for which a word is waited for before something else is looked at.
const GLANCE: Duration = Duration::from_millis(50);

/// What another process has left, or will leave once it is told to.
#[derive(Debug)]
pub(in crate::guard) struct Estate {
    sockets: Vec<Inherited>,
    left: Left,
    /// Where it was kept, and the names there of what is true once.
    store: Option<(Store, Vec<String>)>,
}

/// A socket of the other process's.
#[derive(Debug)]
struct Inherited {
    name: String,
    socket: OwnedFd,
    marks_connections: bool,
}

/// Where states come from.
#[derive(Debug)]
enum Left {
    /// A guard that still judges.
    Guard(UnixStream),
    /// One that was not understood, until it ends.
    Unintelligible(UnixStream),
    /// A guard that is gone.
    Nobody(VecDeque<Legacy>),
}

/// What was heard of another process that is to stop.
#[derive(Debug)]
pub(in crate::guard) enum Heard {
    /// Nothing for now: it may still judge.
    Nothing,
    /// A piece of what it knew.
    Legacy(Legacy),
    /// It judges no longer, and nothing follows.
    Last,
    /// It does not let go of its queues, whatever it has offered, and says why.
    Refused(String),
}

/// What somebody knew.
#[derive(Debug)]
pub(in crate::guard) enum Legacy {
    /// The loop of this queue.
    Queue(u16, Box<QueueState>),
    /// The rest of the run.
    Run(Box<RunState>),
}

impl Estate {
    /// What the guard at `--takeover` offers, or what the service manager has kept.
    ///
    /// # Errors
    /// Where that guard refuses or does not answer; it goes on then.
    pub(in crate::guard) fn find(
        config: &GuardConfig,
        store: Option<&Store>,
        kept: Kept,
    ) -> Result<Option<Self>, GuardError> {
        if let Some(estate) = store.and_then(|store| Self::from_store(config, store, kept)) {
            return Ok(Some(estate));
        }
        let Some(path) = &config.takeover else { return Ok(None) };
        Self::from_guard(config, path).map_err(|why| GuardError::Takeover { path: path.clone(), why })
    }

    fn from_guard(config: &GuardConfig, path: &Path) -> Result<Option<Self>, String> {
        let stream = match UnixStream::connect(path) {
            Ok(stream) => stream,
            // The first guard, or one that died and left its socket.
            Err(error) if is_nobody(&error) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let silent = |error: io::Error| format!("the guard there does not answer: {error}");
        wait_up_to(&stream, PEER).map_err(silent)?;
        if !is_trusted(&stream).map_err(silent)? && !is_of(&stream, config) {
            return Err("what listens there belongs to another user".to_owned());
        }
        say(&stream, &Word::Ask(Terms::of(config)), None).map_err(silent)?;
        let mut sockets = Vec::new();
        loop {
            match hear(&stream).map_err(silent)? {
                (Word::Socket { name, marks_connections }, Some(socket)) => {
                    sockets.push(Inherited { name, socket, marks_connections });
                }
                (Word::Offered, _) => break,
                (Word::Refused { why }, _) => return Err(refused(&why)),
                _ => return Err("the guard there says what this one does not understand".to_owned()),
            }
        }
        let mut missing = config.queues.numbers();
        let has = |number: u16| sockets.iter().any(|it| it.queue() == Some(number));
        match missing.find(|number| !has(*number)) {
            Some(queue) => Err(format!("the guard there gives no socket of queue {queue}")),
            None => Ok(Some(Self { sockets, left: Left::Guard(stream), store: None })),
        }
    }

    fn from_store(config: &GuardConfig, store: &Store, kept: Kept) -> Option<Self> {
        let (mut sockets, mut left, mut spent) = (Vec::new(), VecDeque::new(), Vec::new());
        let mut is_foreign = false;
        for (name, descriptor) in kept.0 {
            if name.starts_with(STATE) {
                left.extend(legacy(&name, Some(descriptor)));
                spent.push(name);
                continue;
            }
            let kept = Inherited { name, socket: descriptor, marks_connections: false };
            if kept.queue().is_some_and(|number| config.queues.numbers().contains(&number))
                || kept.name == METRICS
            {
                sockets.push(kept);
            } else {
                // As long as somebody has it, packets would wait in a queue that nobody reads.
                store.remove(&kept.name);
                is_foreign = true;
            }
        }
        if is_foreign {
            store.wait();
        }
        for legacy in &left {
            if let Legacy::Queue(number, state) = legacy {
                let own = sockets.iter_mut().filter(|it| it.queue() == Some(*number));
                own.for_each(|it| it.marks_connections = state.known.marks_connections);
            }
        }
        let estate = Self { sockets, left: Left::Nobody(left), store: Some((store.clone(), spent)) };
        if estate.sockets.iter().any(|it| it.queue().is_some()) {
            return Some(estate);
        }
        // Of flows whose queues are gone nothing is true any more.
        estate.spend();
        if !estate.sockets.is_empty() {
            // Nobody can listen there before the manager has closed it.
            store.remove(METRICS);
            store.wait();
        }
        None
    }

    /// Has the manager forget what is true once.
    fn spend(&self) {
        if let Some((store, spent)) = &self.store {
            spent.iter().for_each(|name| store.remove(name));
        }
    }

    /// The socket of a queue, and whether the kernel marks connections with its verdicts.
    pub(in crate::guard) fn queue(&mut self, number: u16) -> Option<(OwnedFd, bool)> {
        let at = self.sockets.iter().position(|it| it.queue() == Some(number))?;
        let Inherited { socket, marks_connections, .. } = self.sockets.swap_remove(at);
        Some((socket, marks_connections))
    }

    /// The listener of metrics, if it is at this address; any port will do for port 0. One that is elsewhere
    /// is closed.
    pub(in crate::guard) fn metrics(&mut self, address: Option<SocketAddr>) -> Option<TcpListener> {
        let at = self.sockets.iter().position(|it| it.name == METRICS)?;
        let listener = TcpListener::from(self.sockets.swap_remove(at).socket);
        // What is no such socket has no such address.
        let is_at = |bound: SocketAddr, wanted: SocketAddr| {
            bound.ip() == wanted.ip() && (wanted.port() == 0 || bound.port() == wanted.port())
        };
        let bound = listener.local_addr().ok().zip(address);
        let fits = bound.is_some_and(|(bound, wanted)| is_at(bound, wanted));
        if let (false, Some((store, _))) = (fits, &self.store) {
            store.remove(METRICS);
            // Nobody can listen on every address of that port, say, before the manager has closed it.
            store.wait();
        }
        fits.then_some(listener)
    }

    /// True if a guard still judges until it is told to stop.
    pub(in crate::guard) const fn is_of_a_guard(&self) -> bool {
        matches!(self.left, Left::Guard(_))
    }

    /// Has the other guard stop.
    ///
    /// # Errors
    /// It has refused meanwhile and goes on, or it is gone, and what becomes of its packets is not known.
    pub(in crate::guard) fn begin(&self) -> Result<(), String> {
        match &self.left {
            Left::Guard(stream) => say(stream, &Word::Go, None).map_err(|error| match hear(stream) {
                Ok((Word::Refused { why }, _)) => refused(&why),
                _ => format!("the guard there is gone: {error}"),
            }),
            Left::Unintelligible(_) => Ok(()),
            Left::Nobody(_) => {
                self.spend();
                Ok(())
            }
        }
    }

    /// What it knew, piece by piece. What can't be used is told, and left out.
    ///
    /// As long as the other process lives it may read its queues: only its last word or its end, which closes
    /// the stream, says that it does not.
    pub(in crate::guard) fn next(&mut self) -> Heard {
        let (stream, is_understood) = match &mut self.left {
            Left::Guard(stream) => (stream, true),
            Left::Unintelligible(stream) => (stream, false),
            Left::Nobody(left) => return left.pop_front().map_or(Heard::Last, Heard::Legacy),
        };
        if !says_something(stream) {
            return Heard::Nothing;
        }
        if !is_understood {
            // Its end is all that can be heard.
            return match stream.read(&mut [0; 4096]) {
                Ok(octets) if octets > 0 => Heard::Nothing,
                Err(error) if error.kind() == io::ErrorKind::Interrupted || is_slow(&error) => Heard::Nothing,
                Ok(_) | Err(_) => Heard::Last,
            };
        }
        match hear(stream) {
            Ok((Word::State { name }, descriptor)) => {
                legacy(&name, descriptor).map_or(Heard::Nothing, Heard::Legacy)
            }
            Ok((Word::Done, _)) => Heard::Last,
            Ok((Word::Refused { why }, _)) => Heard::Refused(refused(&why)),
            Ok(_) => Heard::Nothing,
            Err(error) if is_end(&error) => {
                tell(format_args!(
                    "bannerwall: the guard that was taken over from did not end as it should: {error}; flows that it \
                     has not told of are picked up in their middle"
                ));
                Heard::Last
            }
            Err(error) => {
                tell(format_args!(
                    "bannerwall: the guard that is taken over from says what this one does not understand: {error}; its \
                     end is waited for, and flows that it has not told of are picked up in their middle"
                ));
                if let Left::Guard(stream) = std::mem::replace(&mut self.left, Left::Nobody(VecDeque::new()))
                {
                    self.left = Left::Unintelligible(stream);
                }
                Heard::Nothing
            }
        }
    }
}

/// True if there is something to hear, which is waited for a little; the end is something.
fn says_something(stream: &UnixStream) -> bool {
    let limit = Timespec { tv_sec: 0, tv_nsec: GLANCE.subsec_nanos().into() };
    poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
}

/// True if the other process has closed the stream, which it does by its end.
fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

fn is_slow(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl Inherited {
    /// The number of the queue that it is the socket of.
    fn queue(&self) -> Option<u16> {
        self.name.strip_prefix(QUEUE)?.parse().ok()
    }
}

/// What a state holds; told where it holds nothing that can be used.
fn legacy(name: &str, descriptor: Option<OwnedFd>) -> Option<Legacy> {
    let read = || -> Result<Option<Legacy>, StateError> {
        let octets = unsealed(descriptor.ok_or(StateError::Foreign)?)?;
        if name == RUN {
            return Ok(Some(Legacy::Run(Box::new(RunState::read(&octets)?))));
        }
        let number = name.strip_prefix(STATE).and_then(|name| name.strip_prefix(QUEUE)?.parse().ok());
        // Of a version that knows more.
        let Some(number) = number else { return Ok(None) };
        Ok(Some(Legacy::Queue(number, Box::new(QueueState::read(&octets)?))))
    };
    read().unwrap_or_else(|error| {
        tell(format_args!(
            "bannerwall: {name} of the guard before is not used: {error}; its flows are picked up in their middle, its \
             counters begin at 0"
        ));
        None
    })
}

/// What is said of a refusal.
fn refused(why: &str) -> String {
    format!("refused: {why}")
}

/// True if nobody listens.
fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// True if a peer runs as the user that this guard will become.
fn is_of(stream: &UnixStream, config: &GuardConfig) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(stream.as_fd());
    let peer = peer.map(|credentials| credentials.uid.as_raw());
    let user = config.user.clone().or_else(User::in_place_of_root);
    peer.ok().zip(user).is_some_and(|(peer, user)| peer == user.number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_refused_while_he_made_himself_ready_says_so() {
        let ready = |refusal: Option<&str>| {
            let (own, its) = UnixStream::pair().unwrap();
            if let Some(why) = refusal {
                say(&its, &Word::Refused { why: why.to_owned() }, None).unwrap();
            }
            drop(its);
            Estate { sockets: Vec::new(), left: Left::Guard(own), store: None }.begin().unwrap_err()
        };
        assert_eq!(ready(Some("this guard ends")), "refused: this guard ends");
        assert!(ready(None).starts_with("the guard there is gone: "), "{}", ready(None));
    }
}
