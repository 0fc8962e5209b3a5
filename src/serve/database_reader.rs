//! Queries of the inventory, outside of the thread that serves requests.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::live_alerts::RecentAlerts;
use super::overview_facts::CachedFacts;
use super::response::RequestError;
use super::rule_catalog::RuleCatalog;
use super::scans::PageScans;
use crate::database::{DatabaseLocation, QueryInterrupter};
use crate::inventory::{InventoryDatabase, StoreError};

/// Limit of concurrent queries.
pub(super) const AT_ONCE: usize = 4;

/// Timeout of a query.
const PATIENCE: Duration = Duration::from_secs(20);

/// Reader of the inventory. It opens a file for each query, since the file may have been replaced.
/// Connections to a server are kept.
#[derive(Debug)]
pub(super) struct DatabaseReader {
    place: DatabaseLocation,
    seats: Arc<Semaphore>,
    kept: Arc<Mutex<Vec<InventoryDatabase>>>,
    /// Last facts of the overview.
    pub(super) overview: CachedFacts,
    /// Rules that the page explains.
    pub(super) rules: Arc<RuleCatalog>,
    /// Alerts of the guard that serves this page.
    pub(super) board: Option<Arc<RecentAlerts>>,
    /// Starter of scans, if the page may start any.
    scans: Option<Arc<PageScans>>,
}

/// Interrupts the query of a request whose client is gone.
#[derive(Default)]
struct RunningQuery {
    interrupter: Arc<OnceLock<QueryInterrupter>>,
    /// True once the query is over: the connection may then run another query.
    is_over: bool,
}

impl Drop for RunningQuery {
    fn drop(&mut self) {
        // The browser went away or the time is over. A blocking thread cannot be cancelled, but its
        // query can.
        if let Some(interrupter) = self.interrupter.get().filter(|_| !self.is_over) {
            interrupter.interrupt();
        }
    }
}

impl DatabaseReader {
    pub(super) fn new(
        place: DatabaseLocation,
        rules: Arc<RuleCatalog>,
        board: Option<Arc<RecentAlerts>>,
        scans: Option<Arc<PageScans>>,
    ) -> Self {
        let seats = Arc::new(Semaphore::new(AT_ONCE));
        Self { place, seats, kept: Arc::default(), overview: CachedFacts::default(), rules, board, scans }
    }

    /// Returns the starter of scans.
    ///
    /// # Errors
    ///
    /// The page may not start scans.
    pub(super) fn scans(&self) -> Result<Arc<PageScans>, RequestError> {
        let none = || {
            RequestError::Missing(
                "this page cannot start scans: pass --scan-allow to `bannerwall serve`".to_owned(),
            )
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
        question: impl FnOnce(&InventoryDatabase) -> Result<T, E> + Send + 'static,
    ) -> Result<T, RequestError>
    where
        T: Send + 'static,
        E: Send + 'static,
        RequestError: From<E> + From<StoreError>,
    {
        // At most a few queries run at once, so the blocking threads and the database's connections are
        // bounded.
        let Ok(seat) = Arc::clone(&self.seats).acquire_owned().await else {
            return Err(RequestError::TooLong);
        };
        let (place, kept) = (self.place.clone(), Arc::clone(&self.kept));
        let mut running = RunningQuery::default();
        let handle = Arc::clone(&running.interrupter);
        let asked = tokio::task::spawn_blocking(move || {
            // The seat moves into the thread: after a timeout it stays taken until the query has really
            // ended.
            let _seat = seat;
            let known = kept.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let inventory = match known.filter(InventoryDatabase::lasts) {
                Some(inventory) => inventory,
                None => InventoryDatabase::open(&place)?,
            };
            // The cell is new and still empty.
            let _ = handle.set(inventory.interrupter());
            let answer = question(&inventory).map_err(RequestError::from);
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
            Ok(Err(_)) | Err(_) => Err(RequestError::TooLong),
        }
    }
}
