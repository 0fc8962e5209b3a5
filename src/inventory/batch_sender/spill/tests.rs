//! What becomes of batches without a server: their order, their bound, and who is killed when.

use std::path::Path;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::file_name::SetAsideReason;
use super::leftover_runs::adopt;
use super::queue::{SendJob, UnsendableReason};
use super::waiting_batch::WaitingBatch;
use super::*;
use crate::inventory::batch::{BatchEncoder, FORMAT, SensorBatch};

/// Bytes of a small batch's file.
const BLOCK: u64 = 4096;

fn run() -> RunDescription {
    RunDescription {
        source: "guard",
        once: false,
        reports_changes: false,
        sensor: "east".into(),
        about: "queue 0".into(),
    }
}

/// What a run of the time `started` has.
fn shared(path: &Path, started: i64, bound: u64) -> SpillState {
    let folder = SpillDirectory::open(path).unwrap();
    let own = RunName { started, stream: format!("{started:08x}") };
    SpillState::new(folder, bound, SharedLosses::default(), own, BatchEncoder::new(&run(), started))
}

/// The same, behind what others have left.
fn next_run(path: &Path, started: i64, bound: u64) -> SpillState {
    let shared = shared(path, started, bound);
    adopt(&shared, None).unwrap();
    shared
}

fn parcel(shared: &SpillState, number: u64, sightings: u64) -> OutgoingBatch {
    let text = format!("{}{number}", BatchEncoder::new(&run(), shared.own.started).head());
    OutgoingBatch { stream: shared.own.stream.clone(), number, format: FORMAT, sightings, text }
}

fn keep(shared: &SpillState, number: u64, sightings: u64) {
    shared.keep(parcel(shared, number, sightings), false).unwrap();
}

fn end(shared: &SpillState, number: u64) {
    let text = BatchEncoder::new(&run(), shared.own.started).end(shared.own.started + 1);
    shared.keep(OutgoingBatch { text, ..parcel(shared, number, 0) }, true).unwrap();
}

/// Sends what waits to somebody who takes all: jobs, and what they hold.
fn send_all(shared: &SpillState) -> Vec<(SendJob, OutgoingBatch)> {
    shared.close();
    std::iter::from_fn(|| {
        let job = shared.next()?;
        let parcel = shared.read(&job.entry).unwrap();
        shared.is_sent();
        Some((job, parcel))
    })
    .collect()
}

/// Start of the run and number of each.
fn numbers(sent: &[(SendJob, OutgoingBatch)]) -> Vec<(i64, u64)> {
    sent.iter().map(|(job, parcel)| (job.entry.run.started, parcel.number)).collect()
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(path).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn batches_go_in_order_and_their_files_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let one = shared(folder.path(), 1, 1 << 30);
    (1..=3).for_each(|number| keep(&one, number, 5));
    end(&one, 4);
    assert_eq!((one.backlog.batches(), one.backlog.octets()), (4, 4 * BLOCK));
    assert_eq!(names(folder.path()).len(), 5, "batches and what is known of the run");
    let sent = send_all(&one);
    assert_eq!(numbers(&sent), [(1, 1), (1, 2), (1, 3), (1, 4)]);
    assert_eq!(sent.iter().map(|(job, _)| job.behind).collect::<Vec<_>>(), [3, 2, 1, 0]);
    assert_eq!((one.backlog.batches(), one.backlog.octets(), names(folder.path()).len()), (0, 0, 0));
}

#[test]
fn the_oldest_make_room_and_are_counted_but_never_an_end_nor_what_may_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let before = shared(folder.path(), 1, 1 << 30);
    keep(&before, 1, 100);
    end(&before, 2);
    let one = next_run(folder.path(), 2, 5 * BLOCK);
    // It may have come to the server.
    assert_eq!(one.next().unwrap().entry.number, 1);
    one.keep_first(true);
    (1..=6).for_each(|number| keep(&one, number, number));
    assert_eq!((one.backlog.batches(), one.backlog.dropped()), (5, 1 + 2 + 3));
    // It was not, and is the oldest then.
    one.keep_first(false);
    keep(&one, 7, 7);
    assert_eq!(one.backlog.dropped(), 106);
    let sent = send_all(&one);
    assert_eq!(numbers(&sent), [(1, 2), (2, 4), (2, 5), (2, 6), (2, 7)]);
    assert_eq!(sent.iter().map(|(job, _)| job.lost).collect::<Vec<_>>(), [100, 6, 6, 6, 6]);
}

#[test]
fn what_cannot_be_read_for_now_is_not_damaged() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let one = shared(folder.path(), 1, 1 << 30);
    keep(&one, 1, 5);
    let entry = one.next().unwrap().entry;
    std::fs::rename(folder.path().join(entry.file()), other.path().join("batch")).unwrap();
    assert!(matches!(one.read(&entry), Err(UnsendableReason::Damaged(_))), "it is gone");
    for (code, passes) in [
        (libc::EMFILE, true),
        (libc::ENFILE, true),
        (libc::EACCES, true),
        (libc::EIO, false),
        (libc::ENOENT, false),
    ] {
        let read = UnsendableReason::from(std::io::Error::from_raw_os_error(code));
        assert_eq!(matches!(read, UnsendableReason::Fault(_)), passes, "{code}");
    }
}

#[test]
fn a_clock_that_jumps_makes_nothing_old() {
    let (own, other) = (shared_name(1), shared_name(2));
    let day = Duration::from_secs(86_400);
    let now = SystemTime::now();
    for (run, written, is_old) in [
        (&own, SystemTime::UNIX_EPOCH, false),
        (&own, now - 100 * day, false),
        (&other, SystemTime::UNIX_EPOCH + 3 * day, false),
        (&other, now + day, false),
        (&other, now - 100 * day, true),
    ] {
        let entry = WaitingBatch::in_file(run.clone(), 1, false, 1, written);
        assert_eq!(entry.age(&own) > 90 * day, is_old, "{run:?} {written:?}");
    }
}

fn shared_name(started: i64) -> RunName {
    RunName { started, stream: format!("{started:08x}") }
}

#[test]
fn a_server_that_says_nothing_holds_up_nobody_who_knows_whose_the_folder_is() {
    let folder = tempfile::tempdir().unwrap();
    // It takes connections, and nobody reads them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgresql://east@{}/net", silent.local_addr().unwrap());
    let place = DatabaseLocation::parse(url.into()).unwrap();
    let owner = SpillOwner { sensor: "east".into(), server: place.to_string() };
    SpillDirectory::open(folder.path()).unwrap().remember(&owner).unwrap();
    let config = SpillConfig { folder: folder.path().to_owned(), size: 1 << 20, succeeds: false };
    let patience = Some(Duration::ZERO);
    let (mut spill, backlog) =
        SpillStore::start(&config, &place, None, &run(), SharedLosses::default(), patience)
            .expect("it waits in the folder");
    spill.finish(0).unwrap();
    assert_eq!(backlog.batches(), 1, "the end");
}

#[test]
fn who_was_killed_is_gone_on_for_and_ended_with_all_that_was_lost() {
    let folder = tempfile::tempdir().unwrap();
    let killed = shared(folder.path(), 1, 3 * BLOCK);
    (1..=4).for_each(|number| keep(&killed, number, 10));
    assert_eq!(killed.backlog.dropped(), 10);
    std::fs::write(folder.path().join(format!("{}.new", killed.own.batch(5, false))), "half").unwrap();
    drop(killed);
    // It is killed at once, too, and so is one with nothing to send.
    drop(next_run(folder.path(), 2, 1 << 30));
    let third = next_run(folder.path(), 3, 1 << 30);
    keep(&third, 1, 1);
    let sent = send_all(&third);
    let at = |index: usize| &sent[index];
    assert_eq!(numbers(&sent)[..3], [(1, 2), (1, 3), (1, 4)]);
    let ended = |(job, parcel): &(SendJob, OutgoingBatch)| {
        let batch = SensorBatch::read(parcel.format, &parcel.text).unwrap();
        (job.entry.is_end, job.entry.run.started, batch.ended.is_some(), job.lost)
    };
    assert_eq!((ended(at(3)), ended(at(4))), ((true, 1, true, 10), (true, 2, true, 0)));
    assert!(at(3).1.number > 4 && at(3).1.number == at(3).0.entry.number);
    assert_eq!((at(5).0.entry.run.started, sent.len()), (3, 6));
    // Nothing is left but the run that goes on.
    assert_eq!(names(folder.path()), [third.own.file()]);
}

#[test]
fn a_run_that_ended_without_its_server_is_not_ended_once_more() {
    let folder = tempfile::tempdir().unwrap();
    let one = shared(folder.path(), 1, 1 << 30);
    keep(&one, 1, 1);
    end(&one, 2);
    drop(one);
    // Known to the server is what it was when the file of the run was gone, and the end's was not.
    for _ in 0..2 {
        let next = shared(folder.path(), 2, 1 << 30);
        let _ = next.folder.remove(&RunName { started: 1, stream: "00000001".into() }.file());
        adopt(&next, None).unwrap();
        assert_eq!(next.backlog.batches(), 2);
        let _ = next.folder.remove(&next.own.file());
    }
    let next = next_run(folder.path(), 2, 1 << 30);
    assert_eq!(numbers(&send_all(&next)), [(1, 1), (1, 2)]);
}

#[test]
fn a_damaged_batch_is_set_aside_and_stops_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let one = shared(folder.path(), 1, 1 << 30);
    (1..=4).for_each(|number| keep(&one, number, 10));
    let file = |number| folder.path().join(one.own.batch(number, false));
    let whole = std::fs::read(file(1)).unwrap();
    std::fs::write(file(1), &whole[..whole.len() - 1]).unwrap();
    // Whole, but another one than its name says; and one that is gone.
    std::fs::copy(file(3), file(2)).unwrap();
    std::fs::remove_file(file(4)).unwrap();
    let mut sent = Vec::new();
    one.close();
    while let Some(job) = one.next() {
        match one.read(&job.entry) {
            Ok(parcel) => {
                sent.push(parcel.number);
                one.is_sent();
            }
            Err(_) => one.set_aside(SetAsideReason::Damaged, 0),
        }
    }
    assert_eq!((sent, one.backlog.set_aside(), one.backlog.dropped()), (vec![3], 3, 0));
    let aside = names(folder.path());
    assert_eq!(aside.iter().filter(|name| name.ends_with(".damaged")).count(), 2, "{aside:?}");
    // Nor does it come back, or count twice where a file of a run is damaged.
    std::fs::write(folder.path().join(one.own.file()), "no run").unwrap();
    let next = next_run(folder.path(), 2, 1 << 30);
    assert_eq!(numbers(&send_all(&next)), []);
}

#[test]
fn what_a_server_refuses_is_lost_and_told_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let one = shared(folder.path(), 1, 1 << 30);
    keep(&one, 1, 10);
    keep(&one, 2, 1);
    one.next().unwrap();
    one.set_aside(SetAsideReason::Refused, 10);
    assert_eq!(send_all(&one)[0].0.lost, 10);
    assert!(names(folder.path()).iter().any(|name| name.ends_with(".refused")));
}

#[test]
fn what_a_server_might_have_forgotten_is_not_sent() {
    let folder = tempfile::tempdir().unwrap();
    let one = shared(folder.path(), 1, 1 << 30);
    (1..=3).for_each(|number| keep(&one, number, 10));
    let old = SystemTime::now() - Duration::from_secs(91 * 86_400);
    let path = folder.path().join(one.own.batch(1, false));
    std::fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
    drop(one);
    let next = next_run(folder.path(), 2, 1 << 30);
    let sent = send_all(&next);
    assert_eq!(numbers(&sent)[..2], [(1, 2), (1, 3)]);
    assert_eq!((sent[0].0.lost, next.backlog.dropped()), (10, 10));
}

#[test]
fn a_folder_that_takes_nothing_costs_memory_and_no_order() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("spill");
    let one = shared(&path, 1, 1 << 30);
    keep(&one, 1, 1);
    std::fs::rename(&path, parent.path().join("away")).unwrap();
    keep(&one, 2, 2);
    let large = OutgoingBatch { text: "x".repeat(9 << 20), ..parcel(&one, 3, 3) };
    assert!(one.keep(large, false).is_err(), "there is a bound");
    std::fs::rename(parent.path().join("away"), &path).unwrap();
    keep(&one, 3, 3);
    assert_eq!((one.backlog.batches(), names(&path).len()), (3, 3));
    one.write_memory_batches();
    assert_eq!((one.backlog.octets(), names(&path).len()), (3 * BLOCK, 4));
    drop(one);
    assert_eq!(numbers(&send_all(&next_run(&path, 2, 1 << 30)))[..3], [(1, 1), (1, 2), (1, 3)]);
}

/// What happens to a sensor.
#[derive(Debug, Clone)]
enum Step {
    Keep(u64),
    Send,
    /// The server has it, and the answer is lost.
    Unanswered,
    Kill,
    /// The byte at a part of the way through the first file is another one.
    Damage(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1u64..9).prop_map(Step::Keep),
        4 => Just(Step::Send),
        1 => Just(Step::Unanswered),
        1 => Just(Step::Kill),
        1 => any::<u8>().prop_map(Step::Damage),
    ];
    proptest::collection::vec(step, 1..60)
}

/// What a server has of a run: the highest number, sightings, what was lost.
#[derive(Debug, Default, Clone, Copy)]
struct Stream {
    number: u64,
    sightings: u64,
    lost: u64,
    ends: u64,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn each_sighting_is_merged_once_or_counted_as_lost(steps in steps(), blocks in 2u64..12) {
        let folder = tempfile::tempdir().unwrap();
        let mut streams = std::collections::BTreeMap::<RunName, Stream>::new();
        let (mut seen, mut damaged, mut started, mut number) = (0, 0, 1, 0);
        let mut one = shared(folder.path(), started, blocks * BLOCK);
        let mut take = |job: &SendJob, parcel: &OutgoingBatch| {
            let stream = streams.entry(job.entry.run.clone()).or_default();
            stream.lost = stream.lost.max(job.lost);
            if parcel.number > stream.number {
                stream.number = parcel.number;
                stream.sightings += parcel.sightings;
                stream.ends += u64::from(job.entry.is_end);
            }
        };
        let mut send = |shared: &SpillState, is_answered: bool, damaged: &mut u64| {
            if shared.backlog.batches() == 0 {
                return;
            }
            let Some(job) = shared.next() else { return };
            match shared.read(&job.entry) {
                Ok(parcel) => {
                    take(&job, &parcel);
                    if is_answered { shared.is_sent() } else { shared.keep_first(true) }
                }
                // It is not known how many it told of: the test does.
                Err(_) => {
                    *damaged += job.entry.sightings.unwrap_or_else(|| {
                        let octets = shared.folder.read(&job.entry.file()).unwrap();
                        String::from_utf8_lossy(&octets).rsplit('~').nth(1).unwrap().parse().unwrap()
                    });
                    shared.set_aside(SetAsideReason::Damaged, 0);
                }
            }
        };
        for step in steps {
            match step {
                Step::Keep(sightings) => {
                    number += 1;
                    seen += sightings;
                    let mut parcel = parcel(&one, number, sightings);
                    parcel.text.push_str(&format!("~{sightings}~"));
                    one.keep(parcel, false).unwrap();
                }
                Step::Send => send(&one, true, &mut damaged),
                Step::Unanswered => send(&one, false, &mut damaged),
                Step::Kill => {
                    drop(one);
                    (started, number) = (started + 1, 0);
                    one = next_run(folder.path(), started, blocks * BLOCK);
                }
                Step::Damage(at) => {
                    // Of one that is sent next, so that nothing makes room of which for an unknown reason much it
                    // was.
                    if one.backlog.batches() > 0 {
                        let job = one.next().unwrap();
                        one.keep_first(false);
                        let path = folder.path().join(job.entry.file());
                        let mut octets = std::fs::read(&path).unwrap();
                        let at = octets.len() * usize::from(at) / 300;
                        if !job.entry.is_end && octets[at] != b'~' && !octets[at].is_ascii_digit() {
                            octets[at] ^= 0x20;
                            std::fs::write(&path, octets).unwrap();
                            send(&one, true, &mut damaged);
                        }
                    }
                }
            }
            prop_assert!(one.backlog.octets() <= blocks * BLOCK + BLOCK * 60);
        }
        end(&one, number + 1);
        while one.backlog.batches() > 0 {
            send(&one, true, &mut damaged);
        }
        let sum = |of: fn(&Stream) -> u64| streams.values().map(of).sum::<u64>();
        let (merged, lost) = (sum(|it| it.sightings), sum(|it| it.lost));
        // What was unanswered, and dropped by the next run, is counted twice rather than not at all.
        prop_assert!(merged + lost + damaged >= seen, "{} + {} + {} < {}", merged, lost, damaged, seen);
        prop_assert!(merged <= seen);
        prop_assert!(streams.values().all(|stream| stream.ends <= 1));
        prop_assert_eq!(streams.len() as i64, started, "each run is ended");
        prop_assert!(names(folder.path()).iter().all(|name| name.ends_with(".damaged")));
    }
}
