//! What becomes of batches whose connection to the server is lost.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use super::*;
use crate::inventory::sighting::{AssetBanner, AssetKey, BannerKind, NamedSoftware, SightingContent};

/// What a way to a server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Takes whatever comes to the other end.
    Pass,
    /// Breaks off before the end of the next transaction, which the server still hears of: after so long.
    Break(Duration),
    /// Takes nobody.
    Refuse,
}

/// A way to a server, by a socket of its own.
struct Way {
    place: Place,
    mode: Arc<Mutex<Mode>>,
    /// Connections that only the server takes for alive.
    dead: Arc<Mutex<Vec<UnixStream>>>,
    /// How often somebody has come.
    comers: Arc<AtomicUsize>,
}

impl Way {
    /// To a new database; none where there is no server.
    fn new() -> Option<Self> {
        let url = Postgres::shared()?.database();
        let (_, rest) = url.split_once("host=").unwrap();
        let (folder, _) = rest.split_once('&').unwrap();
        let place = Place::new();
        let own = place.place.file().unwrap().with_file_name(".s.PGSQL.5432");
        let listener = UnixListener::bind(&own).unwrap();
        let by_us = url.replace(folder, own.parent().unwrap().to_str().unwrap());
        let (mode, dead) = (Arc::new(Mutex::new(Mode::Pass)), Arc::<Mutex<Vec<_>>>::default());
        let (theirs, shared) = (format!("{folder}/.s.PGSQL.5432"), (Arc::clone(&mode), Arc::clone(&dead)));
        let comers = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&comers);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                counted.fetch_add(1, Relaxed);
                if *shared.0.lock().unwrap() != Mode::Refuse {
                    carry(client, UnixStream::connect(&theirs).unwrap(), shared.clone());
                }
            }
        });
        let place = Place {
            place: database::DatabaseLocation::parse(by_us.into()).unwrap(),
            url: Some(url),
            ..place
        };
        Some(Self { place, mode, dead, comers })
    }

    fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    /// A run that reports changes.
    fn writer(&self) -> RunWriter {
        let (sensor, about) = ("edge".to_owned(), String::new());
        let run = RunDescription { source: "guard", once: false, reports_changes: true, sensor, about };
        RunWriter::open(&self.place.place, &run).unwrap()
    }

    /// How often servers were seen.
    fn seen(&self) -> String {
        self.place.ask("SELECT sum(count) FROM sightings")
    }
}

/// Carries bytes both ways.
fn carry(
    mut client: UnixStream,
    mut server: UnixStream,
    (mode, dead): (Arc<Mutex<Mode>>, Arc<Mutex<Vec<UnixStream>>>),
) {
    let (mut back, mut from) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut back);
        let _ = back.shutdown(std::net::Shutdown::Both);
    });
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            let octets = &buffer[..count];
            let now = *mode.lock().unwrap();
            if let (Mode::Break(pause), true) = (now, octets.windows(7).any(|word| word == b"COMMIT\0")) {
                *mode.lock().unwrap() = if pause.is_zero() { Mode::Refuse } else { Mode::Pass };
                dead.lock().unwrap().push(server.try_clone().unwrap());
                client.shutdown(std::net::Shutdown::Both).unwrap();
                std::thread::sleep(pause);
                server.write_all(octets).unwrap();
                return;
            }
            server.write_all(octets).unwrap();
        }
        let _ = server.shutdown(std::net::Shutdown::Both);
    });
}

fn record(port: u16) -> SightingRecord {
    let address = std::net::Ipv4Addr::new(198, 51, 100, 1).into();
    let time = Timestamp::from_nanos(1_767_225_600_000_000_000);
    SightingRecord {
        asset: AssetKey { address, port, side: Side::Server, protocol: "ssh" },
        what: SightingContent::Said(AssetBanner::new(BannerKind::Banner, "SSH-2.0-a")),
        software: NamedSoftware::default(),
        first: time,
        last: time,
        count: 1,
    }
}

#[test]
fn a_batch_whose_answer_was_lost_is_written_once_however_often_it_is_tried() {
    let Some(way) = Way::new() else { return };
    let mut writer = way.writer();
    let batch: Vec<SightingRecord> = (1..=5).map(record).collect();
    way.set(Mode::Break(Duration::ZERO));
    writer.write(&batch[..3]).unwrap_err();
    writer.write(&batch[..3]).unwrap_err();
    let long_ago = Timestamp::from_nanos(0);
    writer.prune(long_ago).unwrap_err();
    way.set(Mode::Pass);
    writer.prune(long_ago).unwrap();
    assert_eq!(writer.mark_gone(long_ago).unwrap().len(), 0);
    // Others write meanwhile, what is none of its changes.
    way.writer().write(&[record(9)]).unwrap();
    let taken = writer.write(&batch).unwrap();
    let new = |changes: &[InventoryChange]| changes.iter().filter(|it| it.kind == "new_service").count();
    assert_eq!((taken.records, new(&taken.changes)), (3, 3));
    let taken = writer.write(&batch[3..]).unwrap();
    assert_eq!((taken.records, new(&taken.changes)), (2, 2));
    assert_eq!(way.seen(), "6");
}

#[test]
fn a_batch_that_a_server_hears_the_end_of_late_is_written_once() {
    let Some(way) = Way::new() else { return };
    let mut writer = way.writer();
    way.set(Mode::Break(Duration::from_millis(700)));
    let taken = writer.write(&[record(1), record(2)]).unwrap();
    assert_eq!((taken.records, taken.changes.len(), way.seen().as_str()), (2, 3, "2"));
}

#[test]
fn what_is_gone_is_told_of_though_the_answer_was_lost() {
    let later = Timestamp::from_nanos(1_767_225_700_000_000_000);
    let told = |changes: &[InventoryChange]| changes.iter().map(|it| it.kind.clone()).collect::<Vec<_>>();
    // On the way back at once, with the next look, and with the next batch.
    for case in 0..3 {
        let Some(way) = Way::new() else { return };
        let mut writer = way.writer();
        writer.write(&[record(1)]).unwrap();
        way.set(Mode::Break(if case == 0 { Duration::from_millis(300) } else { Duration::ZERO }));
        let mut gone = writer.mark_gone(later);
        way.set(Mode::Pass);
        match case {
            0 => {}
            1 => gone = writer.mark_gone(later),
            _ => {
                gone.unwrap_err();
                let taken = writer.write(&[record(2)]).unwrap();
                assert_eq!(taken.records, 0, "it is to be told again");
                gone = Ok(taken.changes);
                assert_eq!(writer.write(&[record(2)]).unwrap().records, 1);
            }
        }
        assert_eq!(told(&gone.unwrap()), ["service_gone"], "{case}");
        assert_eq!(told(&writer.mark_gone(later).unwrap()).len(), usize::from(case == 2));
        let changes = way.place.ask("SELECT count(*) FROM changes WHERE kind = 'service_gone'");
        assert_eq!(changes, if case == 2 { "2" } else { "1" });
    }
}

#[test]
fn a_run_that_came_back_is_not_taken_for_killed_once_its_old_connection_is_gone() {
    let Some(way) = Way::new() else { return };
    let mut writer = way.writer();
    way.set(Mode::Break(Duration::from_millis(200)));
    writer.write(&[record(1)]).unwrap();
    let holders = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(way.place.ask(holders), "1", "the old one");
    for stream in way.dead.lock().unwrap().drain(..) {
        stream.shutdown(std::net::Shutdown::Both).unwrap();
    }
    bannerwall_test_support::eventually("the old one to go", || {
        (way.place.ask(holders) == "0").then_some(())
    });
    writer.write(&[record(2)]).unwrap();
    drop(way.writer());
    assert_eq!(way.place.ask("SELECT state FROM runs WHERE id = 1"), "running");
}

#[test]
fn what_is_seen_last_is_kept_where_the_connection_ended_meanwhile() {
    let Some(way) = Way::new() else { return };
    let losses = SharedLosses::default();
    let mut recorder = SightingRecorder::new(Box::new(way.writer()), losses.clone());
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'bannerwall'";
    recorder.take(&ssh(EventSource::Guard, 0, "a_1"));
    assert_eq!(way.place.ask(end), "1");
    recorder.end();
    assert_eq!((losses.count(), way.seen().as_str()), (0, "2"));
    // And where nothing was left to write.
    let mut recorder = SightingRecorder::new(Box::new(way.writer()), losses);
    assert_ne!(way.place.ask(end), "0");
    recorder.end();
    assert_eq!(way.place.ask("SELECT state, count(*) FROM runs GROUP BY 1"), "done|2");
}

#[test]
fn what_a_server_refuses_goes_without_what_came_with_it() {
    let Some(way) = Way::new() else { return };
    let losses = SharedLosses::default();
    let mut recorder = SightingRecorder::new(Box::new(way.writer()), losses.clone());
    way.place.ask("ALTER TABLE banners ADD CHECK (1 / (CASE text WHEN 'SSH-2.0-bad' THEN 0 ELSE 1 END) = 1)");
    for software in ["a", "b", "bad", "c", "d"] {
        recorder.take(&ssh(EventSource::Scan, 0, software));
    }
    recorder.end();
    assert_eq!(losses.count(), 1);
    assert_eq!(
        way.place.ask("SELECT string_agg(text, ' ' ORDER BY text) FROM banners"),
        "SSH-2.0-a SSH-2.0-b SSH-2.0-c SSH-2.0-d"
    );
}

#[test]
fn a_text_that_another_one_took_out_is_entered_again() {
    let Some(way) = Way::new() else { return };
    let mut writer = way.writer();
    writer.write(&[record(1)]).unwrap();
    // As pruning does, by another process: what is remembered is not there any more.
    way.place.ask("DELETE FROM hosts; DELETE FROM banners");
    assert_eq!(writer.write(&[record(2), record(1)]).unwrap().records, 2);
    way.place.ask("DELETE FROM services; DELETE FROM banners");
    assert_eq!(writer.write(&[record(3)]).unwrap().records, 1);
    let lost = "SELECT count(*) FROM sightings WHERE banner NOT IN (SELECT id FROM banners)";
    assert_eq!((way.seen().as_str(), way.place.ask(lost).as_str()), ("1", "0"));
}

#[test]
fn who_did_not_get_the_lock_in_time_writes_when_it_is_free() {
    let Some(way) = Way::new() else { return };
    let mut writer = way.writer();
    let url = way.place.url.clone().unwrap();
    // As long as another machine's pruning takes, and longer than the lock is waited for.
    let query = "BEGIN; LOCK TABLE sensors IN SHARE ROW EXCLUSIVE MODE; SELECT pg_sleep(6); COMMIT";
    let holder = std::thread::spawn(move || psql(&url, query));
    // Other tests take such locks in databases of their own beside it.
    let held = "SELECT count(*) FROM pg_locks WHERE mode = 'ShareRowExclusiveLock' AND granted \
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    while way.place.ask(held) == "0" {
        std::thread::yield_now();
    }
    writer.write(&[record(1)]).unwrap_err();
    holder.join().unwrap();
    assert_eq!(writer.write(&[record(1)]).unwrap().records, 1);
}

#[test]
fn services_and_hosts_that_another_one_took_out_are_entered_again() {
    let Some(way) = Way::new() else { return };
    let mut writer = way.writer();
    writer.write(&[record(1), record(2)]).unwrap();
    for table in ["sightings", "changes", "services", "hosts"] {
        way.place.ask(&format!("DELETE FROM {table}"));
    }
    assert_eq!(writer.write(&[record(1), record(3)]).unwrap().records, 2);
    assert_eq!(way.place.ask("SELECT count(*) FROM services"), "2");
    assert_eq!(way.seen(), "2");
}

#[test]
fn who_writes_has_one_connection_by_which_it_learns_who_it_is() {
    let Some(way) = Way::new() else { return };
    run(&way.place.place).unwrap();
    assert_eq!(way.comers.load(Relaxed), 1);
    assert_eq!(way.place.ask("SELECT count(*) FROM runs WHERE state = 'done'"), "1");
}
