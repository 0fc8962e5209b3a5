//! The old guard's part of a takeover: it receives successors and hands its sockets and state over.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::Sender;

use super::messages::{TakeoverMessage, receive, send, wait_up_to};
use super::takeover_settings::TakeoverSettings;
use crate::diagnostics::log_line;
use crate::guard::GuardMessage;
use crate::guard::private_socket::{PrivateSocket, UnboundSocket, is_trusted};
use crate::metrics::{GuardMetrics, TakeoverResult};

/// Limit of the wait for a message of the peer.
const PEER: Duration = Duration::from_secs(5);
/// Limit of the time between the last socket and the peer's readiness. The peer opens its inventory and event
/// files in between.
const START: Duration = Duration::from_secs(60);

/// A socket to hand over.
#[derive(Debug)]
pub(in crate::guard) struct HandoverSocket {
    pub(in crate::guard) name: String,
    pub(in crate::guard) socket: OwnedFd,
    pub(in crate::guard) marks_connections: bool,
}

/// The listener for successors, and its thread. Both end when this value is dropped.
#[derive(Debug)]
pub(in crate::guard) struct SuccessorListener {
    socket: PrivateSocket,
    /// Set when this guard ends without a successor.
    is_over: Arc<AtomicBool>,
}

/// A guard that is ready to take over. It is refused when this value is dropped before the handover starts.
#[derive(Debug)]
pub(in crate::guard) struct ConnectedSuccessor {
    stream: UnixStream,
    is_served: AtomicBool,
}

/// The state that the thread owns.
struct HandoverServer {
    terms: TakeoverSettings,
    gifts: Vec<HandoverSocket>,
    messages: Sender<GuardMessage>,
    metrics: GuardMetrics,
    has_manager: bool,
    is_over: Arc<AtomicBool>,
}

/// The reason why a guard did not take over.
#[derive(Debug, thiserror::Error)]
enum TakeoverRefusal {
    #[error("only root and the guard's own user may take over")]
    Stranger,
    #[error("{0}")]
    Unfit(String),
    #[error("it sent no request")]
    Unasked,
    #[error(
        "a service manager runs this guard, and would stop the service with it: restart the service \
         instead (with --fd-store, connections continue)"
    )]
    Managed,
    #[error("this guard ends")]
    Over,
    #[error("it exited before its turn: {0}")]
    Gone(#[from] io::Error),
}

impl SuccessorListener {
    /// Listens at `path`, and offers `gifts` to a permitted peer with the same settings.
    ///
    /// # Errors
    ///
    /// The system has no free descriptor or thread.
    pub(in crate::guard) fn listen(
        (path, socket): (&Path, UnboundSocket),
        terms: TakeoverSettings,
        gifts: Vec<HandoverSocket>,
        messages: Sender<GuardMessage>,
        metrics: GuardMetrics,
        has_manager: bool,
    ) -> io::Result<Self> {
        let mut socket = socket.bind(path)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let reception =
            HandoverServer { terms, gifts, messages, metrics, has_manager, is_over: Arc::clone(&is_over) };
        socket.serve("takeover", move |stream| match reception.receive(&stream) {
            // From then on no other peer gets anything. The main thread is gone only after a forced stop.
            Ok(()) => {
                let _ = reception.messages.send(GuardMessage::HandOver(ConnectedSuccessor::of(stream)));
                ControlFlow::Break(())
            }
            Err(refusal) => {
                reception.refuse(&stream, &refusal);
                ControlFlow::Continue(())
            }
        })?;
        Ok(Self { socket, is_over })
    }

    /// Stops accepting successors, including one that is already waiting: the queues are released.
    pub(in crate::guard) fn close(&self) {
        self.is_over.store(true, Ordering::Release);
        self.socket.close();
    }
}

impl Drop for SuccessorListener {
    fn drop(&mut self) {
        self.close();
    }
}

impl HandoverServer {
    /// Offers the sockets, and waits until the peer is ready.
    fn receive(&self, stream: &UnixStream) -> Result<(), TakeoverRefusal> {
        wait_up_to(stream, PEER)?;
        if !is_trusted(stream)? {
            return Err(TakeoverRefusal::Stranger);
        }
        let (TakeoverMessage::Ask(asked), _) = receive(stream)? else { return Err(TakeoverRefusal::Unasked) };
        // The manager follows the process that it started: its exit would count as the end of the service.
        if self.has_manager {
            return Err(TakeoverRefusal::Managed);
        }
        if let Some(why) = self.terms.differs_from(&asked) {
            return Err(TakeoverRefusal::Unfit(why));
        }
        for HandoverSocket { name, socket, marks_connections } in &self.gifts {
            let word = TakeoverMessage::Socket { name: name.clone(), marks_connections: *marks_connections };
            send(stream, &word, Some(socket.as_fd()))?;
        }
        send(stream, &TakeoverMessage::Offered, None)?;
        wait_up_to(stream, START)?;
        match receive(stream)? {
            // This guard may have been told to end while the peer prepared itself; then its queues are being
            // released.
            (TakeoverMessage::Go, _) if self.is_over.load(Ordering::Acquire) => Err(TakeoverRefusal::Over),
            (TakeoverMessage::Go, _) => Ok(wait_up_to(stream, PEER)?),
            _ => Err(TakeoverRefusal::Unasked),
        }
    }

    fn refuse(&self, stream: &UnixStream, refusal: &TakeoverRefusal) {
        self.metrics.takeovers(TakeoverResult::Failure).inc();
        log_line(format_args!("bannerwall: takeover refused: {refusal}; this guard keeps running"));
        // Who is gone needs no answer.
        let _ = send(stream, &TakeoverMessage::Refused { why: refusal.to_string() }, None);
    }
}

impl ConnectedSuccessor {
    const fn of(stream: UnixStream) -> Self {
        Self { stream, is_served: AtomicBool::new(false) }
    }

    /// Records that this guard's loops are told to stop now. From then on the successor reads the queues and
    /// is no longer refused.
    pub(in crate::guard) fn mark_served(&self) {
        self.is_served.store(true, Ordering::Relaxed);
    }

    /// Keeps the stream open until this process ends. The end of the stream then tells the successor that
    /// this process no longer reads the queues.
    pub(in crate::guard) fn hold_until_exit(&self) {
        // If the duplication fails, the stream ends a moment too early, with this value.
        self.stream.try_clone().map(std::mem::forget).ok();
    }

    /// Sends a state.
    ///
    /// # Errors
    ///
    /// The successor has disconnected.
    pub(in crate::guard) fn send_state(&self, name: String, state: &OwnedFd) -> io::Result<()> {
        send(&self.stream, &TakeoverMessage::State { name }, Some(state.as_fd()))
    }

    /// Sends the end of the states.
    ///
    /// # Errors
    ///
    /// The successor has disconnected.
    pub(in crate::guard) fn finish(&self) -> io::Result<()> {
        send(&self.stream, &TakeoverMessage::Done, None)
    }
}

impl Drop for ConnectedSuccessor {
    fn drop(&mut self) {
        if !*self.is_served.get_mut() {
            // A peer that has disconnected needs no answer.
            let _ = send(
                &self.stream,
                &TakeoverMessage::Refused { why: TakeoverRefusal::Over.to_string() },
                None,
            );
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
            let successor = ConnectedSuccessor::of(own);
            if served {
                successor.mark_served();
                successor.finish().unwrap();
            }
            drop(successor);
            let (word, _) = receive(&its).unwrap();
            assert_eq!(matches!(word, TakeoverMessage::Refused { .. }), !served, "{word:?}");
            assert_eq!(matches!(word, TakeoverMessage::Done), served);
            assert_eq!(receive(&its).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
