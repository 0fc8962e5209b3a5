//! Questions to the inventory, off the thread that answers requests.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rusqlite::InterruptHandle;
use tokio::sync::Semaphore;

use super::answer::Fault;
use super::pages::Recent;
use crate::inventory::{Sqlite, StoreError};

/// Questions that are worked on at the same time.
pub(super) const AT_ONCE: usize = 4;

/// The longest that a question is worked on.
const PATIENCE: Duration = Duration::from_secs(20);

/// Opens the inventory for each question: a file that was replaced meanwhile is read from its beginning.
#[derive(Debug)]
pub(super) struct Reader {
    path: PathBuf,
    seats: Arc<Semaphore>,
    /// What the overview has shown last.
    pub(super) overview: Recent,
}

/// Ends the question of a request that nobody waits for any more.
#[derive(Default)]
struct Running(Arc<OnceLock<InterruptHandle>>);

impl Drop for Running {
    fn drop(&mut self) {
        // Of a question that is over there is nothing to end.
        if let Some(handle) = self.0.get() {
            handle.interrupt();
        }
    }
}

impl Reader {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, seats: Arc::new(Semaphore::new(AT_ONCE)), overview: Recent::default() }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// What the store says, or that it takes too long.
    pub(super) async fn ask<T, E>(
        &self,
        question: impl FnOnce(&Sqlite) -> Result<T, E> + Send + 'static,
    ) -> Result<T, Fault>
    where
        T: Send + 'static,
        E: Send + 'static,
        Fault: From<E> + From<StoreError>,
    {
        let Ok(seat) = Arc::clone(&self.seats).acquire_owned().await else { return Err(Fault::TooLong) };
        let path = self.path.clone();
        let running = Running::default();
        let handle = Arc::clone(&running.0);
        let asked = tokio::task::spawn_blocking(move || {
            let _seat = seat;
            let inventory = Sqlite::open(&path)?;
            // It is empty: nobody else has it.
            let _ = handle.set(inventory.interrupter());
            question(&inventory).map_err(Fault::from)
        });
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(Fault::TooLong),
        }
    }
}
