//! The thread that sends what waits: one batch after the other, in order, as a server takes a lower number
//! behind a higher one for known. What it cannot send for its content goes aside and stops nobody: the
//! records that are refused, and no others.

use std::time::{Duration, SystemTime};

use super::super::random;
use super::adopt::adopt;
use super::name::Aside;
use super::queue::{Job, Shared, Unsendable};
use crate::diagnostics::tell;
use crate::inventory::Absence;
use crate::inventory::batch::{Lines, sightings};
use crate::inventory::database::{Inbox, Parcel, Place, Standing};
use crate::inventory::store::StoreError;

/// Time for which a server that is away is left alone, at first and at last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// Interval at which it is looked whether the process before has ended.
const LOOKS: Duration = Duration::from_millis(50);

/// Sends.
#[derive(Debug)]
pub(super) struct Sender {
    shared: std::sync::Arc<Shared>,
    place: Place,
    sensor: String,
    inbox: Option<Inbox>,
    absence: Absence,
    /// It was told that the server is there, and takes nothing of this sensor.
    is_shut_out: bool,
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
    /// The server refuses it as it is.
    Refused(StoreError, Refused),
    /// The server is away; it may have the batch all the same.
    Away(StoreError, bool),
}

/// What of a batch is refused.
enum Refused {
    /// All of it: so many sightings.
    Whole(u64),
    /// So many of its records, as a batch of their own; the others are with the server.
    Records(usize, Parcel),
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
        Self { shared, place, sensor, inbox, absence, is_shut_out: false, dropped: 0, is_ending: false }
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
                    // Of the own run it is known how much it told of.
                    let sightings = job.entry.sightings.unwrap_or_default();
                    self.set_aside(&job, Aside::Damaged, sightings, &why);
                }
                Outcome::Refused(error, Refused::Whole(sightings)) => {
                    self.set_aside(&job, Aside::Refused, sightings, &error.to_string());
                }
                Outcome::Refused(error, Refused::Records(count, refused)) => {
                    let (folder, file) = (self.shared.folder.path().display(), job.entry.file());
                    tell(format_args!(
                        "bannerwall: {folder}/{file}: {count} records are set aside (.refused), the others are sent: {error}"
                    ));
                    self.shared.keep_only(&job.entry, &refused);
                    self.shared.set_aside(Aside::Refused, refused.sightings);
                    self.note_back(&job);
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

    /// Waits for the end of the process before, where that has the folder still, and takes over what it has
    /// left; whether it is the turn of this one.
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
            Err(Unsendable::Damaged(why)) => return Outcome::Damaged(why),
            Err(Unsendable::Fault(error)) => {
                let why = format!("{}: {error}", job.entry.file());
                let folder = self.shared.folder.path().to_owned();
                return Outcome::Away(StoreError::Spill { folder, why }, false);
            }
        };
        let standing = Standing { lost: job.lost, waiting: job.behind };
        match self.reach() {
            Err(error) => Outcome::Away(error, false),
            Ok(inbox) => match inbox.put(&parcel, standing) {
                Ok(()) => Outcome::Sent,
                Err(error) if error.is_of_row() => match send_others(inbox, &parcel, standing) {
                    Ok(refused) => Outcome::Refused(error, refused),
                    Err(error) => Outcome::Away(error, true),
                },
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
        // Where it comes back as another thing than it went, that is told once more.
        let is_new = !self.shared.is_away() || !(self.is_shut_out || error.is_of_absence());
        if !self.shared.is_away() {
            self.dropped = self.shared.backlog.dropped();
            self.shared.goes_away();
        }
        if !is_new {
            return;
        }
        let folder = self.shared.folder.path().display();
        if error.is_of_absence() {
            return tell(format_args!(
                "bannerwall: nothing is sent: {error}; batches wait in {folder}, and it is tried again and again"
            ));
        }
        self.is_shut_out = true;
        if let StoreError::Spill { why, .. } = error {
            return tell(format_args!(
                "bannerwall: nothing is sent: {folder}/{why}; batches wait until that is mended"
            ));
        }
        tell(format_args!(
            "bannerwall: nothing is sent, though the server is there: {error}; batches wait in {folder} until that is mended"
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
        self.is_shut_out = false;
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

/// Sends of a batch that is refused what is not: by its number, which is nobody's yet.
///
/// # Errors
/// The server is away.
fn send_others(inbox: &mut Inbox, parcel: &Parcel, standing: Standing) -> Result<Refused, StoreError> {
    let whole = Ok(Refused::Whole(parcel.sightings));
    let lines = Lines::of(&parcel.text);
    let with = |records: &[&str]| {
        let sightings = records.iter().map(|line| sightings(line)).sum();
        Parcel { text: lines.with(records), sightings, ..parcel.clone() }
    };
    let is_taken = |outcome: Result<(), StoreError>| match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.is_of_row() => Ok(false),
        Err(error) => Err(error),
    };
    let mut attempt = |records: &[&str]| is_taken(inbox.attempt(&with(records), standing));
    // What is refused without any record is not refused for one.
    if lines.records().is_empty() || !attempt(&[])? {
        return whole;
    }
    let (taken, refused) = sift(lines.records(), &mut attempt)?;
    if !taken.is_empty() && !is_taken(inbox.put(&with(&taken), standing))? {
        return whole;
    }
    Ok(Refused::Records(refused.len(), with(&refused)))
}

/// Parts what is refused together into what is taken, and what is refused each by itself.
fn sift<'a, E>(
    records: &[&'a str],
    is_taken: &mut impl FnMut(&[&str]) -> Result<bool, E>,
) -> Result<(Vec<&'a str>, Vec<&'a str>), E> {
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    let halves = |part: &[&'a str]| {
        let (first, second) = part.split_at(part.len() / 2);
        [second.to_vec(), first.to_vec()]
    };
    let mut parts = halves(records).to_vec();
    while let Some(part) = parts.pop() {
        if part.is_empty() || is_taken(&part)? {
            taken.extend(part);
        } else if part.len() == 1 {
            refused.extend(part);
        } else {
            parts.extend(halves(&part));
        }
    }
    Ok((taken, refused))
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
    fn the_records_at_fault_are_found_and_no_others() {
        for (all, bad) in
            [(1, vec![0]), (2, vec![1]), (7, vec![0, 3, 6]), (1_000, vec![617]), (5, (0..5).collect())]
        {
            let names: Vec<String> = (0..all).map(|number: usize| number.to_string()).collect();
            let records: Vec<&str> = names.iter().map(String::as_str).collect();
            let is_bad = |record: &str| bad.iter().any(|number| number.to_string() == record);
            let mut attempts = 0;
            let mut is_taken = |part: &[&str]| {
                attempts += 1;
                Ok::<_, ()>(!part.iter().any(|record| is_bad(record)))
            };
            let (taken, refused) = sift(&records, &mut is_taken).unwrap();
            assert!(refused.iter().all(|record| is_bad(record)) && refused.len() == bad.len(), "{refused:?}");
            let rest: Vec<&str> = records.iter().copied().filter(|record| !is_bad(record)).collect();
            assert_eq!(taken, rest, "in their order");
            assert!(attempts <= 20 * bad.len(), "{attempts} of {all}");
        }
        assert_eq!(sift(&["a", "b"], &mut |_: &[&str]| Err(7)), Err(7));
    }

    #[test]
    fn pauses_are_different_and_neither_long_nor_short() {
        let pause = Duration::from_secs(10);
        let pauses: Vec<Duration> = (0..64).map(|_| jittered(pause)).collect();
        assert!(pauses.iter().all(|it| (pause / 2..=pause).contains(it)));
        assert!(pauses.iter().any(|it| *it != pauses[0]));
    }
}
