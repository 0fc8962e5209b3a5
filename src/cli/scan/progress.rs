//! Progress bar on a terminal, and the summary at the end of a scan.

use std::fmt;
use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::diagnostics::several;
use crate::scan::session::ScanTotals;
use crate::scan::targets::TargetCounts;

/// Returns a bar on stderr, hidden if stderr is not a terminal or `show` is false. Its length is set later.
pub(super) fn bar(show: bool) -> ProgressBar {
    if !show {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
    let template = "{percent:>3}% {bar:24} {human_pos}/{human_len}  {rate}  {msg}  ETA {eta}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    // The default rate of the bar has four decimals.
    bar.with_style(style.with_key("rate", |state: &ProgressState, out: &mut dyn fmt::Write| {
        // The text is drawn again within 200 ms, so an error has no effect.
        let _ = write!(out, "{:.0}/s", state.per_sec());
    }))
}

/// Standard output below a bar: the bar is hidden during each write.
pub(super) struct ProgressStdout(pub(super) ProgressBar);

impl Write for ProgressStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stdout().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

/// Findings of a scan: `8 servers, 3 with findings: 2 critical, 2 medium`.
pub(super) struct ScanFindingsLine<'a>(pub(super) &'a TargetCounts);

impl fmt::Display for ScanFindingsLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TargetCounts { open, findings, .. } = self.0;
        f.write_str(&several(*open, "server"))?;
        if findings.servers == 0 {
            return f.write_str(", none with findings");
        }
        let counted = findings.by_severity().into_iter().filter(|(_, count)| *count > 0);
        let counted: Vec<_> =
            counted.map(|(severity, count)| format!("{count} {}", severity.name())).collect();
        write!(f, ", {} with findings: {}", findings.servers, counted.join(", "))
    }
}

/// Last line of a scan: open, refused, timed out, unreachable, local error, skipped and not asked add up to
/// the targets. Counters that are zero are left out.
pub(super) struct ScanSummaryLine<'a> {
    pub(super) account: &'a ScanTotals,
    /// True if the scan has patterns of `--match`.
    pub(super) matches: bool,
}

impl fmt::Display for ScanSummaryLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ScanTotals { input, skipped, other_shards, total, counts, elapsed } = self.account;
        let (finished, seconds) = (counts.finished(), elapsed.as_secs_f64());
        let rate = finished as f64 / seconds.max(0.001);
        write!(f, "targets {input}, open {}", counts.open)?;
        let talks = [
            ("silent", counts.silent),
            ("broken off", counts.broken_off),
            ("unfinished", counts.unfinished),
            ("another protocol", counts.foreign),
            ("TLS refused", counts.tls_refused),
        ];
        kinds(f, "but ", &talks.map(|(name, count)| (name, count.into())))?;
        if self.matches {
            write!(f, ", matched {}", counts.matched)?;
        }
        let failed = [
            ("refused", counts.refused),
            ("timed out", counts.timed_out),
            ("unreachable", counts.unreachable),
            ("local error", counts.local_error),
        ];
        for (name, count) in failed.into_iter().filter(|(_, count)| *count > 0) {
            write!(f, ", {name} {count}")?;
        }
        kinds(f, "", &counts.shortages.kinds().map(|(name, count)| (name, count.into())))?;
        let left_out = input.saturating_sub(u128::from(*total));
        if left_out > 0 {
            write!(f, ", skipped {left_out}")?;
        }
        let whys = [
            ("excluded", skipped.excluded),
            ("reserved", skipped.reserved),
            ("unresolved", skipped.unresolved),
            ("other shards", (*other_shards).into()),
        ];
        kinds(f, "", &whys)?;
        if finished < *total {
            write!(f, ", not asked {}", total - finished)?;
        }
        write!(f, ", {seconds:.2} s, {rate:.0} targets a second")
    }
}

/// Formats ` (but silent 1, …)`, without zero counts.
fn kinds(f: &mut fmt::Formatter<'_>, but: &str, kinds: &[(&str, u128)]) -> fmt::Result {
    let counted = kinds.iter().filter(|(_, count)| *count > 0);
    let said: Vec<_> = counted.map(|(name, count)| format!("{name} {count}")).collect();
    if said.is_empty() { Ok(()) } else { write!(f, " ({but}{})", said.join(", ")) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::scan::targets::{ShortageCounts, SkippedTargets};

    #[test]
    fn the_summary_sums_to_the_input() {
        let shortages = ShortageCounts { ports: 1, ..ShortageCounts::default() };
        let counts = TargetCounts {
            open: 3,
            refused: 4,
            timed_out: 1,
            matched: 2,
            silent: 1,
            local_error: 1,
            shortages,
            ..TargetCounts::default()
        };
        let skipped = SkippedTargets { excluded: 2, reserved: 3, unresolved: 0 };
        let elapsed = Duration::from_secs(2);
        let account = ScanTotals { input: 20, skipped, other_shards: 5, total: 10, counts, elapsed };
        assert_eq!(
            ScanSummaryLine { account: &account, matches: true }.to_string(),
            "targets 20, open 3 (but silent 1), matched 2, refused 4, timed out 1, \
             local error 1 (no free port 1), skipped 10 (excluded 2, reserved 3, other shards 5), \
             not asked 1, 2.00 s, 4 targets a second"
        );
    }
}
