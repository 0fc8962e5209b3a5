//! Scans from the page, once or on a schedule: permissions, running scans, and their journal in the
//! inventory.

mod due;
mod heartbeat;
mod jobs;
mod order;
mod rhythm;
pub(crate) mod runner;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use self::due::{ScheduleState, ScheduleStep, decide};
use self::heartbeat::PageHeartbeat;
use self::jobs::{ScanSlot, merged};
pub use self::order::ScanPermissions;
pub(super) use self::order::{PageScanMode, PageScanOrder};
pub(super) use self::rhythm::ScheduleTimes;
use self::runner::{RunnerJob, RunnerSetup, ScanRunner};
use super::response::RequestError;
use crate::database::DatabaseLocation;
use crate::diagnostics::log_line;
use crate::inventory::{InventoryDatabase, InventoryTime, PastPageScan, ScanSchedule, StoreError};

/// Interval of checks for ended and due scans.
const PAUSE: Duration = Duration::from_secs(1);

/// Limit of listed scans.
const SHOWN: i64 = 50;

/// Limit of schedules.
const SCHEDULES: usize = 100;

/// Permitted scans of the page.
#[derive(Debug, Clone, Default)]
pub struct ScanConfig {
    /// Networks and the rate limit.
    pub bounds: ScanPermissions,
    /// Rules of the scans; if empty, the default rules.
    pub rules: Vec<PathBuf>,
}

/// Starts and tracks scans.
#[derive(Debug)]
pub(super) struct PageScans {
    runner: ScanRunner,
    place: DatabaseLocation,
    /// Name of this page in the journal.
    page: String,
    pub(super) bounds: ScanPermissions,
    /// Cached connection to the inventory; its lock serializes checks and the end.
    kept: Mutex<Option<InventoryDatabase>>,
    /// True once the page stops.
    is_closed: AtomicBool,
    /// Start of the page.
    begun: InventoryTime,
    /// True once old scans of a page with this name are closed in the journal.
    is_cleared: AtomicBool,
    /// Scans that run, or whose end is not in the journal yet.
    jobs: Mutex<Vec<RunnerJob>>,
    /// Number of scans about to start; changed only with the lock of the jobs.
    starting: AtomicUsize,
    /// Heartbeats of all pages' scans.
    heartbeat: Mutex<PageHeartbeat>,
}

/// Scan in the list.
#[derive(Debug, Serialize)]
pub(super) struct ScanView {
    #[serde(flatten)]
    pub(super) past: PastPageScan,
    /// Order of the scan.
    pub(super) order: Option<PageScanOrder>,
    /// `running`, `done`, `interrupted` or `failed`.
    pub(super) state: &'static str,
    pub(super) asked: u64,
    pub(super) of: u64,
    /// True if this page started it.
    #[serde(skip)]
    pub(super) is_own: bool,
}

/// Schedule in the list.
#[derive(Debug, Serialize)]
pub(super) struct ScheduleView {
    #[serde(flatten)]
    pub(super) schedule: ScanSchedule,
    pub(super) order: Option<PageScanOrder>,
}

/// Data of the page.
#[derive(Debug, Serialize)]
pub(super) struct ScanListing {
    #[serde(flatten)]
    pub(super) bounds: ScanPermissions,
    /// Reason why no scan can start now.
    pub(super) fault: Option<&'static str>,
    pub(super) scans: Vec<ScanView>,
    pub(super) schedules: Vec<ScheduleView>,
}

impl PageScans {
    /// Starts the helper process. Call this before the confinement.
    ///
    /// # Errors
    ///
    /// The process cannot be started.
    pub(super) fn start(
        config: &ScanConfig,
        place: &DatabaseLocation,
        page: String,
    ) -> std::io::Result<Self> {
        let runner = ScanRunner::start(&RunnerSetup::new(place, &config.bounds, &config.rules))?;
        Ok(Self {
            runner,
            place: place.clone(),
            page,
            bounds: config.bounds.clone(),
            kept: Mutex::default(),
            is_closed: AtomicBool::new(false),
            begun: InventoryTime::now(),
            is_cleared: AtomicBool::new(false),
            jobs: Mutex::default(),
            starting: AtomicUsize::new(0),
            heartbeat: Mutex::default(),
        })
    }

    /// Starts a scan, and returns its number.
    ///
    /// # Errors
    ///
    /// The scan is not permitted, too many scans run, or the inventory cannot be written.
    pub(super) fn begin(&self, order: &PageScanOrder, who: &str) -> Result<i64, RequestError> {
        self.judge(order)?;
        let Some(room) = self.room() else {
            return Err(RequestError::Busy(format!("{} scans run already", runner::AT_ONCE)));
        };
        let inventory = self.open()?;
        let number = inventory.begin_order(&text(order), (who, &self.page))?;
        self.run(room, &inventory, (number, order), who)
    }

    /// Refuses an order that is not permitted, and every order if the helper process is gone.
    fn judge(&self, order: &PageScanOrder) -> Result<(), RequestError> {
        order.words(&self.bounds).map_err(RequestError::Bad)?;
        if self.runner.is_gone() { Err(RequestError::Gone(runner::GONE)) } else { Ok(()) }
    }

    /// Adds a schedule, and returns its number.
    ///
    /// # Errors
    ///
    /// The scan is not permitted, or the inventory cannot be written.
    pub(super) fn schedule(
        &self,
        order: &PageScanOrder,
        rhythm: ScheduleTimes,
        who: &str,
    ) -> Result<i64, RequestError> {
        self.judge(order)?;
        let inventory = self.open()?;
        if inventory.schedules()?.len() >= SCHEDULES {
            return Err(RequestError::bad(format_args!(
                "the limit of {SCHEDULES} schedules is reached: delete one first"
            )));
        }
        // The time zone is stored by its name: another page may run in another zone.
        let rhythm = rhythm.settled();
        let due = rhythm.first(InventoryTime::now());
        let id = inventory.schedule(&text(order), &rhythm.to_string(), who, due)?;
        log_line(format_args!("bannerwall: {who} added schedule #{id}, {rhythm}: {order}"));
        Ok(id)
    }

    /// Stops a scan.
    ///
    /// # Errors
    ///
    /// The scan does not run, or another page runs it.
    pub(super) fn cancel(&self, number: i64, who: &str) -> Result<(), RequestError> {
        if let Some(page) = self.open()?.runs_at(number)?.filter(|page| *page != self.page) {
            return Err(RequestError::Busy(format!("another page runs scan #{number}: {page}")));
        }
        self.runner.stop(number).map_err(|error| self.refused(&error, RequestError::Bad))?;
        log_line(format_args!("bannerwall: {who} stopped scan #{number}"));
        Ok(())
    }

    /// Deletes a schedule.
    ///
    /// # Errors
    ///
    /// There is no schedule with this number.
    pub(super) fn unschedule(&self, id: i64, who: &str) -> Result<(), RequestError> {
        if !self.open()?.unschedule(id)? {
            return Err(RequestError::Missing(format!("there is no schedule #{id}")));
        }
        log_line(format_args!("bannerwall: {who} deleted schedule #{id}"));
        Ok(())
    }

    /// Returns the data of the page.
    ///
    /// # Errors
    ///
    /// The inventory cannot be read.
    pub(super) fn board(&self, inventory: &InventoryDatabase) -> Result<ScanListing, StoreError> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let show = |past: PastPageScan| {
            let job = jobs.iter().find(|job| job.number == past.id);
            let (asked, of) = job.map_or((0, 0), |job| job.asked);
            let state = match (past.ended, past.code) {
                (None, _) => "running",
                (Some(_), Some(0)) => "done",
                (Some(_), Some(runner::INTERRUPTED)) => "interrupted",
                (Some(_), _) => "failed",
            };
            let is_own = past.page == self.page;
            ScanView { order: read(&past.about), state, asked, of, is_own, past }
        };
        let planned = |schedule: ScanSchedule| ScheduleView { order: read(&schedule.about), schedule };
        Ok(ScanListing {
            bounds: self.bounds.clone(),
            fault: self.runner.is_gone().then_some(runner::GONE),
            scans: inventory.orders(SHOWN)?.into_iter().map(show).collect(),
            schedules: inventory.schedules()?.into_iter().map(planned).collect(),
        })
    }

    /// Starts due scans and records ended ones, until the page stops.
    pub(super) async fn keep(self: Arc<Self>) {
        let mut told = None;
        loop {
            let this = Arc::clone(&self);
            let outcome = tokio::task::spawn_blocking(move || this.look()).await;
            let fault = outcome.unwrap_or_else(|panic| Err(panic.to_string())).err();
            if fault.is_some() && fault != told {
                log_line(format_args!(
                    "bannerwall: cannot update the page's scans: {}",
                    fault.as_deref().unwrap_or_default()
                ));
            }
            told = fault;
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn look(&self) -> Result<(), String> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_closed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let inventory = match kept.take().filter(InventoryDatabase::is_current) {
            Some(inventory) => inventory,
            None => self.open().map_err(|error| error.to_string())?,
        };
        if !self.is_cleared.load(Ordering::Relaxed) {
            // A previous page with this name may have been killed without closing its scans.
            inventory.end_orders_of(&self.page, self.begun).map_err(|error| error.to_string())?;
            self.is_cleared.store(true, Ordering::Relaxed);
        }
        let noted = self.note_ends(&inventory);
        let noted = noted.and(self.tend(&inventory));
        let now = InventoryTime::now();
        let schedules = inventory.schedules().map_err(|error| error.to_string())?;
        // A failing schedule must not block the others.
        let looked = schedules.iter().map(|schedule| self.look_at(&inventory, schedule, now));
        let failed = looked.fold(None, |failed, outcome| failed.or(outcome.err()));
        *kept = Some(inventory);
        noted.and(failed.map_or(Ok(()), Err))
    }

    fn look_at(
        &self,
        inventory: &InventoryDatabase,
        schedule: &ScanSchedule,
        now: InventoryTime,
    ) -> Result<(), String> {
        let id = schedule.id;
        let rhythm: ScheduleTimes =
            schedule.rhythm.parse().map_err(|why| format!("schedule #{id}: {why}"))?;
        self.take_step(inventory, schedule, &rhythm, now).map_err(|error| error.to_string())
    }

    fn note_ends(&self, inventory: &InventoryDatabase) -> Result<(), String> {
        // Read before the helper is asked: scans that start in between are then known to be newer than
        // its reply.
        let before: Vec<i64> = self.own(|_| true);
        let looked = self.runner.look(Vec::new());
        if looked.is_err() && self.runner.is_gone() {
            self.give_up(inventory).map_err(|error| error.to_string())?;
        }
        let (jobs, mut known) = (looked.map_err(|error| error.to_string())?, Vec::new());
        for job in jobs.iter().filter(|job| job.is_over) {
            let said = job.said.join("\n");
            inventory.end_order(job.number, job.code, &said).map_err(|error| error.to_string())?;
            let code = job.code.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
            log_line(format_args!("bannerwall: scan #{} has ended: {code}", job.number));
            // The helper keeps an ended scan until its end is stored. Otherwise an error of the
            // database would lose the exit code.
            known.push(job.number);
        }
        let mut own = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        *own = merged(&own, &before, jobs);
        // The next call waits for the helper process, and the lock must not be held meanwhile.
        drop(own);
        if !known.is_empty() {
            self.runner.look(known).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Closes running scans with an unknown end in the journal: they stopped with the helper process.
    fn give_up(&self, inventory: &InventoryDatabase) -> Result<(), StoreError> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for job in jobs {
            inventory.end_order(job.number, None, runner::GONE)?;
            self.jobs.lock().unwrap_or_else(PoisonError::into_inner).retain(|it| it.number != job.number);
        }
        Ok(())
    }

    /// Sends heartbeats for this page's scans, and closes scans of silent pages in the journal.
    fn tend(&self, inventory: &InventoryDatabase) -> Result<(), String> {
        let own = self.own(|job| !job.is_over);
        let mut heartbeat = self.heartbeat.lock().unwrap_or_else(PoisonError::into_inner);
        heartbeat.tend(inventory, &own, Instant::now()).map_err(|error| error.to_string())
    }

    fn take_step(
        &self,
        inventory: &InventoryDatabase,
        schedule: &ScanSchedule,
        rhythm: &ScheduleTimes,
        now: InventoryTime,
    ) -> Result<(), StoreError> {
        let (id, order) = (schedule.id, read(&schedule.about));
        let is_ours = order.as_ref().is_none_or(|order| self.judge(order).is_ok());
        // The query is needed only for a due schedule. This runs every second.
        let runs = schedule.due <= now && inventory.is_running(id)?;
        let seen = ScheduleState { now, begun: self.begun, runs, is_full: self.is_full(), is_ours };
        match (decide(rhythm, schedule.due, seen), order) {
            (ScheduleStep::Wait, _) => {}
            (ScheduleStep::SetBack(first), _) => _ = inventory.claim_due(schedule, first, 0)?,
            (ScheduleStep::Missed { count, next, why }, _) => {
                if inventory.claim_due(schedule, next, count)? {
                    log_line(format_args!(
                        "bannerwall: schedule #{id}: missed starts: {count} ({why}); next {next}"
                    ));
                }
            }
            (ScheduleStep::Start(next), Some(order)) => self.start_due(inventory, schedule, next, &order)?,
            (ScheduleStep::Start(next), None) => {
                if inventory.claim_due(schedule, next, 0)? {
                    log_line(format_args!(
                        "bannerwall: cannot start schedule #{id}: its order is unreadable"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Starts a due scan, unless no slot is free: then a later check starts it.
    fn start_due(
        &self,
        inventory: &InventoryDatabase,
        schedule: &ScanSchedule,
        next: InventoryTime,
        order: &PageScanOrder,
    ) -> Result<(), StoreError> {
        let Some(room) = self.room() else { return Ok(()) };
        // Another page may have started it first. The database decides which one does.
        let Some(number) = inventory.begin_due(schedule, next, &self.page)? else { return Ok(()) };
        if let Err(fault) = self.run(room, inventory, (number, order), &schedule.who) {
            log_line(format_args!("bannerwall: cannot start schedule #{}: {}", schedule.id, fault.why()));
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.room().is_none()
    }

    /// Reserves a slot for another scan, if one is free.
    fn room(&self) -> Option<ScanSlot<'_>> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let running = jobs.iter().filter(|job| !job.is_over).count();
        // Slots that are taken but have no job yet count, too. Otherwise two requests at once could
        // exceed the limit.
        if running + self.starting.load(Ordering::Relaxed) >= runner::AT_ONCE {
            return None;
        }
        Some(ScanSlot::taken(&self.starting))
    }

    /// Returns the numbers of this page's matching scans.
    fn own(&self, is_so: impl Fn(&RunnerJob) -> bool) -> Vec<i64> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.iter().filter(|job| is_so(job)).map(|job| job.number).collect()
    }

    /// Returns the error of a refused request: the helper process is gone, or `other`.
    fn refused(&self, error: &std::io::Error, other: fn(String) -> RequestError) -> RequestError {
        if self.runner.is_gone() { RequestError::Gone(runner::GONE) } else { other(error.to_string()) }
    }

    /// Starts the scan under its number in the journal, and returns that.
    fn run(
        &self,
        room: ScanSlot<'_>,
        inventory: &InventoryDatabase,
        (number, order): (i64, &PageScanOrder),
        who: &str,
    ) -> Result<i64, RequestError> {
        // The lock keeps checks from seeing the scan before it is in the list, or from closing it with the
        // helper process.
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.runner.begin(number, order) {
            drop((room, jobs));
            inventory.end_order(number, None, &error.to_string())?;
            return Err(self.refused(&error, RequestError::Busy));
        }
        // The next check fills in the rest.
        jobs.push(RunnerJob { number, ..RunnerJob::default() });
        drop((room, jobs));
        log_line(format_args!("bannerwall: {who} started scan #{number}: {order}"));
        Ok(number)
    }

    /// Records running scans as interrupted by the end of the page. No check runs after that.
    ///
    /// # Errors
    ///
    /// The inventory cannot be written.
    pub(super) fn close(&self) -> Result<(), StoreError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock that checks take: no check can follow and mark a closed scan as running again.
        self.is_closed.store(true, Ordering::Relaxed);
        if self.own(|job| !job.is_over).is_empty() {
            return Ok(());
        }
        let inventory = match kept.take().filter(InventoryDatabase::is_current) {
            Some(inventory) => inventory,
            None => self.open()?,
        };
        // Some scans may have ended since the last check. If that cannot be determined, they count as
        // interrupted.
        let _ = self.note_ends(&inventory);
        let own = self.own(|job| !job.is_over);
        own.iter().try_for_each(|id| inventory.end_order(*id, Some(runner::INTERRUPTED), "its page stopped"))
    }

    fn open(&self) -> Result<InventoryDatabase, StoreError> {
        InventoryDatabase::open_to_write(&self.place)
    }
}

/// Runs work outside of the thread that serves requests.
pub(super) async fn on<T: Send + 'static>(
    scans: &Arc<PageScans>,
    work: impl FnOnce(&PageScans) -> Result<T, RequestError> + Send + 'static,
) -> Result<T, RequestError> {
    let scans = Arc::clone(scans);
    tokio::task::spawn_blocking(move || work(&scans)).await.unwrap_or(Err(RequestError::TooLong))
}

/// Formats an order for the journal.
fn text(order: &PageScanOrder) -> String {
    serde_json::to_string(order).unwrap_or_default()
}

fn read(about: &str) -> Option<PageScanOrder> {
    serde_json::from_str(about).ok()
}
