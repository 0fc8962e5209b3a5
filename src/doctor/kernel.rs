//! Check for kernels whose NFQUEUE frees packets that are still in use: CVE-2026-43084.

use super::CheckReport;

pub(super) fn check() -> CheckReport {
    match std::fs::read_to_string("/proc/sys/kernel/osrelease") {
        Ok(release) => judge(release.trim()),
        Err(error) => CheckReport::blind(format!("/proc/sys/kernel/osrelease: {error}")),
    }
}

fn judge(release: &str) -> CheckReport {
    const AFFECTED: [(u32, u32, std::ops::RangeInclusive<u32>); 3] =
        [(6, 12, 75..=82), (6, 18, 14..=23), (6, 19, 4..=13)];
    let mut numbers = release.split(|character: char| !character.is_ascii_digit()).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    let (major, minor, patch) = (next(), next(), next());
    if AFFECTED.iter().any(|(x, y, z)| (*x, *y) == (major, minor) && z.contains(&patch)) {
        return CheckReport::fault(format!(
            "{release} has CVE-2026-43084 (use after free in NFQUEUE); update the kernel"
        ));
    }
    CheckReport::fine(format!("{release}: no known fault of NFQUEUE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_with_the_fault_are_known_by_their_release() {
        let faulty = |release| !judge(release).spots.is_empty();
        assert!(faulty("6.18.14-amd64") && faulty("6.18.23") && faulty("6.12.75") && faulty("6.19.13-rt1"));
        assert!(!faulty("6.18.24") && !faulty("6.18.13") && !faulty("6.1.0-18-amd64") && !faulty("7.0"));
    }
}
