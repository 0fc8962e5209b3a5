//! `bannerwall hook status`: prints the hook's state, with an exit code for its health.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::super::{CliExitCode, CommandFailure, print_lines};
use super::failure;
use crate::hook::hook_state::{self, HookState};
use crate::hook::{self, FamilyStatus, HookConfig, InstalledHook, IptablesScope, QueueListener};
use crate::output::text::ColourMode;

/// Inspects and prints the hook, and returns the exit code.
pub(super) fn run(scope: IptablesScope) -> Result<CliExitCode, CommandFailure> {
    let places = hook::status(scope).map_err(failure)?;
    let listeners = hook::listeners().map_err(CommandFailure::unsupported)?;
    print_lines(&describe(&places, &listeners, ColourMode::for_stream(&std::io::stdout())))?;
    Ok(
        match hook_state::state(&places, |queue| listeners.get(&queue).is_some_and(QueueListener::may_judge))
        {
            HookState::Up => CliExitCode::Done,
            HookState::Half | HookState::Flawed => CliExitCode::Findings,
            HookState::Down => CliExitCode::HookDown,
            HookState::LedNowhere => CliExitCode::LedNowhere,
        },
    )
}

fn describe(places: &[FamilyStatus], listeners: &BTreeMap<u16, QueueListener>, colour: ColourMode) -> String {
    let good = |text: &str| colour.judgement(true, text);
    let bad = |text: &str| colour.judgement(false, text);
    let mut text = String::new();
    for place in places {
        let FamilyStatus { family, variant, installed, .. } = place;
        // Writing to a String cannot fail, here and below.
        let _ = match installed {
            InstalledHook::Absent => writeln!(text, "{family} ({variant}): no hook"),
            InstalledHook::Unknown(why) => writeln!(text, "{family}: cannot be inspected: {why}"),
            InstalledHook::Damaged(why) => writeln!(
                text,
                "{family} ({variant}): {}: {why}; repair it with `bannerwall hook down` and `up`",
                bad("damaged")
            ),
            InstalledHook::Complete(config, counters) => writeln!(
                text,
                "{family} ({variant}): {}: {}; queued {}, passed by mark {}, \
                 dropped by mark {}, passed within bodies {}, passed before the jump {} packets",
                good("up"),
                describe_config(config),
                counters.queued,
                counters.passed,
                counters.blocked,
                counters.released,
                counters.skipped
            ),
        };
        for flaw in place.flaws() {
            let _ = writeln!(text, "{family} ({variant}): {}: {flaw}", bad("fault"));
        }
    }
    for queue in
        hook_state::unserved(places, |queue| listeners.get(&queue).is_some_and(QueueListener::may_judge))
    {
        let fault = hook_state::fault_of_queue(places, queue, listeners.get(&queue));
        let _ = writeln!(text, "{}: {fault}", bad(&format!("queue {queue}")));
    }
    text
}

fn describe_config(config: &HookConfig) -> String {
    let chains: Vec<&str> = config.chains.iter().map(|chain| chain.name()).collect();
    let ports = config.ports.as_ref().map_or("all ports".to_owned(), |ports| format!("ports {ports}"));
    let udp = config.udp.as_ref().map_or(String::new(), |ports| format!(", UDP ports {ports}"));
    let bodies =
        if config.releases { "" } else { ", bodies queued (this kernel lacks the match bpf or conntrack)" };
    format!(
        "chains {}, {ports}{udp}, queue {}, on failure {}, mark {}{bodies}",
        chains.join(","),
        config.queues,
        if config.bypass { "open" } else { "closed" },
        config.mark
    )
}
