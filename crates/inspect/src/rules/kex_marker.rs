//! Markers: evidence in an SSH side's key exchange that its identification does not show
//! (`rules/markers.toml`).
//!
//! A name in a KEXINIT proves that the software contains the code that offers it. The table lists
//! what follows for a weakness, and nothing more: software that offers what a patch introduced has
//! the patch, whatever its version.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use serde::Deserialize;

use super::advisory::package::PackageVersion;
use super::advisory::release_advisory::{PackageStatus, ReleaseAdvisory, ReleaseFixState};
use crate::banner::{KexInit, SshBanner};
use crate::event::Side;

const SHIPPED: &str = include_str!("../../shipped/markers.toml");

/// Rows of the shipped table. A test ensures that the table can be read.
static TABLE: LazyLock<Vec<MarkerRow>> =
    LazyLock::new(|| toml::from_str::<MarkerFile>(SHIPPED).map(|read| read.marker).unwrap_or_default());

/// One marker, by its position in the table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KexMarker(usize);

#[derive(Debug, Default, Deserialize)]
struct MarkerFile {
    marker: Vec<MarkerRow>,
}

/// One row of the table. Its other keys (`since`, `date`, `references` …) are for readers and for
/// `scripts/prove-markers`.
#[derive(Debug, Deserialize)]
struct MarkerRow {
    name: String,
    /// The observation, worded as the reason of a verdict.
    says: String,
    /// The side whose KEXINIT shows it; either side if missing.
    #[serde(default)]
    from: Option<MarkerSender>,
    /// Software whose identification is exactly this, without comments.
    #[serde(default)]
    software: Option<String>,
    /// For each of these fields, one of the names must be offered, all in the same direction.
    #[serde(default)]
    offers: BTreeMap<KexListName, Vec<String>>,
    /// None of these names may be offered, in either direction.
    #[serde(default)]
    lacks: BTreeMap<KexListName, Vec<String>>,
    /// Weaknesses that are fixed in all software that shows the marker.
    #[serde(default)]
    proves_fixed: Vec<String>,
    /// Weaknesses that are present in all software that shows the marker.
    #[serde(default)]
    proves_affected: Vec<String>,
    /// The only packages that show the marker. A weakness that one of them fixed earlier is fixed.
    #[serde(default)]
    packages: Vec<ReleaseBound>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MarkerSender {
    Client,
    Server,
}

/// A name list of a KEXINIT, by its name in rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KexListName {
    Kex,
    HostKey,
    Encryption,
    Mac,
    Compression,
}

/// Packages of one release, from a version on.
#[derive(Debug, Deserialize)]
struct ReleaseBound {
    source: String,
    distribution: String,
    release: String,
    from: String,
}

/// Returns true if the text is that of the shipped table.
pub(super) fn is_shipped(text: &str) -> bool {
    text == SHIPPED
}

impl KexMarker {
    fn all() -> impl Iterator<Item = Self> {
        (0..TABLE.len()).map(Self)
    }

    fn row(self) -> Option<&'static MarkerRow> {
        TABLE.get(self.0)
    }

    /// Returns the marker with this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::all().find(|marker| marker.name() == name)
    }

    /// Returns the marker's name in rules.
    pub fn name(self) -> &'static str {
        self.row().map_or("", |row| row.name.as_str())
    }

    /// Returns the observation, in one line.
    pub(super) fn says(self) -> &'static str {
        self.row().map_or("", |row| row.says.as_str())
    }

    /// Returns every name, in the order of the table.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|row| row.name.as_str())
    }

    /// Returns the markers that prove that a package's weakness is fixed. `side` limits them to
    /// those of one side.
    pub fn fixed_markers(
        weakness: &str,
        package: &str,
        lines: &[ReleaseAdvisory],
        side: Option<Side>,
    ) -> Vec<Self> {
        let proves_fixed = |row: &MarkerRow| {
            let packages = || row.packages.iter().all(|bound| bound.is_fixed(package, lines));
            row.proves_fixed.iter().any(|known| known == weakness) || (!row.packages.is_empty() && packages())
        };
        Self::all()
            .filter(|marker| marker.row().is_some_and(|row| row.is_of(side) && proves_fixed(row)))
            .collect()
    }

    /// Returns the markers that prove that a weakness is present.
    pub fn affected_markers(weakness: &str, side: Option<Side>) -> Vec<Self> {
        let proves_affected =
            |row: &MarkerRow| row.is_of(side) && row.proves_affected.iter().any(|known| known == weakness);
        Self::all().filter(|marker| marker.row().is_some_and(proves_affected)).collect()
    }

    /// Returns true if the marker identifies packages only, and no weakness.
    pub(super) fn is_of_packages(self) -> bool {
        self.row().is_some_and(|row| !row.packages.is_empty())
    }

    /// Returns true if a side with this identification can show the marker.
    pub(super) fn fits(self, banner: &SshBanner<'_>) -> bool {
        self.row().is_some_and(|row| row.fits(banner))
    }

    /// Returns the markers that a side shows.
    pub(super) fn seen(banner: &SshBanner<'_>) -> Vec<Self> {
        let Some(kex) = &banner.kex else { return Vec::new() };
        Self::all().filter(|marker| marker.row().is_some_and(|row| row.is_seen(banner, kex))).collect()
    }
}

impl fmt::Debug for KexMarker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl MarkerRow {
    /// Returns true if the marker can be seen on this side, or if no side is given.
    fn is_of(&self, side: Option<Side>) -> bool {
        match (self.from, side) {
            (None, _) | (_, None) => true,
            (Some(MarkerSender::Client), Some(side)) => side == Side::Client,
            (Some(MarkerSender::Server), Some(side)) => side == Side::Server,
        }
    }

    fn fits(&self, banner: &SshBanner<'_>) -> bool {
        let identification = &banner.identification;
        let software = self.software.as_ref().is_none_or(|software| {
            identification.software == software.as_bytes() && identification.comments.is_none()
        });
        software && self.is_of(Some(banner.from))
    }

    fn is_seen(&self, banner: &SshBanner<'_>, kex: &KexInit<'_>) -> bool {
        let offers_all = |to: Side| self.offers.iter().all(|(list, names)| list.holds(kex, to, names));
        let offers_one = |to: Side| self.lacks.iter().any(|(list, names)| list.holds(kex, to, names));
        let directions = [Side::Server, Side::Client];
        // The cipher of one direction is never combined with the MAC of the other, so offers of
        // different directions together prove nothing.
        self.fits(banner) && directions.into_iter().any(offers_all) && !directions.into_iter().any(offers_one)
    }
}

impl KexListName {
    /// Returns true if one of the names is offered for the direction to `to`.
    fn holds(self, kex: &KexInit<'_>, to: Side, names: &[String]) -> bool {
        let list = match (self, to) {
            (Self::Kex, _) => kex.kex,
            (Self::HostKey, _) => kex.host_key,
            (Self::Encryption, Side::Server) => kex.encryption_client_to_server,
            (Self::Encryption, Side::Client) => kex.encryption_server_to_client,
            (Self::Mac, Side::Server) => kex.mac_client_to_server,
            (Self::Mac, Side::Client) => kex.mac_server_to_client,
            (Self::Compression, Side::Server) => kex.compression_client_to_server,
            (Self::Compression, Side::Client) => kex.compression_server_to_client,
        };
        list.split(|octet| *octet == b',').any(|name| names.iter().any(|known| known.as_bytes() == name))
    }
}

impl ReleaseBound {
    /// Returns true if these packages contain the fix, according to the data of their release.
    fn is_fixed(&self, package: &str, lines: &[ReleaseAdvisory]) -> bool {
        let Ok(from) = PackageVersion::parse(&self.from) else { return false };
        let own =
            |line: &&ReleaseAdvisory| line.distribution == self.distribution && line.release == self.release;
        let fixed = |line: &ReleaseAdvisory| match &line.state {
            ReleaseFixState::Fixed(fix) => fix.shown() <= from.shown(),
            ReleaseFixState::Said(status) => *status == PackageStatus::NotAffected,
        };
        self.source == package && lines.iter().find(own).is_some_and(fixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::banner::ssh;

    /// Keys of a row that only people and `scripts/prove-markers` read.
    const TOLD: [&str; 5] = ["since", "until", "backported", "date", "references"];

    #[test]
    fn the_table_is_well_formed() {
        let read: MarkerFile = toml::from_str(SHIPPED).unwrap();
        assert!(read.marker.len() >= 10);
        let table: toml::Table = toml::from_str(SHIPPED).unwrap();
        let known = [
            "name",
            "says",
            "from",
            "software",
            "offers",
            "lacks",
            "proves_fixed",
            "proves_affected",
            "packages",
        ];
        for row in table["marker"].as_array().unwrap() {
            let row = row.as_table().unwrap();
            let name = row["name"].as_str().unwrap();
            for key in row.keys() {
                assert!(known.contains(&key.as_str()) || TOLD.contains(&key.as_str()), "{name}: {key}");
            }
            assert!(!row["references"].as_array().unwrap().is_empty(), "{name} has no reference");
            let date = row["date"].as_str().unwrap();
            let shape: String = date.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
            assert_eq!(shape, "0000-00-00", "{name}: {date}");
            assert!(
                row.contains_key("since") || row.contains_key("proves_affected"),
                "{name} began with something"
            );
        }
        for marker in KexMarker::all() {
            let row = marker.row().unwrap();
            assert_eq!(KexMarker::named(&row.name), Some(marker), "{} is there once", row.name);
            assert!(!row.offers.is_empty() && !row.says.is_empty(), "{}", row.name);
            assert!(
                row.proves_fixed.is_empty() || row.proves_affected.is_empty(),
                "{} says two things",
                row.name
            );
            for bound in &row.packages {
                assert!(PackageVersion::parse(&bound.from).is_ok() && row.software.is_some());
            }
        }
    }

    #[test]
    fn a_cipher_and_a_mac_of_different_directions_are_no_weakness() {
        let etm = b"hmac-sha2-256-etm@openssh.com".as_slice();
        let seen = |to_server: (&'static [u8], &'static [u8]), to_client: (&'static [u8], &'static [u8])| {
            let kex = KexInit {
                kex: b"curve25519-sha256",
                encryption_client_to_server: to_server.0,
                mac_client_to_server: to_server.1,
                encryption_server_to_client: to_client.0,
                mac_server_to_client: to_client.1,
                ..KexInit::default()
            };
            let (identification, _) = ssh::parse_line(b"SSH-2.0-x");
            let banner = SshBanner { from: Side::Server, identification, kex: Some(kex) };
            KexMarker::seen(&banner).into_iter().map(KexMarker::name).collect::<Vec<_>>()
        };
        let (cbc, counter) = (b"aes256-cbc".as_slice(), b"aes256-ctr".as_slice());
        assert!(seen((cbc, b"hmac-sha2-256"), (counter, etm)).is_empty());
        assert!(seen((counter, etm), (cbc, b"hmac-sha2-256")).is_empty());
        assert_eq!(seen((cbc, etm), (counter, etm)), ["terrapin-cbc"]);
        assert_eq!(seen((counter, b"hmac-sha2-256"), (cbc, etm)), ["terrapin-cbc"]);
    }

    #[test]
    fn a_marker_is_a_whole_name_of_its_side_and_software() {
        let seen = |from: Side, line: &str, kex: &str| -> Vec<&str> {
            let (identification, _) = ssh::parse_line(line.as_bytes());
            let kex = KexInit { kex: kex.as_bytes(), ..KexInit::default() };
            let banner = SshBanner { from, identification, kex: Some(kex) };
            KexMarker::seen(&banner).into_iter().map(KexMarker::name).collect()
        };
        let strict = "kex-strict-s-v00@openssh.com";
        assert_eq!(seen(Side::Server, "SSH-2.0-x", strict), ["strict-kex-server"]);
        assert!(seen(Side::Client, "SSH-2.0-x", strict).is_empty());
        assert!(seen(Side::Server, "SSH-2.0-x", "kex-strict-s-v00@openssh.com.example").is_empty());
        let bound = "debian-12-openssh-sntrup761";
        for (line, expected) in [
            ("SSH-2.0-OpenSSH_9.2p1", true),
            ("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2.example1", false),
            ("SSH-2.0-OpenSSH_9.2p1 a word", false),
            ("SSH-2.0-OpenSSH_9.2", false),
            ("SSH-2.0-OpenSSH_9.9p1", false),
        ] {
            let markers = seen(Side::Server, line, "curve25519-sha256,sntrup761x25519-sha512");
            assert_eq!(markers.contains(&bound), expected, "{line}: {markers:?}");
        }
    }

    #[test]
    fn each_marker_stands_in_the_documentation() {
        bannerwall_test_support::reference::assert_named("rules/fingerprints.md", KexMarker::names());
    }
}
