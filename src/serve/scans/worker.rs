//! The worker process of a page: takes the page's scans from the queue, within the limits of its command
//! line.
//!
//! It is a helper process ([`crate::helper_process`], `bannerwall scan-worker`), started before the page is
//! confined. It confines itself before it reads the queue. It ends with the page, even if that is killed; the
//! rest of its scans waits for the next worker. If the process dies, no scan is taken until the page starts
//! again.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

use super::order::ScanPermissions;
use crate::database::DatabaseLocation;
use crate::fleet::{ExitCondition, ScanOrder, ScanTask, StopRequests, WorkerConfig};
use crate::helper_process::{self, HelperProcess, HelperRequests};
use crate::inventory::own_name;
use crate::privileges::{FILES, leave_root_or_warn};
use crate::scan::tls::TrustedAuthorities;

/// Subcommand of such a process.
pub(crate) const SUBCOMMAND: &str = "scan-worker";

/// Name in process lists.
const NAME: &std::ffi::CStr = c"bannerwall-scn";

/// Time without a report after which the next worker takes over.
const LEASE: Duration = Duration::from_secs(5);

/// Message of a page whose worker has exited.
pub(super) const GONE: &str =
    "the helper process for scans has exited: restart `bannerwall serve` to scan again";

/// Settings of the worker.
#[derive(Debug, Serialize, Deserialize)]
struct ScanWorkerSetup {
    inventory: Vec<u8>,
    /// Password of the inventory's server, which must not appear on a command line.
    password: Option<Vec<u8>>,
    bounds: ScanPermissions,
    pool: String,
}

/// Starts the process, with the rights of the calling thread.
pub(super) fn start(
    inventory: &DatabaseLocation,
    bounds: &ScanPermissions,
    pool: &str,
) -> io::Result<HelperProcess> {
    let (word, password) = inventory.word();
    let helper = HelperProcess::start(SUBCOMMAND, GONE)?;
    let (inventory, bounds, pool) = (word.into_vec(), bounds.clone(), pool.to_owned());
    helper.send(&ScanWorkerSetup { inventory, password, bounds, pool })?;
    Ok(helper)
}

/// Scans until the page ends; this is `bannerwall scan-worker`. `translate` makes a task of an order.
///
/// # Errors
///
/// The settings are invalid, or the queue cannot be used at the start.
pub(crate) fn serve(translate: fn(&ScanOrder) -> Result<ScanTask, String>) -> io::Result<()> {
    helper_process::begin(NAME)?;
    let Some(setup) = HelperRequests::of_parent().receive::<ScanWorkerSetup>()? else { return Ok(()) };
    let ScanWorkerSetup { inventory, password, bounds, pool } = setup;
    let password = password.map(String::from_utf8).transpose().map_err(io::Error::other)?;
    let place = DatabaseLocation::with_password(OsString::from_vec(inventory), password);
    let place = place.map_err(io::Error::other)?;
    // A confined process could not read them.
    TrustedAuthorities::of_system();
    leave_root_or_warn(FILES | CapabilitySet::IPC_LOCK);
    let stop = StopRequests::default();
    stop_with_parent(stop.clone())?;
    let config = WorkerConfig {
        place,
        name: own_name(),
        lease: LEASE,
        rate: Some(bounds.rate),
        until: ExitCondition::Told,
        pool: Some(pool),
    };
    config.confinement().apply_or_warn(true);
    let read = |order: &ScanOrder, rate: Option<u32>| {
        bounds.permit(order, rate)?;
        translate(order)
    };
    crate::fleet::run(&config, &read, &stop).map(drop).map_err(io::Error::other)
}

/// Requests to stop once the page has closed the pipe.
fn stop_with_parent(stop: StopRequests) -> io::Result<()> {
    std::thread::Builder::new().name("page".to_owned()).spawn(move || {
        // The page sends nothing more, so that this waits for its end.
        let _ = io::stdin().read(&mut [0; 16]);
        stop.0.fetch_add(1, Ordering::Relaxed);
    })?;
    Ok(())
}
