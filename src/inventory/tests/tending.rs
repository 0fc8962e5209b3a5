//! What becomes of a store in the course of time.

use super::*;
use crate::inventory::LiveAlert;
use crate::inventory::sighting::{AssetKey, NamedSoftware, SightingContent, banner};

/// Sums of rules as they are kept, and as they are counted.
fn rules(place: &Place) -> (Vec<String>, Vec<String>) {
    let database = InventoryDatabase::open(&place.place).unwrap();
    let rules = |words: &[&str]| -> Vec<String> {
        let filter = ServiceFilter::parse(words.iter().copied()).unwrap();
        let rules = query::rules(&database, &filter).unwrap();
        rules.iter().map(|rule| serde_json::to_string(rule).unwrap()).collect()
    };
    // Of all services, in other words.
    (rules(&[]), rules(&["!port:1"]))
}

#[test]
fn sums_of_rules_are_what_counting_says() {
    on_both(|place| {
        let see = |source: EventSource, at: u64, software: &str, ids: &[&str]| {
            let mut events = vec![ssh(source, at, software)];
            events.extend(ids.iter().map(|id| alert(source, at, software, id, *id == "b")));
            place.see(source, &events);
            let (kept, counted) = rules(place);
            assert_eq!(kept, counted, "{source:?} {at} {software}");
            kept.len()
        };
        assert_eq!(see(EventSource::Guard, 0, "x_1", &["a", "b"]), 2);
        assert_eq!(see(EventSource::Scan, 60, "x_1", &["a"]), 2);
        assert_eq!(see(EventSource::Guard, HOUR, "x_2", &["b", "c"]), 3);
        assert_eq!(see(EventSource::Scan, 2 * HOUR, "x_1", &["a", "a"]), 3);
        assert_eq!(see(EventSource::Replay, HOUR / 2, "x_0", &["d"]), 4);
        let database = InventoryDatabase::open_to_write(&place.place).unwrap();
        let before = "2026-01-01T01:30".parse::<crate::inventory::TimeReference>().unwrap();
        maintenance::prune(&database, query::time_of(&database, before).unwrap()).unwrap();
        let (kept, counted) = rules(place);
        assert_eq!(kept, counted);
    });
}

#[test]
fn a_server_that_nobody_sees_any_more_is_gone() {
    on_both(|place| {
        place.see(EventSource::Guard, &[ssh(EventSource::Guard, 0, "a_1")]);
        let time = |at: u64| Timestamp::from_nanos((1_767_225_600 + at) * 1_000_000_000);
        let mut writer = place.writer(EventSource::Guard);
        writer.mark_gone(time(0)).unwrap();
        assert_eq!(place.list(&["state:gone"]).len(), 0);
        writer.mark_gone(time(HOUR)).unwrap();
        writer.mark_gone(time(HOUR)).unwrap();
        assert_eq!(place.list(&["state:gone"]).len(), 1, "the client is not");
        place.see(EventSource::Guard, &[ssh(EventSource::Guard, 2 * HOUR, "a_1")]);
        assert_eq!(place.changes(), "new_host\nnew_service\nservice_gone\nservice_back");
        assert_eq!(place.ask("SELECT why FROM changes WHERE kind = 'service_gone'"), "unseen");
    });
}

#[test]
fn a_listing_goes_on_where_a_service_was_that_is_gone() {
    on_both(|place| {
        let at = |port: u16| AssetKey {
            address: std::net::Ipv4Addr::new(198, 51, 100, 1).into(),
            port,
            side: Side::Server,
            protocol: "ssh",
        };
        let record = |port: u16| SightingRecord {
            asset: at(port),
            what: SightingContent::Said(banner("SSH-2.0-a")),
            software: NamedSoftware::default(),
            first: Timestamp::from_nanos(0),
            last: Timestamp::from_nanos(0),
            count: 1,
        };
        place.writer(EventSource::Scan).write(&(1..=9).map(record).collect::<Vec<_>>()).unwrap();
        let database = InventoryDatabase::open(&place.place).unwrap();
        let filter = ServiceFilter::default();
        let first = query::services_behind(&database, &filter, None, 4).unwrap();
        let cursor = first.last().unwrap().cursor().unwrap();
        assert_eq!(cursor.to_string(), "198.51.100.1,4,server,ssh");
        place.ask(match place.url {
            None => "DELETE FROM services WHERE port IN (3, 4, 5) RETURNING id",
            Some(_) => "DELETE FROM services WHERE port IN (3, 4, 5)",
        });
        let rest = query::services_behind(&database, &filter, Some(&cursor.to_string().parse().unwrap()), 9)
            .unwrap();
        assert_eq!(rest.iter().map(|it| it.port).collect::<Vec<_>>(), [6, 7, 8, 9]);
        for wrong in ["", "7", "198.51.100.1,x,server,ssh", "here,1,server,ssh"] {
            assert!(wrong.parse::<crate::inventory::ServiceCursor>().is_err(), "{wrong}");
        }
    });
}

fn tls(at: u64, sha256: &str, subject: &str) -> Event {
    let certificate = CertificateFacts {
        sha256: sha256.to_owned(),
        subject: subject.to_owned(),
        ..CertificateFacts::default()
    };
    let server = TlsServer { certificates: vec![certificate], ..TlsServer::default() };
    let facts = TlsFacts { server: Some(server), ..TlsFacts::default() };
    event(EventSource::Guard, at, EventKind::Application(ApplicationFacts::Tls(Arc::new(facts))))
}

#[test]
fn a_certificate_that_is_another_one_is_a_change() {
    on_both(|place| {
        place.see(EventSource::Guard, &[tls(0, "aa", "CN=a"), tls(60, "bb", "CN=a"), tls(120, "bb", "CN=a")]);
        assert_eq!(place.changes(), "new_host\nnew_service\ncertificate_changed");
        assert_eq!(place.list(&["side:server"])[0].certificate.as_deref(), Some("bb CN=a"));
        // One of another name is another name's.
        let by_turns: Vec<Event> =
            (0..20)
                .map(|turn| {
                    if turn % 2 == 0 { tls(200 + turn, "cc", "CN=c") } else { tls(200 + turn, "bb", "CN=a") }
                })
                .collect();
        place.see(EventSource::Guard, &by_turns);
        assert_eq!(place.changes().matches("certificate_changed").count(), 1);
        place.see(EventSource::Guard, &[tls(5 * HOUR, "cc", "CN=c")]);
        assert_eq!(place.changes().matches("certificate_changed").count(), 2);
    });
}

fn shows(at: u64, fingerprint: &str, algorithm: &'static str, signature: SignatureResult) -> Event {
    let host_key = HostKey { algorithm, fingerprint: fingerprint.to_owned(), signature };
    let server = SshSide { banner: "SSH-2.0-a".to_owned(), host_key: Some(host_key), ..SshSide::default() };
    let facts = SshFacts { client: None, server: Some(server.into()) };
    event(EventSource::Scan, at, EventKind::Application(ApplicationFacts::Ssh(Arc::new(facts))))
}

#[test]
fn a_host_key_that_is_another_one_of_its_type_is_a_change() {
    on_both(|place| {
        let good = |at: u64, fingerprint: &str, kind: &'static str| {
            shows(at, fingerprint, kind, SignatureResult::Good)
        };
        place.see(
            EventSource::Scan,
            &[good(0, "a", "ssh-ed25519"), good(60, "a", "ssh-ed25519"), good(120, "b", "ssh-ed25519")],
        );
        assert_eq!(place.changes(), "new_host\nnew_service\nhost_key_changed");
        // Another type's is another key; each type has its own history.
        place.see(EventSource::Scan, &[good(180, "r", "ssh-rsa"), good(240, "b", "ssh-ed25519")]);
        assert!(place.changes().ends_with("host_key_changed\nnew_host_key"), "{}", place.changes());
        place.see(EventSource::Scan, &[good(300, "s", "ssh-rsa")]);
        assert!(place.changes().ends_with("new_host_key\nhost_key_changed"), "{}", place.changes());
        let told = "SELECT o.text, n.text FROM changes c JOIN banners o ON o.id = c.old JOIN banners n ON n.id = c.new
                    WHERE c.kind LIKE '%host_key%' ORDER BY c.id";
        let told = place.ask(told);
        let lines = ["a ssh-ed25519|b ssh-ed25519", "b ssh-ed25519|r ssh-rsa", "r ssh-rsa|s ssh-rsa"];
        assert_eq!(told, lines.join("\n"));
        // What anybody can show is no key; what cannot be tried is one.
        place.see(EventSource::Scan, &[shows(360, "x", "ssh-rsa", SignatureResult::Bad)]);
        assert_eq!(place.list(&["hostkey:s"])[0].host_key.as_deref(), Some("s ssh-rsa"));
        place.see(EventSource::Scan, &[shows(420, "y", "ssh-dss", SignatureResult::Untried)]);
        assert_eq!(place.list(&["hostkey:y"]).len(), 1);
        let found = |filter: &str| place.list(&[filter]).len();
        assert_eq!(["hostkey:s", "hostkey:Y", "!hostkey:s", "hostkey:y ssh-dss"].map(found), [0, 0, 1, 1]);
        // What was seen later is not changed by what was seen before.
        let count = place.changes().lines().count();
        place.see(EventSource::Scan, &[good(30, "z", "ssh-dss")]);
        assert_eq!((place.changes().lines().count(), found("hostkey:y")), (count, 1));
    });
}

#[test]
fn a_file_stays_below_its_bound_and_keeps_what_was_seen_last() {
    const BOUND: u64 = 16 << 20;
    let place = Place::new();
    let mut writer = place.writer(EventSource::Guard).bounded(Some(BOUND)).unwrap();
    let path = place.place.file().unwrap();
    let (mut displaced, mut largest) = (0, 0);
    for step in 0..60_u64 {
        let batch: Vec<SightingRecord> = (0..1_000_u32)
            .map(|number| {
                let host = u32::try_from(step).unwrap() * 1_000 + number;
                let at = Timestamp::from_nanos((1_767_225_600 + step) * 1_000_000_000);
                let text = format!("SSH-2.0-flood_{host} {}", "x".repeat(200));
                let address = std::net::Ipv4Addr::from(0x0a00_0000 + host).into();
                let asset = AssetKey { address, port: 0, side: Side::Client, protocol: "ssh" };
                let what = SightingContent::Said(banner(&text));
                SightingRecord {
                    asset,
                    what,
                    software: NamedSoftware::default(),
                    first: at,
                    last: at,
                    count: 1,
                }
            })
            .collect();
        displaced += writer.make_room(batch.len()).unwrap();
        writer.write(&batch).unwrap();
        largest = largest.max(std::fs::metadata(path).unwrap().len());
    }
    assert!(displaced > 0 && largest <= BOUND, "{displaced} {largest}");
    drop(writer);
    assert_eq!(place.list(&["net:10.0.230.96/32"]).len(), 1, "the last of all");
    assert_eq!(place.list(&["net:10.0.0.0/24"]).len(), 0, "the first of all");
    assert_eq!(
        maintenance::faults(&InventoryDatabase::open(&place.place).unwrap()).unwrap(),
        Vec::<String>::new()
    );
    assert_eq!(run(&place.place), Ok(0));
}

#[test]
fn filters_are_about_alerts_as_about_services() {
    let told = alert(EventSource::Guard, 0, "OpenSSH_9.2p1 Debian-2", "old", true);
    let alert = LiveAlert::from_event(&told, "guard/edge").unwrap();
    assert_eq!(
        (alert.address.as_str(), alert.port, alert.peer.as_str()),
        ("198.51.100.1", 22, "192.0.2.7:4000")
    );
    for (words, takes) in [
        ("", true),
        ("product:openssh version:<9.6 port:22", true),
        ("!product:openssh", false),
        ("version:>9.6", false),
        ("net:198.51.100.0/24 side:server state:open protocol:ssh", true),
        ("!net:198.51.100.0/24", false),
        ("finding:high", true),
        ("finding:old", true),
        ("finding:low", false),
        ("sensor:edge sensor:guard/edge", true),
        ("sensor:other", false),
        ("debian seen:<1h", true),
        ("patch:debian-2", true),
        ("cpe:x", false),
        ("!cpe:x", true),
    ] {
        assert_eq!(ServiceFilter::from_text(words).unwrap().selects(&alert), takes, "{words}");
    }
}

#[test]
fn a_file_that_is_deleted_or_replaced_under_a_run_is_opened_again() {
    let (place, other) = (Place::new(), Place::new());
    other.see(EventSource::Scan, &[ssh(EventSource::Scan, 0, "before_1")]);
    let path = place.place.file().unwrap();
    let losses = SharedLosses::default();
    let mut recorder = SightingRecorder::new(Box::new(place.writer(EventSource::Guard)), losses.clone());
    let mut see = |at: u64, software: &str| {
        recorder.take(&ssh(EventSource::Guard, at, software));
        recorder.flush();
    };
    see(1, "a_1");
    see(2, "a_1");
    // The log beside it stays, as `rm` and `mv` leave it.
    std::fs::remove_file(path).unwrap();
    see(3, "b_2");
    assert_eq!(place.list(&["side:server"])[0].banner, "SSH-2.0-b_2");
    see(4, "b_2");
    std::fs::rename(other.place.file().unwrap(), path).unwrap();
    see(5, "c_3");
    assert_eq!(place.list(&["side:server"])[0].banner, "SSH-2.0-c_3");
    let said = "SELECT count(*) FROM banners WHERE text LIKE '%before_1' OR text LIKE '%b_2'";
    assert_eq!(place.ask(said), "1", "nothing of the file before");
    assert_eq!(
        maintenance::faults(&InventoryDatabase::open(&place.place).unwrap()).unwrap(),
        Vec::<String>::new()
    );
    recorder.end();
    assert_eq!((losses.replaced(), losses.count()), (2, 0));
    assert_eq!(place.ask("SELECT state FROM runs ORDER BY id DESC LIMIT 1"), "done");
}
