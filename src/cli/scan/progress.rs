//! The bar on a terminal, and the summary that ends every scan.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::scan::targets::Counts;

/// A bar on stderr; nothing where stderr is no terminal or `show` is false.
pub(super) fn bar(total: u64, show: bool) -> ProgressBar {
    if !show {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(5));
    let template = "{percent:>3}% {bar:24} {human_pos}/{human_len}  {per_sec}  {msg}  ETA {eta}";
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Standard output under a bar: the bar steps aside for each write.
pub(super) struct Aside(pub(super) ProgressBar);

impl Write for Aside {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stdout().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

/// The last line of a scan. Targets are what was named; the other counts sum to it.
pub(super) struct Summary {
    pub(super) input: u128,
    pub(super) total: u64,
    pub(super) counts: Counts,
    /// Of this run and those before it.
    pub(super) elapsed: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { input, total, counts, elapsed } = self;
        let (finished, seconds) = (counts.finished(), elapsed.as_secs_f64());
        let rate = finished as f64 / seconds.max(0.001);
        let skipped = input.saturating_sub(u128::from(*total));
        write!(
            f,
            "targets {input}, open {}, matched {}, refused {}, timed out {}, unreachable {}, local error {}, \
             skipped {skipped}",
            counts.open,
            counts.matched,
            counts.refused,
            counts.timed_out,
            counts.unreachable,
            counts.local_error
        )?;
        let talks = [
            ("silent", counts.silent),
            ("broken off", counts.broken_off),
            ("unfinished", counts.unfinished),
            ("another protocol", counts.foreign),
        ];
        let said: Vec<_> = talks
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        if !said.is_empty() {
            write!(f, " (open but {})", said.join(", "))?;
        }
        if finished < *total {
            write!(f, ", not asked {}", total - finished)?;
        }
        write!(f, ", {seconds:.2} s, {rate:.0} targets a second")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_sums_to_the_input() {
        let counts = Counts { open: 3, refused: 4, timed_out: 1, matched: 2, silent: 1, ..Counts::default() };
        let summary = Summary { input: 20, total: 10, counts, elapsed: Duration::from_secs(2) };
        assert_eq!(
            summary.to_string(),
            "targets 20, open 3, matched 2, refused 4, timed out 1, unreachable 0, local error 0, skipped 10 \
             (open but silent 1), not asked 2, 2.00 s, 4 targets a second"
        );
    }
}
