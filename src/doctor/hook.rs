//! Whether a hook that is up is whole, in its place, and leads to somebody.

use std::collections::BTreeMap;

use super::Report;
use super::scene::Scene;
use crate::hook::inspect;
use crate::hook::{self, Family, FamilyStatus, Installed, Listener};

pub(super) fn check(scene: &Scene) -> Report {
    let Ok(places) = &scene.hook else {
        return Report::blind("the hook could not be read: see iptables");
    };
    if places.iter().all(|place| place.installed == Installed::Absent) {
        return Report::fine("none is up; a guard without one sees nothing");
    }
    let mut report = Report::fine(describe(places));
    for place in places {
        if let Installed::Damaged(why) = &place.installed {
            report.add_fault(format!(
                "{} ({}): damaged: {why}; mend it with `bannerwall hook down` and `up`",
                place.family, place.variant
            ));
        }
        if let Installed::Unknown(why) = &place.installed {
            report.add_blind(format!("{}: {why}", place.family));
        }
        for flaw in place.flaws() {
            report.add_fault(format!(
                "{} ({}): {flaw}; mend it with `bannerwall hook up`",
                place.family, place.variant
            ));
        }
    }
    for family in Family::ALL {
        add_coverage(&mut report, places, family);
    }
    match hook::listeners() {
        Ok(listeners) => add_unserved(&mut report, places, &listeners),
        Err(error) => report.add_blind(format!("who listens on the queues: {error}")),
    }
    report
}

/// Each family that runs needs one hook: none lets it by, two queue each packet twice.
fn add_coverage(report: &mut Report, places: &[FamilyStatus], family: Family) {
    if !places.iter().any(|place| place.family == family) {
        return;
    }
    match inspect::hooks(places).filter(|(place, _)| place.family == family).count() {
        0 => {
            report
                .add_fault(format!("{family} has no whole hook: it goes by; `bannerwall hook up` mends it"));
        }
        1 => {}
        _ => report.add_fault(format!(
            "{family} has a hook in both variants of iptables: packets are queued twice; \
             `bannerwall hook down` and `up` mend it"
        )),
    }
}

fn add_unserved(report: &mut Report, places: &[FamilyStatus], listeners: &BTreeMap<u16, Listener>) {
    for queue in inspect::unserved(places, |queue| listeners.get(&queue) == Some(&Listener::Guard)) {
        let fault = inspect::fault_of_queue(places, queue, listeners.get(&queue));
        match listeners.get(&queue) {
            Some(Listener::Hidden) => report.add_blind(format!("queue {queue}: {fault}")),
            Some(_) => report.add_fault(format!("it leads to queue {queue}: {fault}")),
            None => report.add_fault(format!(
                "it leads to queue {queue}, on which {fault}; start a guard with --queue {queue}, or `bannerwall hook down`"
            )),
        }
    }
}

fn describe(places: &[FamilyStatus]) -> String {
    let bodies =
        |releases: bool| if releases { "" } else { " (bodies are queued: no match bpf or conntrack)" };
    let up: Vec<String> = inspect::hooks(places)
        .map(|(place, config)| {
            let bodies = bodies(config.releases);
            format!("{} ({}) queue {}{bodies}", place.family, place.variant, config.queues)
        })
        .collect();
    format!("up, in its place and served: {}", up.join(", "))
}
