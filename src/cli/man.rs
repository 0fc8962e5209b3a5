//! `bannerwall man`: one manual page for each subcommand, from the texts of `--help`.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::{CliExitCode, CommandFailure, print};

/// Flags of `bannerwall man`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall man hook up | man -l -
  bannerwall man --all /usr/local/share/man/man1")]
pub(super) struct ManArgs {
    /// Subcommand of the page, as in `man hook up` [default: the program itself].
    #[arg(value_name = "SUBCOMMAND")]
    subcommand: Vec<String>,
    /// Write every page to this folder instead, each as bannerwall-SUBCOMMAND.1.
    #[arg(long, value_name = "FOLDER", conflicts_with = "subcommand")]
    all: Option<PathBuf>,
}

/// Exit codes of every command.
const EXIT_CODES: [(&str, &str); 5] = [
    ("0", "Done."),
    ("1", "Done, with findings, if the command is a check; or a wait failed or timed out."),
    ("2", "Wrong usage, or invalid or unreadable input; the message names the flag, or file and line."),
    ("3", "This machine lacks a capability or a kernel feature; the message names it."),
    ("130", "Interrupted, after a clean stop."),
];

/// Files, and the subcommands (by the first word) that use them.
const FILES: [(&str, &str, &[&str]); 6] = [
    (
        "/etc/bannerwall/rules, /usr/local/share/bannerwall/rules, /usr/share/bannerwall/rules, ./rules",
        "Rules: bannerwall reads the first existing folder of these, unless --rules names others.",
        &["guard", "scan", "replay", "rules"],
    ),
    (
        "/etc/bannerwall/local.d",
        "Overrides and rules of this machine, read after the rules, unless you pass --local or --no-local.",
        &["guard", "scan", "replay", "rules"],
    ),
    (
        "/run/bannerwall/guard-QUEUE-NETNS.sock",
        "The control socket of the guard whose first queue is QUEUE, in the network namespace NETNS.",
        &["guard", "reload", "status", "why"],
    ),
    ("/run/xtables.lock", "The lock that iptables programs share.", &["guard", "hook", "doctor"]),
    (
        "/proc/net/netfilter/nfnetlink_queue",
        "The kernel's counters of each queue, and the process that listens on it.",
        &["guard", "hook", "doctor"],
    ),
    (
        "--config FILE",
        "TOML: one table for each subcommand, keys named as the flags; the flags win.",
        &["", "guard", "scan", "replay"],
    ),
];

/// Runs `bannerwall man` for the program's `command`.
pub(super) fn run(arguments: &ManArgs, command: Command) -> Result<CliExitCode, CommandFailure> {
    let command = built(command);
    let Some(folder) = &arguments.all else {
        let page = find(&command, &arguments.subcommand)?;
        return print(render(page, path_of(page)).as_bytes());
    };
    for page in all(&command) {
        let file = folder.join(format!("{}.1", name_of(page)));
        std::fs::write(&file, render(page, path_of(page)))
            .with_context(|| format!("--all: cannot write {}", file.display()))
            .map_err(CommandFailure::Usage)?;
    }
    Ok(CliExitCode::Done)
}

/// Returns the command with everything that clap adds while parsing, except for the `help` subcommands, which
/// have no page.
fn built(command: Command) -> Command {
    let mut command = without_help(command);
    command.build();
    command
}

fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

/// Returns a command and all commands below it.
fn all(command: &Command) -> Vec<&Command> {
    std::iter::once(command).chain(command.get_subcommands().flat_map(all)).collect()
}

fn find<'a>(command: &'a Command, path: &[String]) -> Result<&'a Command, CommandFailure> {
    path.iter().try_fold(command, |command, name| {
        let found = command.find_subcommand(name);
        found.ok_or_else(|| CommandFailure::Usage(anyhow!("{} has no subcommand `{name}`", path_of(command))))
    })
}

/// Returns a name such as `bannerwall-hook-up`.
fn name_of(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// Returns a path such as `bannerwall hook up`.
fn path_of(command: &Command) -> &str {
    command.get_bin_name().unwrap_or_else(|| command.get_name())
}

/// Renders one page.
fn render(command: &Command, path: &str) -> String {
    let man = Man::new(command.clone()).title(name_of(command)).manual("bannerwall");
    let mut page = Vec::new();
    // Writing to a Vec cannot fail.
    let _ = man.render_title(&mut page);
    let _ = man.render_name_section(&mut page);
    let _ = man.render_synopsis_section(&mut page);
    let _ = man.render_description_section(&mut page);
    let _ = man.render_options_section(&mut page);
    if command.has_subcommands() {
        let _ = man.render_subcommands_section(&mut page);
    }
    let mut roff = Roff::new();
    add_sections(&mut roff, &after_help(command), path);
    let _ = roff.to_writer(&mut page);
    String::from_utf8_lossy(&page).into_owned()
}

/// Returns the paragraphs behind a command's flags, as in `--help`.
fn after_help(command: &Command) -> Vec<String> {
    let text = command.get_after_long_help().or_else(|| command.get_after_help());
    let text = text.map(ToString::to_string).unwrap_or_default();
    text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()).map(str::to_owned).collect()
}

fn add_sections(roff: &mut Roff, paragraphs: &[String], path: &str) {
    let of = |starts: &str| paragraphs.iter().find(|paragraph| paragraph.starts_with(starts));
    add_exit_codes(roff, of("Exit code"));
    if let Some(signals) = of("Signals:") {
        roff.control("SH", ["SIGNALS"]);
        add_text(roff, signals.trim_start_matches("Signals:").trim());
    }
    add_files(roff, path);
    let known = ["Example", "Exit code", "Signals:"];
    for other in paragraphs.iter().filter(|text| !known.iter().any(|start| text.starts_with(start))) {
        roff.control("SH", ["NOTES"]);
        add_text(roff, other);
    }
    if let Some(examples) = of("Example") {
        roff.control("SH", ["EXAMPLES"]);
        roff.control("nf", []);
        for line in examples.lines().skip(1) {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    let parent = path.rsplit_once(' ').map(|(parent, _)| parent.replace(' ', "-"));
    if let Some(parent) = parent {
        roff.control("SH", ["SEE ALSO"]);
        roff.text([bold(parent), roman("(1)")]);
    }
}

fn add_exit_codes(roff: &mut Roff, own: Option<&String>) {
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in EXIT_CODES {
        roff.control("TP", []);
        roff.text([bold(code)]);
        roff.text([roman(meaning)]);
    }
    if let Some(own) = own {
        roff.control("PP", []);
        add_text(roff, own);
    }
}

fn add_files(roff: &mut Roff, path: &str) {
    let command = path.split(' ').nth(1).unwrap_or_default();
    let mut files = FILES.iter().filter(|(_, _, users)| users.contains(&command)).peekable();
    if files.peek().is_some() {
        roff.control("SH", ["FILES"]);
    }
    for (file, meaning, _) in files {
        roff.control("TP", []);
        roff.text([bold(*file)]);
        roff.text([roman(*meaning)]);
    }
}

fn add_text(roff: &mut Roff, text: &str) {
    for line in text.lines() {
        roff.text([roman(line.trim())]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> Vec<(String, String)> {
        let command = built(crate::cli::command());
        all(&command).iter().map(|page| (name_of(page).to_owned(), render(page, path_of(page)))).collect()
    }

    #[test]
    fn every_page_that_is_named_is_there() {
        let pages = pages();
        let named = regex::Regex::new(r"(bannerwall(?:\\-[a-z]+)+)(?:\\fR)?\(1\)").expect("a pattern");
        let mut found = 0;
        for (name, text) in &pages {
            for page in named.captures_iter(text).map(|found| found[1].replace("\\-", "-")) {
                found += 1;
                assert!(pages.iter().any(|(there, _)| *there == page), "{name} names {page}");
            }
        }
        assert!(found > 10, "{found}");
    }

    #[test]
    fn pages_of_nested_subcommands_hold_their_flags_and_codes() {
        let pages = pages();
        let page = |name: &str| &pages.iter().find(|(there, _)| there == name).expect("a page").1;
        assert!(page("bannerwall-hook-up").contains("\\-\\-chains"));
        assert!(page("bannerwall-scan-ssh").contains("\\-\\-match"));
        assert!(
            page("bannerwall-guard").contains(".SH SIGNALS") && page("bannerwall-guard").contains("SIGHUP")
        );
        assert!(page("bannerwall-guard").contains(".SH FILES"));
        assert!(page("bannerwall-hook-status").contains("no guard listens"));
        for (name, text) in &pages {
            assert!(text.contains(".SH \"EXIT STATUS\"") && !text.contains("EXTRA"), "{name}: {text}");
        }
    }
}
