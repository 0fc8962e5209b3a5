//! Scans from the page, once or on a schedule: what may be submitted to the queue in the inventory's
//! database, and the state of that. [`worker`] is the process that takes them.

mod order;
pub(crate) mod worker;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

pub use self::order::ScanPermissions;
pub(super) use self::order::{PageScanMode, PageScanOrder};
use super::response::RequestError;
use crate::database::DatabaseLocation;
use crate::diagnostics::log_line;
use crate::fleet::{CronSchedule, FleetDatabase, FleetError, ScanState, ScanSubmission, ScheduledScan};
use crate::helper_process::HelperProcess;

/// Limit of scans that have not ended, and of schedules.
const LIMIT: usize = 100;

/// Function that makes a submission of a scan's arguments, or returns why they are refused.
type PrepareScan = dyn Fn(&[String]) -> Result<ScanSubmission, String> + Send + Sync;

/// Makes a submission of the arguments of a scan. The rules are read before the page is confined.
#[derive(Clone)]
pub struct ScanPreparer(pub Arc<PrepareScan>);

impl fmt::Debug for ScanPreparer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScanPreparer")
    }
}

/// Permitted scans of the page.
#[derive(Debug, Clone)]
pub struct ScanConfig {
    /// Networks and the rate limit.
    pub bounds: ScanPermissions,
    /// Makes submissions.
    pub prepare: ScanPreparer,
}

/// Submits scans, and shows their state.
#[derive(Debug)]
pub(super) struct PageScans {
    place: DatabaseLocation,
    /// The page's scans in the queue.
    pool: String,
    config: ScanConfig,
    worker: HelperProcess,
}

/// Data of the page.
#[derive(Debug, Serialize)]
pub(super) struct ScanBoard {
    #[serde(flatten)]
    pub(super) bounds: ScanPermissions,
    /// Reason why no scan can start now.
    pub(super) fault: Option<&'static str>,
    pub(super) scans: Vec<ScanState>,
    pub(super) schedules: Vec<ScheduledScan>,
}

impl PageScans {
    /// Creates the queue if it is missing, and starts the worker. Call this before the confinement.
    ///
    /// # Errors
    ///
    /// The database cannot be written.
    pub(super) fn start(
        config: &ScanConfig,
        place: &DatabaseLocation,
        pool: String,
    ) -> Result<Self, ScanStartError> {
        drop(FleetDatabase::make(place)?);
        let worker = worker::start(place, &config.bounds, &pool)?;
        Ok(Self { place: place.clone(), pool, config: config.clone(), worker })
    }

    /// Returns the permitted scans.
    pub(super) fn bounds(&self) -> &ScanPermissions {
        &self.config.bounds
    }

    /// Submits a scan, and returns its number.
    ///
    /// # Errors
    ///
    /// The scan is not permitted, too many scans wait, or the queue cannot be written.
    pub(super) fn submit(&self, order: &PageScanOrder, who: &str) -> Result<i64, RequestError> {
        let submission = self.prepare(order, who)?;
        let queue = self.open()?;
        if queue.count_open(&self.pool)? >= LIMIT as i64 {
            return Err(RequestError::Busy(format!("{LIMIT} scans wait already")));
        }
        let scan = queue.submit(&submission)?;
        log_line(format_args!("bannerwall: {who} submitted scan #{scan}: {}", submission.about));
        Ok(scan)
    }

    /// Adds a schedule, and returns its number.
    ///
    /// # Errors
    ///
    /// The scan is not permitted, or the queue cannot be written.
    pub(super) fn schedule(
        &self,
        order: &PageScanOrder,
        cron: &CronSchedule,
        who: &str,
    ) -> Result<i64, RequestError> {
        let submission = self.prepare(order, who)?;
        let queue = self.open()?;
        if queue.schedules(Some(&self.pool))?.len() >= LIMIT {
            return Err(RequestError::bad(format_args!(
                "the limit of {LIMIT} schedules is reached: delete one first"
            )));
        }
        let id = queue.schedule(cron, &submission)?;
        log_line(format_args!(
            "bannerwall: {who} added schedule #{id}, {}: {}",
            cron.text(),
            submission.about
        ));
        Ok(id)
    }

    /// Cancels a scan of this page.
    ///
    /// # Errors
    ///
    /// There is no such scan, or it has ended.
    pub(super) fn cancel(&self, scan: i64, who: &str) -> Result<(), RequestError> {
        let queue = self.open()?;
        if !queue.is_of_pool(scan, &self.pool)? {
            return Err(FleetError::NoScan(scan).into());
        }
        queue.cancel(scan)?;
        log_line(format_args!("bannerwall: {who} cancelled scan #{scan}"));
        Ok(())
    }

    /// Deletes a schedule of this page.
    ///
    /// # Errors
    ///
    /// There is no such schedule.
    pub(super) fn unschedule(&self, id: i64, who: &str) -> Result<(), RequestError> {
        self.open()?.unschedule(id, Some(&self.pool))?;
        log_line(format_args!("bannerwall: {who} deleted schedule #{id}"));
        Ok(())
    }

    /// Returns the data of the page.
    ///
    /// # Errors
    ///
    /// The queue cannot be read.
    pub(super) fn board(&self) -> Result<ScanBoard, RequestError> {
        let queue = self.open()?;
        let mut scans = queue.scans(Some(&self.pool))?;
        for scan in &mut scans {
            scan.state = word(scan).to_owned();
        }
        Ok(ScanBoard {
            bounds: self.config.bounds.clone(),
            fault: self.worker.is_gone().then_some(worker::GONE),
            scans,
            schedules: queue.schedules(Some(&self.pool))?,
        })
    }

    /// Makes the submission of a permitted scan. Refuses each one if the worker is gone.
    fn prepare(&self, order: &PageScanOrder, who: &str) -> Result<ScanSubmission, RequestError> {
        let words = order.words(&self.config.bounds).map_err(RequestError::Bad)?;
        if self.worker.is_gone() {
            return Err(RequestError::Gone(worker::GONE));
        }
        let submission = (self.config.prepare.0)(&words).map_err(RequestError::Bad)?;
        Ok(ScanSubmission { pool: Some(self.pool.clone()), who: Some(who.to_owned()), ..submission })
    }

    fn open(&self) -> Result<FleetDatabase, FleetError> {
        FleetDatabase::open(&self.place)
    }
}

/// Error of the start.
#[derive(Debug, thiserror::Error)]
pub enum ScanStartError {
    /// The queue cannot be used.
    #[error(transparent)]
    Queue(#[from] FleetError),
    /// The worker cannot be started.
    #[error("cannot start the helper process: {0}")]
    Worker(#[from] std::io::Error),
}

/// Returns the state of a scan in a word.
fn word(scan: &ScanState) -> &'static str {
    match (scan.state.as_str(), scan.leased, scan.parked) {
        ("open", 0, _) => "waiting",
        ("open", ..) => "running",
        ("done", _, 0) => "done",
        ("done", ..) => "failed",
        _ => "cancelled",
    }
}

/// Parses a schedule.
///
/// # Errors
///
/// It is malformed.
pub(super) fn parse_when(text: &str) -> Result<CronSchedule, RequestError> {
    text.parse().map_err(|why| RequestError::bad(format_args!("when: {why}")))
}

/// Runs work outside of the thread that serves requests.
pub(super) async fn on<T: Send + 'static>(
    scans: &Arc<PageScans>,
    work: impl FnOnce(&PageScans) -> Result<T, RequestError> + Send + 'static,
) -> Result<T, RequestError> {
    let scans = Arc::clone(scans);
    tokio::task::spawn_blocking(move || work(&scans)).await.unwrap_or(Err(RequestError::TooLong))
}
