//! Signals as messages.

use std::io;
use std::thread::JoinHandle;

use crossbeam_channel::Sender;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

use super::Message;
use crate::privileges::give_up_all;

/// The thread that turns signals into messages; ends with this value.
pub(super) struct Listener {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Takes over SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2. The last one means with Suricata what it
    /// means here, and would end a guard that did not take it.
    pub(super) fn start(messages: Sender<Message>) -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])?;
        let handle = signals.handle();
        let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            give_up_all("signals");
            for signal in signals.forever() {
                let message = match signal {
                    SIGHUP => Message::Reload,
                    SIGUSR1 => Message::Reopen,
                    SIGUSR2 => Message::ReloadRules,
                    _ => Message::Stop,
                };
                // Nobody listens any more at the very end.
                let _ = messages.send(message);
            }
        })?;
        Ok(Self { handle, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.handle.close();
        // The thread does nothing that panics.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
