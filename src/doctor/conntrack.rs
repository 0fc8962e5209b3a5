//! Check for connection tracking, whose marks offload decided flows.

use super::CheckReport;
use super::machine_state::MachineState;

pub(super) fn check(scene: &MachineState) -> CheckReport {
    let mut report = table();
    let led = scene.led();
    let untracked: Vec<String> = scene
        .foreign_rules()
        .filter(|rule| is_notrack(&rule.text) && led.iter().any(|led| led.may_meet(&rule.text)))
        .map(|rule| format!("{}: {}", rule.place, rule.text))
        .chain(scene.nft.iter().flat_map(|nft| nft.untracking(&led).map(ToString::to_string)))
        .collect();
    if !untracked.is_empty() {
        report.add_fault(format!(
            "untracked connections are never offloaded: the kernel queues each of their packets; exclude \
             the hook's traffic from: {}",
            untracked.join("; ")
        ));
    }
    for blind in scene.unread_rules() {
        report.add_blind(format!("rules that disable tracking: {blind}"));
    }
    report
}

/// True for `-j CT --notrack`, or the older `-j NOTRACK`.
fn is_notrack(rule: &str) -> bool {
    rule.split(' ').any(|word| matches!(word, "--notrack" | "NOTRACK"))
}

fn table() -> CheckReport {
    let read = |name: &str| -> Option<u64> {
        std::fs::read_to_string(format!("/proc/sys/net/netfilter/{name}")).ok()?.trim().parse().ok()
    };
    let (Some(count), Some(most)) = (read("nf_conntrack_count"), read("nf_conntrack_max")) else {
        return CheckReport::fine("not loaded; the hook's rules load it (CONFIG_NF_CONNTRACK)");
    };
    // 0 means no limit.
    if most > 0 && count > most / 10 * 9 {
        return CheckReport::fault(format!(
            "{count} of {most} connections are tracked: the kernel will soon drop new ones; raise sysctl \
             net.netfilter.nf_conntrack_max"
        ));
    }
    CheckReport::fine(format!("{count} of {most} connections are tracked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_no_tracking_are_known() {
        assert!(is_notrack("-A PREROUTING -p tcp -j CT --notrack") && is_notrack("-A OUTPUT -j NOTRACK"));
        assert!(!is_notrack("-A PREROUTING -j CT --zone 5"));
    }
}
