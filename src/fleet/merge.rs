//! Merges the batches of sensors from the inbox into the inventory. Any role that may write can do so,
//! several at once.
//!
//! One transaction takes a batch out of the inbox, enters it into the tables and updates the account of its
//! sensor. So a batch counts once, whichever process is killed when. Only one process at a time takes batches
//! of a sensor, in the order of their arrival.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rustix::thread::CapabilitySet;

use super::database::{FleetDatabase, inbox};
use super::{FleetError, PAUSE};
use crate::backoff::Backoff;
use crate::confinement::Confinement;
use crate::database::{DatabaseLocation, OutageTracker};
use crate::diagnostics::log_line;
use crate::inventory::{BatchMerger, StoreError};
use crate::privileges::keep_or_warn;

/// Number of batches that are taken at once.
const TOGETHER: i64 = 16;

/// First and last pause between checks of an empty inbox.
const LOOKS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Interval between checks for a fleet of this version that this role may merge.
const FLEETS: Duration = Duration::from_secs(30);

/// Interval between checks for sessions that block others.
const BLOCKERS: Duration = Duration::from_secs(30);

/// Message after an interruption.
const AGAIN: &str = "bannerwall: batches of sensors are merged again";

/// Settings of a merge.
#[derive(Debug, Clone)]
pub struct MergeConfig {
    /// The database.
    pub place: DatabaseLocation,
    /// True if the merge continues when the inbox is empty or the server is away.
    pub follows: bool,
    /// True if batches that were set aside are tried again.
    pub tries_again: bool,
}

/// Numbers of merged batches.
#[derive(Debug, Clone, Copy, Default)]
pub struct MergeCounts {
    /// Number of batches.
    pub batches: usize,
    /// Number of batches that were set aside.
    pub refused: usize,
}

/// Merges until the inbox is empty, including the batches that other processes hold, or until the other end
/// of `stopped` is gone.
///
/// # Errors
///
/// The database cannot be used. A server that disappears later is an error only without `follows`.
pub fn merge(config: &MergeConfig, stopped: &Receiver<()>) -> Result<MergeCounts, FleetError> {
    MergeState::open(config)?.merge_all(config.follows, stopped)
}

/// The state of a merge.
struct MergeState {
    merger: BatchMerger,
    /// Number of batches to take at once: one if one of them is at fault.
    most: i64,
    /// The batch that was refused alone a moment ago.
    suspect: Option<i64>,
    /// The pauses of an inbox that stays empty.
    rests: Backoff,
    /// Time of the last check for sessions that block others.
    unblocked: Option<Instant>,
    merged: MergeCounts,
}

impl MergeState {
    fn open(config: &MergeConfig) -> Result<Self, FleetError> {
        drop(FleetDatabase::open(&config.place)?);
        let mut hand = Self {
            merger: BatchMerger::open(&config.place)?,
            most: TOGETHER,
            suspect: None,
            rests: Backoff::new(LOOKS.0, LOOKS.1),
            unblocked: None,
            merged: MergeCounts::default(),
        };
        if !hand.merger.ask(inbox::may_merge)? {
            return Err(FleetError::MayNotMerge);
        }
        if config.tries_again {
            let count = hand.merger.ask(inbox::retry)?;
            log_line(format_args!("bannerwall: batches that are tried again: {count}"));
        }
        Ok(hand)
    }

    fn merge_all(mut self, follows: bool, stopped: &Receiver<()>) -> Result<MergeCounts, FleetError> {
        let (mut absence, mut pause) = (OutageTracker::new(PAUSE), Duration::ZERO);
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            pause = match self.step() {
                Ok(is_empty) => {
                    if absence.record_success() {
                        log_line(AGAIN);
                    }
                    // A batch that another process holds may return to the inbox.
                    if is_empty && !follows && !self.merger.ask(inbox::is_waiting)? {
                        break;
                    }
                    if is_empty { self.rests.next_delay() } else { Duration::ZERO }
                }
                Err(error) if !follows => return Err(error.into()),
                Err(error) => absence.record_failure(|| {
                    log_line(format_args!("bannerwall: cannot merge batches of sensors: {error}; retrying"));
                }),
            };
        }
        Ok(self.merged)
    }

    /// Merges some batches. Returns true if no more wait.
    fn step(&mut self) -> Result<bool, StoreError> {
        self.unblock()?;
        // After an empty inbox, one query replaces a transaction.
        if self.rests.is_waiting() && !self.merger.ask(inbox::is_waiting)? {
            return Ok(true);
        }
        let (mut taken, most) = (inbox::InboxMergeResult::default(), self.most);
        match self.merger.merge(&mut |link| inbox::take(link, most, &mut taken)) {
            Ok(()) => {}
            Err(error) if BatchMerger::is_data_error(&error) => {
                // A batch that fails alone, with freshly read rows, is itself at fault.
                let alone = taken.last.filter(|_| taken.merged == 1);
                let before = std::mem::replace(&mut self.suspect, alone);
                self.most = 1;
                if let Some(id) = alone.filter(|_| before == alone) {
                    self.merger.ask(|link| inbox::refuse(link, id, &error.to_string()))?;
                    taken.refused = vec![format!("a batch is set aside: {error}")];
                    self.count(0, &taken.refused);
                }
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        // After a fault the batches are merged one by one. Successes raise the number again.
        self.most = (self.most * 2).min(TOGETHER);
        self.count(taken.merged, &taken.refused);
        taken.notes.iter().for_each(|note| log_line(format_args!("bannerwall: {note}")));
        if taken.rows > 0 {
            self.rests.reset();
        }
        Ok(taken.rows == 0)
    }

    /// Ends sessions that block others, at intervals.
    fn unblock(&mut self) -> Result<(), StoreError> {
        if self.unblocked.is_none_or(|last| last.elapsed() >= BLOCKERS) {
            self.unblocked = Some(Instant::now());
            for role in self.merger.ask(inbox::unblock)? {
                log_line(format_args!(
                    "bannerwall: ended a session of role {role}, whose transaction blocked others for \
                     minutes"
                ));
            }
        }
        Ok(())
    }

    fn count(&mut self, merged: usize, refused: &[String]) {
        self.merged.batches += merged;
        self.merged.refused += refused.len();
        for told in refused {
            log_line(format_args!("bannerwall: {told}; `fleet merge --again` tries it again"));
        }
    }
}

/// Merges on a separate thread until this value is dropped.
#[derive(Debug)]
pub struct BackgroundMerge {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundMerge {
    /// Starts the thread, even if there is no fleet yet. The thread confines itself.
    ///
    /// # Errors
    ///
    /// The system has no free thread.
    pub fn start(place: &DatabaseLocation, confinement: Option<Confinement>) -> std::io::Result<Self> {
        let (stop, stopped) = bounded(0);
        let config = MergeConfig { place: place.clone(), follows: true, tries_again: false };
        let merging = move || {
            if let Some(confinement) = confinement {
                keep_or_warn("fleet-merge", CapabilitySet::empty());
                // What of it the kernel has: whoever runs us need not hear of it each time.
                confinement.apply_or_warn(true);
            }
            merge_until_stopped(&config, &stopped);
        };
        let thread = std::thread::Builder::new().name("fleet-merge".to_owned()).spawn(merging)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

/// Merges until the other end of `stopped` is gone. An obstacle is reported once, and checked again.
fn merge_until_stopped(config: &MergeConfig, stopped: &Receiver<()>) {
    let (mut absence, mut pause) = (OutageTracker::new(PAUSE), Duration::ZERO);
    let mut told = None;
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let error = match MergeState::open(config) {
            Ok(hand) => {
                if absence.record_success() || told.is_some() {
                    log_line(AGAIN);
                }
                // With `follows`, errors do not end the work.
                let _ = hand.merge_all(config.follows, stopped);
                return;
            }
            Err(error) => error,
        };
        pause = match others_first(&error) {
            Some(why) => {
                if told.as_ref() != Some(&why) {
                    log_line(&why);
                }
                told = Some(why);
                FLEETS
            }
            // A server without a fleet is normal for a page, so it is not reported.
            None if matches!(error, FleetError::NoFleet) => FLEETS,
            None => absence.record_failure(|| {
                log_line(format_args!("bannerwall: cannot merge batches of sensors: {error}; retrying"));
            }),
        };
    }
}

/// Returns the message if the merge must wait for an action of someone else.
fn others_first(error: &FleetError) -> Option<String> {
    match error {
        FleetError::MayNotMerge => Some(
            "bannerwall: batches of sensors are not merged here: this role is not permitted to; run a \
             worker, or `fleet merge --follow`"
                .to_owned(),
        ),
        FleetError::Older(..) | FleetError::Newer(_) => {
            Some(format!("bannerwall: batches of sensors are not merged here: {error}"))
        }
        _ => None,
    }
}

impl Drop for BackgroundMerge {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // The thread has reported its panic already.
            let _ = thread.join();
        }
    }
}
