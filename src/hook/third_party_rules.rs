//! Rules of third parties in the base chains of our jumps: those that let packets leave a chain before they
//! meet the jump, and those that queued packets miss behind it.
//!
//! A packet that the guard accepts leaves its base chain (`NF_ACCEPT`), so that a rule behind the jump that
//! only accepts changes nothing. One before the jump does: its packets pass unseen.

use super::hooked_traffic::HookedTraffic;
use super::table_listing::TableListing;

/// Limit of nested chains before they count as letting packets pass; the kernel allows 16.
const DEPTH: usize = 16;

/// Destination of a rule's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RuleTarget<'a> {
    /// Leaves the base chain, towards the next hook.
    Out,
    /// Returns to the calling chain; leaves a base chain.
    Return,
    /// Runs another chain, and returns.
    Call(&'a str),
    /// Runs another chain, which then returns to the caller of this one.
    Goto(&'a str),
    /// Continues with the next rule, or drops the packet.
    Stay,
}

impl<'a> RuleTarget<'a> {
    fn of(rule: &'a str, there: &TableListing) -> Self {
        let mut words = rule.split(' ').skip_while(|word| !matches!(*word, "-j" | "-g"));
        match (words.next(), words.next()) {
            (Some("-g"), Some(chain)) => Self::Goto(chain),
            (_, Some("ACCEPT" | "NFQUEUE" | "QUEUE" | "TPROXY")) => Self::Out,
            (_, Some("RETURN")) => Self::Return,
            (_, Some(chain)) if there.has_chain(chain) => Self::Call(chain),
            _ => Self::Stay,
        }
    }
}

/// True if a rule of a base chain lets some of `led` leave the chain before its end.
pub(super) fn lets_pass(there: &TableListing, rule: &str, led: &[HookedTraffic]) -> bool {
    meets(rule, led)
        && match RuleTarget::of(rule, there) {
            RuleTarget::Out | RuleTarget::Return | RuleTarget::Goto(_) => true,
            RuleTarget::Call(chain) => leads_out(there, chain, led, DEPTH).any(),
            RuleTarget::Stay => false,
        }
}

/// Returns the number of packets that such a rule let pass. It is a lower bound if other rules use the called
/// chains, too.
pub(super) fn passed(there: &TableListing, rule: &str, packets: u64, led: &[HookedTraffic]) -> u64 {
    match RuleTarget::of(rule, there) {
        RuleTarget::Call(chain) => leads_out(there, chain, led, DEPTH).packets.min(packets),
        _ => packets,
    }
}

/// True if some of `led` misses a rule after the jump that does more than accept.
pub(super) fn misses(there: &TableListing, rule: &str, led: &[HookedTraffic]) -> bool {
    meets(rule, led) && !matches!(rule_target(rule), Some("ACCEPT" | "RETURN")) && !is_idle(there, rule)
}

/// True if a rule calls a chain without rules.
fn is_idle(there: &TableListing, rule: &str) -> bool {
    matches!(RuleTarget::of(rule, there), RuleTarget::Call(chain) if there.rules(chain).next().is_none())
}

fn rule_target(rule: &str) -> Option<&str> {
    rule.split(' ').skip_while(|word| *word != "-j").nth(1)
}

fn meets(rule: &str, led: &[HookedTraffic]) -> bool {
    led.iter().any(|led| led.may_meet(rule))
}

/// Rules of a chain, and of its called chains, that let packets leave the base chain.
#[derive(Debug, Clone, Copy, Default)]
struct WaysOut {
    rules: usize,
    packets: u64,
}

impl WaysOut {
    fn any(self) -> bool {
        self.rules > 0
    }

    fn add(&mut self, other: Self) {
        self.rules += other.rules;
        self.packets = self.packets.saturating_add(other.packets);
    }
}

fn leads_out(there: &TableListing, chain: &str, led: &[HookedTraffic], depth: usize) -> WaysOut {
    let mut found = WaysOut::default();
    for (rule, packets) in there.counted(chain).filter(|(rule, _)| meets(rule, led)) {
        let one = WaysOut { rules: 1, packets };
        found.add(match (RuleTarget::of(rule, there), depth.checked_sub(1)) {
            (RuleTarget::Out, _) => one,
            (RuleTarget::Call(_) | RuleTarget::Goto(_), None) => one,
            (RuleTarget::Call(next) | RuleTarget::Goto(next), Some(depth)) => {
                leads_out(there, next, led, depth)
            }
            (RuleTarget::Return | RuleTarget::Stay, _) => WaysOut::default(),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::HookConfig;
    use super::*;

    fn led(ports: Option<&str>) -> Vec<HookedTraffic> {
        let ports = ports.map(|ports| ports.parse().expect("ports"));
        HookedTraffic::by(&HookConfig { ports, ..HookConfig::default() }).collect()
    }

    #[test]
    fn rules_that_end_the_base_chain_for_what_is_led_let_it_pass() {
        let there = TableListing::read(
            ":NONE - [0:0]\n:DROPS - [0:0]\n:ACCEPTS - [0:0]\n:CALLS - [0:0]\n:JUMPS - [0:0]\n:OTHER - [0:0]\n\
             [9:1] -A DROPS -j DROP\n[9:1] -A DROPS -j RETURN\n[2:1] -A ACCEPTS -p tcp -j ACCEPT\n\
             [4:1] -A CALLS -s 192.0.2.1/32 -j ACCEPTS\n[3:1] -A JUMPS -g ACCEPTS\n[3:1] -A OTHER -p icmp -j ACCEPT",
        );
        for (rule, passes) in [
            ("-j ACCEPT", true),
            ("-p tcp -m tcp --dport 80 -j ACCEPT", true),
            ("-p tcp -m tcp --dport 81 -j ACCEPT", false),
            ("-p udp -j ACCEPT", false),
            ("-j RETURN", true),
            ("-p tcp -j NFQUEUE --queue-num 5 --queue-bypass", true),
            ("-j DROPS", false),
            ("-j NONE", false),
            ("-g NONE", true),
            ("-j ACCEPTS", true),
            ("-j CALLS", true),
            ("-j JUMPS", true),
            ("-j OTHER", false),
            ("-j DROP", false),
            ("-p tcp -j TCPMSS --set-mss 1000", false),
            ("-m comment --comment counts", false),
        ] {
            assert_eq!(lets_pass(&there, rule, &led(Some("80"))), passes, "{rule}");
        }
        assert_eq!(passed(&there, "-j CALLS", 3, &led(None)), 2);
        assert_eq!(passed(&there, "-j ACCEPT", 3, &led(None)), 3);
    }

    #[test]
    fn chains_that_call_one_another_for_ever_end() {
        let there = TableListing::read(":A - [0:0]\n:B - [0:0]\n-A A -j B\n-A B -j A");
        assert!(lets_pass(&there, "-j A", &led(None)));
    }

    #[test]
    fn behind_the_jump_only_what_does_more_than_accept_is_missed() {
        let there = TableListing::read(":EMPTY - [0:0]\n:FULL - [0:0]\n-A FULL -j LOG");
        for (rule, is_missed) in [
            ("-p tcp -j ACCEPT", false),
            ("-j RETURN", false),
            ("-j EMPTY", false),
            ("-j FULL", true),
            ("-p udp -j FULL", false),
            ("-j DROP", true),
            ("-p tcp -j TCPMSS --set-mss 1000", true),
        ] {
            assert_eq!(misses(&there, rule, &led(None)), is_missed, "{rule}");
        }
    }
}
