//! Content of a file in the directory: a line with its kind, a line with the SHA-256 of the rest, a line
//! of JSON, and a text. A file with any missing or changed byte is invalid.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Largest size of a file in bytes; the server accepts no batch of more than 4 MiB.
pub(super) const LARGEST: u64 = (4 << 20) + (64 << 10);

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpillFileKind {
    /// A batch.
    Batch,
    /// The state of a run.
    Run,
    /// The owner of the directory.
    Owner,
}

/// Data about a batch besides its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpilledBatchHead {
    pub(super) stream: String,
    pub(super) number: u64,
    /// The version of the text's format.
    pub(super) format: i64,
    pub(super) sightings: u64,
    /// Number of sightings that the run had lost when this was written.
    pub(super) lost: u64,
}

/// State of a run, for a successor that continues it after it was killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpilledRunHead {
    /// Its highest possible batch number.
    pub(super) up_to: u64,
    /// Number of sightings that it has lost.
    pub(super) lost: u64,
}

/// The owner of the directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpillOwner {
    pub(super) sensor: String,
    /// The URL without the password.
    pub(super) server: String,
}

impl SpillFileKind {
    /// Returns the first line, with the version of the format.
    const fn line(self) -> &'static str {
        match self {
            Self::Batch => "bannerwall batch 1\n",
            Self::Run => "bannerwall run 1\n",
            Self::Owner => "bannerwall spill 1\n",
        }
    }
}

/// Returns the bytes of a file.
pub(super) fn sealed(kind: SpillFileKind, head: &impl Serialize, text: &str) -> Vec<u8> {
    // Names and numbers always are valid JSON.
    let body = format!("{}\n{text}", serde_json::to_string(head).unwrap_or_default());
    format!("{}{}\n{body}", kind.line(), hash(body.as_bytes())).into_bytes()
}

/// Returns the content of a file; none if it is damaged.
pub(super) fn opened<T: DeserializeOwned>(kind: SpillFileKind, octets: &[u8]) -> Option<(T, &str)> {
    let rest = std::str::from_utf8(octets).ok()?.strip_prefix(kind.line())?;
    let (told, body) = rest.split_once('\n')?;
    if told != hash(body.as_bytes()) {
        return None;
    }
    let (head, text) = body.split_once('\n')?;
    Some((serde_json::from_str(head).ok()?, text))
}

/// Returns the hash in lower case, the only accepted form.
fn hash(octets: &[u8]) -> String {
    crate::terms::hexadecimal(&Sha256::digest(octets))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head() -> SpilledBatchHead {
        SpilledBatchHead { stream: "00ff".into(), number: 7, format: 1, sightings: 42, lost: 3 }
    }

    fn file() -> Vec<u8> {
        sealed(SpillFileKind::Batch, &head(), "{\"a\":1}\n{\"b\":\"ü\"}\n")
    }

    fn read(octets: &[u8]) -> Option<(SpilledBatchHead, &str)> {
        opened(SpillFileKind::Batch, octets)
    }

    #[test]
    fn what_was_sealed_is_opened_as_what_it_is_and_as_nothing_else() {
        let octets = file();
        assert_eq!(read(&octets), Some((head(), "{\"a\":1}\n{\"b\":\"ü\"}\n")));
        assert_eq!(opened::<SpilledBatchHead>(SpillFileKind::Run, &octets), None);
        let owner = SpillOwner { sensor: "east".into(), server: "postgresql://east@db/net".into() };
        assert_eq!(
            opened(SpillFileKind::Owner, &sealed(SpillFileKind::Owner, &owner, "")),
            Some((owner, ""))
        );
    }

    #[test]
    fn a_file_that_is_cut_at_any_octet_or_has_any_bit_flipped_is_not_believed() {
        let octets = file();
        assert!((0..octets.len()).all(|end| read(&octets[..end]).is_none()));
        for bit in 0..octets.len() * 8 {
            let mut flipped = octets.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&flipped), None, "bit {bit}");
        }
        assert_eq!(read(&[&octets[..], b"\n"].concat()), None);
    }

    proptest! {
        #[test]
        fn any_octets_are_no_file_and_any_text_is_kept(
            octets in proptest::collection::vec(any::<u8>(), 0..300),
            text in ".*",
        ) {
            prop_assert_eq!(read(&octets), None);
            let behind = [SpillFileKind::Batch.line().as_bytes(), &octets].concat();
            prop_assert_eq!(read(&behind), None);
            let written = sealed(SpillFileKind::Batch, &head(), &text);
            prop_assert_eq!(read(&written), Some((head(), text.as_str())));
        }

        #[test]
        fn what_is_put_in_the_place_of_a_part_of_a_file_is_not_believed(
            at in 0usize..200, octets in proptest::collection::vec(any::<u8>(), 1..20),
        ) {
            let mut changed = file();
            let whole = changed.clone();
            let at = at.min(changed.len());
            let end = (at + octets.len()).min(changed.len());
            changed.splice(at..end, octets);
            prop_assume!(changed != whole);
            prop_assert_eq!(read(&changed), None);
        }
    }
}
