//! `--config FILE`: flags from a TOML file; flags of the command line win.
//!
//! ```toml
//! [guard]
//! queue = "0:1"
//! rules = ["/etc/bannerwall/rules"]
//! enforce = true
//! ```
//!
//! The file becomes extra arguments, so clap validates both alike.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command};

use super::CommandFailure;
use crate::rules::toml_nesting;

/// Limit of the file's size, in bytes.
const LIMIT: u64 = 1 << 20;

/// Adds the flags of `--config` for the subcommand to `arguments`.
pub(super) fn fill(command: &Command, arguments: Vec<OsString>) -> Result<Vec<OsString>, CommandFailure> {
    // The first parse tolerates errors: required arguments may still come from the file.
    let Ok(matches) = command.clone().ignore_errors(true).try_get_matches_from(&arguments) else {
        return Ok(arguments);
    };
    let Some(file) = config_file(&matches) else { return Ok(arguments) };
    // `build` copies the global flags to the subcommands.
    let mut command = command.clone();
    command.build();
    additions(&command, &matches, &file)
        .map(|added| arguments.into_iter().chain(added).collect())
        .map_err(CommandFailure::Usage)
}

/// Resolves a relative `--config` against `folder`.
pub(super) fn from_folder(arguments: Vec<OsString>, folder: &Path) -> Vec<OsString> {
    let mut is_file = false;
    let rebase = |word: OsString| {
        if std::mem::replace(&mut is_file, word == "--config") {
            return folder.join(word).into_os_string();
        }
        match word.to_str().and_then(|text| text.strip_prefix("--config=")) {
            Some(file) => OsString::from(format!("--config={}", folder.join(file).display())),
            None => word,
        }
    };
    arguments.into_iter().map(rebase).collect()
}

/// Returns the file of `--config`, which may stand behind any subcommand.
fn config_file(matches: &ArgMatches) -> Option<PathBuf> {
    let here = matches.try_get_one::<PathBuf>("config").ok().flatten().cloned();
    here.or_else(|| matches.subcommand().and_then(|(_, sub)| config_file(sub)))
}

/// Reads the file up to the limit: it may be an endless device.
fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    std::fs::File::open(file)?.take(LIMIT + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LIMIT {
        bail!("it is larger than {LIMIT} bytes");
    }
    Ok(text)
}

fn additions(command: &Command, matches: &ArgMatches, file: &Path) -> anyhow::Result<Vec<OsString>> {
    let name = file.display();
    let text = read(file).with_context(|| format!("cannot read {name}"))?;
    // The TOML parser recurses: deep nesting would overflow its stack.
    if let Some(at) = toml_nesting::too_deep(&text) {
        let line = text.get(..at.start).unwrap_or_default().matches('\n').count() + 1;
        bail!("{name}:{line}: brackets are nested too deeply");
    }
    let mut table: toml::Table = text.parse().map_err(|error| anyhow!("{name}: {error}"))?;
    if let Some(key) = table.keys().find(|key| command.find_subcommand(key).is_none()) {
        bail!("{name}: `{key}` is not a subcommand; put flags into a table named after one, as in [guard]");
    }
    let (mut command, mut matches, mut path) = (command, matches, String::new());
    let mut added = Vec::new();
    while let Some((subcommand, inner)) = matches.subcommand() {
        let Some(next) = command.find_subcommand(subcommand) else { break };
        (command, matches) = (next, inner);
        path = if path.is_empty() { subcommand.to_owned() } else { format!("{path}.{subcommand}") };
        // The table is taken out, so that the rest of the loop sees only the flags of this subcommand.
        table = match table.remove(subcommand) {
            Some(toml::Value::Table(inner)) => inner,
            None => break,
            Some(_) => bail!("{name}: `{path}` must be a table of flags"),
        };
        // Nested tables of further subcommands are flags of those, and not of this one.
        for (key, value) in &table {
            if command.find_subcommand(key).is_some() {
                continue;
            }
            let flags = flag((command, &path), matches, key, value);
            added.extend(flags.with_context(|| format!("{name}: `{key}` in [{path}]"))?);
        }
    }
    Ok(added)
}

/// Returns the arguments for `key = value`, or none if the command line has the flag already.
fn flag(
    (command, path): (&Command, &str),
    matches: &ArgMatches,
    key: &str,
    value: &toml::Value,
) -> anyhow::Result<Vec<OsString>> {
    let argument = command
        .get_arguments()
        .find(|argument| argument.get_long() == Some(key))
        .ok_or_else(|| anyhow!("no such flag; `bannerwall {} --help` lists them", path.replace('.', " ")))?;
    // A flag of the command line replaces the one of the file. Without this, lists would be joined.
    if matches.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine) {
        return Ok(Vec::new());
    }
    let long = format!("--{key}");
    if !argument.get_action().takes_values() {
        let times = match (argument.get_action(), value) {
            (_, toml::Value::Boolean(given)) => usize::from(*given),
            (ArgAction::Count, toml::Value::Integer(times @ 0..=9)) => usize::try_from(*times)?,
            (ArgAction::Count, _) => bail!("must be true, false or a number from 0 to 9"),
            _ => bail!("must be true or false"),
        };
        return Ok(vec![long.into(); times]);
    }
    let values = match value {
        toml::Value::Array(values) => values.as_slice(),
        single => std::slice::from_ref(single),
    };
    // One word with `=`: a value that starts with a dash would otherwise be read as a flag.
    values.iter().map(|value| Ok(format!("{long}={}", scalar(value)?).into())).collect()
}

fn scalar(value: &toml::Value) -> anyhow::Result<String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        toml::Value::Boolean(truth) => Ok(truth.to_string()),
        _ => bail!("must be a string, a number, true, false or a list of those"),
    }
}
