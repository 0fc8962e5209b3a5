//! The new guard's part of a takeover: it gets the sockets while its predecessor still judges packets, and
//! the state once it is ready.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::descriptor_names::{METRICS, QUEUE, RUN, STATE};
use super::descriptor_store::{DescriptorStore, StoredDescriptors};
use super::messages::{TakeoverMessage, receive, send, wait_up_to};
use super::state::{QueueState, SharedRunState, StateError, unsealed};
use super::takeover_settings::TakeoverSettings;
use crate::diagnostics::log_line;
use crate::guard::GuardError;
use crate::guard::config::GuardConfig;
use crate::guard::leftovers::is_not_listening;
use crate::guard::private_socket::is_trusted;
use crate::privileges::UnprivilegedUser;

/// Limit of the wait for an answer of the predecessor, which may be in the middle of a check of the hook.
const PEER: Duration = Duration::from_secs(15);

/// Limit of one wait for a message, before other work continues.
const GLANCE: Duration = Duration::from_millis(50);

/// The sockets and the state of another process, now or once it is told to stop.
#[derive(Debug)]
pub(in crate::guard) struct Predecessor {
    sockets: Vec<InheritedSocket>,
    left: StateSource,
    /// The store that held them, and the names in it of the states, which are valid only once.
    store: Option<(DescriptorStore, Vec<String>)>,
}

/// A socket of the other process.
#[derive(Debug)]
struct InheritedSocket {
    name: String,
    socket: OwnedFd,
    marks_connections: bool,
}

/// The source of the states.
#[derive(Debug)]
enum StateSource {
    /// A guard that still judges packets.
    Guard(UnixStream),
    /// A guard that sent an incomprehensible message; only its end is awaited.
    Unintelligible(UnixStream),
    /// None: the guard has exited, and these are its states.
    Nobody(VecDeque<HandoverState>),
}

/// A message from the predecessor.
#[derive(Debug)]
pub(in crate::guard) enum PredecessorMessage {
    /// None yet: it may still judge packets.
    Nothing,
    /// Part of its state.
    Legacy(HandoverState),
    /// The end: it no longer judges packets, and nothing follows.
    Last,
    /// It keeps its queues although it offered them, with the reason.
    Refused(String),
}

/// The state of a worker or of a run.
#[derive(Debug)]
pub(in crate::guard) enum HandoverState {
    /// State of this queue's worker.
    Queue(u16, Box<QueueState>),
    /// State of the rest of the run.
    Run(Box<SharedRunState>),
}

impl Predecessor {
    /// Returns the offer of the guard at `--takeover`, or the sockets that the service manager stored.
    ///
    /// # Errors
    ///
    /// The guard refuses or does not answer. Then it keeps running.
    pub(in crate::guard) fn find(
        config: &GuardConfig,
        store: Option<&DescriptorStore>,
        kept: StoredDescriptors,
    ) -> Result<Option<Self>, GuardError> {
        // A manager starts this process after the last one has exited, so its sockets come first.
        if let Some(found) = store.and_then(|store| Self::from_store(config, store, kept)) {
            return Ok(Some(found));
        }
        let Some(path) = &config.takeover else { return Ok(None) };
        Self::from_guard(config, path).map_err(|why| GuardError::Takeover { path: path.clone(), why })
    }

    fn from_guard(config: &GuardConfig, path: &Path) -> Result<Option<Self>, String> {
        let stream = match UnixStream::connect(path) {
            Ok(stream) => stream,
            // This is the first guard, or the last one died and left its socket.
            Err(error) if is_not_listening(&error) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let silent = |error: io::Error| format!("the guard there does not reply: {error}");
        wait_up_to(&stream, PEER).map_err(silent)?;
        // The old guard may run as the user that this one is going to become.
        if !is_trusted(&stream).map_err(silent)? && !is_of(&stream, config) {
            return Err("the process that listens there belongs to another user".to_owned());
        }
        send(&stream, &TakeoverMessage::Ask(TakeoverSettings::of(config)), None).map_err(silent)?;
        let mut sockets = Vec::new();
        loop {
            match receive(&stream).map_err(silent)? {
                (TakeoverMessage::Socket { name, marks_connections }, Some(socket)) => {
                    sockets.push(InheritedSocket { name, socket, marks_connections });
                }
                (TakeoverMessage::Offered, _) => break,
                (TakeoverMessage::Refused { why }, _) => return Err(refused(&why)),
                _ => return Err("the guard there sends messages of another version".to_owned()),
            }
        }
        let mut missing = config.queues.numbers();
        let has = |number: u16| sockets.iter().any(|it| it.queue() == Some(number));
        // All or nothing: queues that stay with the old guard would end with it.
        match missing.find(|number| !has(*number)) {
            Some(queue) => Err(format!("the guard there gives no socket of queue {queue}")),
            None => Ok(Some(Self { sockets, left: StateSource::Guard(stream), store: None })),
        }
    }

    fn from_store(config: &GuardConfig, store: &DescriptorStore, kept: StoredDescriptors) -> Option<Self> {
        let (mut sockets, mut left, mut spent) = (Vec::new(), VecDeque::new(), Vec::new());
        let mut is_foreign = false;
        for (name, descriptor) in kept.0 {
            // A state is used once, whatever becomes of this run: replayed, it would undo what happened
            // since.
            if name.starts_with(STATE) {
                left.extend(legacy(&name, Some(descriptor)));
                spent.push(name);
                continue;
            }
            let kept = InheritedSocket { name, socket: descriptor, marks_connections: false };
            if kept.queue().is_some_and(|number| config.queues.numbers().contains(&number))
                || kept.name == METRICS
            {
                sockets.push(kept);
            } else {
                // While any process holds the socket, packets would wait in a queue that no process reads.
                store.remove(&kept.name);
                is_foreign = true;
            }
        }
        if is_foreign {
            store.wait();
        }
        for legacy in &left {
            if let HandoverState::Queue(number, state) = legacy {
                let own = sockets.iter_mut().filter(|it| it.queue() == Some(*number));
                own.for_each(|it| it.marks_connections = state.known.marks_connections);
            }
        }
        let found = Self { sockets, left: StateSource::Nobody(left), store: Some((store.clone(), spent)) };
        if found.sockets.iter().any(|it| it.queue().is_some()) {
            return Some(found);
        }
        // Without their queues, the states of flows are stale.
        found.remove_used_states();
        if !found.sockets.is_empty() {
            // No process can listen at the address before the manager has closed the socket.
            store.remove(METRICS);
            store.wait();
        }
        None
    }

    /// Removes the states from the manager's store, since they are valid only once.
    fn remove_used_states(&self) {
        if let Some((store, spent)) = &self.store {
            spent.iter().for_each(|name| store.remove(name));
        }
    }

    /// Returns the socket of a queue, and whether verdicts can mark connections.
    pub(in crate::guard) fn queue(&mut self, number: u16) -> Option<(OwnedFd, bool)> {
        let at = self.sockets.iter().position(|it| it.queue() == Some(number))?;
        let InheritedSocket { socket, marks_connections, .. } = self.sockets.swap_remove(at);
        Some((socket, marks_connections))
    }

    /// Returns the metrics listener if it is at this address; port 0 stands for any port. A listener at
    /// another address is closed.
    pub(in crate::guard) fn metrics(&mut self, address: Option<SocketAddr>) -> Option<TcpListener> {
        let at = self.sockets.iter().position(|it| it.name == METRICS)?;
        let listener = TcpListener::from(self.sockets.swap_remove(at).socket);
        // A descriptor of another kind has no such address.
        let is_at = |bound: SocketAddr, wanted: SocketAddr| {
            bound.ip() == wanted.ip() && (wanted.port() == 0 || bound.port() == wanted.port())
        };
        let bound = listener.local_addr().ok().zip(address);
        let fits = bound.is_some_and(|(bound, wanted)| is_at(bound, wanted));
        if let (false, Some((store, _))) = (fits, &self.store) {
            store.remove(METRICS);
            // For example, a listener on every address of that port must wait until the manager has closed
            // this one.
            store.wait();
        }
        fits.then_some(listener)
    }

    /// True if a guard still judges packets until it is told to stop.
    pub(in crate::guard) const fn is_of_a_guard(&self) -> bool {
        matches!(self.left, StateSource::Guard(_))
    }

    /// Tells the predecessor to stop.
    ///
    /// # Errors
    ///
    /// It has refused in the meantime and keeps running, or it is gone and the fate of its packets is
    /// unknown.
    pub(in crate::guard) fn request_stop(&self) -> Result<(), String> {
        match &self.left {
            StateSource::Guard(stream) => {
                // A refusal may wait in the stream already, and says more than the failed send.
                send(stream, &TakeoverMessage::Go, None).map_err(|error| match receive(stream) {
                    Ok((TakeoverMessage::Refused { why }, _)) => refused(&why),
                    _ => format!("the guard there has exited: {error}"),
                })
            }
            StateSource::Unintelligible(_) => Ok(()),
            StateSource::Nobody(_) => {
                self.remove_used_states();
                Ok(())
            }
        }
    }

    /// Returns the next part of the predecessor's state. Unusable parts are reported and left out.
    ///
    /// While the other process lives it may read its queues. Only its last message, or its end, which closes
    /// the stream, shows that it no longer does.
    pub(in crate::guard) fn next(&mut self) -> PredecessorMessage {
        let (stream, is_understood) = match &mut self.left {
            StateSource::Guard(stream) => (stream, true),
            StateSource::Unintelligible(stream) => (stream, false),
            StateSource::Nobody(left) => {
                return left.pop_front().map_or(PredecessorMessage::Last, PredecessorMessage::Legacy);
            }
        };
        if !has_input(stream) {
            return PredecessorMessage::Nothing;
        }
        if !is_understood {
            // Only the end of the stream counts.
            // What it says is discarded; it may still serve its queues until it closes the stream.
            return match stream.read(&mut [0; 4096]) {
                Ok(octets) if octets > 0 => PredecessorMessage::Nothing,
                Err(error) if error.kind() == io::ErrorKind::Interrupted || is_slow(&error) => {
                    PredecessorMessage::Nothing
                }
                Ok(_) | Err(_) => PredecessorMessage::Last,
            };
        }
        match receive(stream) {
            Ok((TakeoverMessage::State { name }, descriptor)) => {
                legacy(&name, descriptor).map_or(PredecessorMessage::Nothing, PredecessorMessage::Legacy)
            }
            Ok((TakeoverMessage::Done, _)) => PredecessorMessage::Last,
            Ok((TakeoverMessage::Refused { why }, _)) => PredecessorMessage::Refused(refused(&why)),
            // A later version may send more kinds of messages.
            Ok(_) => PredecessorMessage::Nothing,
            Err(error) if is_end(&error) => {
                log_line(format_args!(
                    "bannerwall: the previous guard did not stop cleanly: {error}; flows that it did not \
                     hand over are picked up mid-stream"
                ));
                PredecessorMessage::Last
            }
            Err(error) => {
                log_line(format_args!(
                    "bannerwall: cannot read a message of the previous guard: {error}; this guard waits \
                     for its exit, and flows that it did not hand over are picked up mid-stream"
                ));
                if let StateSource::Guard(stream) =
                    std::mem::replace(&mut self.left, StateSource::Nobody(VecDeque::new()))
                {
                    self.left = StateSource::Unintelligible(stream);
                }
                PredecessorMessage::Nothing
            }
        }
    }
}

/// Waits a moment for input. Returns true if there is some, including the end of the stream.
fn has_input(stream: &UnixStream) -> bool {
    let limit = Timespec { tv_sec: 0, tv_nsec: GLANCE.subsec_nanos().into() };
    poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
}

/// True if the other process has closed the stream, as its end does.
fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

fn is_slow(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl InheritedSocket {
    /// Returns the number of the queue that the socket belongs to.
    fn queue(&self) -> Option<u16> {
        self.name.strip_prefix(QUEUE)?.parse().ok()
    }
}

/// Returns the contents of a state. An unusable state is reported.
fn legacy(name: &str, descriptor: Option<OwnedFd>) -> Option<HandoverState> {
    let read = || -> Result<Option<HandoverState>, StateError> {
        let octets = unsealed(descriptor.ok_or(StateError::Foreign)?)?;
        if name == RUN {
            return Ok(Some(HandoverState::Run(Box::new(SharedRunState::read(&octets)?))));
        }
        let number = name.strip_prefix(STATE).and_then(|name| name.strip_prefix(QUEUE)?.parse().ok());
        // A later version may send states of other kinds.
        let Some(number) = number else { return Ok(None) };
        Ok(Some(HandoverState::Queue(number, Box::new(QueueState::read(&octets)?))))
    };
    read().unwrap_or_else(|error| {
        log_line(format_args!(
            "bannerwall: cannot use {name} of the previous guard: {error}; its flows are picked up \
             mid-stream, and its counters start at 0"
        ));
        None
    })
}

/// Returns the message of a refusal.
fn refused(why: &str) -> String {
    format!("refused: {why}")
}

/// True if a peer runs as the user that this guard will become.
fn is_of(stream: &UnixStream, config: &GuardConfig) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(stream.as_fd());
    let peer = peer.map(|credentials| credentials.uid.as_raw());
    let user = config.user.clone().or_else(UnprivilegedUser::in_place_of_root);
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
                send(&its, &TakeoverMessage::Refused { why: why.to_owned() }, None).unwrap();
            }
            drop(its);
            Predecessor { sockets: Vec::new(), left: StateSource::Guard(own), store: None }
                .request_stop()
                .unwrap_err()
        };
        assert_eq!(ready(Some("this guard ends")), "refused: this guard ends");
        assert!(ready(None).starts_with("the guard there has exited: "), "{}", ready(None));
    }
}
