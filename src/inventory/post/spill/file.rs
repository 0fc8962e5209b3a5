//! What stands in a file of the folder: a line that says what it is, one with the SHA-256 of all behind it,
//! one of JSON, and a text. A file of which an octet is missing or another one is none, wherever that is.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Octets of a file at most; the server takes no batch of more than 4 MiB.
pub(super) const LARGEST: u64 = (4 << 20) + (64 << 10);

/// What a file is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A batch.
    Batch,
    /// What is known of a run.
    Run,
    /// Whom the folder is for.
    Owner,
}

/// What is known of a batch beside its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchHead {
    pub(super) stream: String,
    pub(super) number: u64,
    /// The version of the text's format.
    pub(super) format: i64,
    pub(super) sightings: u64,
    /// Sightings that the run had lost when this was written.
    pub(super) lost: u64,
}

/// What is known of a run, for whoever goes on for it once it is killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunHead {
    /// No batch of it has a higher number.
    pub(super) up_to: u64,
    /// Sightings that it has lost.
    pub(super) lost: u64,
}

/// Whom the folder is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Owner {
    pub(super) sensor: String,
    /// The URL without the password.
    pub(super) server: String,
}

impl Kind {
    /// The first line, with the version of the format.
    const fn line(self) -> &'static str {
        match self {
            Self::Batch => "bannerwall batch 1\n",
            Self::Run => "bannerwall run 1\n",
            Self::Owner => "bannerwall spill 1\n",
        }
    }
}

/// The octets of a file.
pub(super) fn sealed(kind: Kind, head: &impl Serialize, text: &str) -> Vec<u8> {
    // Names and numbers always are JSON.
    let body = format!("{}\n{text}", serde_json::to_string(head).unwrap_or_default());
    format!("{}{}\n{body}", kind.line(), hash(body.as_bytes())).into_bytes()
}

/// What a file holds; none where it is damaged.
pub(super) fn opened<T: DeserializeOwned>(kind: Kind, octets: &[u8]) -> Option<(T, &str)> {
    let rest = std::str::from_utf8(octets).ok()?.strip_prefix(kind.line())?;
    let (told, body) = rest.split_once('\n')?;
    if told != hash(body.as_bytes()) {
        return None;
    }
    let (head, text) = body.split_once('\n')?;
    Some((serde_json::from_str(head).ok()?, text))
}

/// In lower case, which alone is taken.
fn hash(octets: &[u8]) -> String {
    crate::terms::hexadecimal(&Sha256::digest(octets))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head() -> BatchHead {
        BatchHead { stream: "00ff".into(), number: 7, format: 1, sightings: 42, lost: 3 }
    }

    fn file() -> Vec<u8> {
        sealed(Kind::Batch, &head(), "{\"a\":1}\n{\"b\":\"ü\"}\n")
    }

    fn read(octets: &[u8]) -> Option<(BatchHead, &str)> {
        opened(Kind::Batch, octets)
    }

    #[test]
    fn what_was_sealed_is_opened_as_what_it_is_and_as_nothing_else() {
        let octets = file();
        assert_eq!(read(&octets), Some((head(), "{\"a\":1}\n{\"b\":\"ü\"}\n")));
        assert_eq!(opened::<BatchHead>(Kind::Run, &octets), None);
        let owner = Owner { sensor: "east".into(), server: "postgresql://east@db/net".into() };
        assert_eq!(opened(Kind::Owner, &sealed(Kind::Owner, &owner, "")), Some((owner, "")));
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
            let behind = [Kind::Batch.line().as_bytes(), &octets].concat();
            prop_assert_eq!(read(&behind), None);
            let written = sealed(Kind::Batch, &head(), &text);
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
