//! Groups of flags in the help, and the flags of the short help.
//!
//! `-h` shows the usual flags with the first sentence of their description, `--help` shows everything.

use clap::builder::StyledStr;
use clap::{Arg, ArgAction, Command};

/// Groups in the order of the help.
const GROUPS: [&str; 7] = [TRAFFIC, BLOCKING, RULES, OUTPUT, INVENTORY, ADVANCED, GENERAL];

const TRAFFIC: &str = "Traffic";
const BLOCKING: &str = "Blocking";
const RULES: &str = "Rules";
const OUTPUT: &str = "Output";
const INVENTORY: &str = "Inventory";
const ADVANCED: &str = "Advanced";
const GENERAL: &str = "General";

/// Flags with the same group in every command, by identifier.
const MEMBERS: [(&str, &[&str]); 6] = [
    (
        TRAFFIC,
        &[
            "targets",
            "queue",
            "chains",
            "hook",
            "hook_keep",
            "hook_udp",
            "ports",
            "top_ports",
            "exclude_ports",
            "family",
            "input",
            "exclude",
            "exclude_file",
            "rate",
            "open",
            "resume",
            "join",
            "when",
            "method",
            "headers",
            "starttls",
            "sni",
            "ca",
            "alpn",
            "hassh",
            "host_key",
        ],
    ),
    (BLOCKING, &["enforce", "enforce_only", "on_failure", "policy", "http_inspect", "ban_exempt"]),
    (
        RULES,
        &[
            "rules",
            super::rule_paths::LOCAL_FLAG,
            "no_local",
            "profile",
            "fingerprints",
            "rules_from",
            "rules_key",
            "matches",
            "fail_on",
        ],
    ),
    (
        OUTPUT,
        &[
            "format",
            "output",
            "output_all",
            "events",
            "flow_events",
            "log_headers",
            "learn",
            "metrics",
            "metrics_web_config",
            "progress",
            "every",
            "wait",
        ],
    ),
    (
        INVENTORY,
        &[
            "inventory",
            "database",
            "place",
            "sensor",
            "keep",
            "gone_after",
            "spill",
            "change_events",
            "notify",
            "notify_command",
            "serve",
            "serve_token_file",
            "serve_web_config",
        ],
    ),
    (
        ADVANCED,
        &[
            "mark",
            "variant",
            "control",
            "no_sandbox",
            "no_offload",
            "mtu",
            "eve_strict",
            "flow_limit",
            "inventory_max_size",
            "spill_size",
            "learn_for",
            "kexinit",
            "attempts",
            "shard_targets",
        ],
    ),
];

/// Flags of the short help of commands with many flags.
const USUAL: [&str; 32] = [
    "targets",
    "files",
    "queue",
    "hook",
    "ports",
    "top_ports",
    "input",
    "rate",
    "open",
    "paths",
    "protocol",
    "starttls",
    "local",
    "peer",
    "device",
    "key",
    "peer_key",
    "guard",
    "banner",
    "flow",
    "say",
    "expect",
    "enforce",
    "on_failure",
    "rules",
    "matches",
    "fail_on",
    "format",
    "output_all",
    "events",
    "inventory",
    "database",
];

/// Number of flags up to which the short help shows all.
const FEW: usize = 14;

/// Returns the group of a command's other flags and arguments.
fn main_group(command: &str) -> Option<&'static str> {
    match command {
        "hook" | "reload" | "status" | "why" | "bans" | "tunnel" | "doctor" | "submit" | "schedule" => {
            Some(TRAFFIC)
        }
        "rules" => Some(RULES),
        "completions" | "man" => Some(OUTPUT),
        "inventory" | "serve" | "fleet" => Some(INVENTORY),
        // Of the scan's modes, too, below `scan` and below commands of the fleet.
        "guard" | "replay" | "scan" | "any" | "connect" | "ssh" | "greeting" | "tls" | "https" | "http" => {
            Some(ADVANCED)
        }
        _ => None,
    }
}

/// Sorts the flags of all commands into groups.
pub(super) fn arrange(program: Command) -> Command {
    with_help(program.mut_args(with_short_help)).mut_subcommands(|command| arrange_in(command, ADVANCED))
}

/// Sorts the flags of a command and its subcommands. `outer` is the group of the command above.
fn arrange_in(command: Command, outer: &'static str) -> Command {
    let main = main_group(command.get_name()).unwrap_or(outer);
    let is_long = command.get_arguments().count() > FEW;
    // With `tunnel --guard`, the guard's help shows the guard's flags.
    let hides_listed = command.get_name() == "tunnel";
    let mut arguments: Vec<Arg> = command
        .get_arguments()
        .cloned()
        .map(|argument| with_group(argument, main, is_long, hides_listed))
        .collect();
    // The order of positional arguments is their meaning, so it must not depend on groups.
    let positionals = arguments.iter_mut().filter(|argument| argument.is_positional());
    for (at, argument) in positionals.enumerate() {
        *argument = std::mem::take(argument).index(at + 1);
    }
    // The help shows groups in the order of their first flags.
    arguments.sort_by_key(|argument| {
        GROUPS.iter().position(|group| argument.get_help_heading() == Some(group)).unwrap_or(GROUPS.len())
    });
    let mut sorted = arguments.into_iter();
    let command = command.mut_args(|argument| sorted.next().unwrap_or(argument));
    with_help(command).mut_subcommands(|inner| arrange_in(inner, main))
}

/// Replaces clap's own flag for help by one with a group.
fn with_help(command: Command) -> Command {
    let help = Arg::new("help").short('h').long("help").action(ArgAction::Help);
    let help = help.help("Print the usual flags, or all with --help").help_heading(GENERAL);
    let version = Arg::new("version").short('V').long("version").action(ArgAction::Version);
    let version = version.help("Print the version").help_heading(GENERAL).hide_short_help(true);
    command.disable_help_flag(true).disable_version_flag(true).arg(help).arg(version)
}

fn with_group(argument: Arg, main: &'static str, is_long: bool, hides_listed: bool) -> Arg {
    let id = argument.get_id().clone();
    let is_member = |members: &[&str]| members.contains(&id.as_str());
    let listed = MEMBERS.iter().find(|(_, members)| is_member(members)).map(|(group, _)| *group);
    let group = match listed {
        Some(group) => group,
        // Arguments and usual flags are what the command is about.
        None if main == ADVANCED && is_member(&USUAL) => TRAFFIC,
        None => main,
    };
    with_short_help(argument)
        .help_heading(group)
        .hide_short_help(is_long && (!is_member(&USUAL) || (hides_listed && listed.is_some())))
}

/// Leaves the first sentence to the short help, unless a text for it was written.
fn with_short_help(argument: Arg) -> Arg {
    match argument.get_long_help() {
        Some(_) => argument,
        None => {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            argument.help(first_sentence(&help)).long_help(StyledStr::from(help))
        }
    }
}

/// Returns the first sentence without what follows in brackets or behind a semicolon.
fn first_sentence(help: &str) -> String {
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = [". ", "; ", " (", " ["].iter().filter_map(|mark| help.find(mark)).min();
    help.get(..end.unwrap_or(help.len())).unwrap_or(&help).trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests;
