//! Groups of flags in the help, and the few flags of the short help.
//!
//! `-h` shows the usual flags with the first sentence of their description, `--help` shows everything.

use clap::builder::StyledStr;
use clap::{Arg, Command};

/// Groups in the order of the help, and their flags by identifier. All other flags are advanced.
const MEMBERS: [(&str, &[&str]); 5] = [
    (
        "Traffic",
        &[
            "targets",
            "files",
            "queue",
            "hook",
            "hook_keep",
            "hook_udp",
            "ports",
            "family",
            "input",
            "exclude",
            "exclude_file",
            "rate",
            "open",
            "resume",
            "join",
            "when",
            "paths",
            "method",
            "headers",
            "protocol",
            "starttls",
            "sni",
            "ca",
            "alpn",
            "hassh",
            "host_key",
        ],
    ),
    ("Blocking", &["enforce", "enforce_only", "on_failure", "policy", "http_inspect", "ban_exempt"]),
    (
        "Rules",
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
        "Output",
        &[
            "format",
            "output",
            "events",
            "flow_events",
            "log_headers",
            "learn",
            "metrics",
            "metrics_web_config",
            "progress",
        ],
    ),
    (
        "Inventory",
        &[
            "inventory",
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
];

/// Flags of the short help.
const USUAL: [&str; 19] = [
    "targets",
    "files",
    "queue",
    "hook",
    "ports",
    "input",
    "rate",
    "open",
    "paths",
    "starttls",
    "enforce",
    "on_failure",
    "rules",
    "matches",
    "fail_on",
    "format",
    "events",
    "inventory",
    "serve",
];

/// Modes of `scan`.
const MODES: [&str; 7] = ["all", "connect", "ssh", "greeting", "tls", "https", "http"];

/// Sorts the flags of the commands that read traffic into groups.
pub(super) fn arrange(program: Command) -> Command {
    let sort = |parent: Command, name: &'static str| {
        parent.mut_subcommand(name, |command| grouped(&command, Command::new(name)))
    };
    let program = ["guard", "replay"].into_iter().fold(program, sort);
    let sort_mode = |scan: Command, name: &'static str| {
        scan.mut_subcommand(name, |mode| grouped(&mode, Command::new(name).args_override_self(true)))
    };
    program.mut_subcommand("scan", |scan| MODES.into_iter().fold(scan, sort_mode))
}

/// Returns `fresh` with the texts of `command`, and its flags in the order of their groups. The help shows
/// groups in the order of their first flags, which clap cannot change afterwards.
fn grouped(command: &Command, fresh: Command) -> Command {
    let mut arguments: Vec<Arg> = command.get_arguments().cloned().map(with_group).collect();
    arguments.sort_by_key(|argument| {
        let heading = argument.get_help_heading();
        MEMBERS.iter().position(|(group, _)| heading == Some(*group)).unwrap_or(MEMBERS.len())
    });
    let mut fresh = fresh.args(arguments).groups(command.get_groups().cloned());
    if let Some(about) = command.get_about() {
        fresh = fresh.about(about.clone());
    }
    if let Some(about) = command.get_long_about() {
        fresh = fresh.long_about(about.clone());
    }
    if let Some(text) = command.get_after_help() {
        fresh = fresh.after_help(text.clone());
    }
    if let Some(text) = command.get_after_long_help() {
        fresh = fresh.after_long_help(text.clone());
    }
    fresh
}

fn with_group(argument: Arg) -> Arg {
    let id = argument.get_id().clone();
    let is_member = |members: &[&str]| members.contains(&id.as_str());
    let group =
        MEMBERS.iter().find(|(_, members)| is_member(members)).map_or("Advanced", |(group, _)| *group);
    let argument = match argument.get_long_help() {
        Some(_) => argument,
        None => {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            argument.help(first_sentence(&help)).long_help(StyledStr::from(help))
        }
    };
    argument.help_heading(group).hide_short_help(!is_member(&USUAL))
}

/// Returns the first sentence without what follows in brackets or behind a semicolon.
fn first_sentence(help: &str) -> String {
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = [". ", "; ", " (", " ["].iter().filter_map(|mark| help.find(mark)).min();
    help.get(..end.unwrap_or(help.len())).unwrap_or(&help).trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_of_a_group_exists() {
        let program = super::super::command();
        let modes = program.find_subcommand("scan").into_iter().flat_map(Command::get_subcommands);
        let commands = ["guard", "replay"].into_iter().filter_map(|name| program.find_subcommand(name));
        let arguments = commands.chain(modes).flat_map(Command::get_arguments);
        let known: Vec<&str> = arguments.map(|argument| argument.get_id().as_str()).collect();
        for id in MEMBERS.iter().flat_map(|(_, ids)| *ids).chain(&USUAL) {
            assert!(known.contains(id), "{id}");
        }
    }
}
