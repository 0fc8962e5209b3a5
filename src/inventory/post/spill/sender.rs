//! The thread that sends what waits: one batch after the other, in order, as a server takes a lower number behind a higher one
//! for known. What it cannot send for its content goes aside and stops nobody.

use std::time::{Duration, SystemTime};

use super::super::random;
use super::adopt::adopt;
use super::name::Aside;
use super::queue::{Job, Shared};
use crate::diagnostics::tell;
use crate::inventory::Absence;
use crate::inventory::database::{Inbox, Place, Standing};
use crate::inventory::store::StoreError;

/// How long a server that is away is left alone, at first and at last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// How often it is looked whether the process before has ended.
const LOOKS: Duration = Duration::from_millis(50);

/// Sends.
#[derive(Debug)]
pub(super) struct Sender {
    shared: std::sync::Arc<Shared>,
    place: Place,
    sensor: String,
    inbox: Option<Inbox>,
    absence: Absence,
    /// Sightings that were dropped before the server went away.
    dropped: u64,
    /// The run is over: a server that is away is not waited for.
    is_ending: bool,
}

/// What became of a batch.
enum Outcome {
    /// The server has it.
    Sent,
    /// It can't be read any more.
    Damaged(String),
    /// The server refuses it as it is: so many sightings.
    Refused(StoreError, u64),
    /// The server is away; it may have the batch all the same.
    Away(StoreError, bool),
}

impl Sender {
    /// Sends to a server, which is come to already where it is there.
    pub(super) fn new(
        shared: std::sync::Arc<Shared>,
        place: Place,
        sensor: String,
        inbox: Option<Inbox>,
    ) -> Self {
        let absence = Absence::new(PAUSES.0).up_to(PAUSES.1);
        Self { shared, place, sensor, inbox, absence, dropped: 0, is_ending: false }
    }

    /// Sends until the run has ended and nothing waits, or the server is away then.
    pub(super) fn run(mut self) {
        if !self.follow() {
            return;
        }
        while let Some(job) = self.shared.next() {
            match self.send(&job) {
                Outcome::Sent => {
                    self.shared.is_sent();
                    self.note_back(&job);
                }
                Outcome::Damaged(why) => {
                    self.set_aside(&job, Aside::Damaged, 0, &why);
                }
                Outcome::Refused(error, sightings) => {
                    self.set_aside(&job, Aside::Refused, sightings, &error.to_string());
                }
                Outcome::Away(error, may_be_there) => {
                    self.shared.stays(may_be_there);
                    self.note_away(&error);
                    if self.is_ending {
                        return;
                    }
                    let pause = self.absence.goes_on(|| {});
                    self.is_ending = self.shared.pause(jittered(pause));
                }
            }
        }
    }

    /// Waits for the end of the process before, where that has the folder still, and takes over what it has left; whether it
    /// is the turn of this one.
    fn follow(&mut self) -> bool {
        let shared = &self.shared;
        if shared.lock.get().is_none() {
            tell(format_args!(
                "bannerwall: batches wait in {} until the process that uses it ({}) has ended",
                shared.folder.path().display(),
                shared.folder.holder().unwrap_or_default()
            ));
        }
        while shared.lock.get().is_none() {
            if let Ok(Some(lock)) = shared.folder.lock() {
                let _ = shared.lock.set(lock);
                take_over(shared, None);
            } else if shared.pause(LOOKS) {
                return false;
            }
        }
        true
    }

    fn send(&mut self, job: &Job) -> Outcome {
        let parcel = match self.shared.read(&job.entry) {
            Ok(parcel) => parcel,
            Err(why) => return Outcome::Damaged(why),
        };
        let standing = Standing { lost: job.lost, waiting: job.behind };
        match self.reach() {
            Err(error) => Outcome::Away(error, false),
            Ok(inbox) => match inbox.put(&parcel, standing) {
                Ok(()) => Outcome::Sent,
                Err(error) if error.is_of_row() => Outcome::Refused(error, parcel.sightings),
                Err(error) => Outcome::Away(error, true),
            },
        }
    }

    /// The way to the server, on which it knows this sensor.
    fn reach(&mut self) -> Result<&mut Inbox, StoreError> {
        let inbox = match self.inbox.take() {
            Some(mut inbox) => match inbox.reach() {
                Ok(()) => inbox,
                Err(error) => {
                    self.inbox = Some(inbox);
                    return Err(error);
                }
            },
            None => {
                let inbox = Inbox::open(&self.place)?;
                match inbox.sensor()? {
                    Some(known) if known == self.sensor => inbox,
                    Some(known) => {
                        let (place, named) = (self.place.clone(), self.sensor.clone());
                        return Err(StoreError::OtherSensor { place, known, named });
                    }
                    None => return Err(StoreError::NoSensor(self.place.clone())),
                }
            }
        };
        Ok(self.inbox.insert(inbox))
    }

    fn note_away(&mut self, error: &StoreError) {
        if self.shared.is_away() {
            return;
        }
        self.dropped = self.shared.backlog.dropped();
        self.shared.goes_away();
        tell(format_args!(
            "bannerwall: nothing is sent: {error}; batches wait in {}, and it is tried again and again",
            self.shared.folder.path().display()
        ));
    }

    fn note_back(&mut self, job: &Job) {
        if !self.shared.is_away() {
            return;
        }
        // Told once everything is there that has waited.
        if self.absence.is_over() {
            tell(format_args!("bannerwall: the server takes batches again; {} wait", job.behind));
        }
        if self.shared.backlog.batches() == 0 {
            self.shared.is_back();
            let lost = self.shared.backlog.dropped() - self.dropped;
            tell(format_args!("bannerwall: all that has waited is sent; {lost} sightings had to make room"));
        }
    }

    fn set_aside(&self, job: &Job, aside: Aside, sightings: u64, why: &str) {
        let (folder, file) = (self.shared.folder.path().display(), job.entry.file());
        tell(format_args!("bannerwall: {folder}/{file} is set aside ({}): {why}", aside.ending()));
        self.shared.set_aside(aside, sightings);
    }
}

/// Takes over what others have left, and tells where that cannot be done.
pub(super) fn take_over(shared: &Shared, changed: Option<SystemTime>) {
    match adopt(shared, changed) {
        Ok(()) if shared.backlog.batches() > 0 => tell(format_args!(
            "bannerwall: {} batches wait in {} and go first",
            shared.backlog.batches(),
            shared.folder.path().display()
        )),
        Ok(()) => {}
        Err(error) => tell(format_args!(
            "bannerwall: --spill {}: what is there is left alone: {error}",
            shared.folder.path().display()
        )),
    }
}

/// Not with all others at once: between half of it and all.
fn jittered(pause: Duration) -> Duration {
    // Without random octets it is all of it.
    let [octet] = random().unwrap_or([u8::MAX]);
    pause / 2 + pause / 2 * u32::from(octet) / u32::from(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_different_and_neither_long_nor_short() {
        let pause = Duration::from_secs(10);
        let pauses: Vec<Duration> = (0..64).map(|_| jittered(pause)).collect();
        assert!(pauses.iter().all(|it| (pause / 2..=pause).contains(it)));
        assert!(pauses.iter().any(|it| *it != pauses[0]));
    }
}
