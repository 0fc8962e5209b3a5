//! Queries of the inventory, outside of the thread that serves requests.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::alerts::Board;
use super::answer::Fault;
use super::pages::Recent;
use super::scans::Scans;
use crate::database::{Interrupter, Place};
use crate::inventory::{Database, StoreError};

/// Limit of concurrent queries.
pub(super) const AT_ONCE: usize = 4;

/// Timeout of a query.
const PATIENCE: Duration = Duration::from_secs(20);

/// Reader of the inventory. It opens a file for each query, since the file may have been replaced.
/// Connections to a server are kept.
#[derive(Debug)]
pub(super) struct Reader {
    place: Place,
    seats: Arc<Semaphore>,
    kept: Arc<Mutex<Vec<Database>>>,
    /// Last facts of the overview.
    pub(super) overview: Recent,
    /// Alerts of the guard that serves this page.
    pub(super) board: Option<Arc<Board>>,
    /// Starter of scans, if the page may start any.
    scans: Option<Arc<Scans>>,
}

/// Interrupts the query of a request whose client is gone.
#[derive(Default)]
struct Running {
    interrupter: Arc<OnceLock<Interrupter>>,
    /// True once the query is over: the connection may then run another query.
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

    /// Returns the starter of scans.
    ///
    /// # Errors
    ///
    /// The page may not start scans.
    pub(super) fn scans(&self) -> Result<Arc<Scans>, Fault> {
        let none = || {
            Fault::Missing("this page cannot start scans: pass --scan-allow to `bannerwall serve`".to_owned())
        };
        self.scans.clone().ok_or_else(none)
    }

    /// Runs a query, and waits for its result.
    ///
    /// # Errors
    ///
    /// Error of the store, or a timeout.
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
            // The cell is new and still empty.
            let _ = handle.set(inventory.interrupter());
            let answer = question(&inventory).map_err(Fault::from);
            // A connection with a failed query may be broken, so it is not kept.
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
