//! A pack: the texts of rule files and of the lists that they name, with a number, in the form that is
//! signed.
//!
//! It is JSON, so that a person can read what was signed. The same texts and number always give the same
//! bytes. Paths name texts of the pack, never files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::fleet::scan_order::{FileKind, RuleFile, leads_down};
use crate::rules::{ProfileFilter, RuleSelection, TextSource};

/// Maximum length of a pack, in bytes.
pub const LARGEST: usize = 32 << 20;

/// The format that is written and read.
const FORMAT: u32 = 1;

/// Rules in the form that is signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RulePack {
    /// Format of the pack. No other file that the same key signs starts with this field.
    bannerwall_rules: u32,
    /// Number of the version, which tells guards newer from older.
    pub version: i64,
    /// Description for people.
    pub note: String,
    /// Rule files in the order of reading, and lists.
    pub files: Vec<RuleFile>,
}

/// The reason why bytes are not a valid pack.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The pack is too long.
    #[error("a pack of rules is larger than {} MiB", LARGEST >> 20)]
    Large,
    /// The JSON is invalid.
    #[error("not a pack of rules: {0}")]
    Nothing(#[from] serde_json::Error),
    /// A newer program has made the pack.
    #[error("the format of the pack is version {0}, and this bannerwall knows {FORMAT}: use a newer one")]
    Format(u32),
    /// The pack has no number.
    #[error("the pack has no version above 0")]
    Unnumbered,
    /// A path leads out of the pack.
    #[error("{0:?} in the pack leads out of it")]
    Elsewhere(String),
    /// Two files have the same path.
    #[error("{0:?} is in the pack twice")]
    Twice(String),
}

/// The fields of every format.
#[derive(Deserialize)]
struct PackHeader {
    bannerwall_rules: u32,
}

impl RulePack {
    /// Returns a pack of rules.
    pub const fn new(version: i64, note: String, files: Vec<RuleFile>) -> Self {
        Self { bannerwall_rules: FORMAT, version, note, files }
    }

    /// Returns the bytes to sign.
    ///
    /// # Errors
    ///
    /// The pack is invalid, for example too large.
    pub fn octets(&self) -> Result<Vec<u8>, PackError> {
        let octets = serde_json::to_vec(self)?;
        Self::parse(&octets)?;
        Ok(octets)
    }

    /// Reads a pack whose signature was verified.
    ///
    /// # Errors
    /// See [`PackError`].
    pub fn parse(octets: &[u8]) -> Result<Self, PackError> {
        if octets.len() > LARGEST {
            return Err(PackError::Large);
        }
        let PackHeader { bannerwall_rules } = serde_json::from_slice(octets)?;
        if bannerwall_rules != FORMAT {
            return Err(PackError::Format(bannerwall_rules));
        }
        let pack: Self = serde_json::from_slice(octets)?;
        if pack.version < 1 {
            return Err(PackError::Unnumbered);
        }
        let mut paths = std::collections::BTreeSet::new();
        for RuleFile { path, .. } in &pack.files {
            if !leads_down(Path::new(path)) {
                return Err(PackError::Elsewhere(path.clone()));
            }
            if !paths.insert(path) {
                return Err(PackError::Twice(path.clone()));
            }
        }
        Ok(pack)
    }

    /// Returns the selection of the rules for some profiles.
    pub fn selection(&self, profiles: ProfileFilter) -> RuleSelection {
        let of = |kind| {
            let files = self.files.iter().filter(|file| file.kind == kind);
            files.map(|file| PathBuf::from(&file.path)).collect()
        };
        let texts: BTreeMap<PathBuf, String> =
            self.files.iter().map(|file| (PathBuf::from(&file.path), file.text.clone())).collect();
        RuleSelection {
            rules: of(FileKind::Rules),
            local: of(FileKind::Local),
            texts: TextSource::Given(Arc::new(texts)),
            profiles,
            complete: true,
            ..RuleSelection::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(path: &str, text: &str, kind: FileKind) -> RuleFile {
        RuleFile { path: path.to_owned(), text: text.to_owned(), kind }
    }

    fn parsed(octets: &[u8]) -> String {
        RulePack::parse(octets).unwrap_err().to_string()
    }

    proptest! {
        #[test]
        fn whatever_is_packed_is_read_again_and_is_the_same_octets(
            version in 1_i64..,
            note in any::<String>(),
            texts in proptest::collection::vec(any::<String>(), 0..6),
        ) {
            let files = texts.iter().enumerate().map(|(at, text)| file(&format!("0/{at}.toml"), text, FileKind::Rules));
            let pack = RulePack::new(version, note, files.collect());
            let octets = pack.octets().unwrap();
            let again = RulePack::parse(&octets).unwrap();
            prop_assert_eq!(&again, &pack);
            prop_assert_eq!(again.octets().unwrap(), octets);
        }

        #[test]
        fn nothing_makes_the_reader_fail(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = RulePack::parse(&octets);
        }

        #[test]
        fn a_damaged_pack_is_read_or_refused(at in 0_usize..400, octet in any::<u8>()) {
            let files = vec![file("0/a.toml", "[[rule]]", FileKind::Rules), file("0/l.txt", "é\u{0}", FileKind::List)];
            let mut octets = RulePack::new(7, "note".to_owned(), files).octets().unwrap();
            let length = octets.len();
            octets[at % length] = octet;
            if let Ok(pack) = RulePack::parse(&octets) {
                prop_assert!(pack.version > 0 && pack.files.iter().all(|file| leads_down(Path::new(&file.path))));
            }
        }
    }

    #[test]
    fn a_path_that_leads_out_of_the_pack_is_refused() {
        for path in ["/etc/passwd", "../a.toml", "0/../../a.toml", "", "."] {
            let pack = RulePack::new(1, String::new(), vec![file(path, "", FileKind::Rules)]);
            assert!(matches!(pack.octets(), Err(PackError::Elsewhere(_))), "{path}");
        }
        let twice = vec![file("0/a", "", FileKind::Rules), file("0/a", "", FileKind::List)];
        assert!(matches!(RulePack::new(1, String::new(), twice).octets(), Err(PackError::Twice(_))));
    }

    #[test]
    fn what_is_no_pack_of_this_format_is_told_apart() {
        assert!(parsed(b"{\"bannerwall_rules\":2,\"new\":1}").contains("use a newer one"));
        assert!(parsed(b"{}").starts_with("not a pack of rules"));
        assert!(matches!(RulePack::new(0, String::new(), Vec::new()).octets(), Err(PackError::Unnumbered)));
        let unknown = br#"{"bannerwall_rules":1,"version":1,"note":"","files":[],"more":1}"#;
        assert!(parsed(unknown).contains("more"));
    }

    #[test]
    fn its_rules_are_read_from_its_texts_and_from_no_file() {
        let rule = "[lists]\nbad = \"bad.txt\"\n[[rule]]\nid = \"a\"\nprotocol = \"ssh\"\nmatch.software = \"@bad\"\naction = \"alert\"\n";
        let lists = |path: &str| {
            let files =
                vec![file("0/a.toml", rule, FileKind::Rules), file(path, "OpenSSH_7.4\n", FileKind::List)];
            let pack = RulePack::new(1, String::new(), files);
            crate::rules::RuleSet::load(&pack.selection(ProfileFilter::All))
        };
        assert_eq!(lists("0/bad.txt").unwrap().rules.rules().len(), 1);
        assert!(lists("1/bad.txt").unwrap_err().to_string().contains("it was not given"));
    }
}
