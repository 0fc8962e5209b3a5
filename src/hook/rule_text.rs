//! Chains and rules of a hook as text, without side effects.
//!
//! Rules are spelled exactly as `iptables -S` prints them, so expected and existing rules can be compared.
//! The legacy and the `nf_tables` variant print the same text.

use super::hooked_traffic::{HookTransport, HookedTraffic};
use super::release_rules;
use super::table_listing::TableListing;
use super::third_party_rules;
use super::{BaseChain, HookConfig, MarkField, MarkState, PortList, QueueRange};

/// Table of the hook. It comes before `filter`, so packets are inspected before a filter rule accepts them.
/// Its base chains see both local and forwarded traffic.
pub(super) const TABLE: &str = "mangle";
/// Chain that decides which packets are queued.
pub(super) const MAIN: &str = "BANNERWALL";
/// Chain for packets of flows that may pass, as a whole or for a body: saves the decision.
pub(super) const PASS: &str = "BANNERWALL-PASS";
/// Chain for packets of blocked flows.
pub(super) const BLOCK: &str = "BANNERWALL-BLOCK";
/// Chain that clears the decision from packets to which third-party rules copied the whole connection mark.
pub(super) const CLEAN: &str = "BANNERWALL-CLEAN";
/// All of the hook's chains, those with references from others last.
pub(super) const CHAINS: [&str; 4] = [MAIN, PASS, BLOCK, CLEAN];
/// Base chains after which a packet is routed by its mark.
const ROUTED_BEHIND: [&str; 2] = ["PREROUTING", "OUTPUT"];
/// Base chains that can hold a jump.
pub(super) const BASES: [&str; 4] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT"];

/// `u32` matches for a long header of QUIC (the highest bit of the payload's first byte): in IPv4, in IPv6,
/// and in IPv6 with extension headers. In the last case the payload cannot be located, so every packet counts
/// as one.
const LONG_HEADERS: [&str; 3] = [
    "0x0>>0x1c=0x4&&0x0>>0x16&0x3c@0x8>>0x1f=0x1",
    "0x0>>0x1c=0x6&&0x3&0xff=0x11&&0x30>>0x1f=0x1",
    "0x0>>0x1c=0x6&&0x3&0xff=0x0:0x10,0x12:0xff",
];

/// Limit of ports in one `multiport` match; a range counts twice.
const MULTIPORT_LIMIT: usize = 15;

/// Returns the rules of the hook's chains, in the order of creation.
pub(super) fn chains(config: &HookConfig) -> [(&'static str, Vec<String>); 4] {
    [
        (CLEAN, clean_rules(config)),
        (BLOCK, block_rules(config)),
        (PASS, pass_rules(config)),
        (MAIN, main_rules(config)),
    ]
}

/// Clears the decision from a packet, except for the mark of a reset, which must last until the machine has
/// sent it. Packets without a mark are not led here.
///
/// Third-party software stores marks in the same connection mark, and copies it to the packet as a whole
/// (`CONNMARK --restore-mark` without a mask, as for several uplinks). With the decision in it, their `ip
/// rule fwmark 2` would no longer match.
fn clean_rules(config: &HookConfig) -> Vec<String> {
    let mask = config.mark.mask();
    let ours = config.mark.value(MarkState::Ours);
    vec![
        format!("-p tcp -m mark --mark {ours:#x}/{mask:#x} -m tcp --tcp-flags RST RST -j RETURN"),
        format!("-j MARK --set-xmark 0x0/{mask:#x}"),
    ]
}

/// Saves the decision to the connection, so that the kernel drops its later packets.
fn block_rules(config: &HookConfig) -> Vec<String> {
    vec![save_mark(config), "-j DROP".to_owned()]
}

/// Saves the decision to the connection, and clears it from the packet.
fn pass_rules(config: &HookConfig) -> Vec<String> {
    let mask = config.mark.mask();
    vec![save_mark(config), format!("-j MARK --set-xmark 0x0/{mask:#x}")]
}

fn save_mark(config: &HookConfig) -> String {
    let mask = config.mark.mask();
    format!("-j CONNMARK --save-mark --nfmask {mask:#x} --ctmask {mask:#x}")
}

fn main_rules(config: &HookConfig) -> Vec<String> {
    let test = |kind: &str, state: MarkState| {
        format!("-m {kind} --mark {:#x}/{:#x}", config.mark.value(state), config.mark.mask())
    };
    let mask = config.mark.mask();
    let mut rules = vec![
        // Most traffic, later packets of connections that may pass, ends here.
        format!("-p tcp {} -m tcp ! --tcp-flags SYN SYN -j RETURN", test("connmark", MarkState::Pass)),
    ];
    // Most packets of undecided connections. All rules until the last ones ask for a mark that these lack.
    rules.extend(queue_rules(config, &unmarked(config)));
    rules.extend(release_rules::first_rules(config));
    rules.push(
        // A mark outlives its connection if one end took a reset that the kernel's tracking did not. So the
        // packet that opens a connection is always inspected.
        format!(
            "-p tcp {} -m tcp --tcp-flags SYN SYN -j CONNMARK --set-xmark 0x0/{mask:#x}",
            test("connmark", MarkState::Pass)
        ),
    );
    if config.udp.is_some() {
        // Another connection may start between the same ports. Its first packet has a long header (RFC 8999).
        let pass = test("connmark", MarkState::Pass);
        rules.extend(LONG_HEADERS.map(|long| {
            format!("-p udp {pass} -m u32 --u32 \"{long}\" -j CONNMARK --set-xmark 0x0/{mask:#x}")
        }));
        rules.push(format!("-p udp {pass} -j RETURN"));
    }
    rules.extend([
        // Matches a reset from the guard, which the connection's own mark must not stop.
        format!("-p tcp {} -m tcp --tcp-flags RST RST -j RETURN", test("mark", MarkState::Ours)),
        // The same reset without that mark: a third-party rule that copies the connection's mark has cleared
        // it. Resets of the ends may pass, too: receivers read no data in them.
        format!("-p tcp {} -m tcp --tcp-flags RST RST -j RETURN", test("connmark", MarkState::Block)),
        // The deciding packet returns by NF_REPEAT with the decision in its mark.
        format!("{} -g {BLOCK}", test("mark", MarkState::Block)),
    ]);
    rules.extend(reopening_rules(config));
    rules.extend([
        format!("{} -j DROP", test("connmark", MarkState::Block)),
        format!("{} -g {PASS}", test("mark", MarkState::Pass)),
    ]);
    rules.extend(release_rules::rules(config, PASS));
    rules.extend(queue_rules(config, ""));
    rules
}

/// Returns the rules that queue the packets with the hook's protocols and ports that have these `matches`.
fn queue_rules(config: &HookConfig, matches: &str) -> Vec<String> {
    let end = format!("{matches} {}", queue_target(config));
    let mut rules = rules_for("tcp", config.ports.as_ref(), &end);
    if let Some(udp) = &config.udp {
        rules.extend(rules_for("udp", Some(udp), &end));
    }
    rules
}

/// Returns a rule with this `end` for each group of ports.
fn rules_for(protocol: &str, ports: Option<&PortList>, end: &str) -> Vec<String> {
    port_matches(ports).iter().map(|ports| format!("-p {protocol}{ports}{end}")).collect()
}

/// Returns the matches for packets without a decision, neither their own nor their connection's.
fn unmarked(config: &HookConfig) -> String {
    let mask = config.mark.mask();
    format!(" -m mark --mark 0x0/{mask:#x} -m connmark --mark 0x0/{mask:#x}")
}

/// Returns the rules for packets by which the ends of a blocked connection open another one between the same
/// ports.
///
/// A SYN alone leaves the mark: anybody can send one, and a guard that was killed has forgotten the
/// connection. The answer takes the mark off. If the server still has the old connection, it answers with an
/// empty segment, whereupon the client resets that connection (RFC 5961 section 4).
fn reopening_rules(config: &HookConfig) -> Vec<String> {
    let mask = config.mark.mask();
    let blocked = format!("-p tcp -m connmark --mark {:#x}/{mask:#x}", config.mark.value(MarkState::Block));
    let target = queue_target(config);
    let mut rules = vec![
        format!("{blocked} -m tcp --tcp-flags SYN,ACK SYN,ACK -j CONNMARK --set-xmark 0x0/{mask:#x}"),
        format!("{blocked} -m tcp --tcp-flags SYN SYN {target}"),
    ];
    if config.releases {
        rules.push(format!("{blocked} -m conntrack --ctdir REPLY {} {target}", release_rules::empty_match()));
    }
    rules
}

fn queue_target(config: &HookConfig) -> String {
    // Covers a queue without a listener only (net/netfilter/nf_queue.c: ESRCH). Packets of a full queue are
    // the queue's own matter.
    let bypass = if config.bypass { " --queue-bypass" } else { "" };
    match config.queues {
        QueueRange { first, last } if first == last => format!("-j NFQUEUE --queue-num {first}{bypass}"),
        // The kernel's hash of the addresses is symmetric, so both directions of a connection reach the same
        // queue (include/net/netfilter/nf_queue.h: nfqueue_hash).
        QueueRange { first, last } => format!("-j NFQUEUE --queue-balance {first}:{last}{bypass}"),
    }
}

/// Returns one `multiport` match for every 15 ports, or one empty match for all ports.
fn port_matches(ports: Option<&PortList>) -> Vec<String> {
    let Some(ports) = ports else { return vec![String::new()] };
    let mut groups: Vec<(usize, Vec<String>)> = Vec::new();
    for range in ports.ranges() {
        let weight = if range.start() == range.end() { 1 } else { 2 };
        let text = if weight == 1 {
            range.start().to_string()
        } else {
            format!("{}:{}", range.start(), range.end())
        };
        match groups.last_mut() {
            Some((used, group)) if *used + weight <= MULTIPORT_LIMIT => {
                *used += weight;
                group.push(text);
            }
            _ => groups.push((weight, vec![text])),
        }
    }
    groups.iter().map(|(_, group)| format!(" -m multiport --ports {}", group.join(","))).collect()
}

/// Returns the jumps of the base chains, in their order: `(base chain, rule)`.
pub(super) fn jumps(config: &HookConfig) -> Vec<(&'static str, String)> {
    let both = config.chains.contains(&BaseChain::Input) && config.chains.contains(&BaseChain::Output);
    let of = |carried: HookTransport| {
        let [plain, without_loopback] = forms_of(carried);
        let clean = clean_jump(carried, config.mark);
        let jump = move |chain: &BaseChain| {
            // A packet over loopback passes OUTPUT and INPUT; one inspection is enough.
            let rule = if both && *chain == BaseChain::Output { &without_loopback } else { &plain };
            (chain.base(), rule.clone())
        };
        let cleaning = ROUTED_BEHIND.map(|base| (base, clean.clone()));
        config.chains.iter().map(jump).chain(cleaning).collect::<Vec<_>>()
    };
    carried(config).into_iter().flat_map(of).collect()
}

/// Returns the protocols to queue.
fn carried(config: &HookConfig) -> Vec<HookTransport> {
    let udp = config.udp.as_ref().map(|_| HookTransport::Udp);
    [Some(HookTransport::Tcp), udp].into_iter().flatten().collect()
}

/// True if a rule is a jump to one of the hook's chains, in any form that bannerwall has ever used.
pub(super) fn is_jump(rule: &str) -> bool {
    [HookTransport::Tcp, HookTransport::Udp].into_iter().any(|carried| {
        let clean = format!("-j {CLEAN}");
        let words = rule.strip_prefix("-p ").and_then(|rest| rest.strip_prefix(carried.name()));
        let condition = words.and_then(|rest| rest.strip_suffix(&clean)).map(str::trim);
        let is_clean_jump = condition.is_some_and(|condition| condition.is_empty() || is_marked(condition));
        is_clean_jump || forms_of(carried).iter().any(|form| form == rule)
    })
}

/// Returns the forms of jump to the main chain for one protocol.
fn forms_of(carried: HookTransport) -> [String; 2] {
    let name = carried.name();
    [format!("-p {name} -j {MAIN}"), format!("! -o lo -p {name} -j {MAIN}")]
}

/// Returns the jump to [`CLEAN`]. Most packets have no mark, so they need not enter that chain.
fn clean_jump(carried: HookTransport, mark: MarkField) -> String {
    format!("-p {} {MARKED}{:#x} -j {CLEAN}", carried.name(), mark.mask())
}

/// Match for packets with a mark in the mask that follows.
const MARKED: &str = "-m mark ! --mark 0x0/";

/// True if a match asks for a mark in two adjacent bits.
fn is_marked(condition: &str) -> bool {
    let mask = condition.strip_prefix(MARKED).and_then(|mask| mask.strip_prefix("0x"));
    let mask = mask.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    mask.is_some_and(|mask| MarkField::from_mask(mask).is_some())
}

/// Returns the changes, in `iptables-restore` syntax, that turn a table with the content `there` into the
/// hook.
///
/// A correct chain is left alone, which keeps its counters.
pub(super) fn changes(config: &HookConfig, there: &TableListing) -> Vec<String> {
    let mut changes = Vec::new();
    for (chain, rules) in chains(config) {
        if there.has_chain(chain) && there.rules(chain).eq(rules.iter().map(String::as_str)) {
            continue;
        }
        // This line creates the chain, or empties it.
        changes.push(format!(":{chain} - [0:0]"));
        changes.extend(rules.iter().map(|rule| format!("-A {chain} {rule}")));
    }
    let wanted = jumps(config);
    let led: Vec<HookedTraffic> = HookedTraffic::by(config).collect();
    for base in BASES {
        let wanted: Vec<&str> = in_base(&wanted, base).collect();
        let place = place(there, base, &led);
        if !are_in_place(there, base, &wanted, place, &led) {
            // Removed and added in one transaction, so no packet meets the chain without a jump.
            changes.extend(our_jumps(there, base).map(|rule| format!("-D {base} {rule}")));
            let is_last = place == foreign(there, base).count();
            let added = |(rule, number): (&&str, usize)| {
                if is_last { format!("-A {base} {rule}") } else { format!("-I {base} {number} {rule}") }
            };
            changes.extend(wanted.iter().zip(place + 1..).map(added));
        }
    }
    changes
}

/// Returns the changes that remove the hook from a table with the content `there`: first the jumps, then the
/// chains.
pub(super) fn removal(there: &TableListing) -> (Vec<String>, Vec<String>) {
    let jumps = BASES.into_iter().flat_map(|base| {
        our_jumps(there, base).map(move |rule| format!("-D {base} {rule}")).collect::<Vec<_>>()
    });
    let chains = || CHAINS.into_iter().filter(|chain| there.has_chain(chain));
    // All are emptied before any is deleted, since they lead to one another.
    let emptied = chains().map(|chain| format!("-F {chain}"));
    (jumps.collect(), emptied.chain(chains().map(|chain| format!("-X {chain}"))).collect())
}

/// Options in the hook's rules.
const OPTIONS: [&str; 20] = [
    "-p",
    "-m",
    "-j",
    "-g",
    "!",
    "--mark",
    "--ports",
    "--sport",
    "--dport",
    "--tcp-flags",
    "--set-xmark",
    "--save-mark",
    "--nfmask",
    "--ctmask",
    "--queue-num",
    "--queue-balance",
    "--queue-bypass",
    "--u32",
    "--ctdir",
    "--bytecode",
];

/// True if a rule has only options, matches and targets of the hook's rules.
fn has_our_words(rule: &str) -> bool {
    let words: Vec<&str> = rule.split(' ').collect();
    let follows = |option: &str, known: &[&str]| {
        words
            .windows(2)
            .all(|pair| pair.first() != Some(&option) || pair.get(1).is_some_and(|word| known.contains(word)))
    };
    words.iter().all(|word| !word.starts_with(['-', '!']) || OPTIONS.contains(word))
        && follows("-m", &["mark", "connmark", "conntrack", "tcp", "udp", "multiport", "u32", "bpf"])
        && follows("-j", &["RETURN", "DROP", "MARK", "CONNMARK", "NFQUEUE"])
        && follows("-g", &CHAINS)
}

/// True if a line for `iptables-restore` only creates, empties, fills or removes one of the hook's chains, or
/// adds or removes a jump to one.
pub(super) fn is_our_change(change: &str) -> bool {
    let is_ours = |chain: &str| CHAINS.contains(&chain);
    // A line break would begin another command of `iptables-restore`.
    if change.contains(|octet: char| octet.is_control()) {
        return false;
    }
    if let Some(chain) = change.strip_prefix(':').and_then(|made| made.strip_suffix(" - [0:0]")) {
        return is_ours(chain);
    }
    let mut words = change.splitn(3, ' ');
    match (words.next(), words.next(), words.next()) {
        (Some("-F" | "-X"), Some(chain), None) => is_ours(chain),
        (Some("-A"), Some(chain), Some(rule)) if is_ours(chain) => has_our_words(rule),
        (Some("-I"), Some(base), Some(rule)) => rule
            .split_once(' ')
            .is_some_and(|(number, rule)| number.parse::<u16>().is_ok() && is_our_jump(base, rule)),
        (Some("-A" | "-D"), Some(base), Some(rule)) => is_our_jump(base, rule),
        _ => false,
    }
}

fn is_our_jump(base: &str, rule: &str) -> bool {
    BASES.contains(&base) && is_jump(rule)
}

/// Returns the rules of `jumps` in `base`.
pub(super) fn in_base<'a>(
    jumps: &'a [(&'static str, String)],
    base: &'a str,
) -> impl Iterator<Item = &'a str> {
    jumps.iter().filter(move |(chain, _)| *chain == base).map(|(_, rule)| rule.as_str())
}

/// Returns the hook's jumps in a base chain, with duplicates.
pub(super) fn our_jumps<'a>(there: &'a TableListing, base: &'a str) -> impl Iterator<Item = &'a str> {
    there.rules(base).filter(|rule| is_jump(rule))
}

/// Returns the third-party rules in `base`, in order.
fn foreign<'a>(there: &'a TableListing, base: &'a str) -> impl Iterator<Item = &'a str> {
    there.rules(base).filter(|rule| !is_jump(rule))
}

/// Returns the number of third-party rules before the jumps. All belong there, since queued packets miss
/// later rules. The exceptions are the first rule that lets packets pass uninspected, and the rules after it.
fn place(there: &TableListing, base: &str, led: &[HookedTraffic]) -> usize {
    let all = foreign(there, base).count();
    let leads = BaseChain::ALL.iter().any(|chain| chain.base() == base);
    let mut rules = foreign(there, base).take(if leads { all } else { 0 });
    rules.position(|rule| third_party_rules::lets_pass(there, rule, led)).unwrap_or(all)
}

/// True if `base` holds exactly these jumps, and every relevant third-party rule is on the right side.
fn are_in_place(
    there: &TableListing,
    base: &str,
    wanted: &[&str],
    place: usize,
    led: &[HookedTraffic],
) -> bool {
    if !our_jumps(there, base).eq(wanted.iter().copied()) {
        return false;
    }
    let is_ours = |rule: &&str| is_jump(rule);
    let before_first = there.rules(base).take_while(|rule| !is_ours(rule)).count();
    let behind_last = there.rules(base).rev().take_while(|rule| !is_ours(rule)).count();
    let before_last = foreign(there, base).count().saturating_sub(behind_last);
    let mut late = foreign(there, base).take(place).skip(before_first);
    wanted.is_empty() || before_last <= place && !late.any(|rule| third_party_rules::misses(there, rule, led))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> HookConfig {
        HookConfig::default()
    }

    fn queue_rules(config: &HookConfig) -> Vec<String> {
        let queues = |rule: &String| rule.contains("NFQUEUE") && !rule.contains("connmark");
        main_rules(config).into_iter().filter(queues).collect()
    }

    #[test]
    fn the_default_queues_all_ports_to_queue_0_and_lets_pass_when_nobody_listens() {
        assert_eq!(queue_rules(&config()), ["-p tcp -j NFQUEUE --queue-num 0 --queue-bypass"]);
    }

    #[test]
    fn a_segment_that_opens_a_connection_takes_the_pass_mark_off_before_it_is_looked_at() {
        let rules = main_rules(&config());
        let opening = rules.iter().position(|rule| rule.contains("-m tcp --tcp-flags SYN SYN"));
        let others = |rule: &&String| {
            !rule.contains("! --tcp-flags SYN SYN") && !rule.contains("FIN,SYN,RST,ACK,URG ACK")
        };
        let passes =
            |rule: &&String| rule.contains("connmark") && rule.ends_with("-j RETURN") && others(rule);
        let passing = rules.iter().position(|rule| passes(&rule));
        assert!(opening < passing && opening.is_some());
    }

    #[test]
    fn several_queues_are_balanced_and_closed_means_no_bypass() {
        let config = HookConfig { queues: "2:5".parse().expect("queues"), bypass: false, ..config() };
        assert_eq!(queue_rules(&config), ["-p tcp -j NFQUEUE --queue-balance 2:5"]);
    }

    #[test]
    fn more_ports_than_a_match_holds_get_a_rule_each_fifteen() {
        let list = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,8000-8010,15,16";
        let config = HookConfig { ports: Some(list.parse().expect("ports")), ..config() };
        assert_eq!(
            queue_rules(&config),
            [
                "-p tcp -m multiport --ports 1,2,3,4,5,6,7,8,9,10,11,12,13,14 -j NFQUEUE --queue-num 0 --queue-bypass",
                "-p tcp -m multiport --ports 8000:8010,15,16 -j NFQUEUE --queue-num 0 --queue-bypass",
            ]
        );
    }

    #[test]
    fn loopback_is_left_out_of_output_only_where_input_sees_it() {
        let jumps_of = |chains: &[BaseChain]| {
            let mut jumps = jumps(&HookConfig { chains: chains.to_vec(), ..config() });
            jumps.retain(|(_, rule)| !rule.ends_with(CLEAN));
            jumps
        };
        assert_eq!(
            jumps_of(&[BaseChain::Input, BaseChain::Output]),
            [
                ("INPUT", "-p tcp -j BANNERWALL".to_owned()),
                ("OUTPUT", "! -o lo -p tcp -j BANNERWALL".to_owned())
            ]
        );
        assert_eq!(
            jumps_of(&[BaseChain::Output, BaseChain::Forward]),
            [("OUTPUT", "-p tcp -j BANNERWALL".to_owned()), ("FORWARD", "-p tcp -j BANNERWALL".to_owned())]
        );
    }

    /// A table that holds the hook, with more lines of `iptables-save` behind it.
    fn table(config: &HookConfig, more: &[&str]) -> TableListing {
        let mut lines = changes(config, &TableListing::default());
        lines.extend(more.iter().map(|line| (*line).to_owned()));
        TableListing::read(&lines.join("\n"))
    }

    #[test]
    fn a_whole_hook_needs_no_change_and_leaves_nothing_when_it_is_removed() {
        let there = table(&config(), &["-A INPUT -p udp -j DROP", "-A FORWARD ! -p tcp -j DROP"]);
        assert_eq!(changes(&config(), &there), Vec::<String>::new(), "what TCP does not meet may follow");
        let (jumps, chains) = removal(&there);
        assert_eq!((jumps.len(), chains.len()), (5, 8));
    }

    #[test]
    fn a_doubled_jump_and_one_that_is_not_last_are_moved_in_one_transaction() {
        let double = "-A INPUT -p tcp -j BANNERWALL";
        let there = table(&config(), &[double]);
        let once = "-D INPUT -p tcp -j BANNERWALL";
        assert_eq!(changes(&config(), &there), [once, once, double]);
        let clamp = "-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu";
        let there = table(&config(), &[clamp]);
        let moved = ["-D FORWARD -p tcp -j BANNERWALL", "-A FORWARD -p tcp -j BANNERWALL"];
        assert_eq!(changes(&config(), &there), moved);
    }

    #[test]
    fn a_jump_stands_before_the_first_rule_that_lets_packets_pass_and_behind_what_lets_them_run_on() {
        let clamp = "-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu";
        let accept = "-A FORWARD -p tcp -m tcp --dport 80 -j ACCEPT";
        let jump = "-A FORWARD -p tcp -j BANNERWALL";
        let with = |forward: &[&str]| {
            let mut lines = changes(&config(), &TableListing::default());
            lines.retain(|line| line != jump);
            lines.extend(forward.iter().map(|line| (*line).to_owned()));
            changes(&config(), &TableListing::read(&lines.join("\n")))
        };
        let moved = |number: u16| {
            [
                "-D FORWARD -p tcp -j BANNERWALL".to_owned(),
                format!("-I FORWARD {number} -p tcp -j BANNERWALL"),
            ]
        };
        assert_eq!(with(&[clamp, jump, accept]), [""; 0], "what only accepts may follow");
        assert_eq!(with(&[clamp, accept, jump]), moved(2));
        assert_eq!(with(&[jump, clamp, accept]), moved(2));
        assert_eq!(with(&[accept, clamp, jump]), moved(1), "inspection comes first");
        assert_eq!(with(&[jump, accept, clamp]), [""; 0], "and is told of what it costs");
        assert!(moved(1).iter().all(|change| is_our_change(change)));
        assert!(
            !is_our_change("-I FORWARD 1 -j ACCEPT") && !is_our_change("-I FORWARD x -p tcp -j BANNERWALL")
        );
    }

    #[test]
    fn udp_is_led_where_it_is_asked_for_and_a_long_header_takes_the_pass_mark_off() {
        let udp = HookConfig { udp: Some("443".parse().expect("ports")), ..config() };
        let rules = main_rules(&udp);
        let last = rules.last().expect("a queue rule");
        assert_eq!(last, "-p udp -m multiport --ports 443 -j NFQUEUE --queue-num 0 --queue-bypass");
        let long = rules.iter().rposition(|rule| rule.contains("u32"));
        let passing = rules
            .iter()
            .position(|rule| rule.starts_with("-p udp -m connmark") && rule.ends_with("-j RETURN"));
        assert!(long < passing && long.is_some());
        let there = table(&udp, &["-A INPUT -p icmp -j DROP"]);
        assert_eq!(changes(&udp, &there), Vec::<String>::new());
        let (jumps, _) = removal(&there);
        assert_eq!(jumps.len(), 10, "{jumps:?}");
        assert_eq!(changes(&config(), &there).iter().filter(|change| change.starts_with("-D")).count(), 10);
        let behind = table(&udp, &["-A INPUT -p udp -j DROP"]);
        assert!(!changes(&udp, &behind).is_empty(), "moved behind what UDP meets");
    }

    #[test]
    fn a_packet_without_marks_is_queued_by_the_second_rule() {
        let udp = HookConfig { udp: Some("443".parse().expect("ports")), ..config() };
        let rules = main_rules(&udp);
        let unmarked = "-m mark --mark 0x0/0xc0000000 -m connmark --mark 0x0/0xc0000000 -j NFQUEUE";
        assert!(rules[1].starts_with(&format!("-p tcp {unmarked}")), "{rules:?}");
        assert!(rules[2].starts_with(&format!("-p udp -m multiport --ports 443 {unmarked}")), "{rules:?}");
    }

    #[test]
    fn jumps_of_every_mark_and_of_earlier_versions_are_ours() {
        for bit in 0..=MarkField::HIGHEST_BIT {
            let mark = MarkField::new(bit).expect("within the mark");
            for carried in [HookTransport::Tcp, HookTransport::Udp] {
                assert!(is_jump(&clean_jump(carried, mark)), "{bit}");
            }
        }
        assert!(is_jump("-p tcp -j BANNERWALL-CLEAN") && is_jump("! -o lo -p udp -j BANNERWALL"));
        for other in [
            "-p tcp -m mark ! --mark 0x0/0x5 -j BANNERWALL-CLEAN",
            "-p tcp -m mark ! --mark 0x0/0xc0000000 -j BANNERWALL",
            "-p tcp -m mark --mark 0x0/0xc0000000 -j BANNERWALL-CLEAN",
            "-p icmp -j BANNERWALL-CLEAN",
            "-p tcp -j BANNERWALL-CLEANER",
        ] {
            assert!(!is_jump(other), "{other}");
        }
    }

    #[test]
    fn only_what_differs_is_made_anew() {
        let closed = HookConfig { bypass: false, ..config() };
        let changed = changes(&closed, &table(&config(), &[]));
        assert_eq!(changed.first().map(String::as_str), Some(":BANNERWALL - [0:0]"));
        assert!(changed.iter().all(|change| change.contains("BANNERWALL ")), "{changed:?}");
    }
}
