//! Waits for the end of scans, even if the server is away for a while.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::database::{FleetDatabase, ScanEnd};
use super::{FleetError, PAUSE};
use crate::backoff::Backoff;
use crate::database::{DatabaseLocation, OutageTracker};
use crate::diagnostics::log_line;

/// First and last pause between queries. The last one bounds the time between a signal and the end.
const LOOKS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Settings of a wait.
#[derive(Debug, Clone)]
pub struct WaitConfig {
    /// The database.
    pub place: DatabaseLocation,
    /// The scans.
    pub scans: Vec<i64>,
    /// Limit of the wait by this machine's clock; no limit if absent.
    pub patience: Option<Duration>,
}

/// The reason why the wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitOutcome {
    /// All scans have ended.
    Over,
    /// The time is over, but this scan has not ended.
    Late(i64),
    /// `stop` was set, but this scan has not ended.
    Stopped(i64),
}

/// Waits until all scans have ended, and shows how each one ended, in the given order.
///
/// # Errors
///
/// The database cannot be used at the start, or a scan does not exist. A server that disappears later is
/// awaited.
pub fn wait(
    config: &WaitConfig,
    stop: &AtomicBool,
    mut show: impl FnMut(i64, ScanEnd),
) -> Result<WaitOutcome, FleetError> {
    let begun = Instant::now();
    // Errors at the start end the command: a wrong URL must not look like a server that is away.
    let mut queue = FleetDatabase::open(&config.place)?;
    for scan in &config.scans {
        let (mut looks, mut absence) = (Backoff::new(LOOKS.0, LOOKS.1), OutageTracker::new(PAUSE));
        loop {
            let found = queue.reconnect().map_err(FleetError::from).and_then(|()| queue.end(*scan));
            let pause = match found {
                Ok(found) => {
                    if absence.record_success() {
                        log_line("bannerwall: the database is back");
                    }
                    if let Some(end) = found {
                        show(*scan, end);
                        break;
                    }
                    looks.next_delay()
                }
                Err(error) if error.is_unavailable() => absence
                    .record_failure(|| {
                        log_line(format_args!("bannerwall: {error}; retrying"));
                    })
                    .min(LOOKS.1),
                Err(error) => return Err(error),
            };
            let left = config.patience.map(|patience| patience.saturating_sub(begun.elapsed()));
            if stop.load(Relaxed) {
                return Ok(WaitOutcome::Stopped(*scan));
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(WaitOutcome::Late(*scan));
            }
            std::thread::sleep(left.map_or(pause, |left| pause.min(left)));
        }
    }
    Ok(WaitOutcome::Over)
}
