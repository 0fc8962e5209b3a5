//! Waits for the end of scans, whatever becomes of the server meanwhile.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::queue::{Queue, ScanEnd};
use super::{FleetError, PAUSE};
use crate::diagnostics::tell;
use crate::inventory::{Absence, Pauses, Place};

/// Interval at which it is looked: at first, and at last. No more than this passes between a signal and the
/// end.
const LOOKS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// What is waited for.
#[derive(Debug, Clone)]
pub struct WaitConfig {
    /// The database.
    pub place: Place,
    /// The scans.
    pub scans: Vec<i64>,
    /// Time for which at most, by this machine's clock; for ever where absent.
    pub patience: Option<Duration>,
}

/// Why it is waited no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// All are over.
    Over,
    /// The time is, and this scan is not.
    Late(i64),
    /// `stop` has said so; this scan goes on.
    Stopped(i64),
}

/// Waits until all scans are over, and shows how each has ended, in the order in which they are given.
///
/// # Errors
/// The database cannot be used when it begins, or there is no such scan. A server that goes away later is
/// waited for.
pub fn wait(
    config: &WaitConfig,
    stop: &AtomicBool,
    mut show: impl FnMut(i64, ScanEnd),
) -> Result<Waited, FleetError> {
    let begun = Instant::now();
    let mut queue = Queue::open(&config.place)?;
    for scan in &config.scans {
        let (mut looks, mut absence) = (Pauses::new(LOOKS.0, LOOKS.1), Absence::new(PAUSE));
        loop {
            let found = queue.revive().map_err(FleetError::from).and_then(|()| queue.end(*scan));
            let pause = match found {
                Ok(found) => {
                    if absence.is_over() {
                        tell("bannerwall: the database is there again");
                    }
                    if let Some(end) = found {
                        show(*scan, end);
                        break;
                    }
                    looks.pause()
                }
                Err(error) if error.is_of_absence() => absence
                    .goes_on(|| {
                        tell(format_args!("bannerwall: {error}; it is asked again and again"));
                    })
                    .min(LOOKS.1),
                Err(error) => return Err(error),
            };
            let left = config.patience.map(|patience| patience.saturating_sub(begun.elapsed()));
            if stop.load(Relaxed) {
                return Ok(Waited::Stopped(*scan));
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Waited::Late(*scan));
            }
            std::thread::sleep(left.map_or(pause, |left| pause.min(left)));
        }
    }
    Ok(Waited::Over)
}
