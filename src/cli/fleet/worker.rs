//! `bannerwall fleet worker`: scans shards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use clap::Args;
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::DatabaseFlag;
use crate::cli::flags::duration;
use crate::cli::scan::fleet_scan::task;
use crate::cli::{CliExitCode, CommandFailure};
use crate::confinement::warn_unconfined;
use crate::diagnostics::{log_line, several};
use crate::fleet::{ExitCondition, StopRequests, WorkerConfig, WorkerSummary};
use crate::inventory::own_name;
use crate::privileges::{FILES, leave_root_or_warn};
use crate::scan::tls::TrustedAuthorities;

#[derive(Debug, Args)]
#[command(
    after_help = "SIGTERM stops a worker in order: it finishes and writes targets under way, and gives the rest
back.

Examples:
  bannerwall fleet worker --database postgresql://worker@db/net
  bannerwall fleet worker --until-empty --rate 2000 --name east-1 \\
      --database postgresql://worker@db/net"
)]
pub(super) struct WorkerArgs {
    #[command(flatten)]
    database: DatabaseFlag,
    /// Name of the worker, also as a sensor in the inventory [default: the host's name].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Rate limit of this worker, in targets a second.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Silence of a worker after which others take over its shards.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = lease)]
    lease: Duration,
    /// Exit after one shard.
    #[arg(long, conflicts_with = "until_empty")]
    once: bool,
    /// Exit once all scans are done.
    #[arg(long)]
    until_empty: bool,
    /// Do not confine the worker to the network, for debugging. A malicious reply that exploits a bug could
    /// then open every file and run every program.
    #[arg(long)]
    no_sandbox: bool,
}

/// Parses a lease, which must be long enough for its renewal.
fn lease(text: &str) -> anyhow::Result<Duration> {
    const BOUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3_600));
    let lease = duration(text)?;
    anyhow::ensure!(BOUNDS.0 <= lease && lease <= BOUNDS.1, "must be from 1s to 1h");
    Ok(lease)
}

/// Runs `bannerwall fleet worker`.
pub(super) fn run(arguments: &WorkerArgs, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    let config = WorkerConfig {
        place: arguments.database.place.clone(),
        name: arguments.name.clone().unwrap_or_else(own_name),
        lease: arguments.lease,
        rate: arguments.rate,
        until: match (arguments.once, arguments.until_empty) {
            (true, _) => ExitCondition::Once,
            (false, true) => ExitCondition::Empty,
            (false, false) => ExitCondition::Told,
        },
        pool: None,
    };
    // A confined process could not read them.
    TrustedAuthorities::of_system();
    if arguments.no_sandbox {
        warn_unconfined("an answer");
    } else {
        // The ring locks its buffers in memory, and a file may belong to another user.
        let needed = config.place.file().map_or(CapabilitySet::empty(), |_| FILES);
        leave_root_or_warn(needed | CapabilitySet::IPC_LOCK);
        config.confinement().apply_or_warn(quiet);
    }
    let stop = StopRequests(Arc::new(AtomicUsize::new(0)));
    count_signals(Arc::clone(&stop.0))?;
    let WorkerSummary { targets, shards } = crate::fleet::run(&config, &|order, _| task(order), &stop)?;
    if !quiet {
        log_line(format_args!("{}, {} finished", several(targets, "target"), several(shards, "shard")));
    }
    Ok(CliExitCode::Done)
}

/// Counts SIGINT and SIGTERM on a separate thread.
fn count_signals(counter: Arc<AtomicUsize>) -> Result<(), CommandFailure> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            if counter.fetch_add(1, Relaxed) == 0 {
                log_line("bannerwall: giving the shards back; interrupt again to abandon targets under way");
            }
        }
    })?;
    Ok(())
}
