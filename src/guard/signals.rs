//! Translation of signals into messages.

use std::io;
use std::thread::JoinHandle;

use crossbeam_channel::Sender;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

use super::GuardMessage;
use crate::privileges::give_up_all;

/// The thread that turns signals into messages. It ends when this value is dropped.
pub(super) struct SignalListener {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl SignalListener {
    /// Handles SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2. SIGUSR2 means the same as with Suricata; without
    /// a handler it would end the guard.
    pub(super) fn start(messages: Sender<GuardMessage>) -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])?;
        let handle = signals.handle();
        let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            give_up_all("signals");
            for signal in signals.forever() {
                let message = match signal {
                    SIGHUP => GuardMessage::Reload,
                    SIGUSR1 => GuardMessage::Reopen,
                    SIGUSR2 => GuardMessage::ReloadRules,
                    _ => GuardMessage::Stop,
                };
                // At the very end of a run the receiver is gone.
                let _ = messages.send(message);
            }
        })?;
        Ok(Self { handle, thread: Some(thread) })
    }
}

impl Drop for SignalListener {
    fn drop(&mut self) {
        self.handle.close();
        // The thread does nothing that can panic.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
