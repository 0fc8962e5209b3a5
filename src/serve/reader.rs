//! Questions to the inventory, off the thread that answers requests.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::alerts::Board;
use super::answer::Fault;
use super::pages::Recent;
use super::scans::Scans;
use crate::inventory::{Database, Interrupter, Place, StoreError};

/// Questions that are worked on at the same time.
pub(super) const AT_ONCE: usize = 4;

/// The longest that a question is worked on.
const PATIENCE: Duration = Duration::from_secs(20);

/// Opens a file for each question: one that was replaced meanwhile is read from its beginning. Connections to
/// a server are kept.
#[derive(Debug)]
pub(super) struct Reader {
    place: Place,
    seats: Arc<Semaphore>,
    kept: Arc<Mutex<Vec<Database>>>,
    /// What the overview has shown last.
    pub(super) overview: Recent,
    /// The alerts of the guard whose page this is.
    pub(super) board: Option<Arc<Board>>,
    /// What starts scans, where this page may.
    scans: Option<Arc<Scans>>,
}

/// Ends the question of a request that nobody waits for any more.
#[derive(Default)]
struct Running {
    interrupter: Arc<OnceLock<Interrupter>>,
    /// There is nothing to end; the connection may work on another question.
    is_over: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(interrupter) = self.interrupter.get().filter(|_| !self.is_over) {
            interrupter.interrupt();
        }
    }
}

impl Reader {
    pub(super) fn new(place: Place, board: Option<Arc<Board>>, scans: Option<Arc<Scans>>) -> Self {
        let seats = Arc::new(Semaphore::new(AT_ONCE));
        Self { place, seats, kept: Arc::default(), overview: Recent::default(), board, scans }
    }

    /// What starts scans.
    ///
    /// # Errors
    /// This page may not.
    pub(super) fn scans(&self) -> Result<Arc<Scans>, Fault> {
        let none = || {
            Fault::Missing("this page may start no scans; see --scan-allow of `bannerwall serve`".to_owned())
        };
        self.scans.clone().ok_or_else(none)
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// What the store says, or that it takes too long.
    pub(super) async fn ask<T, E>(
        &self,
        question: impl FnOnce(&Database) -> Result<T, E> + Send + 'static,
    ) -> Result<T, Fault>
    where
        T: Send + 'static,
        E: Send + 'static,
        Fault: From<E> + From<StoreError>,
    {
        let Ok(seat) = Arc::clone(&self.seats).acquire_owned().await else { return Err(Fault::TooLong) };
        let (place, kept) = (self.place.clone(), Arc::clone(&self.kept));
        let mut running = Running::default();
        let handle = Arc::clone(&running.interrupter);
        let asked = tokio::task::spawn_blocking(move || {
            let _seat = seat;
            let known = kept.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let inventory = match known.filter(Database::lasts) {
                Some(inventory) => inventory,
                None => Database::open(&place)?,
            };
            // It is empty: nobody else has it.
            let _ = handle.set(inventory.interrupter());
            let answer = question(&inventory).map_err(Fault::from);
            if answer.is_ok() && inventory.lasts() {
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(inventory);
            }
            answer
        });
        let answer = tokio::time::timeout(PATIENCE, asked).await;
        running.is_over = answer.is_ok();
        match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(Fault::TooLong),
        }
    }
}
