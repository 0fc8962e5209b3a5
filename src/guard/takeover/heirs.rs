//! The old guard's side: who wants to go on in its place is heard here, and given what there is.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::Sender;

use super::Terms;
use super::wire::{Word, hear, say, wait_up_to};
use crate::diagnostics::tell;
use crate::guard::Message;
use crate::guard::private_socket::{PrivateSocket, UnboundSocket, is_trusted};
use crate::metrics::{GuardMetrics, TakeoverResult};

/// Time for which a peer may take for a word.
const PEER: Duration = Duration::from_secs(5);
/// How long it may take from the last socket on until it is ready: it opens its inventory and event files
/// meanwhile.
const START: Duration = Duration::from_secs(60);

/// A socket to hand over.
#[derive(Debug)]
pub(in crate::guard) struct Gift {
    pub(in crate::guard) name: String,
    pub(in crate::guard) socket: OwnedFd,
    pub(in crate::guard) marks_connections: bool,
}

/// The listener for guards that want to take over, and its thread; both end with this value.
#[derive(Debug)]
pub(in crate::guard) struct Heirs {
    socket: PrivateSocket,
    /// Set once this guard ends without one that goes on.
    is_over: Arc<AtomicBool>,
}

/// A guard that is ready to go on in this one's place; it is refused where that is never begun.
#[derive(Debug)]
pub(in crate::guard) struct Heir {
    stream: UnixStream,
    is_served: AtomicBool,
}

/// What the thread owns.
struct Reception {
    terms: Terms,
    gifts: Vec<Gift>,
    messages: Sender<Message>,
    metrics: GuardMetrics,
    has_manager: bool,
    is_over: Arc<AtomicBool>,
}

/// Why a guard did not take over.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("only root and the guard's own user are heard")]
    Stranger,
    #[error("{0}")]
    Unfit(String),
    #[error("it did not ask for anything")]
    Unasked,
    #[error(
        "a service manager runs this guard, and would take its end for the service's: restart it there, with --fd-store \
         without a cut"
    )]
    Managed,
    #[error("this guard ends")]
    Over,
    #[error("it went away before it was its turn: {0}")]
    Gone(#[from] io::Error),
}

impl Heirs {
    /// Listens at `path`; whoever may, and fits, is offered `gifts`.
    ///
    /// # Errors
    /// Where the socket or the thread can't be had.
    pub(in crate::guard) fn listen(
        (path, socket): (&Path, UnboundSocket),
        terms: Terms,
        gifts: Vec<Gift>,
        messages: Sender<Message>,
        metrics: GuardMetrics,
        has_manager: bool,
    ) -> io::Result<Self> {
        let mut socket = socket.bind(path)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let reception =
            Reception { terms, gifts, messages, metrics, has_manager, is_over: Arc::clone(&is_over) };
        socket.serve("takeover", move |stream| match reception.receive(&stream) {
            // Nobody else gets anything from then on; the main thread is gone only when it was forced to end.
            Ok(()) => {
                let _ = reception.messages.send(Message::HandOver(Heir::of(stream)));
                ControlFlow::Break(())
            }
            Err(refusal) => {
                reception.refuse(&stream, &refusal);
                ControlFlow::Continue(())
            }
        })?;
        Ok(Self { socket, is_over })
    }

    /// Lets nobody go on in this guard's place any more, who is ready by now neither: its queues are given
    /// back.
    pub(in crate::guard) fn close(&self) {
        self.is_over.store(true, Ordering::Release);
        self.socket.close();
    }
}

impl Drop for Heirs {
    fn drop(&mut self) {
        self.close();
    }
}

impl Reception {
    /// Offers everything, and waits until the other one is ready.
    fn receive(&self, stream: &UnixStream) -> Result<(), Refusal> {
        wait_up_to(stream, PEER)?;
        if !is_trusted(stream)? {
            return Err(Refusal::Stranger);
        }
        let (Word::Ask(asked), _) = hear(stream)? else { return Err(Refusal::Unasked) };
        if self.has_manager {
            return Err(Refusal::Managed);
        }
        if let Some(why) = self.terms.differs_from(&asked) {
            return Err(Refusal::Unfit(why));
        }
        for Gift { name, socket, marks_connections } in &self.gifts {
            let word = Word::Socket { name: name.clone(), marks_connections: *marks_connections };
            say(stream, &word, Some(socket.as_fd()))?;
        }
        say(stream, &Word::Offered, None)?;
        wait_up_to(stream, START)?;
        match hear(stream)? {
            (Word::Go, _) if self.is_over.load(Ordering::Acquire) => Err(Refusal::Over),
            (Word::Go, _) => Ok(wait_up_to(stream, PEER)?),
            _ => Err(Refusal::Unasked),
        }
    }

    fn refuse(&self, stream: &UnixStream, refusal: &Refusal) {
        self.metrics.takeovers(TakeoverResult::Failure).inc();
        tell(format_args!("bannerwall: no takeover: {refusal}; this guard goes on"));
        // Who is gone needs no answer.
        let _ = say(stream, &Word::Refused { why: refusal.to_string() }, None);
    }
}

impl Heir {
    const fn of(stream: UnixStream) -> Self {
        Self { stream, is_served: AtomicBool::new(false) }
    }

    /// Notes that this guard's loops are told to stop now: from then on the other one reads the queues, and
    /// is not refused any more.
    pub(in crate::guard) fn note_served(&self) {
        self.is_served.store(true, Ordering::Relaxed);
    }

    /// Leaves the stream open until this process has ended, which is then what tells the other one that its
    /// queues are not read here any more.
    pub(in crate::guard) fn outlive(&self) {
        // Without a descriptor it is heard a moment too early, when this value goes.
        self.stream.try_clone().map(std::mem::forget).ok();
    }

    /// Gives what somebody knew.
    ///
    /// # Errors
    /// The other one is gone.
    pub(in crate::guard) fn give(&self, name: String, state: &OwnedFd) -> io::Result<()> {
        say(&self.stream, &Word::State { name }, Some(state.as_fd()))
    }

    /// Says that this was all.
    ///
    /// # Errors
    /// The other one is gone.
    pub(in crate::guard) fn finish(&self) -> io::Result<()> {
        say(&self.stream, &Word::Done, None)
    }
}

impl Drop for Heir {
    fn drop(&mut self) {
        if !*self.is_served.get_mut() {
            // Who is gone needs no answer.
            let _ = say(&self.stream, &Word::Refused { why: Refusal::Over.to_string() }, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_never_let_on_is_told_and_who_is_served_is_not_refused() {
        for served in [false, true] {
            let (own, its) = UnixStream::pair().unwrap();
            let heir = Heir::of(own);
            if served {
                heir.note_served();
                heir.finish().unwrap();
            }
            drop(heir);
            let (word, _) = hear(&its).unwrap();
            assert_eq!(matches!(word, Word::Refused { .. }), !served, "{word:?}");
            assert_eq!(matches!(word, Word::Done), served);
            assert_eq!(hear(&its).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
