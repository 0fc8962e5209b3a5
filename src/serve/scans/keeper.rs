//! Starts the process that starts scans, and another one where it has ended: at once, and ever more rarely where that
//! happens again and again.
//!
//! The threads that answer requests may start no program. This one may, as it was there before them; all that it hears of
//! them is that another process is wanted, and it starts nothing but what it has started before.

use std::io;
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use super::runner::{Runner, Setup};
use crate::diagnostics::tell;
use crate::terms::Backoff;

/// The thread, and the process that it keeps; both end with this value.
#[derive(Debug)]
pub(super) struct Keeper {
    runner: Arc<Runner>,
    /// None once it is to end.
    wanted: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the process and the thread, with what the calling thread may do.
    ///
    /// # Errors
    /// One of them cannot be started.
    pub(super) fn start(setup: Setup) -> io::Result<Self> {
        let runner = Arc::new(Runner::default());
        let child = runner.start(&setup)?;
        let (wanted, asked) = sync_channel(1);
        let kept = Kept { runner: Arc::clone(&runner), setup, child, asked, backoff: Backoff::default() };
        let thread = std::thread::Builder::new().name("scan-keeper".to_owned());
        let thread = match thread.spawn(move || kept.keep()) {
            Ok(thread) => Some(thread),
            Err(error) => {
                runner.let_go();
                return Err(error);
            }
        };
        Ok(Self { runner, wanted: Some(wanted), thread })
    }

    pub(super) fn runner(&self) -> &Runner {
        &self.runner
    }

    /// Has another process started, once nothing of the one before is open any more.
    pub(super) fn revive(&self) {
        // That it was asked already does as well.
        let _ = self.wanted.as_ref().map(|wanted| wanted.try_send(()));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.wanted = None;
        self.runner.let_go();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What the thread has.
struct Kept {
    runner: Arc<Runner>,
    setup: Setup,
    child: Child,
    asked: Receiver<()>,
    backoff: Backoff,
}

impl Kept {
    /// Until the page ends.
    fn keep(mut self) {
        while self.asked.recv().is_ok() {
            if !self.runner.is_gone() {
                // It was asked twice for one.
                continue;
            }
            let _ = self.child.wait();
            if !self.start_another() {
                break;
            }
        }
        self.runner.let_go();
        let _ = self.child.wait();
    }

    /// Starts another process, as soon as that may be; not where the page ends before.
    fn start_another(&mut self) -> bool {
        loop {
            if !self.pause() {
                return false;
            }
            self.backoff.tried(Instant::now());
            match self.runner.start(&self.setup) {
                Ok(child) => {
                    self.child = child;
                    tell(format_args!("bannerwall: another process starts scans for this page now"));
                    return true;
                }
                Err(error) => {
                    tell(format_args!(
                        "bannerwall: no other process that starts scans can be started: {error}"
                    ));
                }
            }
        }
    }

    /// Waits for as long as is to be waited; whether the page is there still.
    fn pause(&mut self) -> bool {
        while let Some(wait) = self.backoff.wait(Instant::now()) {
            if let Err(RecvTimeoutError::Disconnected) = self.asked.recv_timeout(wait) {
                return false;
            }
        }
        true
    }
}
