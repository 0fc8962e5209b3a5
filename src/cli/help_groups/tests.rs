//! Every command's help: groups, length and examples.

use std::collections::BTreeMap;

use super::*;

/// Lines of a screen.
const SCREEN: usize = 40;

/// Columns of the help, at which clap breaks lines.
const WIDTH: usize = 100;

/// Commands with two uses of a flag's name.
const AMBIGUOUS: [&str; 8] = ["protocol", "paths", "files", "local", "from", "key", "number", "since"];

/// Returns every command with its name in full, built as for a run.
fn commands() -> Vec<(String, Command)> {
    fn walk(command: &Command, outer: &str, all: &mut Vec<(String, Command)>) {
        let name = format!("{outer} {}", command.get_name()).trim().to_owned();
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            walk(inner, &name, all);
        }
        all.push((name, command.clone()));
    }
    let mut program = crate::cli::command();
    program.build();
    let mut all = Vec::new();
    walk(&program, "", &mut all);
    all
}

fn lines(text: &StyledStr) -> Vec<String> {
    text.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn every_flag_of_a_group_exists() {
    let commands = commands();
    let known: Vec<&str> = commands
        .iter()
        .flat_map(|(_, command)| command.get_arguments())
        .map(|argument| argument.get_id().as_str())
        .collect();
    for id in MEMBERS.iter().flat_map(|(_, ids)| *ids).chain(&USUAL) {
        assert!(known.contains(id), "{id}");
    }
}

#[test]
fn every_flag_has_the_same_group_everywhere_and_groups_have_one_order() {
    let mut seen: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut faults = Vec::new();
    for (name, command) in commands() {
        let mut order = Vec::new();
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            let group = argument.get_help_heading().unwrap_or_else(|| panic!("{name}: {id}: no group"));
            let at = GROUPS.iter().position(|known| *known == group);
            let at = at.unwrap_or_else(|| panic!("{name}: {id}: {group} is no group"));
            // The help has a group where its first flag is.
            if !order.contains(&at) {
                order.push(at);
            }
            if argument.is_positional() || AMBIGUOUS.contains(&id) {
                continue;
            }
            let first = seen.entry(id.to_owned()).or_insert((group.to_owned(), name.clone()));
            if first.0 != group {
                faults.push(format!("{id}: {group} of {name}, {} of {}", first.0, first.1));
            }
        }
        if !order.is_sorted() {
            faults.push(format!("{name}: {order:?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_short_help_of_every_command_fits_a_screen() {
    let mut faults = Vec::new();
    for (name, mut command) in commands() {
        let help = command.render_help();
        if lines(&help).len() > SCREEN {
            faults.push(format!("{name}: {} lines\n{help}", lines(&help).len()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_example_is_a_command_line_that_can_be_pasted() {
    let program = crate::cli::command();
    let mut faults = Vec::new();
    for (name, command) in commands() {
        let texts = [command.get_after_help(), command.get_after_long_help()];
        for text in texts.into_iter().flatten() {
            faults.extend(lines(text).into_iter().filter(|line| line.chars().count() > WIDTH));
            for example in examples(&text.to_string()) {
                let parsed =
                    program.clone().try_get_matches_from(crate::cli::scan::with_mode(example.clone()));
                // A file or user that this machine does not have is no mistake of the example.
                let error = parsed.err().filter(|error| {
                    use clap::error::ErrorKind::{DisplayHelp, ValueValidation};
                    !matches!(error.kind(), DisplayHelp | ValueValidation)
                });
                faults.extend(error.map(|error| format!("{name}: {example:?}: {error}")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let with_examples = |name: &str| {
        let found = commands().into_iter().find(|(known, _)| known == name);
        found.is_some_and(|(_, command)| {
            command.get_after_help().is_some_and(|text| !examples(&text.to_string()).is_empty())
        })
    };
    let without: Vec<String> =
        commands().into_iter().map(|(name, _)| name).filter(|name| !with_examples(name)).collect();
    assert_eq!(without, ["bannerwall"], "commands without an example");
}

/// Returns the words of each command line of ours in a text, without pipes and comments.
fn examples(text: &str) -> Vec<Vec<std::ffi::OsString>> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().filter(|line| line.starts_with("  ")).map(str::trim);
    let parts = lines.flat_map(|line| split(line, &["|", "&&", ";"]));
    let ours = parts.map(|mut words| {
        words.retain(|word| word != "sudo");
        let end = words.iter().position(|word| [">", "<", "#"].contains(&word.as_str()));
        words.truncate(end.unwrap_or(words.len()));
        words
    });
    ours.filter(|words| words.first().is_some_and(|word| word == "bannerwall"))
        .map(|words| words.into_iter().map(Into::into).collect())
        .collect()
}

/// Splits a line into commands at `ends`, and each into words, as a shell does with single and double quotes.
fn split(line: &str, ends: &[&str]) -> Vec<Vec<String>> {
    let (mut commands, mut quote) = (vec![vec![String::new()]], None);
    for character in line.chars() {
        let words = commands.last_mut().expect("one");
        match (quote, character) {
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            (None, ' ') => words.push(String::new()),
            _ => words.last_mut().expect("one").push(character),
        }
        let words = commands.last_mut().expect("one");
        if quote.is_none() && words.last().is_some_and(|word| ends.contains(&word.as_str())) {
            words.pop();
            commands.push(vec![String::new()]);
        }
    }
    for words in &mut commands {
        words.retain(|word| !word.is_empty());
    }
    commands
}
