//! Privileges that a guard gives up after it has opened its queues and raw sockets, and before its threads
//! start.
//!
//! | privilege | reason to keep it |
//! |---|---|
//! | `CAP_NET_ADMIN` | verdicts, since nfnetlink checks it for each message; notifications of changed rules |
//! | `CAP_NET_RAW`, packet sockets | `--enforce` only: resets leave by bridge ports, which come and go |
//! | maps of the bypass, by their descriptors | `--bypass` only: entries of flows come and go |
//! | rights over files of others | rules and event files that belong to root; not kept with `--user` |
//! | user id 0 | not kept: the guard becomes the user `bannerwall` if it exists and `--user` names no other |
//! | rule files, event files, the inventory, `/run/bannerwall` | reloads and rotation |
//!
//! A separate process, [`ProgramHelper`], runs programs. It starts earlier and only changes the hook.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bannerwall_ffi::queue::hold_table;
use rustix::thread::CapabilitySet;

use super::GuardError;
use super::account_file::{self, AccountFile};
use super::config::{GuardConfig, InspectionConfig};
use super::event_reader::{self, EventReader};
use super::rule_source::RuleSource;
use crate::confinement::Confinement;
use crate::hook::ProgramRunner;
use crate::hook::program_helper::ProgramHelper;
use crate::privileges::{self, CHANGE_USER, FILES, NETWORK, PROGRAMS, UnprivilegedUser};
use crate::rules::{RuleSet, TextSource};

/// Files of the kernel that the guard reads: counters of queues, tables of iptables, settings of bridges.
const KERNEL_FILES: [&str; 2] = ["/proc/self", "/proc/sys/net"];

/// Keeps the privileges that the start needs. The folder of sockets and accounts goes to the guard's user.
pub(super) fn keep_start_privileges(
    config: &GuardConfig,
    readers: &[Box<dyn EventReader>],
    source: Option<&dyn RuleSource>,
) -> Result<(), GuardError> {
    let folder = account_file::folder(config.user.as_ref());
    // The guard cannot use a folder that is made later. Without the folder it keeps no accounts, and the
    // control socket reports the error.
    let _ = DirBuilder::new().recursive(true).mode(0o755).create(&folder);
    let mut needed = NETWORK | FILES;
    if config.bypass.is_some() {
        needed |= PROGRAMS;
    }
    let user = config.user.as_ref();
    event_reader::prepare(readers, user).map_err(GuardError::Attached)?;
    source.map_or(Ok(()), |source| source.prepare(user)).map_err(GuardError::Attached)?;
    needed |= change_user();
    if let Some(user) = &config.user {
        let _ = user.own(&folder);
        // The accounts of an earlier guard of root are stale once this one has run.
        AccountFile::of(config.queues, None).remove();
    }
    Ok(privileges::keep_for_good(needed)?)
}

/// The capability to become another user, for a guard that root started.
fn change_user() -> CapabilitySet {
    if rustix::process::geteuid().is_root() { CHANGE_USER } else { CapabilitySet::empty() }
}

/// Gives up the capabilities to load a program into the kernel, after it is loaded.
pub(super) fn drop_load_privileges() -> Result<(), GuardError> {
    Ok(privileges::keep(NETWORK | FILES | change_user())?)
}

/// Gives up the remaining privileges, and returns how iptables is run from here on.
pub(super) fn drop_privileges(
    config: &GuardConfig,
    rules: &RuleSet,
    attached: Confinement,
) -> Result<ProgramRunner, GuardError> {
    if config.user.is_none() && !config.inspection.is_confined {
        return Ok(ProgramRunner::Here);
    }
    let runner = ProgramHelper::start()?;
    // Bound queues make the file of counters appear. Without it there are no accounts, which is reported when
    // they are due.
    let _ = hold_table();
    let mut needed = CapabilitySet::NET_ADMIN;
    if config.engine().enforce {
        needed |= CapabilitySet::NET_RAW;
    }
    match &config.user {
        Some(user) => become_user(user, needed, &config.inspection.writes)?,
        None => privileges::leave_root(needed | FILES)?,
    }
    if config.inspection.is_confined {
        confinement(config, rules, attached).apply_or_warn(false);
    }
    Ok(ProgramRunner::Beside(Arc::new(runner)))
}

fn become_user(user: &UnprivilegedUser, needed: CapabilitySet, writes: &[PathBuf]) -> Result<(), GuardError> {
    user.become_keeping(needed).map_err(GuardError::User)?;
    // Checked here because at the end of a run it is too late to report the error.
    for path in writes {
        UnprivilegedUser::may_write(path)
            .map_err(|source| GuardError::Unwritable { path: path.clone(), source })?;
    }
    Ok(())
}

/// Allows the files that are opened later: rules for a reload, event files for rotation, files of readers,
/// and files of the kernel.
pub(super) fn confine_files(
    config: &InspectionConfig,
    rules: &RuleSet,
    attached: Confinement,
) -> Confinement {
    let InspectionConfig { rules: selection, writes, .. } = config;
    let mut confinement = attached.watching_kernel();
    let are_files = matches!(selection.texts, TextSource::Files);
    let anew = selection.rules.iter().chain(&selection.local).chain(rules.files()).filter(|_| are_files);
    confinement = anew.map(PathBuf::as_path).fold(confinement, Confinement::rereading);
    confinement = KERNEL_FILES.map(Path::new).into_iter().fold(confinement, Confinement::reading);
    writes.iter().map(PathBuf::as_path).fold(confinement, Confinement::writing)
}

fn confinement(config: &GuardConfig, rules: &RuleSet, attached: Confinement) -> Confinement {
    let accounts = account_file::folder(config.user.as_ref()).join("accounts");
    let sockets = config.control.iter().map(|place| &place.path).chain(&config.takeover);
    let made = sockets.map(PathBuf::as_path).chain([accounts.as_path()]);
    let mut confinement = confine_files(&config.inspection, rules, attached);
    if config.metrics.is_some() {
        confinement = confinement.listening();
    }
    if let Some(file) = &config.config_file {
        confinement = confinement.rereading(&file.path);
    }
    if config.bypass.is_some() {
        confinement = confinement.keeping_maps();
    }
    if config.engine().enforce {
        confinement = confinement.packet_sockets();
    }
    made.fold(confinement, Confinement::making)
}
