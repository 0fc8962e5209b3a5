//! `--resume FILE`: where a scan begins, and what of it is kept. Without targets the rest of the command
//! line is the one that the file was made by.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use clap::{ArgMatches, Command};

use super::Request;
use crate::cli::Failure;
use crate::output::Handle;
use crate::scan::checkpoint::{Checkpoint, CheckpointError};
use crate::scan::targets::{Plan, Shard, Snapshot, TargetSet};

/// Puts what the checkpoint's scan was started with before what was given now, so that flags given
/// now win. Other command lines stay as they are.
pub(in crate::cli) fn fill(command: &Command, arguments: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    // A forgiving reading: required arguments may still come from the file.
    let Ok(matches) = command.clone().ignore_errors(true).try_get_matches_from(&arguments) else {
        return Ok(arguments);
    };
    let Some((mode, path)) = without_targets(&matches) else { return Ok(arguments) };
    let Some(checkpoint) = Checkpoint::load(&path).map_err(Failure::usage)? else { return Ok(arguments) };
    let stored = checkpoint.options.get("scan").map_or("", String::as_str);
    if stored != mode {
        let path = path.display();
        return Err(Failure::Usage(anyhow!("--resume {path}: that scan was a `scan {stored}`")));
    }
    let words = checkpoint.arguments.into_iter().map(OsString::from);
    Ok(words.chain(behind_mode(arguments, &mode)).collect())
}

/// The scan mode and the file of `--resume`, where that stands without targets.
fn without_targets(matches: &ArgMatches) -> Option<(String, PathBuf)> {
    let (mode, given) = matches.subcommand_matches("scan")?.subcommand()?;
    let targets = given.try_get_many::<String>("targets").ok().flatten();
    let input = given.try_get_one::<String>("input").ok().flatten();
    let path = given.try_get_one::<PathBuf>("resume").ok().flatten()?;
    (targets.is_none() && input.is_none()).then(|| (mode.to_owned(), path.clone()))
}

/// What stands behind `scan MODE`.
fn behind_mode(arguments: Vec<OsString>, mode: &str) -> impl Iterator<Item = OsString> {
    let scan = arguments.iter().position(|word| word == "scan").unwrap_or(0);
    let behind = arguments.iter().skip(scan).position(|word| word == mode).unwrap_or(0);
    arguments.into_iter().skip(scan + behind + 1)
}

/// What `--resume` asks for.
pub(super) struct Resume<'a> {
    pub(super) path: Option<&'a Path>,
    /// What the scan was started with at first.
    arguments: Vec<String>,
    options: BTreeMap<String, String>,
    pub(super) seed: u64,
    /// There was a checkpoint.
    pub(super) goes_on: bool,
    pub(super) from: Snapshot,
    pub(super) earlier: Duration,
}

impl<'a> Resume<'a> {
    pub(super) fn open(request: &Request<'a>, set: &TargetSet) -> Result<Self, Failure> {
        let path = request.common.resume.as_deref();
        let loaded = path.map(Checkpoint::load).transpose().map_err(Failure::usage)?.flatten();
        let stored = loaded.as_ref().and_then(|checkpoint| checkpoint.options.get("--seed")?.parse().ok());
        let seed = request.common.seed.or(stored).unwrap_or_else(|| match request.common.shard {
            Shard::WHOLE => RandomState::new().hash_one(0),
            _ => 0,
        });
        let options = options(request, set, seed);
        if let (Some(path), Some(checkpoint)) = (path, &loaded) {
            checkpoint.check(path, &options).map_err(Failure::usage)?;
        }
        Ok(Self {
            path,
            arguments: loaded.as_ref().map_or_else(arguments, |checkpoint| checkpoint.arguments.clone()),
            options,
            seed,
            goes_on: loaded.is_some(),
            from: loaded.as_ref().map(Checkpoint::snapshot).unwrap_or_default(),
            earlier: loaded.as_ref().map(Checkpoint::elapsed).unwrap_or_default(),
        })
    }

    pub(super) fn save(
        &self,
        plan: &Plan,
        writer: &Handle,
        elapsed: Duration,
    ) -> Result<(), CheckpointError> {
        let Some(path) = self.path else { return Ok(()) };
        let snapshot = plan.snapshot();
        // What the snapshot calls over must be in the file before the checkpoint says so.
        writer.sync();
        Checkpoint::new(self.arguments.clone(), self.options.clone(), &snapshot, elapsed).save(path)
    }
}

/// Everything that decides which targets are asked and how they are judged.
fn options(request: &Request<'_>, set: &TargetSet, seed: u64) -> BTreeMap<String, String> {
    let common = request.common;
    let mut options: BTreeMap<String, String> = [
        ("scan", request.name.to_owned()),
        ("targets", set.fingerprint()),
        ("--ports", request.ports.to_string()),
        ("--seed", seed.to_string()),
        ("--shard", common.shard.to_string()),
        ("--rules", format!("{:?}", common.rules.rules)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    options.extend(request.own.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    options
}

/// The command line.
pub(super) fn arguments() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn filled(line: &str) -> Result<Vec<OsString>, Failure> {
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
        let checkpoint = Checkpoint::new(arguments, options, &Snapshot::default(), Duration::ZERO);
        checkpoint.save(&path).expect("a file");
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
