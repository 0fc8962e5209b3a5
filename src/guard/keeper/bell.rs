//! The thread that receives notifications of changed rules and passes them to the keeper.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::Sender;
use rustix::event::{EventfdFlags, eventfd};

use super::Order;
use crate::diagnostics::tell;
use crate::hook::{Notice, Notices};

/// The thread that receives notifications. It ends when this value is dropped.
pub(super) struct Bell {
    stop: Arc<std::os::fd::OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Bell {
    /// Starts to listen for changes.
    ///
    /// # Errors
    ///
    /// As [`Notices::open`], or the system has no free thread.
    pub(super) fn hang(orders: Sender<Order>) -> io::Result<Self> {
        let mut notices = Notices::open()?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let woken = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("hook-notices".to_owned()).spawn(move || {
            loop {
                match notices.wait(woken.as_fd()) {
                    Ok(Notice::Changed) => {
                        if orders.send(Order::Changed).is_err() {
                            return;
                        }
                    }
                    Ok(Notice::Woken) => return,
                    Err(error) => {
                        tell(format_args!("bannerwall: changes of the rules are noticed late: {error}"));
                        return;
                    }
                }
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        // The write fails only when the counter would overflow.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        // The thread does nothing that can panic.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
