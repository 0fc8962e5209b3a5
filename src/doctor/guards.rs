//! Check for running guards in this network namespace, and their agreement with the hook.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use super::CheckReport;
use super::machine_state::MachineState;
use crate::hook::hook_state;
use crate::hook::{FamilyStatus, HookConfig, MarkField, QueueRange};

/// Settings of a running guard that its hook must agree with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardSettings {
    /// Queues of the guard.
    pub queues: QueueRange,
    /// Mark bits of the guard.
    pub mark: MarkField,
    /// True if packets that it cannot inspect pass (`--on-failure open`).
    pub open: bool,
}

/// Parses a command line (the program's name first) relative to a working folder. Returns `Ok(None)` for
/// another subcommand, and an error for an invalid one.
pub type ReadGuard<'a> = &'a dyn Fn(Vec<OsString>, &Path) -> Result<Option<GuardSettings>, GuardReadError>;

/// Error of an unreadable command line or configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardReadError;

pub(super) fn check(scene: &MachineState, read: ReadGuard<'_>) -> CheckReport {
    let network = match std::fs::read_link("/proc/self/ns/net") {
        Ok(network) => network,
        Err(error) => return CheckReport::blind(format!("/proc/self/ns/net: {error}")),
    };
    let (mut running, mut hidden) = (Vec::new(), Vec::new());
    for process in named_like_us() {
        match std::fs::read_link(process.join("ns/net")) {
            // A guard in another network namespace has other hooks and queues.
            Ok(there) if there == network => match settings(&process, read) {
                Ok(guard) => running.extend(guard.map(|guard| (id_of(&process), guard))),
                Err(GuardReadError) => hidden.push(id_of(&process)),
            },
            Ok(_) => {}
            // The process has exited meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) => hidden.push(id_of(&process)),
        }
    }
    let told: Vec<String> =
        running.iter().map(|(id, guard)| format!("process {id} serves queue {}", guard.queues)).collect();
    let mut report = match told.is_empty() {
        true => CheckReport::nothing("no guard runs"),
        false => CheckReport::fine(told.join(", ")),
    };
    if scene.hook.is_err() && !running.is_empty() {
        report.add_blind("hook of the guards: the hook could not be read (see iptables)");
    }
    for (id, guard) in running.iter().filter(|_| scene.hook.is_ok()) {
        for fault in disagreements(scene.places(), guard) {
            report.add_fault(format!("the guard of process {id} {fault}"));
        }
    }
    if !hidden.is_empty() {
        report.add_blind(format!(
            "process {} may be a guard, but its command line is unreadable (run as root)",
            hidden.join(", ")
        ));
    }
    report
}

/// Returns the folders in `/proc` of processes with this program's name.
fn named_like_us() -> Vec<PathBuf> {
    // The name is compared, not the executable: reading /proc/PID/exe of other users needs
    // CAP_SYS_PTRACE.
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let folders = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = folders.filter(|folder| folder.file_name().to_str().is_some_and(is_number));
    processes
        .map(|folder| folder.path())
        .filter(|folder| std::fs::read_to_string(folder.join("comm")).is_ok_and(|other| other == name))
        .collect()
}

fn is_number(name: &str) -> bool {
    name.bytes().all(|octet| octet.is_ascii_digit())
}

fn id_of(process: &Path) -> String {
    process.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn settings(process: &Path, read: ReadGuard<'_>) -> Result<Option<GuardSettings>, GuardReadError> {
    let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
    let Some(line) = line.strip_suffix(&[0]) else {
        // It has exited, and its parent has not reaped it yet.
        return Ok(None);
    };
    let words = line.split(|octet| *octet == 0).map(|word| OsString::from_vec(word.to_vec()));
    read(words.collect(), &process.join("cwd"))
}

/// Describes the contradictions between the hooks and a guard.
fn disagreements(places: &[FamilyStatus], guard: &GuardSettings) -> Vec<String> {
    let shared =
        |hook: &HookConfig| hook.queues.numbers().any(|queue| guard.queues.numbers().contains(&queue));
    let hooks: Vec<&HookConfig> =
        hook_state::hooks(places).map(|(_, config)| config).filter(|config| shared(config)).collect();
    let mut faults = Vec::new();
    let idle: Vec<String> = guard
        .queues
        .numbers()
        .filter(|queue| !hooks.iter().any(|hook| hook.queues.numbers().contains(queue)))
        .map(|queue| queue.to_string())
        .collect();
    if !idle.is_empty() {
        faults.push(format!(
            "serves queue {}, but no hook leads there: it sees no packets; run `bannerwall hook up --queue {}`",
            idle.join(", "),
            guard.queues
        ));
    }
    if let Some(hook) = hooks.iter().find(|hook| hook.mark != guard.mark) {
        faults.push(format!(
            "writes mark {}, but the hook reads {}: its decisions have no effect; pass the same --mark to both",
            guard.mark, hook.mark
        ));
    }
    if let Some(hook) = hooks.iter().find(|hook| hook.bypass != guard.open) {
        let mode = |open: bool| if open { "open" } else { "closed" };
        faults.push(format!(
            "has --on-failure {}, but its hook {}: without the guard the hook's setting applies",
            mode(guard.open),
            mode(hook.bypass)
        ));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::{HookCounters, InstalledHook, IpFamily, IptablesVariant};

    #[test]
    fn a_hook_that_is_not_what_the_guard_was_told_is_a_fault() {
        let hook = HookConfig { queues: "0:1".parse().expect("queues"), ..HookConfig::default() };
        let place = FamilyStatus {
            family: IpFamily::V4,
            variant: IptablesVariant::Nft,
            installed: InstalledHook::Complete(hook.clone(), HookCounters::default()),
            jumps: Vec::new(),
        };
        let agreed = GuardSettings { queues: hook.queues, mark: hook.mark, open: true };
        let faults = |guard: GuardSettings| disagreements(std::slice::from_ref(&place), &guard);
        assert!(faults(agreed).is_empty());
        let other = MarkField::new(4).expect("within the mark");
        assert!(
            faults(GuardSettings { mark: other, ..agreed })[0].starts_with("writes mark 0x30, but the hook")
        );
        assert!(faults(GuardSettings { open: false, ..agreed })[0].starts_with("has --on-failure closed"));
        let wide = GuardSettings { queues: "0:3".parse().expect("queues"), ..agreed };
        assert!(faults(wide)[0].starts_with("serves queue 2, 3, but no hook leads there"));
    }
}
