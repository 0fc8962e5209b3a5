//! Number of threads and connections of a scan.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{ScanOptions, SessionError};
use crate::scan::pacing::ScanRate;
use crate::scan::targets::TargetPlan;
use crate::scan::{HttpOptions, ProbeOptions, ScannerConfig};

/// Default limit of concurrent connections.
const WINDOW: u64 = 65_536;

/// Fewest concurrent connections for a slow rate.
const LEAST: u64 = 64;

/// Returns the number of threads for a number of targets.
pub fn threads(wanted: Option<u16>, rate: ScanRate, targets: u64) -> usize {
    let chosen = match (wanted, rate) {
        (Some(threads), _) => threads.into(),
        (None, ScanRate::Max) => std::thread::available_parallelism().map_or(1, usize::from),
        (None, ScanRate::Limited(_)) => 1,
    };
    // More threads than targets would only wait.
    chosen.min(usize::try_from(targets).unwrap_or(usize::MAX)).max(1)
}

/// Returns the scan's configuration for the remaining targets of `plan`.
pub(super) fn config(options: &ScanOptions, plan: &TargetPlan) -> Result<ScannerConfig, SessionError> {
    config_of(options, plan.remaining())
}

/// Returns the configuration for a number of targets.
///
/// # Errors
///
/// The limit of descriptors could not be raised.
pub fn config_of(options: &ScanOptions, targets: u64) -> Result<ScannerConfig, SessionError> {
    let wanted = match (options.concurrency, options.rate) {
        (Some(concurrency), _) => concurrency.into(),
        (None, ScanRate::Max) => WINDOW,
        (None, ScanRate::Limited(rate)) => {
            let in_time = u128::from(rate.get()) * options.connect_timeout.as_millis() / 1000;
            u64::try_from(in_time).unwrap_or(WINDOW).clamp(LEAST, WINDOW)
        }
    };
    let descriptors = descriptors().map_err(SessionError::Descriptors)?;
    // Each ring takes one descriptor itself, outside of its table; the rest is for files and libraries.
    let most = descriptors.saturating_mul((descriptors / 4).max(1));
    let useful = targets.saturating_mul(connections_each(&options.probe));
    let window = usize::try_from(wanted.min(useful).max(1)).unwrap_or(usize::MAX).min(most);
    Ok(ScannerConfig {
        probe: options.probe.clone(),
        window,
        descriptors_per_ring: descriptors,
        connect_timeout: options.connect_timeout,
        first_byte_timeout: options.read_timeout,
        total_timeout: options.total_timeout.max(options.connect_timeout),
        retries: options.retries,
        close: options.close,
        rules: options.rules.clone(),
        fingerprints: options.fingerprints.clone(),
        disclosure: options.disclosure,
        ..ScannerConfig::default()
    })
}

/// Returns the limit of concurrent connections to one target.
fn connections_each(probe: &ProbeOptions) -> u64 {
    let (ProbeOptions::Http(options) | ProbeOptions::Https(options, _) | ProbeOptions::Any(_, options, _)) =
        probe
    else {
        return 1;
    };
    let fallback = if options.pipeline { HttpOptions::FALLBACK_CONNECTIONS } else { 0 };
    u64::try_from(options.host_connections.max(fallback)).unwrap_or(u64::MAX)
}

/// Raises the limit of descriptors to its maximum, and returns the limit for one ring.
fn descriptors() -> std::io::Result<usize> {
    let limit = getrlimit(Resource::Nofile);
    // The soft limit is low (often 1,024) for the sake of programs that use select(2). This one does
    // not.
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(limit.maximum.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX)).min(1 << 16))
}
