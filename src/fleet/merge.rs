//! Takes what sensors have sent out of the inbox and into the inventory: whoever may write can, and many may at once.
//!
//! A batch goes out of the inbox, into the tables, and into the account of its sensor in one transaction: it counts once,
//! whoever is killed when. Batches of one sensor are taken by one at a time, in the order in which they came.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use super::queue::{Queue, inbox};
use super::{FleetError, PAUSE};
use crate::diagnostics::tell;
use crate::inventory::{Absence, Merger, Place, StoreError};

/// Batches that are taken at once.
const TOGETHER: i64 = 16;

/// How often it is looked into an inbox that is empty.
const LOOKS: Duration = Duration::from_millis(250);

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
    go_on(config, stop)
}

/// The same in a fleet that is known to be there.
fn go_on(config: &MergeConfig, stop: &AtomicBool) -> Result<Merged, FleetError> {
    let mut hand = Hand { merger: Merger::open(&config.place)?, most: TOGETHER, merged: Merged::default() };
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
                    std::thread::park_timeout(LOOKS);
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
    merged: Merged,
}

impl Hand {
    /// Merges some; whether there is nothing more.
    fn step(&mut self) -> Result<bool, StoreError> {
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
pub(super) struct Background {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts it in a fleet that is known to be there.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(place: &Place) -> std::io::Result<Self> {
        let stop = Arc::<AtomicBool>::default();
        let config = MergeConfig { place: place.clone(), follows: true, tries_again: false };
        let asked = Arc::clone(&stop);
        let merging = move || {
            // Who may not do so leaves it to others.
            if let Err(error) = go_on(&config, &asked) {
                tell(format_args!("bannerwall: what sensors have sent is left to others: {error}"));
            }
        };
        let thread = std::thread::Builder::new().name("fleet-merge".to_owned()).spawn(merging)?;
        Ok(Self { stop, thread: Some(thread) })
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
