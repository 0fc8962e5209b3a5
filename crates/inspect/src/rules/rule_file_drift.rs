//! Differences between the rule files as they were loaded and as they are on disk now.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use super::rule_set::RuleSet;
use super::selection::RuleSelection;
use super::text_source::{TextSource, read_octets};
use super::{find_rule_files, limits};
use crate::terms::hash::Sha256Digest;

/// A difference between a file as it was loaded and as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleFileDrift {
    /// The file has other content.
    Changed,
    /// The file was added since.
    Added,
    /// The file was removed.
    Removed,
    /// The file cannot be read, for this reason.
    Unreadable(String),
}

impl fmt::Display for RuleFileDrift {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => formatter.write_str("changed"),
            Self::Added => formatter.write_str("added"),
            Self::Removed => formatter.write_str("removed"),
            Self::Unreadable(why) => write!(formatter, "unreadable: {why}"),
        }
    }
}

impl RuleFileDrift {
    /// Returns the difference between a file's loaded content and what is at `path` now, if there
    /// is one.
    pub fn of(path: &Path, digest: Sha256Digest) -> Option<Self> {
        match read_octets(path, limits::LIST_OCTETS.max(limits::FILE_OCTETS)) {
            Ok(octets) => (Sha256Digest::of(&octets) != digest).then_some(Self::Changed),
            Err(_) if !path.exists() => Some(Self::Removed),
            Err(why) => Some(Self::Unreadable(why)),
        }
    }
}

impl RuleSet {
    /// Returns the SHA-256 of the digests of all files, in the order in which they were read.
    pub fn digest(&self) -> Sha256Digest {
        let all: Vec<u8> = self.files.iter().flat_map(|file| file.digest.octets()).collect();
        Sha256Digest::of(&all)
    }

    /// Returns the files of `selection` that differ from the loaded ones.
    pub fn drift(&self, selection: &RuleSelection) -> Vec<(PathBuf, RuleFileDrift)> {
        if !matches!(selection.texts, TextSource::Files) {
            return Vec::new();
        }
        let known: BTreeSet<&Path> = self.files.iter().map(|file| file.path.as_path()).collect();
        let listed =
            selection.rules.iter().chain(&selection.local).flat_map(|path| find_rule_files::files(path));
        let added =
            listed.filter(|path| !known.contains(path.as_path())).map(|path| (path, RuleFileDrift::Added));
        let differing = self.files.iter();
        let differing = differing
            .filter_map(|file| Some((file.path.clone(), RuleFileDrift::of(&file.path, file.digest)?)));
        differing.chain(added).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_lists_that_came_went_or_changed_since_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let rule = |id: &str, list: &str| {
            format!(
                "[lists]\nl = \"{list}\"\n[[rule]]\nid = \"{id}\"\nprotocol = \"ssh\"\nmatch.software = \"@l\"\naction = \"alert\"\n"
            )
        };
        std::fs::write(file("a.toml"), rule("a", "l.txt")).unwrap();
        std::fs::write(file("b.toml"), rule("b", "l.txt")).unwrap();
        std::fs::write(file("l.txt"), "x\n").unwrap();
        let selection = RuleSelection::of(vec![folder.path().to_owned()]);
        let rules = RuleSet::load(&selection).unwrap().rules;
        assert_eq!(rules.drift(&selection), []);
        std::fs::write(file("l.txt"), "y\n").unwrap();
        std::fs::remove_file(file("a.toml")).unwrap();
        std::fs::write(file("c.toml"), rule("c", "l.txt")).unwrap();
        let mut found = rules.drift(&selection);
        found.sort_by(|one, other| one.0.cmp(&other.0));
        found.dedup();
        let expected = [
            (file("a.toml"), RuleFileDrift::Removed),
            (file("c.toml"), RuleFileDrift::Added),
            (file("l.txt"), RuleFileDrift::Changed),
        ];
        assert_eq!(found, expected);
        std::fs::remove_file(file("c.toml")).unwrap();
        std::fs::write(file("a.toml"), rule("a", "l.txt")).unwrap();
        let again = RuleSet::load(&selection).unwrap().rules;
        assert_eq!(again.drift(&selection), []);
        assert_ne!(again.digest(), rules.digest());
    }
}
