//! `--resume FILE`. Without targets the file supplies the rest of the command line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::{ArgMatches, Command};

use super::ModeFlagValues;
use crate::cli::CommandFailure;
use crate::database::redact_password;
use crate::scan::checkpoint::Checkpoint;
use crate::scan::session::CheckpointOptions;

/// Inserts the stored arguments of the checkpoint before the given ones, so given flags win. Other command
/// lines stay as they are.
pub(in crate::cli) fn fill(
    command: &Command,
    arguments: Vec<OsString>,
) -> Result<Vec<OsString>, CommandFailure> {
    // The first parse tolerates errors: required arguments may still come from the file.
    let Ok(matches) = command.clone().ignore_errors(true).try_get_matches_from(&arguments) else {
        return Ok(arguments);
    };
    let Some((mode, path)) = without_targets(&matches) else { return Ok(arguments) };
    let loaded = Checkpoint::load_trusted(&path).map_err(CommandFailure::usage)?;
    let Some(checkpoint) = loaded else { return Ok(arguments) };
    let stored = checkpoint.options.get("scan").map_or("", String::as_str);
    if stored != mode {
        let path = path.display();
        return Err(CommandFailure::Usage(anyhow!("--resume {path}: the file belongs to a `scan {stored}`")));
    }
    let words = checkpoint.arguments.into_iter().map(OsString::from);
    Ok(words.chain(arguments_after_mode(arguments, &mode)).collect())
}

/// Returns the scan mode and the file of `--resume`, if there are no targets.
fn without_targets(matches: &ArgMatches) -> Option<(String, PathBuf)> {
    let (mode, given) = matches.subcommand_matches("scan")?.subcommand()?;
    let targets = given.try_get_many::<String>("targets").ok().flatten();
    let input = given.try_get_one::<String>("input").ok().flatten();
    let path = given.try_get_one::<PathBuf>("resume").ok().flatten()?;
    (targets.is_none() && input.is_none()).then(|| (mode.to_owned(), path.clone()))
}

/// Returns the arguments behind `scan MODE`.
fn arguments_after_mode(arguments: Vec<OsString>, mode: &str) -> impl Iterator<Item = OsString> {
    let scan = arguments.iter().position(|word| word == "scan").unwrap_or(0);
    let behind = arguments.iter().skip(scan).position(|word| word == mode).unwrap_or(0);
    arguments.into_iter().skip(scan + behind + 1)
}

/// Returns the configuration of the checkpoint, if there is one.
pub(super) fn keep(request: &ModeFlagValues<'_>) -> Option<CheckpointOptions> {
    let path = request.common.resume.clone()?;
    Some(CheckpointOptions { path, command: arguments(), decides: decides(request) })
}

/// Returns the flags that affect the targets and their results.
fn decides(request: &ModeFlagValues<'_>) -> BTreeMap<String, String> {
    let mut options: BTreeMap<String, String> = [
        ("scan", request.name.to_owned()),
        ("--ports", request.ports.to_string()),
        ("--rules", format!("{:?}", request.common.rules.rules)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    options.extend(request.own.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    options
}

/// Returns the command line with secrets hidden.
pub(super) fn arguments() -> Vec<String> {
    std::env::args_os().map(|argument| redact_password(&argument.to_string_lossy())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;
    use crate::scan::checkpoint::CheckpointFile;
    use crate::scan::targets::FeedSnapshot;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn filled(line: &str) -> Result<Vec<OsString>, CommandFailure> {
        fill(&Cli::command(), words(line))
    }

    #[test]
    fn a_checkpoint_brings_its_own_command_line_unless_targets_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let started = "bannerwall scan connect 192.0.2.0/24 -p 22 --rate 100";
        let resume = format!("--resume {}", path.display());
        let short = format!("bannerwall scan connect {resume} --rate 7");
        assert_eq!(filled(&short).expect("no file yet"), words(&short));

        let options = BTreeMap::from([("scan".to_owned(), "connect".to_owned())]);
        let arguments = started.split_whitespace().map(str::to_owned).collect();
        let checkpoint = Checkpoint::new(arguments, options, &FeedSnapshot::default(), Duration::ZERO);
        CheckpointFile::open(&path, Some(&checkpoint)).expect("a file");
        assert_eq!(filled(&short).expect("a file"), words(&format!("{started} {resume} --rate 7")));
        let long = format!("bannerwall scan connect 192.0.2.1 -p 22 {resume}");
        assert_eq!(filled(&long).expect("targets"), words(&long));
        assert!(filled(&format!("bannerwall scan ssh {resume}")).is_err());
        let merged = Cli::command().try_get_matches_from(filled(&short).expect("a file"));
        let merged = merged.expect("a flag given again wins");
        let (_, scan) = merged.subcommand_matches("scan").and_then(ArgMatches::subcommand).expect("a mode");
        assert_eq!(scan.get_raw("rate").and_then(Iterator::last), Some("7".as_ref()));
    }
}
