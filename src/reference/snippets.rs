//! Snippets of the documentation: the program accepts every command line, configuration and rule that a page
//! shows.
//!
//! README and tutorials are also run, by tests/system/documentation.rs.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use bannerwall_test_support::command_lines;
use clap::error::ErrorKind;

use crate::cli;
use crate::rules::fingerprint::FingerprintSet;
use crate::rules::{RuleSelection, RuleSet};

/// Words that may stand before a command, and how many words follow each of them.
const WRAPPERS: [(&str, usize); 8] = [
    ("sudo", 0),
    ("exec", 0),
    ("timeout", 1),
    ("env", 0),
    ("setpriv", 0),
    ("ip", 3),
    ("scripts/playground", 1),
    ("scripts/run", 0),
];

/// A public key of minisign.
const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";

/// A fenced block of a page.
struct Block {
    place: String,
    language: String,
    lines: Vec<String>,
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns every page: the book, and the READMEs for users.
fn pages() -> Vec<PathBuf> {
    let book = repository().join("docs/src");
    let mut folders = vec![book];
    let mut pages: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "rules/README.md"]
        .map(|name| repository().join(name))
        .into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|ending| ending == "md") => pages.push(path),
                false => {}
            }
        }
    }
    pages.sort();
    pages
}

/// Returns the blocks of all pages, without the indentation of lists.
fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        let name = page.strip_prefix(repository()).expect("within").display().to_string();
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            let Some((indent, language)) = line.split_once("```") else { continue };
            if !indent.trim().is_empty() {
                continue;
            }
            let inner = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```");
            blocks.push(Block {
                place: format!("{name}:{}", number + 1),
                language: language.to_owned(),
                lines: inner.map(|line| line.strip_prefix(indent).unwrap_or(line).to_owned()).collect(),
            });
        }
    }
    blocks
}

/// Returns the arguments of each call of the program in a command line.
fn calls(line: &str) -> Vec<Vec<String>> {
    // Parentheses of a subshell are words of their own.
    let line = line.replace("$(", " ; ").trim_start_matches('(').replace(") |", " |");
    let words = shlex::split(&line).unwrap_or_else(|| panic!("no words: {line}"));
    let mut calls = Vec::new();
    for command in words.split(|word| ["|", "||", "&&", ";", "&", "then", "do"].contains(&word.as_str())) {
        let mut command = command.iter().map(|word| word.trim_end_matches(';')).peekable();
        let mut is_run = false;
        while let Some(word) = command.next_if(|word| is_before_a_command(word)) {
            is_run |= word == "scripts/run";
            let follow = WRAPPERS.iter().find(|(name, _)| *name == word).map_or(0, |(_, follow)| *follow);
            command.by_ref().take(follow).for_each(drop);
        }
        let is_ours = command.peek().is_some_and(|word| Path::new(word).ends_with("bannerwall"));
        if !(is_ours && command.next().is_some() || is_run) {
            continue;
        }
        let arguments = command.take_while(|word| !word.starts_with(['>', '<']) && !word.starts_with("2>"));
        let arguments: Vec<String> = arguments.map(str::to_owned).collect();
        let is_shortened = arguments.iter().any(|word| word == "…");
        if !(is_shortened || is_run && arguments.is_empty()) {
            calls.push(arguments);
        }
    }
    calls
}

/// True for wrappers, their flags, and variables of the environment.
fn is_before_a_command(word: &str) -> bool {
    WRAPPERS.iter().any(|(name, _)| *name == word)
        || word.starts_with('-')
        || word
            .split_once('=')
            .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
}

/// Returns why the parser refuses arguments; help and versions are no faults.
fn refusal(arguments: &[String]) -> Option<String> {
    // Keys are read while flags are parsed.
    let key = |word: &String| if word.ends_with(".pub") { KEY.to_owned() } else { word.clone() };
    let words = std::iter::once("bannerwall".to_owned()).chain(arguments.iter().map(key));
    let error = cli::parse_flags(cli::command(), words.map(OsString::from).collect()).err()?;
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    (!is_help).then(|| error.to_string())
}

#[test]
fn the_parser_accepts_every_command_line_of_the_documentation() {
    let mut seen = 0;
    let mut faults = Vec::new();
    for block in blocks().iter().filter(|block| ["sh", "console"].contains(&block.language.as_str())) {
        for line in command_lines(&block.lines, block.language == "console") {
            for arguments in calls(&line) {
                seen += 1;
                faults.extend(refusal(&arguments).map(|why| format!("{}: {line}\n{why}", block.place)));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(seen > 200, "only {seen} calls");
}

#[test]
fn the_parser_accepts_every_example_of_help() {
    fn all(command: &clap::Command) -> Vec<&clap::Command> {
        std::iter::once(command).chain(command.get_subcommands().flat_map(all)).collect()
    }
    let mut seen = 0;
    let mut faults = Vec::new();
    for command in all(&cli::command()) {
        let help = command.get_after_long_help().or_else(|| command.get_after_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().filter_map(|line| line.strip_prefix("  ")).map(str::to_owned).collect();
        let block = Block { place: command.get_name().to_owned(), language: "sh".to_owned(), lines };
        for line in command_lines(&block.lines, false) {
            // An explanation stands some spaces behind the command.
            let line = line.split("  ").next().unwrap_or(&line);
            for arguments in calls(line) {
                seen += 1;
                faults
                    .extend(refusal(&arguments).map(|why| format!("{}: {line}\n{why}", command.get_name())));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(seen > 60, "only {seen} calls");
}

/// Checks one block of TOML by what its first table says that it is.
fn check(block: &Block, folder: &Path) -> Result<(), String> {
    let text = block.lines.join("\n");
    let file = folder.join("snippet.toml");
    let first = block.lines.iter().find(|line| line.starts_with('[')).map(String::as_str);
    let is_rules = first.is_none_or(|table| {
        ["[[rule", "[[polic", "[pack", "[lists", "[[over"].iter().any(|it| table.starts_with(it))
    });
    let whole = match first {
        Some(_) => text,
        // Lines of a rule.
        None => format!("[[rule]]\nid = 'snippet'\nprotocol = 'ssh'\naction = 'alert'\n{text}\n"),
    };
    fs::write(&file, &whole).map_err(|error| error.to_string())?;
    if first.is_some_and(|table| table.starts_with("[[database")) {
        return FingerprintSet::load(&file).map(drop).map_err(|error| error.to_string());
    }
    if !is_rules {
        let words = ["bannerwall", "guard", "--config"].map(OsString::from);
        let parsed = cli::parse(words.into_iter().chain([file.into()]).collect());
        return parsed.map(drop).map_err(|failure| format!("{failure:?}"));
    }
    let shipped = repository().join("rules");
    let selection = match whole.contains("[[override]]") {
        true => RuleSelection { rules: vec![shipped], local: vec![file], ..RuleSelection::default() },
        false => RuleSelection::of(vec![file]),
    };
    // Warnings are about missing examples, which would make the snippets long.
    RuleSet::check(&selection).map(drop).map_err(|error| error.to_string())
}

#[test]
fn configurations_and_rules_of_the_documentation_are_valid() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("admins.txt"), "192.0.2.1\n").expect("the folder is ours");
    let blocks = blocks();
    let snippets: Vec<&Block> = blocks.iter().filter(|block| block.language == "toml").collect();
    let faults: Vec<String> = snippets
        .iter()
        .filter_map(|block| check(block, folder.path()).err().map(|why| format!("{}: {why}", block.place)))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(snippets.len() > 20, "{}", snippets.len());
}
