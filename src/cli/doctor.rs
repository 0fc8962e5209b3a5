//! `bannerwall doctor`: what of this machine the guard can rely on, one line a check.

use std::fmt::Write as _;
use std::path::Path;

use bannerwall_ffi::ring::{Options, Ring};
use clap::Args;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::hook::VariantFlag;
use super::{Exit, Failure, print};
use crate::guard::source::{Source, SourceConfig};
use crate::hook::{self, MarkField, Variant};

/// Flags of `bannerwall doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  sudo bannerwall doctor --mark 30 --queue 0")]
pub(super) struct DoctorArgs {
    /// Queue number to try; it must not be in use.
    #[arg(long, value_name = "N", default_value_t = 65_000)]
    queue: u16,
    /// Lowest of the two neighbouring mark bits that are to be ours.
    #[arg(long, value_name = "BIT", default_value_t = MarkField::HIGHEST_BIT,
          value_parser = clap::value_parser!(u8).range(..=i64::from(MarkField::HIGHEST_BIT)))]
    mark: u8,
    #[command(flatten)]
    variant: VariantFlag,
}

/// What a check found.
enum Finding {
    /// All well: what was seen.
    Fine(String),
    /// Something to mend: what it means, and how.
    Fault(String),
}

use Finding::{Fault, Fine};

/// Runs `bannerwall doctor`.
pub(super) fn run(arguments: &DoctorArgs) -> Result<Exit, Failure> {
    let mark = MarkField::new(arguments.mark).unwrap_or_default();
    let findings = [
        ("capabilities", held_capabilities()),
        ("netfilter queue", queue(arguments.queue)),
        ("iptables", iptables(arguments.variant.variant())),
        ("mark", marks(mark)),
        ("conntrack", conntrack()),
        ("open files", open_files()),
        ("receive buffer", receive_buffer()),
        ("io_uring", io_uring()),
        ("kernel", kernel(&release())),
    ];
    let mut text = String::new();
    for (name, finding) in &findings {
        let (state, said) = match finding {
            Fine(said) => ("ok", said),
            Fault(said) => ("FAULT", said),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{state:5} {name}: {said}");
    }
    print(text.as_bytes())?;
    let well = findings.iter().all(|(_, finding)| matches!(finding, Fine(_)));
    Ok(if well { Exit::Done } else { Exit::Findings })
}

fn held_capabilities() -> Finding {
    let held = capabilities(None).map(|sets| sets.effective).unwrap_or_else(|_| CapabilitySet::empty());
    let needed = [
        (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN (queues, marks, iptables)"),
        (CapabilitySet::NET_RAW, "CAP_NET_RAW (resets)"),
    ];
    let missing: Vec<&str> =
        needed.iter().filter(|(capability, _)| !held.contains(*capability)).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        Fine("CAP_NET_ADMIN and CAP_NET_RAW are held".to_owned())
    } else {
        Fault(format!("missing {}; run as root or grant them", missing.join(" and ")))
    }
}

/// Binds a queue and gives it back: the kernel option, the library and the permission in one.
fn queue(number: u16) -> Finding {
    let closed = SourceConfig::new(number).open().and_then(Source::close);
    match closed {
        Ok(()) => Fine(format!("queue {number} can be bound (CONFIG_NETFILTER_NETLINK_QUEUE)")),
        Err(error) => Fault(error.to_string()),
    }
}

/// Looks for our hook with the very iptables that would put it up.
fn iptables(variant: Variant) -> Finding {
    match hook::status(variant) {
        Ok(places) => {
            let names: Vec<String> =
                places.iter().map(|place| format!("{} ({})", place.family, place.variant)).collect();
            Fine(format!("usable: {}", names.join(", ")))
        }
        Err(error) => Fault(error.to_string()),
    }
}

/// Looks for others that use our bits: routing rules, and rules of iptables.
fn marks(mark: MarkField) -> Finding {
    let mut users = Vec::new();
    for (program, arguments) in [
        ("ip", &["-4", "rule"][..]),
        ("ip", &["-6", "rule"]),
        ("iptables-save", &[]),
        ("ip6tables-save", &[]),
    ] {
        // A program that is not there or not permitted has no rules to show.
        let Ok(output) = std::process::Command::new(program).args(arguments).output() else { continue };
        let text = String::from_utf8_lossy(&output.stdout);
        users.extend(text.lines().filter(|line| uses(line, mark)).map(|line| line.trim().to_owned()));
    }
    if users.is_empty() {
        Fine(format!("nobody else uses bits {mark}"))
    } else {
        Fault(format!("bits {mark} are used by: {}; choose others with --mark BIT", users.join("; ")))
    }
}

/// Whether a rule that is not ours tests or sets one of our bits.
fn uses(line: &str, mark: MarkField) -> bool {
    if line.contains("BANNERWALL") {
        return false;
    }
    let mut words = line.split_whitespace();
    while let Some(word) = words.next() {
        if !matches!(word, "fwmark" | "--mark" | "--set-xmark" | "--set-mark" | "--nfmask" | "--ctmask") {
            continue;
        }
        let Some(value) = words.next().filter(|value| *value != "!") else { continue };
        let mut parts = value.split('/').map(number);
        let (value, mask) = (parts.next().flatten(), parts.next().flatten());
        // Without a mask a routing rule compares all 32 bits, which marks of ours would disturb.
        if mask.or(value).is_some_and(|bits| bits & mark.mask() != 0) {
            return true;
        }
    }
    false
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Decided flows are handed back to the kernel by marks on its tracked connections.
fn conntrack() -> Finding {
    let read = |name: &str| -> Option<u64> {
        std::fs::read_to_string(format!("/proc/sys/net/netfilter/{name}")).ok()?.trim().parse().ok()
    };
    let (Some(count), Some(most)) = (read("nf_conntrack_count"), read("nf_conntrack_max")) else {
        return Fine("not loaded; the hook's rules load it (CONFIG_NF_CONNTRACK)".to_owned());
    };
    if count > most / 10 * 9 {
        return Fault(format!(
            "{count} of {most} connections are tracked: soon new ones are dropped; raise sysctl net.netfilter.nf_conntrack_max"
        ));
    }
    Fine(format!("{count} of {most} connections are tracked"))
}

/// Descriptors bound the connections of each ring of a scan.
fn open_files() -> Finding {
    const FEW: u64 = 4096;
    match getrlimit(Resource::Nofile).maximum {
        Some(most) if most < FEW => Fault(format!(
            "at most {most} open files, and so connections at once, for each ring of a scan; raise it with \
             `ulimit -Hn 65536` or LimitNOFILE="
        )),
        Some(most) => Fine(format!("up to {most}, and so connections at once, for each ring of a scan")),
        None => Fine("unlimited".to_owned()),
    }
}

/// `SO_RCVBUFFORCE` goes beyond `rmem_max`, but only with `CAP_NET_ADMIN` in the first user namespace.
fn receive_buffer() -> Finding {
    let text = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap_or_default();
    match text.trim().parse::<u64>() {
        Ok(most) => Fine(format!("net.core.rmem_max is {most}; the guard goes beyond it with CAP_NET_ADMIN")),
        Err(_) => Fine("net.core.rmem_max is not shown here; the guard asks for what it needs".to_owned()),
    }
}

/// Makes a small ring as a scan would: the sysctl, the permission and every operation in one.
fn io_uring() -> Finding {
    let smallest =
        Options { submissions: 8, operations: 8, sockets: 1, buffers: 1, buffer_size: 64, no_delay: true };
    match Ring::<()>::new(&smallest) {
        Ok(ring) if ring.has_no_delay() => Fine("every operation of the scan is there".to_owned()),
        Ok(_) => Fine("what a scan needs is there; HTTP pipelines are faster from Linux 6.7 on".to_owned()),
        Err(error) => Fault(format!("{error}: scans do not work")),
    }
}

fn release() -> String {
    std::fs::read_to_string(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default().trim().to_owned()
}

/// Kernels whose NFQUEUE frees packets that are still in use: CVE-2026-43084.
fn kernel(release: &str) -> Finding {
    const AFFECTED: [(u32, u32, std::ops::RangeInclusive<u32>); 3] =
        [(6, 12, 75..=82), (6, 18, 14..=23), (6, 19, 4..=13)];
    let mut numbers = release.split(|character: char| !character.is_ascii_digit()).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    let (major, minor, patch) = (next(), next(), next());
    if AFFECTED.iter().any(|(x, y, z)| (*x, *y) == (major, minor) && z.contains(&patch)) {
        return Fault(format!("{release} has CVE-2026-43084 (use after free in NFQUEUE); update the kernel"));
    }
    Fine(format!("{release}: no known fault of NFQUEUE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_with_the_fault_are_known_by_their_release() {
        let faulty = |release| matches!(kernel(release), Fault(_));
        assert!(faulty("6.18.14-amd64") && faulty("6.18.23") && faulty("6.12.75") && faulty("6.19.13-rt1"));
        assert!(!faulty("6.18.24") && !faulty("6.18.13") && !faulty("6.1.0-18-amd64") && !faulty("7.0"));
    }

    #[test]
    fn foreign_rules_that_touch_our_bits_are_told() {
        let field = MarkField::default();
        assert!(uses("-A PREROUTING -j MARK --set-xmark 0x80000000/0x80000000", field));
        assert!(uses("32765: from all fwmark 0xc0000000 lookup 100", field));
        assert!(!uses("-A PREROUTING -j MARK --set-xmark 0x1/0xff", field));
        assert!(!uses("-A BANNERWALL -m mark --mark 0xc0000000/0xc0000000 -j RETURN", field));
        assert!(!uses("32765: from all fwmark 0xff lookup 100", field));
    }
}
