//! What can be asked of a store.

use super::*;
use crate::inventory::{InventoryTime, RuleImpact, ServiceOrder, TimeReference, impact};
use crate::rules::RuleSet;

impl Place {
    fn open(&self) -> InventoryDatabase {
        InventoryDatabase::open(&self.place).unwrap()
    }

    fn at(&self, moment: &str) -> InventoryTime {
        query::time_of(&self.open(), moment.parse::<TimeReference>().unwrap()).unwrap()
    }

    /// What is different between two times: kind, and the rule or what is said now.
    fn diff(&self, from: &str, to: &str) -> Vec<String> {
        let filter = ServiceFilter::parse(["side:server"]).unwrap();
        let changes = query::difference(&self.open(), (self.at(from), self.at(to)), &filter).unwrap();
        let said = |change: &crate::inventory::InventoryChange| {
            change.rule.clone().or_else(|| change.new.clone()).unwrap_or_default()
        };
        changes
            .iter()
            .map(|change| format!("{} {}", change.kind, said(change)).trim_end().to_owned())
            .collect()
    }

    fn impact(&self, rules: &str) -> Vec<RuleImpact> {
        let rules = RuleSet::parse("a.toml", rules).unwrap_or_else(|error| panic!("{error}")).rules;
        let mut all = Vec::new();
        impact(&self.open(), &rules, &ServiceFilter::default(), |one| -> Result<(), StoreError> {
            all.push(one);
            Ok(())
        })
        .unwrap();
        all
    }
}

/// An upgrade at one o'clock, a refusal at two, a return at three.
fn a_day(place: &Place) {
    let (old, new) = ("OpenSSH_9.2p1", "OpenSSH_9.9");
    place.see(
        EventSource::Guard,
        &[ssh(EventSource::Guard, 60, old), alert(EventSource::Guard, 60, old, "regresshion", true)],
    );
    place.see(EventSource::Guard, &[ssh(EventSource::Guard, HOUR, new)]);
    place.see(EventSource::Scan, &[port(EventSource::Scan, 2 * HOUR, PortState::Closed)]);
    place.see(EventSource::Guard, &[ssh(EventSource::Guard, 3 * HOUR, new)]);
}

#[test]
fn a_difference_is_what_does_not_cancel_out() {
    on_both(|place| {
        a_day(place);
        assert_eq!(place.diff("2025-12-31", "2026-01-02"), ["new_host", "new_service SSH-2.0-OpenSSH_9.9"]);
        let morning = place.diff("2026-01-01T00:30", "2026-01-01T01:30");
        assert_eq!(morning, ["banner_changed SSH-2.0-OpenSSH_9.9", "finding_gone regresshion"]);
        assert_eq!(place.diff("2026-01-01T01:30", "2026-01-01T02:30"), ["service_gone"]);
        assert_eq!(place.diff("2026-01-01T01:30", "2026-01-01T03:30"), Vec::<String>::new());
        assert!(query::time_of(&place.open(), "#9".parse().unwrap()).unwrap_err().to_string().contains("#9"));
        assert!(place.at("#1") <= place.at("#2"));
    });
}

#[test]
fn a_difference_is_in_the_order_of_time() {
    on_both(|place| {
        let at_port = |at: u64, port: u16| {
            let mut event = ssh(EventSource::Guard, at, "OpenSSH_9.9");
            event.flow.as_mut().unwrap().endpoints.server.port = port;
            event
        };
        place.see(EventSource::Guard, &[at_port(0, 9), at_port(1, 5), at_port(2, 7)]);
        let filter = ServiceFilter::parse(["side:server"]).unwrap();
        let times = (place.at("2025-12-31"), place.at("2026-01-02"));
        let changes = query::difference(&place.open(), times, &filter).unwrap();
        let ports: Vec<u16> =
            changes.iter().filter(|it| it.kind == "new_service").map(|it| it.port).collect();
        assert_eq!(ports, [9, 5, 7]);
    });
}

#[test]
fn a_host_shows_all_that_it_ever_said() {
    on_both(|place| {
        a_day(place);
        let record = query::host(&place.open(), "198.51.100.1".parse().unwrap()).unwrap().unwrap();
        let [service] = record.services.as_slice() else { panic!("{record:?}") };
        let said: Vec<(&str, i64)> =
            service.said.iter().map(|said| (said.text.as_str(), said.count)).collect();
        assert_eq!(said, [("SSH-2.0-OpenSSH_9.9", 2), ("SSH-2.0-OpenSSH_9.2p1", 1)]);
        assert_eq!(service.service.findings[0].state, "gone");
        assert_eq!((service.clients[0].address.as_str(), service.clients[0].count), ("192.0.2.7", 3));
        assert_eq!(service.changes.first().map(|change| change.kind.as_str()), Some("service_back"));
        let client = query::host(&place.open(), "::ffff:192.0.2.7".parse().unwrap()).unwrap().unwrap();
        assert_eq!((client.visited[0].address.as_str(), client.visited[0].port), ("198.51.100.1", 22));
        assert!(query::host(&place.open(), "192.0.2.8".parse().unwrap()).unwrap().is_none());
    });
}

#[test]
fn what_there_is_most_of_is_counted() {
    on_both(|place| {
        a_day(place);
        let top = |field: &str, filter: &[&str]| -> Vec<String> {
            let filter = ServiceFilter::parse(filter.iter().copied()).unwrap();
            let counts = query::top(&place.open(), field, &filter, 9).unwrap();
            counts.iter().map(|count| format!("{} {}", count.value, count.services)).collect()
        };
        assert_eq!(top("product", &[]), ["OpenSSH 1", "client 1"]);
        assert_eq!(top("product", &["side:server"]), ["OpenSSH 1"]);
        assert_eq!(top("version", &["version:>9.5"]), ["OpenSSH 9.9 1"]);
        assert_eq!(top("product", &["port:22"]), ["OpenSSH 1"]);
        assert_eq!(top("port", &[]), ["0 1", "22 1"]);
        assert_eq!(top("finding", &[]), Vec::<String>::new());
        let values = |counts: Vec<crate::inventory::ValueCount>| -> Vec<String> {
            counts.into_iter().map(|count| format!("{} {}", count.value, count.services)).collect()
        };
        let (products, versions) = query::products(&place.open(), 9).unwrap();
        assert_eq!(values(products), top("product", &[]));
        assert_eq!(values(versions), top("version", &[]));
        for field in query::fields() {
            query::top(&place.open(), field, &ServiceFilter::default(), 9)
                .unwrap_or_else(|error| panic!("{field}: {error}"));
        }
    });
}

#[test]
fn what_is_old_is_taken_out_and_nothing_is_left_of_it() {
    on_both(|place| {
        a_day(place);
        let inventory = InventoryDatabase::open_to_write(&place.place).unwrap();
        let pruned = maintenance::prune(&inventory, place.at("2026-01-01T00:30")).unwrap();
        assert_eq!((pruned.hosts, pruned.services), (0, 0));
        let said = "SELECT text FROM sightings JOIN banners ON banners.id = banner WHERE side = 'server'";
        assert_eq!(place.ask(said), "SSH-2.0-OpenSSH_9.9");
        match place.url {
            None => assert_eq!(maintenance::faults(&inventory).unwrap(), Vec::<String>::new()),
            Some(_) => {
                assert!(
                    maintenance::faults(&inventory)
                        .unwrap_err()
                        .to_string()
                        .contains("the server manages its own")
                );
            }
        }
        // A run that goes on does so as if it were new.
        maintenance::prune(&inventory, place.at("2026-01-02")).unwrap();
        for table in [
            "hosts",
            "services",
            "banners",
            "sightings",
            "findings",
            "contacts",
            "banner_peers",
            "unanswered",
            "changes",
        ] {
            assert_eq!(place.ask(&format!("SELECT count(*) FROM {table}")), "0", "{table}");
        }
        place.see(EventSource::Guard, &[ssh(EventSource::Guard, 4 * HOUR, "a_1")]);
        assert_eq!(place.list(&["side:server"]).len(), 1);
    });
}

#[test]
fn a_run_that_keeps_for_a_time_takes_out_what_is_older() {
    on_both(|place| {
        a_day(place);
        let config = |keep| RecordConfig {
            place: place.place.clone(),
            sensor: "edge".to_owned(),
            is_named: true,
            about: String::new(),
            keep,
            gone_after: None,
            max_size: None,
            spill: None,
            telling: ChangeReporting::default(),
        };
        assert_eq!(config(None).start(EventSource::Guard, Vec::new()).unwrap().finish(), 0);
        assert_eq!(place.list(&[]).len(), 2);
        let keep = std::time::Duration::from_secs(1);
        assert_eq!(config(Some(keep)).start(EventSource::Guard, Vec::new()).unwrap().finish(), 0);
        assert_eq!(place.list(&[]).len(), 0);
    });
}

#[test]
fn what_rules_would_stop_is_told_with_whom_it_would_cut_off() {
    on_both(|place| {
        a_day(place);
        let rule =
            |rest: &str| format!("[[rule]]\nid = \"it\"\nprotocol = \"ssh\"\n{rest}\naction = \"drop\"\n");
        let all = place.impact(&rule("from = \"server\"\nmatch.software = '^OpenSSH_9\\.9'"));
        let [one] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!(
            (one.address.as_str(), one.port, one.evidence, one.action),
            ("198.51.100.1", 22, "banner", "drop")
        );
        assert_eq!((one.peers.as_slice(), one.connections), (&["192.0.2.7".to_owned()][..], 2));
        assert_eq!(one.last_seen.to_string(), "2026-01-01 03:00:00");
        // A banner that is no longer said was said, too.
        let all = place.impact(&rule("from = \"server\"\nmatch.software = '^OpenSSH_9\\.2'"));
        assert_eq!((all.len(), all[0].banner.as_str(), all[0].connections), (1, "SSH-2.0-OpenSSH_9.2p1", 1));
        // Of a client the services that it could not reach any more.
        let all = place.impact(&rule("from = \"client\"\nmatch.software = '^client'"));
        assert_eq!(
            (all[0].side.as_str(), all[0].peers.as_slice()),
            ("client", &["198.51.100.1:22".to_owned()][..])
        );
        for nothing in [
            rule("from = \"server\"\nsource = \"203.0.113.0/24\"\nmatch.software = '^OpenSSH'"),
            rule("from = \"server\"\nport = 2222\nmatch.software = '^OpenSSH'"),
            rule("from = \"server\"\nmatch.kex = 'sha1'"),
            "[[rule]]\nid = \"it\"\nprotocol = \"ssh\"\nmatch.software = '.'\naction = \"alert\"\n"
                .to_owned(),
            "[[policy]]\nport = 22\nallow = \"ssh\"\n".to_owned(),
            "[[policy]]\nport = 23\nallow = \"http\"\n".to_owned(),
        ] {
            assert!(place.impact(&nothing).is_empty(), "{nothing}");
        }
        let all =
            place.impact("[[policy]]\nid = \"web\"\nport = 22\nallow = \"http\"\notherwise = \"reject\"\n");
        assert_eq!((all[0].kind, all[0].rule.as_str(), all[0].action), ("policy", "web", "reject"));
        let current = "[[rule]]\nid = \"current\"\nprotocol = \"ssh\"\nmatch.software = '^OpenSSH_9'\naction = \"allow\"\n";
        assert!(
            place.impact(&format!("{current}[[policy]]\nport = 22\nallow_rules = \"current\"\n")).is_empty()
        );
    });
}

#[test]
fn a_policy_counts_requests_without_a_version_that_nobody_answers() {
    on_both(|place| {
        let request =
            HttpRequestFacts { method: "GET".into(), url: "/".to_owned(), ..HttpRequestFacts::default() };
        let facts = HttpFacts { request: Some(request), response: None };
        let said = EventKind::Application(ApplicationFacts::Http(Arc::new(facts)));
        place.see(EventSource::Guard, &[event(EventSource::Guard, 0, said)]);
        let policy = |allow: &str| format!("[[policy]]\nid = \"only\"\nport = 22\nallow = \"{allow}\"\n");
        let all = place.impact(&policy("ssh"));
        let [one] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((one.kind, one.evidence, one.connections), ("policy", "client", 1));
        assert!(place.impact(&policy("http")).is_empty());
        let clients = place.list(&["side:client"]);
        assert_eq!((clients.len(), clients[0].banner.as_str()), (1, "http/0.9"));
    });
}

#[test]
fn a_rule_that_asks_more_than_a_name_is_judged_by_what_it_has_told() {
    on_both(|place| {
        place.see(
            EventSource::Guard,
            &[ssh(EventSource::Guard, 0, "a_1"), alert(EventSource::Guard, 0, "a_1", "weak", false)],
        );
        let rule = |id: &str| {
            format!(
                "[[rule]]\nid = \"{id}\"\nprotocol = \"ssh\"\nfrom = \"server\"\nmatch.kex = 'sha1'\naction = \"drop\"\n"
            )
        };
        let all = place.impact(&rule("weak"));
        assert_eq!((all[0].evidence, all[0].connections), ("told", 1));
        assert!(place.impact(&rule("other")).is_empty());
    });
}

#[test]
fn a_policy_counts_connections_that_no_server_answered() {
    on_both(|place| {
        let silent = |at| {
            let mut event = ssh(EventSource::Guard, at, "a_1");
            let EventKind::Application(ApplicationFacts::Ssh(facts)) = &mut event.kind else {
                panic!("{event:?}")
            };
            Arc::make_mut(facts).server = None;
            event
        };
        place.see(EventSource::Guard, &[silent(0), silent(9)]);
        let policy = "[[policy]]\nid = \"web\"\nport = 22\nallow = \"http\"\n";
        let all = place.impact(policy);
        let [one] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((one.address.as_str(), one.port, one.evidence), ("198.51.100.1", 22, "client"));
        assert_eq!((one.peers.as_slice(), one.connections), (&["192.0.2.7".to_owned()][..], 2));
        assert_eq!(one.sensors, ["guard/edge"]);
        assert!(place.impact("[[policy]]\nport = 22\nallow = \"ssh\"\n").is_empty());
        assert!(place.list(&["side:server"]).is_empty(), "it is no service");
        place.see(EventSource::Guard, &[ssh(EventSource::Guard, 20, "a_1")]);
        assert_eq!(place.impact(policy).iter().map(|it| it.connections).sum::<i64>(), 3);
    });
}

#[test]
fn each_banner_is_judged_by_itself_and_a_connection_counts_once() {
    on_both(|place| {
        let mut all: Vec<Event> = (0..5).map(|at| ssh(EventSource::Guard, at, "backup")).collect();
        all.extend([ssh(EventSource::Guard, 9, "nikto"), ssh(EventSource::Guard, 9, "nikto")]);
        place.see(EventSource::Guard, &all);
        let rule = |software: &str| {
            format!(
                "[[rule]]\nid = \"it\"\nprotocol = \"ssh\"\nfrom = \"server\"\nmatch.software = '^{software}'\naction = \"drop\"\n"
            )
        };
        let counts = |software: &str| -> Vec<(String, i64)> {
            place.impact(&rule(software)).into_iter().map(|it| (it.banner, it.connections)).collect()
        };
        assert_eq!(counts("nikto"), [("SSH-2.0-nikto".to_owned(), 1)]);
        assert_eq!(counts("backup"), [("SSH-2.0-backup".to_owned(), 5)]);
        let policy = "[[policy]]\nid = \"web\"\nport = 22\nallow = \"http\"\notherwise = \"drop\"\n";
        assert_eq!(place.impact(policy)[0].connections, 6);
        // Another sensor's count stands beside it, and both are named.
        place.see(EventSource::Replay, &[ssh(EventSource::Replay, 9, "nikto")]);
        let [one] = place.impact(&rule("nikto")).try_into().unwrap();
        assert_eq!(
            (one.connections, one.sensors),
            (2, vec!["guard/edge".to_owned(), "replay/edge".to_owned()])
        );
    });
}

#[test]
fn a_host_is_first_seen_when_its_first_service_was() {
    on_both(|place| {
        place.see(
            EventSource::Guard,
            &[ssh(EventSource::Guard, HOUR, "a_1"), ssh(EventSource::Guard, 60, "a_1")],
        );
        for address in ["198.51.100.1", "192.0.2.7"] {
            let host = query::host(&place.open(), address.parse().unwrap()).unwrap().unwrap();
            assert_eq!(host.first_seen.to_string(), "2026-01-01 00:01:00", "{address}");
            assert_eq!(host.first_seen, host.services[0].service.first_seen);
        }
    });
}

/// Two findings of an old version, a day later a new version with another one.
fn two_days(place: &Place) {
    let (old, new, day) = ("OpenSSH_9.2p1", "OpenSSH_9.9", 24 * HOUR);
    let found = |at, software, rule| alert(EventSource::Guard, at, software, rule, false);
    place.see(EventSource::Guard, &[found(60, old, "regresshion"), found(60, old, "terrapin")]);
    place
        .see(EventSource::Guard, &[ssh(EventSource::Guard, 2 * day, new), found(2 * day + 60, new, "fresh")]);
}

#[test]
fn open_findings_are_counted_back_day_by_day() {
    on_both(|place| {
        two_days(place);
        let now = place.at("2026-01-03T12:00");
        let trends = query::finding_trends(&place.open(), now, 1, 9).unwrap();
        let high = trends.severities.iter().find(|it| it.severity == "high").unwrap();
        assert_eq!((high.open, high.new, high.gone), (1, 1, 2));
        assert_eq!((high.days.len(), &high.days[26..]), (30, [0, 2, 2, 1].as_slice()));
        let new: Vec<String> =
            trends.new.iter().map(|it| format!("{} {} {}", it.rule, it.count, it.place())).collect();
        assert_eq!((new, trends.more), (vec!["fresh 1 198.51.100.1:22".to_owned()], false));
        assert_eq!(query::rule_trend(&place.open(), "regresshion", 0, now).unwrap()[26..], [0, 1, 1, 0]);
        let all = query::finding_trends(&place.open(), now, 30, 2).unwrap();
        assert_eq!((all.new.len(), all.more), (2, true));
        let sum = query::rule(&place.open(), "terrapin").unwrap().unwrap();
        assert_eq!((sum.services, sum.gone), (0, 1));
        assert!(query::rule(&place.open(), "nothing").unwrap().is_none());
    });
}

#[test]
fn hosts_and_services_are_sorted_and_found() {
    on_both(|place| {
        two_days(place);
        let inventory = place.open();
        let filter = |text: &str| ServiceFilter::from_text(text).unwrap();
        let worst = query::hosts_by_severity(&inventory, &filter(""), 0, 5).unwrap();
        let addresses: Vec<&str> = worst.rows.iter().map(|it| it.address.as_str()).collect();
        assert_eq!((addresses, worst.more, worst.cut), (vec!["198.51.100.1"], false, false));
        assert!(
            query::hosts_by_severity(&inventory, &filter("net:192.0.2.0/24"), 0, 5).unwrap().rows.is_empty()
        );
        for text in ["", "side:server", "side:client"] {
            let newest = query::newest_hosts(&inventory, &filter(text), 0, 1).unwrap();
            assert_eq!((newest.rows.len(), newest.more), (1, text.is_empty()), "{text}");
        }
        for order in [ServiceOrder::Product, ServiceOrder::FirstSeen, ServiceOrder::LastSeen] {
            let first = query::services_sorted(&inventory, &filter(""), order, 0, 1).unwrap();
            let second = query::services_sorted(&inventory, &filter(""), order, 1, 1).unwrap();
            assert_eq!((first.more, second.more, second.rows.len()), (true, false, 1), "{order:?}");
            assert_ne!(first.rows[0].side, second.rows[0].side, "{order:?}");
        }
        for (text, sides) in
            [("finding:fresh", "server"), ("finding:high", "server"), ("!finding:fresh", "client")]
        {
            let found = query::services_behind(&inventory, &filter(text), None, 9).unwrap();
            let found: Vec<&str> = found.iter().map(|it| it.side.as_str()).collect();
            assert_eq!(found, [sides], "{text}");
        }
        assert!(query::services_behind(&inventory, &filter("finding:terrapin"), None, 9).unwrap().is_empty());
        let hits = query::search(&inventory, "openSSH", 5).unwrap();
        assert_eq!((hits.services.len(), hits.products[0].value.as_str()), (1, "OpenSSH"));
        assert!(query::search(&inventory, "dropbear", 5).unwrap().products.is_empty());
        let host = query::host_within(&inventory, "198.51.100.1".parse().unwrap(), (9, 1)).unwrap().unwrap();
        assert_eq!((host.services[0].said.len(), host.services[0].changes.len()), (1, 1));
        assert_eq!(query::latest_runs(&inventory, 1).unwrap()[0].run, 2);
    });
}
