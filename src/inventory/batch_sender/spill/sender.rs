//! The thread that sends waiting batches, one after the other. Their order matters: a server treats a
//! number lower than the last one as known. A batch that the server refuses for its content is set aside
//! and does not block others; of it, only the refused records.

use std::time::{Duration, SystemTime};

use super::super::random;
use super::file_name::SetAsideReason;
use super::leftover_runs::adopt;
use super::queue::{SendJob, SpillState, UnsendableReason};
use crate::database::DatabaseLocation;
use crate::database::OutageTracker;
use crate::diagnostics::log_line;
use crate::inventory::batch::{BatchText, sightings};
use crate::inventory::database::{OutgoingBatch, SensorBacklog, SensorInbox};
use crate::inventory::error::StoreError;

/// First and longest pause while the server is away.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// Interval of the check whether the predecessor has stopped.
const LOOKS: Duration = Duration::from_millis(50);

/// Sends batches.
#[derive(Debug)]
pub(super) struct SpillSender {
    shared: std::sync::Arc<SpillState>,
    place: DatabaseLocation,
    sensor: String,
    inbox: Option<SensorInbox>,
    absence: OutageTracker,
    /// True if it was reported that the server is reachable, but refuses this sensor.
    is_shut_out: bool,
    /// Number of sightings that had been dropped before the server went away.
    dropped: u64,
    /// True if the run has ended: then a server that is away is not waited for.
    is_ending: bool,
}

/// Result of sending a batch.
enum SendOutcome {
    /// The server has it.
    Sent,
    /// Its file is damaged.
    Damaged(String),
    /// The server refuses it.
    Refused(StoreError, RefusedPart),
    /// The server is away; it may have the batch nevertheless.
    Away(StoreError, bool),
}

/// The refused part of a batch.
enum RefusedPart {
    /// All of it, with this number of sightings.
    Whole(u64),
    /// This number of its records, as a batch; the server has the others.
    Records(usize, OutgoingBatch),
}

impl SpillSender {
    /// Creates a sender to a server, with an open connection if there is one.
    pub(super) fn new(
        shared: std::sync::Arc<SpillState>,
        place: DatabaseLocation,
        sensor: String,
        inbox: Option<SensorInbox>,
    ) -> Self {
        let absence = OutageTracker::new(PAUSES.0).up_to(PAUSES.1);
        Self { shared, place, sensor, inbox, absence, is_shut_out: false, dropped: 0, is_ending: false }
    }

    /// Sends until the run has ended and no batch waits, or the server is away then.
    pub(super) fn run(mut self) {
        if !self.await_predecessor() {
            return;
        }
        while let Some(job) = self.shared.next() {
            match self.send(&job) {
                SendOutcome::Sent => {
                    self.shared.is_sent();
                    self.note_back(&job);
                }
                SendOutcome::Damaged(why) => {
                    // For the own run, the number is known.
                    let sightings = job.entry.sightings.unwrap_or_default();
                    self.set_aside(&job, SetAsideReason::Damaged, sightings, &why);
                }
                SendOutcome::Refused(error, RefusedPart::Whole(sightings)) => {
                    self.set_aside(&job, SetAsideReason::Refused, sightings, &error.to_string());
                }
                SendOutcome::Refused(error, RefusedPart::Records(count, refused)) => {
                    let (folder, file) = (self.shared.folder.path().display(), job.entry.file());
                    log_line(format_args!(
                        "bannerwall: {folder}/{file}: records that the server refuses are set aside \
                         (.refused): {count}: {error}"
                    ));
                    self.shared.keep_only(&job.entry, &refused);
                    self.shared.set_aside(SetAsideReason::Refused, refused.sightings);
                    self.note_back(&job);
                }
                SendOutcome::Away(error, may_be_there) => {
                    // If the connection broke before the batch was sent, the server cannot have it, and
                    // it may be dropped again.
                    self.shared.keep_first(may_be_there);
                    self.note_away(&error);
                    if self.is_ending {
                        return;
                    }
                    let pause = self.absence.record_failure(|| {});
                    self.is_ending = self.shared.pause(jittered(pause));
                }
            }
        }
    }

    /// Waits for the end of the predecessor if it still holds the directory, and adopts its batches.
    /// Returns false if the run ends first.
    fn await_predecessor(&mut self) -> bool {
        let shared = &self.shared;
        if shared.lock.get().is_none() {
            log_line(format_args!(
                "bannerwall: batches wait in {} until the process that uses it ({}) has ended",
                shared.folder.path().display(),
                shared.folder.holder().unwrap_or_default()
            ));
        }
        while shared.lock.get().is_none() {
            if let Ok(Some(lock)) = shared.folder.lock() {
                // The lock comes before the list of files: the other process may write batches until it
                // exits.
                let _ = shared.lock.set(lock);
                take_over(shared, None);
            } else if shared.pause(LOOKS) {
                return false;
            }
        }
        true
    }

    fn send(&mut self, job: &SendJob) -> SendOutcome {
        let parcel = match self.shared.read(&job.entry) {
            Ok(parcel) => parcel,
            Err(UnsendableReason::Damaged(why)) => return SendOutcome::Damaged(why),
            Err(UnsendableReason::Fault(error)) => {
                let why = format!("{}: {error}", job.entry.file());
                let folder = self.shared.folder.path().to_owned();
                return SendOutcome::Away(StoreError::Spill { folder, why }, false);
            }
        };
        let standing = SensorBacklog { lost: job.lost, waiting: job.behind };
        match self.reach() {
            Err(error) => SendOutcome::Away(error, false),
            Ok(inbox) => match inbox.insert_batch(&parcel, standing) {
                Ok(()) => SendOutcome::Sent,
                Err(error) if error.is_row_rejection() => match send_others(inbox, &parcel, standing) {
                    Ok(refused) => SendOutcome::Refused(error, refused),
                    Err(error) => SendOutcome::Away(error, true),
                },
                Err(error) => SendOutcome::Away(error, true),
            },
        }
    }

    /// Returns a connection to the server that knows this sensor.
    fn reach(&mut self) -> Result<&mut SensorInbox, StoreError> {
        let inbox = match self.inbox.take() {
            Some(mut inbox) => match inbox.ensure_connected() {
                Ok(()) => inbox,
                Err(error) => {
                    self.inbox = Some(inbox);
                    return Err(error);
                }
            },
            None => {
                let inbox = SensorInbox::open(&self.place)?;
                match inbox.sensor()? {
                    // The server may be another one behind the same name, with another role.
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
        // If the kind of failure changes, it is reported once more.
        let is_new = !self.shared.is_away() || !(self.is_shut_out || error.is_unavailable());
        if !self.shared.is_away() {
            self.dropped = self.shared.backlog.dropped();
            self.shared.mark_server_away();
        }
        if !is_new {
            return;
        }
        let folder = self.shared.folder.path().display();
        if error.is_unavailable() {
            return log_line(format_args!(
                "bannerwall: cannot send batches: {error}; they wait in {folder} and will be sent later"
            ));
        }
        self.is_shut_out = true;
        if let StoreError::Spill { why, .. } = error {
            return log_line(format_args!(
                "bannerwall: cannot send batches: {folder}/{why}; they wait until you fix this"
            ));
        }
        log_line(format_args!(
            "bannerwall: the server is up but refuses batches: {error}; they wait in {folder} until you fix this"
        ));
    }

    fn note_back(&mut self, job: &SendJob) {
        if !self.shared.is_away() {
            return;
        }
        // Reported once all waiting batches are sent.
        if self.absence.record_success() {
            log_line(format_args!("bannerwall: the server accepts batches again; {} waiting", job.behind));
        }
        self.is_shut_out = false;
        if self.shared.backlog.batches() == 0 {
            self.shared.mark_server_back();
            let lost = self.shared.backlog.dropped() - self.dropped;
            log_line(format_args!(
                "bannerwall: all waiting batches are sent; sightings dropped meanwhile: {lost}"
            ));
        }
    }

    fn set_aside(&self, job: &SendJob, aside: SetAsideReason, sightings: u64, why: &str) {
        let (folder, file) = (self.shared.folder.path().display(), job.entry.file());
        log_line(format_args!("bannerwall: {folder}/{file} is set aside ({}): {why}", aside.ending()));
        self.shared.set_aside(aside, sightings);
    }
}

/// Sends the accepted records of a refused batch with the batch's number, which is still unused.
///
/// # Errors
/// The server is away.
fn send_others(
    inbox: &mut SensorInbox,
    parcel: &OutgoingBatch,
    standing: SensorBacklog,
) -> Result<RefusedPart, StoreError> {
    let whole = Ok(RefusedPart::Whole(parcel.sightings));
    let lines = BatchText::of(&parcel.text);
    let with = |records: &[&str]| {
        let sightings = records.iter().map(|line| sightings(line)).sum();
        OutgoingBatch { text: lines.with(records), sightings, ..parcel.clone() }
    };
    let is_taken = |outcome: Result<(), StoreError>| match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.is_row_rejection() => Ok(false),
        Err(error) => Err(error),
    };
    let mut attempt = |records: &[&str]| is_taken(inbox.attempt(&with(records), standing));
    // If the server refuses the batch without any record, no record is at fault.
    if lines.records().is_empty() || !attempt(&[])? {
        return whole;
    }
    let (taken, refused) = split_refused(lines.records(), &mut attempt)?;
    if !taken.is_empty() && !is_taken(inbox.insert_batch(&with(&taken), standing))? {
        return whole;
    }
    Ok(RefusedPart::Records(refused.len(), with(&refused)))
}

/// Splits records that are refused together into accepted ones and those that are refused alone.
fn split_refused<'a, E>(
    records: &[&'a str],
    is_taken: &mut impl FnMut(&[&str]) -> Result<bool, E>,
) -> Result<(Vec<&'a str>, Vec<&'a str>), E> {
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    let halves = |part: &[&'a str]| {
        let (first, second) = part.split_at(part.len() / 2);
        // The list is a stack: the first half must be on top, so that records keep their order.
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

/// Adopts the batches of earlier runs; reports a failure.
pub(super) fn take_over(shared: &SpillState, changed: Option<SystemTime>) {
    match adopt(shared, changed) {
        Ok(()) if shared.backlog.batches() > 0 => log_line(format_args!(
            "bannerwall: batches of earlier runs in {1}: {0}; they are sent first",
            shared.backlog.batches(),
            shared.folder.path().display()
        )),
        Ok(()) => {}
        Err(error) => log_line(format_args!(
            "bannerwall: --spill {}: cannot adopt earlier batches: {error}",
            shared.folder.path().display()
        )),
    }
}

/// Returns a random time between half of the pause and all of it, so that not all sensors retry at once.
fn jittered(pause: Duration) -> Duration {
    // Without random bytes it is the whole pause.
    let [octet] = random().unwrap_or([u8::MAX]);
    // Many sensors lose the same server at the same time. Without the random part they would all return
    // at the same time, too.
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
            let (taken, refused) = split_refused(&records, &mut is_taken).unwrap();
            assert!(refused.iter().all(|record| is_bad(record)) && refused.len() == bad.len(), "{refused:?}");
            let rest: Vec<&str> = records.iter().copied().filter(|record| !is_bad(record)).collect();
            assert_eq!(taken, rest, "in their order");
            assert!(attempts <= 20 * bad.len(), "{attempts} of {all}");
        }
        assert_eq!(split_refused(&["a", "b"], &mut |_: &[&str]| Err(7)), Err(7));
    }

    #[test]
    fn pauses_are_different_and_neither_long_nor_short() {
        let pause = Duration::from_secs(10);
        let pauses: Vec<Duration> = (0..64).map(|_| jittered(pause)).collect();
        assert!(pauses.iter().all(|it| (pause / 2..=pause).contains(it)));
        assert!(pauses.iter().any(|it| *it != pauses[0]));
    }
}
