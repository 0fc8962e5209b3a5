//! Check for the hook: complete, in its place, and served by a guard.

use std::collections::BTreeMap;

use super::CheckReport;
use super::machine_state::MachineState;
use crate::hook::hook_state;
use crate::hook::{self, FamilyStatus, InstalledHook, IpFamily, QueueListener};

pub(super) fn check(scene: &MachineState) -> CheckReport {
    let Ok(places) = &scene.hook else {
        return CheckReport::blind("the hook could not be read (see iptables)");
    };
    if places.iter().all(|place| place.installed == InstalledHook::Absent) {
        return CheckReport::nothing("no hook is up; a guard sees no packets without one");
    }
    let mut report = CheckReport::fine(describe(places));
    for place in places {
        if let InstalledHook::Damaged(why) = &place.installed {
            report.add_fault(format!(
                "{} ({}): damaged: {why}; repair it with `bannerwall hook down` and `up`",
                place.family, place.variant
            ));
        }
        if let InstalledHook::Unknown(why) = &place.installed {
            report.add_blind(format!("{}: {why}", place.family));
        }
        for flaw in place.flaws() {
            report.add_fault(format!(
                "{} ({}): {flaw}; repair it with `bannerwall hook up`",
                place.family, place.variant
            ));
        }
    }
    for family in IpFamily::ALL {
        add_coverage(&mut report, places, family);
    }
    match hook::listeners() {
        Ok(listeners) => add_unserved(&mut report, places, &listeners),
        Err(error) => report.add_blind(format!("listeners of the queues: {error}")),
    }
    report
}

/// Checks that each family has one hook: without one its packets pass, with two they are queued twice.
fn add_coverage(report: &mut CheckReport, places: &[FamilyStatus], family: IpFamily) {
    if !places.iter().any(|place| place.family == family) {
        return;
    }
    match hook_state::hooks(places).filter(|(place, _)| place.family == family).count() {
        0 => {
            report.add_fault(format!(
                "{family} has no complete hook: its packets pass uninspected; run `bannerwall hook up`"
            ));
        }
        1 => {}
        _ => report.add_fault(format!(
            "{family} has a hook in both variants of iptables: packets are queued twice; \
             run `bannerwall hook down` and `up`"
        )),
    }
}

fn add_unserved(report: &mut CheckReport, places: &[FamilyStatus], listeners: &BTreeMap<u16, QueueListener>) {
    for queue in hook_state::unserved(places, |queue| listeners.get(&queue) == Some(&QueueListener::Guard)) {
        let fault = hook_state::fault_of_queue(places, queue, listeners.get(&queue));
        match listeners.get(&queue) {
            Some(QueueListener::Hidden) => report.add_blind(format!("queue {queue}: {fault}")),
            Some(_) => report.add_fault(format!("it leads to queue {queue}: {fault}")),
            None => report.add_fault(format!(
                "it leads to queue {queue}: {fault}; start a guard with --queue {queue}, or run `bannerwall hook down`"
            )),
        }
    }
}

fn describe(places: &[FamilyStatus]) -> String {
    let bodies =
        |releases: bool| if releases { "" } else { " (bodies are queued: no match bpf or conntrack)" };
    let up: Vec<String> = hook_state::hooks(places)
        .map(|(place, config)| {
            let bodies = bodies(config.releases);
            format!("{} ({}) queue {}{bodies}", place.family, place.variant, config.queues)
        })
        .collect();
    format!("up, in its place and served: {}", up.join(", "))
}
