//! Takes what sensors have sent out of the inbox and into the inventory: whoever may write can, and many may
//! at once.
//!
//! A batch goes out of the inbox, into the tables, and into the account of its sensor in one transaction: it
//! counts once, whoever is killed when. Batches of one sensor are taken by one at a time, in the order in
//! which they came.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
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

/// Interval at which it is looked whether there is a fleet by now, of this version, and for this role.
const FLEETS: Duration = Duration::from_secs(30);

/// Interval at which it is looked for sessions that keep others waiting.
const BLOCKERS: Duration = Duration::from_secs(30);

/// What is told once it goes on.
const AGAIN: &str = "bannerwall: what sensors have sent is merged again";

/// How it is done.
#[derive(Debug, Clone)]
pub struct MergeConfig {
    /// The database.
    pub place: Place,
    /// True if it goes on when the inbox is empty, and when the server is away.
    pub follows: bool,
    /// True if what was set aside is tried once more.
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

/// Merges until the inbox is empty, what others have in hand included, or the other end of `stopped` is gone.
///
/// # Errors
/// The database cannot be used; of one that goes away later only where nobody waits for it.
pub fn merge(config: &MergeConfig, stopped: &Receiver<()>) -> Result<Merged, FleetError> {
    Hand::open(config)?.work(config.follows, stopped)
}

/// Who merges.
struct Hand {
    merger: Merger,
    /// Batches that are taken at once: one by one, where one of them is at fault.
    most: i64,
    /// The batch that was refused by itself a moment ago.
    suspect: Option<i64>,
    /// Of an inbox that stays empty.
    rests: Pauses,
    /// When sessions that keep others waiting were looked for last.
    unblocked: Option<Instant>,
    merged: Merged,
}

impl Hand {
    fn open(config: &MergeConfig) -> Result<Self, FleetError> {
        drop(Queue::open(&config.place)?);
        let mut hand = Self {
            merger: Merger::open(&config.place)?,
            most: TOGETHER,
            suspect: None,
            rests: Pauses::new(LOOKS.0, LOOKS.1),
            unblocked: None,
            merged: Merged::default(),
        };
        if !hand.merger.ask(inbox::may_merge)? {
            return Err(FleetError::MayNotMerge);
        }
        if config.tries_again {
            let count = hand.merger.ask(inbox::retry)?;
            tell(format_args!("bannerwall: {count} batches are tried once more"));
        }
        Ok(hand)
    }

    fn work(mut self, follows: bool, stopped: &Receiver<()>) -> Result<Merged, FleetError> {
        let (mut absence, mut pause) = (Absence::new(PAUSE), Duration::ZERO);
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            pause = match self.step() {
                Ok(is_empty) => {
                    if absence.is_over() {
                        tell(AGAIN);
                    }
                    // What another one has in hand may come to nothing.
                    if is_empty && !follows && !self.merger.ask(inbox::is_waiting)? {
                        break;
                    }
                    if is_empty { self.rests.pause() } else { Duration::ZERO }
                }
                Err(error) if !follows => return Err(error.into()),
                Err(error) => absence.goes_on(|| {
                    tell(format_args!(
                        "bannerwall: cannot merge what sensors have sent: {error}; it is tried again and again"
                    ));
                }),
            };
        }
        Ok(self.merged)
    }

    /// Merges some; whether there is nothing more.
    fn step(&mut self) -> Result<bool, StoreError> {
        self.unblock()?;
        // Of one that was empty a moment ago: one question in the place of a transaction.
        if self.rests.have_begun() && !self.merger.ask(inbox::is_waiting)? {
            return Ok(true);
        }
        let (mut taken, most) = (inbox::Taken::default(), self.most);
        match self.merger.merge(&mut |desk| inbox::take(desk, most, &mut taken)) {
            Ok(()) => {}
            Err(error) if Merger::refuses(&error) => {
                // By itself, and by rows that were looked up anew: nothing else is at fault then.
                let alone = taken.last.filter(|_| taken.merged == 1);
                let before = std::mem::replace(&mut self.suspect, alone);
                self.most = 1;
                if let Some(id) = alone.filter(|_| before == alone) {
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
        taken.notes.iter().for_each(|note| tell(format_args!("bannerwall: {note}")));
        if taken.rows > 0 {
            self.rests.are_over();
        }
        Ok(taken.rows == 0)
    }

    /// Ends sessions that keep others waiting, now and then.
    fn unblock(&mut self) -> Result<(), StoreError> {
        if self.unblocked.is_none_or(|last| last.elapsed() >= BLOCKERS) {
            self.unblocked = Some(Instant::now());
            for role in self.merger.ask(inbox::unblock)? {
                tell(format_args!(
                    "bannerwall: ended a session of role {role}, whose transaction has kept others waiting for minutes"
                ));
            }
        }
        Ok(())
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
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts it, whether there is a fleet by now or not; the thread is confined to what is left to it.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(place: &Place, confinement: Option<Confinement>) -> std::io::Result<Self> {
        let (stop, stopped) = bounded(0);
        let config = MergeConfig { place: place.clone(), follows: true, tries_again: false };
        let merging = move || {
            if let Some(confinement) = confinement {
                keep_or_tell("fleet-merge", CapabilitySet::empty());
                // What of it the kernel has: whoever runs us need not hear of it each time.
                confinement.apply_or_tell(true);
            }
            tend(&config, &stopped);
        };
        let thread = std::thread::Builder::new().name("fleet-merge".to_owned()).spawn(merging)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

/// Merges until the other end of `stopped` is gone. What is in the way is told once, and looked at again.
fn tend(config: &MergeConfig, stopped: &Receiver<()>) {
    let (mut absence, mut pause) = (Absence::new(PAUSE), Duration::ZERO);
    let mut told = None;
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let error = match Hand::open(config) {
            Ok(hand) => {
                if absence.is_over() || told.is_some() {
                    tell(AGAIN);
                }
                // Who follows goes on whatever happens.
                let _ = hand.work(config.follows, stopped);
                return;
            }
            Err(error) => error,
        };
        pause = match others_first(&error) {
            Some(why) => {
                if told.as_ref() != Some(&why) {
                    tell(&why);
                }
                told = Some(why);
                FLEETS
            }
            None if matches!(error, FleetError::NoFleet) => FLEETS,
            None => absence.goes_on(|| {
                tell(format_args!(
                    "bannerwall: cannot merge what sensors send: {error}; it is tried again and again"
                ));
            }),
        };
    }
}

/// What is told where nothing is merged until somebody else has done something.
fn others_first(error: &FleetError) -> Option<String> {
    match error {
        FleetError::MayNotMerge => Some(
            "bannerwall: what sensors send is not merged here, by a role that may not do so: workers do, and \
             `fleet merge --follow`"
                .to_owned(),
        ),
        FleetError::Older(..) | FleetError::Newer(_) => {
            Some(format!("bannerwall: what sensors send is left to others: {error}"))
        }
        _ => None,
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic was told by the thread itself.
            let _ = thread.join();
        }
    }
}
