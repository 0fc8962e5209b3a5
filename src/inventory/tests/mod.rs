//! What events leave in a store.

mod asking;
mod away;
mod tending;

use std::sync::{Arc, Mutex};

use bannerwall_test_support::{Postgres, psql};

use super::change::InventoryChange;
use super::database::{InventoryDatabase, RunWriter, maintenance, query};
use super::error::StoreError;
use super::event_input::{ChangeReporting, RecordConfig};
use super::recorder::{SharedLosses, SightingRecorder};
use super::store::{RunDescription, SightingRecord, SightingStore, WriteResult};
use super::{Inventory, ServiceFilter, ServiceRecord};
use crate::database;
use crate::event::*;
use crate::output::EventConsumer as _;

const HOUR: u64 = 3_600;

/// An event `at` seconds after the beginning of 2026.
fn event(source: EventSource, at: u64, kind: EventKind) -> Event {
    let end = |text: &str| {
        let address: std::net::SocketAddr = text.parse().unwrap();
        Endpoint { address: address.ip(), port: address.port() }
    };
    let flow = FlowContext {
        id: at,
        transport: TransportProtocol::Tcp,
        endpoints: FlowEndpoints { client: end("192.0.2.7:4000"), server: end("198.51.100.1:22") },
        from: None,
        interface: None,
        vlan: Vec::new(),
        packet_number: None,
        transaction: None,
        protocol: None,
        established: None,
        midstream: false,
    };
    let timestamp = Timestamp::from_nanos((1_767_225_600 + at) * 1_000_000_000);
    Event { timestamp, source, flow: Some(flow), kind }
}

fn said(software: &str) -> ApplicationFacts {
    let side = |software: &str| SshSide {
        software_version: software.to_owned(),
        banner: format!("SSH-2.0-{software}"),
        ..SshSide::default()
    };
    ApplicationFacts::Ssh(Arc::new(SshFacts {
        client: Some(side("client_1").into()),
        server: Some(side(software).into()),
    }))
}

fn ssh(source: EventSource, at: u64, software: &str) -> Event {
    event(source, at, EventKind::Application(said(software)))
}

fn alert(source: EventSource, at: u64, software: &str, rule: &str, blocked: bool) -> Event {
    let facts = AlertFacts {
        rule: rule.to_owned(),
        title: "A title".to_owned(),
        category: String::new(),
        action: RuleAction::Drop,
        blocked,
        enforced: false,
        severity: Severity::High,
        references: Vec::new(),
        product: ProductFacts::default(),
        from: Side::Server,
        banner: String::new(),
        application: said(software),
        matched: None,
        let_pass: None,
        resets: None,
        verdict: None,
    };
    event(source, at, EventKind::Alert(Arc::new(facts)))
}

fn port(source: EventSource, at: u64, state: PortState) -> Event {
    let facts =
        ConnectFacts { state, reason: "".into(), said: String::new(), round_trip: None, waited_ms: None };
    event(source, at, EventKind::Connect(facts))
}

/// A store that never has anything.
#[derive(Debug, Default, Clone)]
struct Broken(Arc<Mutex<(bool, Vec<SightingRecord>)>>);

impl SightingStore for Broken {
    fn write(&mut self, batch: &[SightingRecord]) -> Result<WriteResult, StoreError> {
        let (works, taken) = &mut *self.0.lock().unwrap();
        if !*works {
            return Err(StoreError::Create(std::io::ErrorKind::StorageFull.into()));
        }
        taken.extend_from_slice(batch);
        Ok(WriteResult { records: batch.len(), changes: Vec::new() })
    }

    fn finish(&mut self, _lost: u64) -> Result<(), StoreError> {
        Ok(())
    }
}

/// An inventory of its own: in a folder, or in a database of a server.
struct Place {
    place: database::DatabaseLocation,
    _folder: tempfile::TempDir,
    url: Option<String>,
}

/// Runs a test over a file, and over a server's database.
fn on_both(test: impl Fn(&Place)) {
    test(&Place::new());
    if let Some(server) = Postgres::shared() {
        let url = server.database();
        let place = database::DatabaseLocation::parse(url.clone().into()).unwrap();
        test(&Place { place, url: Some(url), ..Place::new() });
    }
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { place: folder.path().join("inventory.db").into(), _folder: folder, url: None }
    }

    /// Has a run see events.
    fn see(&self, source: EventSource, events: &[Event]) {
        let store = self.writer(source);
        let losses = SharedLosses::default();
        let mut recorder = SightingRecorder::new(Box::new(store), losses.clone());
        for event in events {
            recorder.take(event);
            recorder.flush();
        }
        recorder.end();
        assert_eq!(losses.count(), 0);
    }

    fn writer(&self, source: EventSource) -> RunWriter {
        let run = RunDescription {
            source: source.name(),
            once: source == EventSource::Replay,
            reports_changes: false,
            sensor: "edge".to_owned(),
            about: String::new(),
        };
        RunWriter::open(&self.place, &run).unwrap()
    }

    fn list(&self, filters: &[&str]) -> Vec<ServiceRecord> {
        let mut services = Vec::new();
        let filter = ServiceFilter::parse(filters.iter().copied()).unwrap();
        let show = |service| -> Result<(), StoreError> {
            services.push(service);
            Ok(())
        };
        query::services(&InventoryDatabase::open(&self.place).unwrap(), &filter, show).unwrap();
        services
    }

    /// What a query says, a line a row, cells parted by `|`.
    fn ask(&self, query: &str) -> String {
        if let Some(url) = &self.url {
            return psql(url, query);
        }
        let connection = rusqlite::Connection::open(self.place.file().unwrap()).unwrap();
        let mut statement = connection.prepare(query).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| {
            let cells = (0..columns).map(|column| match row.get_ref(column).unwrap() {
                rusqlite::types::ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                rusqlite::types::ValueRef::Null => "Null".to_owned(),
                other => format!("{other:?}"),
            });
            Ok(cells.collect::<Vec<_>>().join("|"))
        });
        rows.unwrap().map(Result::unwrap).collect::<Vec<_>>().join("\n")
    }

    /// Changes of the server, in their order.
    fn changes(&self) -> String {
        self.ask(
            "SELECT kind || coalesce(' ' || rule, '') FROM changes JOIN services ON services.id = service
             WHERE side = 'server' ORDER BY changes.id",
        )
    }

    /// Everything but the runs.
    fn contents(&self) -> String {
        let tables = [
            "hosts",
            "banners",
            "services",
            "sightings",
            "findings",
            "contacts",
            "banner_peers",
            "unanswered",
            "changes",
            "sensors",
        ];
        tables.map(|table| self.ask(&format!("SELECT * FROM {table} ORDER BY 1, 2, 3"))).join("\n\n")
    }
}

#[test]
fn who_said_what_when_and_how_often_is_kept() {
    on_both(|place| {
        place.see(
            EventSource::Guard,
            &[
                ssh(EventSource::Guard, 0, "OpenSSH_9.2p1 Debian-2+deb12u3"),
                ssh(EventSource::Guard, 10, "OpenSSH_9.2p1 Debian-2+deb12u3"),
                ssh(EventSource::Guard, 90, "OpenSSH_9.2p1 Debian-2+deb12u3"),
                alert(EventSource::Guard, 90, "OpenSSH_9.2p1 Debian-2+deb12u3", "old", true),
                alert(EventSource::Guard, 91, "OpenSSH_9.2p1 Debian-2+deb12u3", "old", true),
            ],
        );
        let services = place.list(&["side:server"]);
        let [service] = services.as_slice() else { panic!("{services:?}") };
        assert_eq!(
            (service.address.as_str(), service.port, service.protocol.as_str()),
            ("198.51.100.1", 22, "ssh")
        );
        assert_eq!(service.banner, "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3");
        assert_eq!(
            (service.product.as_deref(), service.version.as_deref()),
            (Some("OpenSSH"), Some("9.2p1"))
        );
        assert_eq!(service.patch.as_deref(), Some("Debian-2+deb12u3"));
        assert_eq!(service.first_seen.to_string(), "2026-01-01 00:00:00");
        assert_eq!(service.last_seen.to_string(), "2026-01-01 00:01:31");
        assert_eq!(service.sensors, ["guard/edge"]);
        assert_eq!((service.findings[0].count, service.findings[0].blocked), (2, 2));
        assert_eq!(
            place.ask(
                "SELECT count FROM sightings JOIN services ON services.id = service WHERE side = 'server'"
            ),
            "3"
        );
        assert_eq!(
            place.ask("SELECT address, count FROM contacts JOIN hosts ON hosts.id = client"),
            "192.0.2.7|3"
        );
        assert_eq!(place.changes(), "new_host\nnew_service\nfinding_new old");
        let client = place.list(&["side:client"]).pop().unwrap();
        assert_eq!(
            (client.address.as_str(), client.port, client.banner.as_str()),
            ("192.0.2.7", 0, "SSH-2.0-client_1")
        );
    });
}

#[test]
fn filters_find_what_they_ask_for() {
    on_both(|place| {
        place.see(
            EventSource::Scan,
            &[
                ssh(EventSource::Scan, 0, "OpenSSH_9.2p1"),
                alert(EventSource::Scan, 0, "OpenSSH_9.2p1", "old", false),
            ],
        );
        for (filter, found) in [
            ("product:openssh", 1),
            ("!product:openssh", 0),
            ("version:<9.6", 1),
            ("version:>9.6", 0),
            ("!version:<9.6", 0),
            ("!version:>9.6", 1),
            ("!version:>9.6 product:openssh version:<9.6", 1),
            ("!version:<9.6 product:openssh", 0),
            ("product:openssh !patch:x net:198.51.100.1", 1),
            ("cpe:x", 0),
            ("!cpe:x", 1),
            ("net:198.51.100.0/24", 1),
            ("net:198.51.0.0/24", 0),
            ("net:::/0", 0),
            ("host:198.51.100.1", 1),
            ("port:22", 1),
            ("!port:22", 0),
            ("seen:>1m", 1),
            ("seen:<1m", 0),
            ("finding:high", 1),
            ("finding:old", 1),
            ("finding:critical", 0),
            ("sensor:edge", 1),
            ("sensor:scan/edge", 1),
            ("sensor:guard/edge", 0),
            ("OPENSSH", 1),
            ("banner:dropbear", 0),
            ("state:open", 1),
            ("side:client", 0),
        ] {
            let words: Vec<&str> = filter.split(' ').collect();
            assert_eq!(place.list(&words).len(), found, "{filter}");
        }
    });
}

#[test]
fn an_upgrade_is_a_change_and_what_rules_told_of_before_is_gone() {
    on_both(|place| {
        let (old, new) = ("OpenSSH_9.2p1", "OpenSSH_9.9");
        place.see(
            EventSource::Guard,
            &[
                ssh(EventSource::Guard, 0, old),
                alert(EventSource::Guard, 0, old, "regresshion", false),
                alert(EventSource::Guard, 0, old, "terrapin", false),
                ssh(EventSource::Guard, HOUR, new),
                alert(EventSource::Guard, HOUR, new, "terrapin", false),
            ],
        );
        let findings =
            |place: &Place| place.ask("SELECT rule, state FROM findings ORDER BY first_seen, rule");
        assert_eq!(findings(place), "regresshion|gone\nterrapin|gone\nterrapin|open");
        assert!(place.changes().contains("banner_changed\nfinding_gone regresshion"), "{}", place.changes());
        assert_eq!(place.list(&["finding:regresshion"]).len(), 0);
        assert_eq!(place.list(&["finding:terrapin"]).len(), 1);
        // And back again, which is one more.
        place.see(EventSource::Guard, &[ssh(EventSource::Guard, 2 * HOUR, old)]);
        assert_eq!(place.changes().matches("banner_changed").count(), 2);
        assert_eq!(place.list(&["version:9.2p1", "side:server"]).len(), 1);
    });
}

#[test]
fn servers_that_answer_by_turns_do_not_change() {
    on_both(|place| {
        let by_turns: Vec<Event> = (0..200)
            .map(|turn| ssh(EventSource::Guard, 61 * turn, if turn % 2 == 0 { "a_1" } else { "b_1" }))
            .collect();
        place.see(EventSource::Guard, &by_turns);
        assert!(place.changes().matches("banner_changed").count() <= 2, "{}", place.changes());
        // Once one of them is away for long, the other one stands.
        place.see(
            EventSource::Guard,
            &[ssh(EventSource::Guard, 10 * HOUR, "b_1"), ssh(EventSource::Guard, 12 * HOUR, "b_1")],
        );
        assert_eq!(place.list(&["product:b"]).len(), 1);
    });
}

#[test]
fn a_port_that_refuses_is_gone_until_it_answers() {
    on_both(|place| {
        place.see(EventSource::Scan, &[ssh(EventSource::Scan, 0, "a_1")]);
        place.see(EventSource::Scan, &[port(EventSource::Scan, HOUR, PortState::Closed)]);
        assert_eq!(place.list(&["state:gone"]).len(), 1);
        place.see(EventSource::Scan, &[port(EventSource::Scan, 2 * HOUR, PortState::Filtered)]);
        place.see(EventSource::Scan, &[port(EventSource::Scan, 3 * HOUR, PortState::Open)]);
        assert_eq!(place.list(&["state:open", "protocol:ssh", "product:a"]).len(), 1);
        assert_eq!(place.changes(), "new_host\nnew_service\nservice_gone\nservice_back");
    });
}

#[test]
fn an_open_port_becomes_the_service_that_speaks_there() {
    on_both(|place| {
        place.see(EventSource::Scan, &[port(EventSource::Scan, 0, PortState::Open)]);
        assert_eq!(place.list(&["protocol:unknown"]).len(), 1);
        place.see(
            EventSource::Scan,
            &[ssh(EventSource::Scan, HOUR, "a_1"), port(EventSource::Scan, 2 * HOUR, PortState::Open)],
        );
        let services = place.list(&[]);
        assert_eq!(services.len(), 1, "{services:?}");
        assert_eq!((services[0].protocol.as_str(), services[0].banner.as_str()), ("ssh", "SSH-2.0-a_1"));
        assert_eq!(place.changes(), "new_host\nnew_service");
    });
}

#[test]
fn a_capture_that_is_read_twice_is_counted_once_and_another_one_too() {
    on_both(|place| {
        let capture = |from: u64| -> Vec<Event> {
            let at = move |step: u64| from + 45 * step;
            (0..40)
                .flat_map(|step| {
                    let software = if step < 20 { "a_1" } else { "b_1" };
                    [
                        ssh(EventSource::Replay, at(step), software),
                        alert(EventSource::Replay, at(step), software, "old", false),
                    ]
                })
                .collect()
        };
        place.see(EventSource::Replay, &capture(10 * HOUR));
        let once = place.contents();
        place.see(EventSource::Replay, &capture(10 * HOUR));
        assert_eq!(place.contents(), once);
        // An older one says nothing of how things stand, but counts.
        place.see(EventSource::Replay, &capture(0));
        let count =
            "SELECT sum(count) FROM sightings JOIN services ON services.id = service WHERE side = 'server'";
        assert_eq!(place.ask(count), "80");
        assert_eq!(place.list(&["product:b"]).len(), 1);
        assert_eq!(place.changes().matches("banner_changed").count(), 1);
        let all = place.contents();
        place.see(EventSource::Replay, &capture(0));
        place.see(EventSource::Replay, &capture(10 * HOUR));
        assert_eq!(place.contents(), all);
        // Another sensor's sightings are its own.
        place.see(EventSource::Guard, &[ssh(EventSource::Guard, 10 * HOUR, "b_1")]);
        assert_eq!(place.list(&["product:b"])[0].sensors, ["guard/edge", "replay/edge"]);
    });
}

#[test]
fn a_server_that_says_something_else_each_time_is_bounded() {
    on_both(|place| {
        let many: Vec<Event> =
            (0..600).map(|number| ssh(EventSource::Guard, number, &format!("x_{number}"))).collect();
        place.see(EventSource::Guard, &many);
        assert_eq!(place.ask("SELECT banners, left_out FROM services WHERE side = 'server'"), "256|344");
        assert_eq!(place.ask("SELECT count(*) FROM banners WHERE side = 'server'"), "256");
    });
}

#[test]
fn what_was_seen_before_costs_one_row_a_minute() {
    let store = Broken::default();
    store.0.lock().unwrap().0 = true;
    let mut recorder = SightingRecorder::new(Box::new(store.clone()), SharedLosses::default());
    for at in 0..600 {
        recorder.take(&ssh(EventSource::Guard, at, "a_1"));
        recorder.flush();
    }
    recorder.end();
    let taken = &store.0.lock().unwrap().1;
    // What server and client said, in all and to each other, and that they met: at once, ten minutes, and the
    // rest.
    assert!(taken.len() <= 5 * 12, "{}", taken.len());
    assert_eq!(taken.iter().map(|record| record.count).sum::<u64>(), 5 * 600);
}

#[test]
fn what_a_store_refuses_is_tried_again_then_counted_and_news_once_more() {
    let store = Broken::default();
    let losses = SharedLosses::default();
    let mut recorder = SightingRecorder::new(Box::new(store.clone()), losses.clone());
    recorder.take(&ssh(EventSource::Guard, 0, "a_1"));
    recorder.flush();
    assert_eq!(losses.count(), 0);
    for number in 0..20_000 {
        recorder.take(&ssh(EventSource::Guard, 1, &format!("x_{number}")));
    }
    let lost = losses.count();
    assert!(lost > 0);
    store.0.lock().unwrap().0 = true;
    recorder.take(&ssh(EventSource::Guard, 2, "a_1"));
    recorder.end();
    let taken: u64 = store.0.lock().unwrap().1.iter().map(|record| record.count).sum();
    // Events of one connection: each of a server and a client, and of a new banner; once of the client's
    // coming and banner.
    assert_eq!(taken + losses.count(), (3 * 20_000 + 2) + 2 * 5);
    let says = |record: &SightingRecord| format!("{:?}", record.what).contains("SSH-2.0-a_1");
    assert!(store.0.lock().unwrap().1.iter().any(says), "what was lost is told when it is seen again");
}

/// Takes all, and wants it together.
struct Gathering(Arc<Mutex<Vec<usize>>>);

impl SightingStore for Gathering {
    fn write(&mut self, batch: &[SightingRecord]) -> Result<WriteResult, StoreError> {
        self.0.lock().unwrap().push(batch.len());
        Ok(WriteResult { records: batch.len(), changes: Vec::new() })
    }

    fn batching_delay(&self) -> Option<std::time::Duration> {
        Some(std::time::Duration::from_secs(3_600))
    }

    fn finish(&mut self, _lost: u64) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn records_gather_where_the_store_wants_it_but_not_without_end() {
    let batches = Arc::<Mutex<Vec<usize>>>::default();
    let mut recorder =
        SightingRecorder::new(Box::new(Gathering(Arc::clone(&batches))), SharedLosses::default());
    for software in 0..2_000 {
        recorder.take(&ssh(EventSource::Guard, 0, &format!("a_{software}")));
        recorder.flush();
    }
    let full = batches.lock().unwrap().clone();
    assert_eq!(full, [5, 1_000, 1_000, 1_000], "the first at once, and then by the thousand");
    recorder.end();
    // Each event is of another banner, said and said to a client. The client, its coming and whom it spoke to
    // are told at first; how often the client was seen, at last.
    let all: usize = batches.lock().unwrap().iter().sum();
    assert_eq!(all, 2 * 2_000 + 3 + 1);
}

/// What becomes of a guard's run.
fn run(place: &database::DatabaseLocation) -> Result<u64, String> {
    let config = RecordConfig {
        place: place.clone(),
        sensor: "edge".to_owned(),
        is_named: true,
        about: String::new(),
        keep: None,
        gone_after: None,
        max_size: None,
        spill: None,
        telling: ChangeReporting::default(),
    };
    config.start(EventSource::Guard, Vec::new()).map(Inventory::finish).map_err(|error| error.to_string())
}

#[test]
fn only_an_inventory_that_is_understood_is_opened() {
    on_both(|place| {
        let open = || InventoryDatabase::open(&place.place).map(drop).map_err(|error| error.to_string());
        assert!(open().unwrap_err().contains("no such inventory"));
        assert_eq!((run(&place.place), run(&place.place)), (Ok(0), Ok(0)));
        assert_eq!(place.ask("SELECT count(*) FROM runs WHERE state = 'done'"), "2");
        place.ask(match place.url {
            None => "PRAGMA user_version = 99",
            Some(_) => "UPDATE schema_version SET version = 99",
        });
        for refused in [run(&place.place).map(drop), open()] {
            let refused = refused.unwrap_err();
            assert!(refused.contains("version 99") && refused.contains("use a newer one"), "{refused}");
        }
    });
}

#[test]
fn a_file_that_is_no_inventory_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("foreign.db");
    let place = database::DatabaseLocation::from(path.clone());
    std::fs::write(&path, "").unwrap();
    assert!(InventoryDatabase::open(&place).unwrap_err().to_string().contains("not an inventory"));
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE a (b)").unwrap();
    assert!(run(&place).unwrap_err().contains("not an inventory of bannerwall"));
    std::fs::write(
        &path,
        "neither is this one, which is text and a bit longer than a header of 100 octets. ".repeat(2),
    )
    .unwrap();
    assert!(run(&place).unwrap_err().contains("not a database"));
    let nowhere = database::DatabaseLocation::from(folder.path().join("no/such/folder.db"));
    assert!(run(&nowhere).unwrap_err().contains("No such file"));
}

#[test]
fn an_inventory_of_an_older_program_is_brought_up_to_date() {
    let place = Place::new();
    let path = place.place.file().unwrap();
    let old = rusqlite::Connection::open(path).unwrap();
    old.execute_batch(include_str!("../database/schema-1.sql")).unwrap();
    old.execute_batch(
        "PRAGMA application_id = 1651992950; PRAGMA user_version = 1;
         INSERT INTO sensors VALUES (1, 'scan', 'edge'); INSERT INTO hosts VALUES (1, X'C6336401', '198.51.100.1', 0);
         INSERT INTO banners (id, protocol, side, kind, text) VALUES (1, 'ssh', 'server', 'banner', 'SSH-2.0-a');
         INSERT INTO services (id, host, side, port, protocol, banner, first_seen, last_seen)
           VALUES (1, 1, 'server', 22, 'ssh', 1, 0, 0);
         INSERT INTO findings (service, rule, banner, sensor, title, severity, action, verdict, first_seen,
           last_seen, count, blocked) VALUES (1, 'old', 1, 1, 'A title', 'high', 'drop', 'vulnerable', 0, 9, 3, 2);",
    )
    .unwrap();
    drop(old);
    assert_eq!(place.list(&["finding:old"]).len(), 1);
    let rules =
        query::rules(&InventoryDatabase::open(&place.place).unwrap(), &ServiceFilter::default()).unwrap();
    let told: Vec<_> =
        rules.iter().map(|it| (it.rule.as_str(), it.services, it.gone, it.count, it.blocked)).collect();
    assert_eq!(told, [("old", 1, 0, 3, 2)]);
    assert_eq!(run(&place.place), Ok(0));
    assert_eq!(place.ask("SELECT verdict FROM findings"), "affected");
}

#[test]
fn a_run_that_did_not_end_is_known_as_killed() {
    on_both(|place| {
        place.see(EventSource::Guard, &[ssh(EventSource::Guard, 0, "a_1")]);
        // No process has this number, and no connection holds its lock.
        place.ask("UPDATE runs SET state = 'running', ended = NULL, pid = 2147483647 RETURNING id");
        place.see(EventSource::Guard, &[ssh(EventSource::Guard, 9, "a_1")]);
        assert_eq!(place.ask("SELECT state FROM runs ORDER BY id"), "killed\ndone");
    });
}

#[test]
fn texts_that_databases_dislike_are_kept() {
    on_both(|place| {
        for (text, at) in
            ["a\0b", "'; DROP TABLE hosts; --", "\\x41 $1 ?1", "\u{fffd}\u{10ffff}\n"].iter().zip(0..)
        {
            place.see(EventSource::Scan, &[ssh(EventSource::Scan, at * HOUR, text)]);
            place.see(EventSource::Scan, &[ssh(EventSource::Scan, at * HOUR + 9, text)]);
            let shown = if place.url.is_some() { text.replace('\0', "\u{2400}") } else { (*text).to_owned() };
            assert_eq!(place.list(&[])[0].banner, format!("SSH-2.0-{shown}"));
        }
        assert_eq!(place.ask("SELECT count(*) FROM banners"), "4");
    });
}

#[test]
fn texts_of_as_many_octets_as_may_be_sent_are_kept() {
    let mut seed = 1_u32;
    // What packs nothing smaller.
    let mut some = |below: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((seed >> 16) * below) >> 16
    };
    let wide: String = (0..960).filter_map(|_| char::from_u32(0x2_0000 + some(0xa000))).collect();
    let nuls: String = (0..1_400)
        .filter_map(|_| if some(3) > 0 { Some('\0') } else { char::from_u32(0x21 + some(90)) })
        .collect();
    let shown =
        CertificateFacts { sha256: "ab".repeat(32), subject: wide.clone(), ..CertificateFacts::default() };
    let server = TlsServer { certificates: vec![shown], ..TlsServer::default() };
    let tls = ApplicationFacts::Tls(Arc::new(TlsFacts { server: Some(server), ..TlsFacts::default() }));
    on_both(|place| {
        let events = [
            ssh(EventSource::Guard, 0, &wide),
            ssh(EventSource::Guard, 1, &nuls),
            event(EventSource::Guard, 2, EventKind::Application(tls.clone())),
        ];
        place.see(EventSource::Guard, &events);
        assert_eq!(place.ask("SELECT count(*) FROM banners WHERE side = 'server'"), "4");
        assert_eq!(
            place.ask(
                "SELECT count(*) FROM sightings JOIN banners ON banners.id = banner WHERE side = 'server'"
            ),
            "4"
        );
    });
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(32))]
    #[test]
    fn whatever_is_said_is_kept_as_text(texts in proptest::collection::vec(".{0,80}|[\\x00-\\x1f'\"]{0,9}", 1..6)) {
        let place = Place::new();
        let events: Vec<Event> = texts.iter().zip(0..).map(|(text, at)| ssh(EventSource::Scan, at, text)).collect();
        place.see(EventSource::Scan, &events);
        let kept: std::collections::BTreeSet<String> =
            place.ask("SELECT hex(text) FROM banners").lines().map(str::to_owned).collect();
        let hex = |text: &String| format!("SSH-2.0-{text}").bytes().map(|octet| format!("{octet:02X}")).collect();
        let wanted: std::collections::BTreeSet<String> = texts.iter().map(hex).collect();
        proptest::prop_assert_eq!(kept, wanted);
        proptest::prop_assert_eq!(place.list(&[]).len(), 1);
    }
}
