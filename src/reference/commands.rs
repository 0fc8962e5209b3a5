//! Every command with its flags, and the keys of the configuration file, by the command line's own
//! description.

use std::sync::LazyLock;

use clap::builder::Str;
use clap::{Arg, ArgAction, Command};
use regex::{Captures, Regex};

use super::{code, keep, prose, table};

/// The command that stands on a page of its own, as it is what a configuration file is written for.
const CONFIGURED: &str = "guard";

/// Returns the command line with all that clap adds to it.
fn program() -> Command {
    fn without_help(command: Command) -> Command {
        command.disable_help_subcommand(true).mut_subcommands(without_help)
    }
    let mut program = without_help(crate::cli::command());
    program.build();
    program
}

/// Returns an argument's help and the default that it names in words.
fn help(argument: &Arg) -> (String, Option<String>) {
    static DEFAULT: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\s*\[default: ([^\]]*)\]\.?").expect("a pattern"));
    let text = argument.get_long_help().or_else(|| argument.get_help());
    let text = text.map(ToString::to_string).unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let default = DEFAULT.captures(&text).map(|found| found[1].to_owned());
    (DEFAULT.replace(&text, |_: &Captures<'_>| ".").replace("..", "."), default)
}

/// Returns `--queue N|A:B`, `TARGET...`.
fn shown(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let values = names.iter().map(Str::as_str).collect::<Vec<_>>().join(" ");
    let many = matches!(argument.get_action(), ArgAction::Append);
    let Some(long) = argument.get_long() else { return if many { values + "..." } else { values } };
    let short = argument.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    let takes = argument.get_action().takes_values();
    let value = if takes { format!(" {values}") } else { String::new() };
    format!("{short}--{long}{value}")
}

/// Returns the row of an argument.
fn row(argument: &Arg) -> [String; 3] {
    let (help, named) = help(argument);
    let values: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set() && argument.get_action().takes_values())
        .map(|value| match value.get_help() {
            Some(help) => format!("{}: {}", code(value.get_name()), prose(&help.to_string())),
            None => code(value.get_name()),
        })
        .collect();
    let is_told = values.is_empty() || values.len() > 12;
    let told = values.iter().all(|value| value.starts_with('`') && value.ends_with('`'));
    let values = match (is_told, told) {
        (true, _) => String::new(),
        (_, true) => format!(" Values: {}.", values.join(", ")),
        (_, false) => format!(" Values: {}", values.join(" ")),
    };
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    let default = match (defaults.is_empty() || !argument.get_action().takes_values(), named) {
        (false, _) => code(&defaults.join(",")),
        (true, Some(named)) if named == "none" => String::new(),
        (true, Some(named)) if named.contains(' ') => prose(&named).trim_end_matches('.').to_owned(),
        (true, Some(named)) => code(&named),
        (true, None) => String::new(),
    };
    [code(&shown(argument)), default, prose(&help) + &values]
}

/// Returns the arguments of a command that are its own, in the order of its help.
fn own(command: &Command) -> Vec<&Arg> {
    let is_own = |argument: &&Arg| {
        !argument.is_global_set() && !matches!(argument.get_id().as_str(), "help" | "version")
    };
    command.get_arguments().filter(is_own).collect()
}

/// Returns the arguments that all subcommands have in the same words.
fn shared(command: &Command) -> Vec<&Arg> {
    let mut subcommands = command.get_subcommands();
    let Some(first) = subcommands.next() else { return Vec::new() };
    let others: Vec<Vec<[String; 3]>> =
        subcommands.map(|other| own(other).into_iter().map(row).collect()).collect();
    let is_shared = |argument: &&Arg| {
        !argument.is_positional()
            && !others.is_empty()
            && others.iter().all(|rows| rows.contains(&row(argument)))
    };
    own(first).into_iter().filter(is_shared).collect()
}

fn flags(arguments: &[&Arg]) -> String {
    if arguments.is_empty() {
        return String::new();
    }
    table(["Flag", "Default", "Meaning"], arguments.iter().map(|argument| row(argument))) + "\n"
}

/// Returns the paragraphs behind a command's flags: examples, exit codes and signals.
fn notes(command: &Command) -> String {
    let text = command.get_after_long_help().or_else(|| command.get_after_help());
    text.map(|text| format!("```text\n{}\n```\n\n", text.to_string().trim_end())).unwrap_or_default()
}

/// Adds the sections of a command and of those below it; `before` are flags that stand above already.
fn add(text: &mut String, command: &Command, level: usize, before: &[[String; 3]]) {
    let path = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string);
    text.push_str(&format!("{} {path}\n\n{}\n\n", "#".repeat(level), prose(&about.unwrap_or_default())));
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").lines().map(str::trim_start).collect::<Vec<_>>();
    text.push_str(&format!("```text\n{}\n```\n\n", usage.join("\n")));
    text.push_str(&notes(command));
    if command.get_name() == CONFIGURED {
        text.push_str(
            "Its flags are the keys of the [configuration file](configuration.md#keys-of-guard).\n\n",
        );
    } else {
        let new: Vec<&Arg> =
            own(command).into_iter().filter(|argument| !before.contains(&row(argument))).collect();
        text.push_str(&flags(&new));
    }
    let all = shared(command);
    if !all.is_empty() {
        text.push_str(&format!("Flags of each `{path}` command:\n\n{}", flags(&all)));
    }
    let all: Vec<[String; 3]> = all.into_iter().map(row).chain(before.iter().cloned()).collect();
    for subcommand in command.get_subcommands() {
        add(text, subcommand, level + 1, &all);
    }
}

#[test]
fn the_commands_are_as_their_page_says() {
    let program = program();
    let list = program.get_subcommands().map(|command| {
        let name = command.get_name();
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        [format!("[`{name}`](#bannerwall-{name})"), prose(&about)]
    });
    let list = table(["Command", "What it does"], list);
    let global: Vec<&Arg> = program.get_arguments().filter(|argument| argument.is_global_set()).collect();
    let mut sections = String::new();
    for command in program.get_subcommands() {
        add(&mut sections, command, 2, &[]);
    }
    keep("commands.md", &[("list", list), ("global", flags(&global)), ("commands", sections)]);
}

#[test]
fn the_keys_of_the_guard_are_as_their_page_says() {
    let program = program();
    let guard = program.find_subcommand(CONFIGURED).expect("there is a guard");
    let heading_of = |argument: &&Arg| argument.get_help_heading().unwrap_or("Advanced").to_owned();
    let (rare, usual): (Vec<&Arg>, Vec<&Arg>) =
        own(guard).into_iter().partition(|argument| heading_of(argument) == "Advanced");
    let mut headings: Vec<String> = Vec::new();
    for heading in usual.iter().map(heading_of) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    let mut text = String::new();
    for heading in headings {
        let group = usual.iter().filter(|argument| heading_of(argument) == heading);
        text.push_str(&format!("### {heading}\n\n{}", flags(&group.copied().collect::<Vec<_>>())));
    }
    keep("configuration.md", &[("keys", text), ("rare keys", flags(&rare))]);
}
