//! `bannerwall man`: one manual page for each subcommand, from the texts of `--help`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::builder::PossibleValue;
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::{CliExitCode, CommandFailure, print};

/// Flags of `bannerwall man`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall man hook up | man -l -
  bannerwall man --all /usr/local/share/man")]
pub(super) struct ManArgs {
    /// Subcommand of the page, as in `man hook up` [default: the program itself].
    #[arg(value_name = "SUBCOMMAND")]
    subcommand: Vec<String>,
    /// Write every page below this folder instead, as man1/bannerwall-SUBCOMMAND.1 or
    /// man8/bannerwall-SUBCOMMAND.8.
    #[arg(long, value_name = "FOLDER", conflicts_with = "subcommand")]
    all: Option<PathBuf>,
}

/// Date of this version, for the footers; that of CHANGELOG.md.
const RELEASED: &str = "2026-11-25";

/// Commands whose pages belong to section 8, administration.
const ADMINISTRATION: [&str; 1] = ["bannerwall-guard"];

/// Related pages, by the command's first word.
const RELATED: [(&str, &[(&str, &str)]); 8] = [
    ("", &[("bannerwall-guard", "8"), ("bannerwall-rules", "5"), ("bannerwall-configuration", "5")]),
    (
        "guard",
        &[
            ("bannerwall-hook", "1"),
            ("bannerwall-status", "1"),
            ("bannerwall-rules", "5"),
            ("bannerwall-configuration", "5"),
            ("iptables", "8"),
        ],
    ),
    ("scan", &[("bannerwall-inventory", "1"), ("bannerwall-rules", "5"), ("bannerwall-configuration", "5")]),
    ("replay", &[("bannerwall-rules", "5"), ("bannerwall-configuration", "5")]),
    ("rules", &[("bannerwall-rules", "5")]),
    ("hook", &[("bannerwall-guard", "8"), ("iptables", "8")]),
    ("status", &[("bannerwall-guard", "8")]),
    ("reload", &[("bannerwall-guard", "8"), ("bannerwall-rules", "5")]),
];

/// Exit codes of every command.
const EXIT_CODES: [(&str, &str); 5] = [
    ("0", "Done."),
    ("1", "Done, with findings, if the command is a check or has --fail-on; or a wait failed or timed out."),
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
        write(folder, page).map_err(CommandFailure::Usage)?;
    }
    Ok(CliExitCode::Done)
}

/// Writes a page to the folder of its section.
fn write(folder: &Path, page: &Command) -> anyhow::Result<()> {
    let name = name_of(page);
    let section = section_of(name);
    let folder = folder.join(format!("man{section}"));
    let file = folder.join(format!("{name}.{section}"));
    let made = match std::fs::create_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    made.and_then(|()| std::fs::write(&file, render(page, path_of(page))))
        .with_context(|| format!("--all: cannot write {}", file.display()))
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
        found.ok_or_else(|| {
            CommandFailure::Usage(anyhow!(
                "{} has no subcommand `{name}`; its --help lists them",
                path_of(command)
            ))
        })
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

/// Returns the section of a command's page.
fn section_of(name: &str) -> &'static str {
    if ADMINISTRATION.contains(&name) { "8" } else { "1" }
}

/// Renders one page.
fn render(command: &Command, path: &str) -> String {
    let name = name_of(command);
    let (section, manual) = match section_of(name) {
        "8" => ("8", "System Manager's Manual"),
        other => (other, "User Commands"),
    };
    let man = Man::new(with_usage(command))
        .title(name)
        .section(section)
        .date(RELEASED)
        .source(concat!("bannerwall ", env!("CARGO_PKG_VERSION")))
        .manual(manual);
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
    portable(&String::from_utf8_lossy(&page))
}

/// Returns the command with its usage line as the synopsis, and the values of each flag in its text.
///
/// `clap_mangen` would list every flag in the synopsis. Its lists of values cause warnings of `mandoc -T
/// lint`.
fn with_usage(command: &Command) -> Command {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    command.clone().override_usage(usage).mut_args(|argument| {
        let values: Vec<String> = argument.get_possible_values().iter().map(described).collect();
        if values.is_empty() || !argument.get_action().takes_values() {
            return argument;
        }
        let help = argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string);
        let help = help.unwrap_or_default();
        let stop = if help.is_empty() || help.ends_with(['.', ':', ']']) { " " } else { ". " };
        argument.hide_possible_values(true).long_help(format!("{help}{stop}Values: {}", values.join(", ")))
    })
}

/// Returns a value of a flag, with its meaning if it has one.
fn described(value: &PossibleValue) -> String {
    let name = value.get_name();
    value.get_help().map_or_else(|| name.to_owned(), |help| format!("{name} ({help})"))
}

/// Returns a page that every roff reads: ASCII, one definition of the apostrophe, and references with the
/// section of their page.
fn portable(page: &str) -> String {
    let mut text = String::new();
    for (number, line) in page.lines().enumerate() {
        let defines_apostrophe = line.starts_with(".ie \\n(.g") || line.starts_with(".el .ds Aq");
        if defines_apostrophe && number > 1 {
            continue;
        }
        for character in line.trim_end().chars() {
            match character {
                ascii if ascii.is_ascii() => text.push(ascii),
                other => text.push_str(&format!("\\[u{:04X}]", u32::from(other))),
            }
        }
        text.push('\n');
    }
    for name in ADMINISTRATION {
        let name = name.replace('-', "\\-");
        text = text.replace(&format!("{name}(1)"), &format!("{name}(8)"));
    }
    text
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
    add_related(roff, path);
}

/// Adds the page above this one, and the related pages of the command.
fn add_related(roff: &mut Roff, path: &str) {
    let parent = path.rsplit_once(' ').map(|(parent, _)| parent.replace(' ', "-"));
    let parent = parent.as_deref().map(|name| (name, section_of(name)));
    let command = path.split(' ').nth(1).unwrap_or_default();
    let related = RELATED.iter().find(|(name, _)| *name == command).map_or(&[][..], |(_, pages)| pages);
    let mut line = Vec::new();
    for (name, section) in parent.into_iter().chain(related.iter().copied()) {
        let separator = if line.is_empty() { "" } else { ", " };
        line.extend([roman(separator), bold(name), roman(format!("({section})"))]);
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text(line);
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

    /// Pages of section 5, which scripts/package makes of the reference.
    const FORMATS: [&str; 2] = ["bannerwall-rules", "bannerwall-configuration"];

    fn pages() -> Vec<(String, String)> {
        let command = built(crate::cli::command());
        all(&command).iter().map(|page| (name_of(page).to_owned(), render(page, path_of(page)))).collect()
    }

    #[test]
    fn every_page_that_is_named_is_there() {
        let pages = pages();
        let named = regex::Regex::new(r"(bannerwall(?:\\-[a-z]+)*)(?:\\fR)?\((\d)\)").expect("a pattern");
        let mut found = 0;
        for (name, text) in &pages {
            for page in named.captures_iter(text) {
                let (named, section) = (page[1].replace("\\-", "-"), &page[2]);
                found += 1;
                let is_command =
                    pages.iter().any(|(there, _)| *there == named && section_of(there) == section);
                let is_format = section == "5" && FORMATS.contains(&named.as_str());
                assert!(is_command || is_format, "{name} names {named}({section})");
            }
        }
        assert!(found > 150, "{found}");
    }

    #[test]
    fn footers_have_the_date_of_the_release() {
        let changelog = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/CHANGELOG.md"));
        let entry = concat!("## ", env!("CARGO_PKG_VERSION"), " - ");
        assert!(
            changelog.expect("it is there").contains(&format!("{entry}{RELEASED}\n")),
            "{entry}{RELEASED}"
        );
        let (name, text) = &pages()[0];
        let title = text.lines().find(|line| line.starts_with(".TH")).expect("a title");
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(title, format!(".TH {name} 1 {RELEASED} \"bannerwall {version}\" \"User Commands\""));
    }

    #[test]
    fn every_section_has_content() {
        for (name, text) in pages() {
            let mut lines = text.lines().peekable();
            while let Some(line) = lines.next() {
                let is_empty = lines.peek().is_none_or(|next| next.starts_with(".SH"));
                assert!(!(line.starts_with(".SH") && is_empty), "{name}: {line}");
            }
            assert!(text.is_ascii(), "{name}");
        }
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
