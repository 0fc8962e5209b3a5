//! Takes what sensors have sent out of the inbox and into the inventory: whoever may write can, and many may at once.
//!
//! A batch goes out of the inbox, into the tables, and into the account of its sensor in one transaction: it counts once,
//! whoever is killed when. Batches of one sensor are taken by one at a time, in the order in which they came.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::CapabilitySet;

use super::queue::{Queue, inbox};
use super::{FleetError, PAUSE};
use crate::confinement::Confinement;
use crate::diagnostics::tell;
use crate::inventory::{Absence, Merger, Pauses, Place, StoreError};
use crate::privileges::keep_or_tell;

/// Batches that are taken at once.
const TOGETHER: i64 = 16;

/// How soon it is looked again into an inbox that was empty: at first, and at last.
const LOOKS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// How often it is looked whether there is a fleet by now.
const FLEETS: Duration = Duration::from_secs(30);

/// How it is done.
#[derive(Debug, Clone)]
pub struct MergeConfig {
    /// The database.
    pub place: Place,
    /// Whether it goes on when the inbox is empty, and when the server is away.
    pub follows: bool,
    /// Whether what was set aside is tried once more.
    pub tries_again: bool,
}

/// What was merged.
#[derive(Debug, Clone, Copy, Default)]
pub struct Merged {
    /// Batches.
    pub batches: usize,
    /// Those that were set aside.
    pub refused: usize,
}

/// Merges until the inbox is empty, or `stop` says so.
///
/// # Errors
/// The database cannot be used; of one that goes away later only where nobody waits for it.
pub fn merge(config: &MergeConfig, stop: &AtomicBool) -> Result<Merged, FleetError> {
    drop(Queue::open(&config.place)?);
    let mut hand = Hand {
        merger: Merger::open(&config.place)?,
        most: TOGETHER,
        rests: Pauses::new(LOOKS.0, LOOKS.1),
        merged: Merged::default(),
    };
    if !hand.merger.ask(inbox::may_merge)? {
        return Err(FleetError::MayNotMerge);
    }
    if config.tries_again {
        let count = hand.merger.ask(inbox::retry)?;
        tell(format_args!("bannerwall: {count} batches are tried once more"));
    }
    let mut absence = Absence::new(PAUSE);
    while !stop.load(Relaxed) {
        match hand.step() {
            Ok(is_empty) => {
                if absence.is_over() {
                    tell("bannerwall: what sensors have sent is merged again");
                }
                if is_empty && !config.follows {
                    break;
                }
                if is_empty {
                    std::thread::park_timeout(hand.rests.pause());
                }
            }
            Err(error) if !config.follows => return Err(error.into()),
            Err(error) => {
                let pause = absence.goes_on(|| {
                    tell(format_args!(
                        "bannerwall: cannot merge what sensors have sent: {error}; it is tried again and again"
                    ));
                });
                std::thread::park_timeout(pause);
            }
        }
    }
    Ok(hand.merged)
}

/// Who merges.
struct Hand {
    merger: Merger,
    /// Batches that are taken at once: one by one, where one of them is at fault.
    most: i64,
    /// Of an inbox that stays empty.
    rests: Pauses,
    merged: Merged,
}

impl Hand {
    /// Merges some; whether there is nothing more.
    fn step(&mut self) -> Result<bool, StoreError> {
        // Of one that was empty a moment ago: one question in the place of a transaction.
        if self.rests.have_begun() && !self.merger.ask(inbox::is_waiting)? {
            return Ok(true);
        }
        let (mut taken, most) = (inbox::Taken::default(), self.most);
        match self.merger.merge(&mut |desk| inbox::take(desk, most, &mut taken)) {
            Ok(()) => {}
            Err(error) if Merger::refuses(&error) => {
                let id = taken.last.filter(|_| taken.merged == 1);
                self.most = 1;
                if let Some(id) = id {
                    self.merger.ask(|desk| inbox::refuse(desk, id, &error.to_string()))?;
                    taken.refused = vec![format!("a batch is set aside: {error}")];
                    self.count(0, &taken.refused);
                }
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        self.most = (self.most * 2).min(TOGETHER);
        self.count(taken.merged, &taken.refused);
        if taken.rows > 0 {
            self.rests.are_over();
        }
        Ok(taken.rows == 0)
    }

    fn count(&mut self, merged: usize, refused: &[String]) {
        self.merged.batches += merged;
        self.merged.refused += refused.len();
        for told in refused {
            tell(format_args!("bannerwall: {told}; `fleet merge --again` tries it once more"));
        }
    }
}

/// Merges on a thread of its own as long as it is there.
#[derive(Debug)]
pub struct Background {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts it, whether there is a fleet by now or not; the thread is confined to what is left to it.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(place: &Place, confinement: Option<Confinement>) -> std::io::Result<Self> {
        let stop = Arc::<AtomicBool>::default();
        let config = MergeConfig { place: place.clone(), follows: true, tries_again: false };
        let asked = Arc::clone(&stop);
        let merging = move || {
            if let Some(confinement) = confinement {
                keep_or_tell("fleet-merge", CapabilitySet::empty());
                // What of it the kernel has: whoever runs us need not hear of it each time.
                confinement.apply_or_tell(true);
            }
            tend(&config, &asked);
        };
        let thread = std::thread::Builder::new().name("fleet-merge".to_owned()).spawn(merging)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

/// Merges until `stop` says so, or what is in the way is not to be waited for.
fn tend(config: &MergeConfig, stop: &AtomicBool) {
    let mut absence = Absence::new(PAUSE);
    while !stop.load(Relaxed) {
        let pause = match merge(config, stop) {
            Ok(_) => return,
            Err(FleetError::NoFleet) => FLEETS,
            Err(FleetError::MayNotMerge) => {
                return tell(
                    "bannerwall: what sensors send is not merged here, by a role that may not do so: workers do, and \
                     `fleet merge --follow`",
                );
            }
            Err(error @ (FleetError::Older(..) | FleetError::Newer(_))) => {
                return tell(format_args!("bannerwall: what sensors send is left to others: {error}"));
            }
            Err(error) => absence.goes_on(|| {
                tell(format_args!(
                    "bannerwall: cannot merge what sensors send: {error}; it is tried again and again"
                ));
            }),
        };
        std::thread::park_timeout(pause);
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic was told by the thread itself.
            let _ = thread.join();
        }
    }
}
