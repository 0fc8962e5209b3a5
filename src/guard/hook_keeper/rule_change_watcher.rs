//! The thread that receives notifications of changed rules and passes them to the keeper.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::Sender;
use rustix::event::{EventfdFlags, eventfd};

use super::keeper_message::HookKeeperMessage;
use crate::diagnostics::log_line;
use crate::hook::{RuleChangeSocket, WakeReason};

/// The thread that receives notifications. It ends when this value is dropped.
pub(super) struct RuleChangeWatcher {
    stop: Arc<std::os::fd::OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl RuleChangeWatcher {
    /// Starts to listen for changes.
    ///
    /// # Errors
    ///
    /// As [`RuleChangeSocket::open`], or the system has no free thread.
    pub(super) fn spawn(orders: Sender<HookKeeperMessage>) -> io::Result<Self> {
        let mut notices = RuleChangeSocket::open()?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let woken = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("hook-notices".to_owned()).spawn(move || {
            loop {
                match notices.wait(woken.as_fd()) {
                    Ok(WakeReason::Changed) => {
                        if orders.send(HookKeeperMessage::Changed).is_err() {
                            return;
                        }
                    }
                    Ok(WakeReason::Woken) => return,
                    Err(error) => {
                        log_line(format_args!(
                            "bannerwall: cannot watch iptables rules for changes: \
                                               {error}; the guard checks them at intervals"
                        ));
                        return;
                    }
                }
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for RuleChangeWatcher {
    fn drop(&mut self) {
        // The write fails only when the counter would overflow.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        // The thread does nothing that can panic.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
