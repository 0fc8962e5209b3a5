//! Filters of services: `product:openssh version:<9.6 net:198.51.100.0/24 seen:>7d`.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use super::time_reference;
use crate::rules::VersionRequirement;

/// Selects the services for which every term holds.
#[derive(Debug, Clone, Default)]
pub struct ServiceFilter {
    pub(super) terms: Vec<FilterTerm>,
}

/// One term; a leading `!` negates it.
#[derive(Debug, Clone)]
pub(super) struct FilterTerm {
    pub(super) holds: bool,
    pub(super) test: TermTest,
}

/// The test of a term.
#[derive(Debug, Clone)]
pub(super) enum TermTest {
    /// A column equals this text, ignoring case.
    Is(&'static str, String),
    /// The banner contains this text, ignoring case.
    Says(String),
    /// The version fits; a service without a version does not.
    Version(VersionRequirement),
    /// The version is one of these.
    OneOf(Vec<String>),
    /// The host key has this fingerprint.
    HostKey(String),
    /// The address is in this network.
    Net(IpNet),
    /// The port.
    Port(u16),
    /// A time (`first_seen`, `last_seen`) is more recent than this, or not.
    Within(&'static str, Duration),
    /// A rule with this severity or name has an open finding.
    Finding(String),
    /// The same, known to hold for few services.
    RareFinding(String),
    /// This sensor has seen it.
    Sensor(String),
}

/// Fault of a term.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FilterError {
    /// The field does not exist.
    #[error("`{0}`: fields are {NAMES}; a word without one is looked for in banners")]
    Field(String),
    /// The value is none of the field's.
    #[error("`{word}`: {why}")]
    Value {
        /// The word.
        word: String,
        /// The expected form.
        why: String,
    },
}

/// The fields.
const NAMES: &str = "product, version, vendor, cpe, os, patch, protocol, side, state, net, port, hostkey, seen, first, finding, sensor and banner";

/// Largest number of versions in a query: databases limit its parameters.
const NAMED: usize = 4_096;

/// Fields that are text columns.
const COLUMNS: [(&str, &str); 8] = [
    ("product", "b.product"),
    ("vendor", "b.vendor"),
    ("cpe", "b.cpe"),
    ("os", "b.os"),
    ("patch", "b.patch"),
    ("protocol", "s.protocol"),
    ("side", "b.side"),
    ("state", "s.state"),
];

impl ServiceFilter {
    /// Parses terms.
    ///
    /// # Errors
    /// Returns the fault of the first invalid term.
    pub fn parse<'w>(words: impl IntoIterator<Item = &'w str>) -> Result<Self, FilterError> {
        let terms = words.into_iter().map(term).collect::<Result<_, _>>()?;
        Ok(Self { terms })
    }

    /// True if it selects every service.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Parses terms separated by spaces; double quotes enclose spaces in a term.
    ///
    /// # Errors
    /// Returns the fault of the first invalid term.
    pub fn from_text(text: &str) -> Result<Self, FilterError> {
        let words = words(text);
        Self::parse(words.iter().map(String::as_str))
    }

    /// True if a term requires something of the banner, not only excludes it.
    pub(super) fn names_banners(&self) -> bool {
        self.terms.iter().any(|term| term.holds && term.test.is_of_banners())
    }

    /// Returns only the terms about banners that are not negated.
    pub(super) fn banner_terms(&self) -> Self {
        let names = self.names_banners();
        let asks = |term: &&FilterTerm| {
            names && term.test.is_of_banners() && !matches!(term.test, TermTest::Version(_))
        };
        Self { terms: self.terms.iter().filter(asks).cloned().collect() }
    }

    /// True if all terms are about banners, none about the place of observation.
    pub(super) fn only_tests_banners(&self) -> bool {
        self.terms.iter().all(|term| term.test.is_of_banners())
    }

    /// True if a term is about versions.
    pub(super) fn asks_versions(&self) -> bool {
        self.terms.iter().any(|term| matches!(term.test, TermTest::Version(_)))
    }

    /// Replaces tests of versions by the names of all known versions that fit, because SQL can look these
    /// up, but cannot compare versions. If there are too many names, the tests stay.
    pub(super) fn naming(&self, versions: &[String]) -> Self {
        let named = |term: &FilterTerm| match &term.test {
            TermTest::Version(wanted) => {
                let is_wanted = |version: &&String| wanted.admits(version.as_bytes());
                let names: Vec<String> = versions.iter().filter(is_wanted).cloned().collect();
                let test = if names.len() > NAMED { term.test.clone() } else { TermTest::OneOf(names) };
                FilterTerm { holds: term.holds, test }
            }
            _ => term.clone(),
        };
        Self { terms: self.terms.iter().map(named).collect() }
    }

    /// Tests the version with the terms that SQL cannot express.
    pub(super) fn admits(&self, version: Option<&str>) -> bool {
        self.terms.iter().all(|term| match &term.test {
            TermTest::Version(wanted) => {
                version.is_some_and(|version| wanted.admits(version.as_bytes())) == term.holds
            }
            _ => true,
        })
    }
}

/// Splits a text into terms.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for character in text.chars() {
        match character {
            '"' => quoted = !quoted,
            space if space.is_whitespace() && !quoted => words.push(std::mem::take(&mut word)),
            other => word.push(other),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

fn term(word: &str) -> Result<FilterTerm, FilterError> {
    let (holds, rest) = match word.strip_prefix('!') {
        Some(rest) => (false, rest),
        None => (true, word),
    };
    let fault = |why: &str| FilterError::Value { word: word.to_owned(), why: why.to_owned() };
    let Some((field, value)) = rest.split_once(':') else {
        return Ok(FilterTerm { holds, test: TermTest::Says(rest.to_owned()) });
    };
    if value.is_empty() {
        return Err(fault("no value after the colon"));
    }
    let text = value.to_owned();
    let test = match field {
        "banner" => TermTest::Says(text),
        "version" => {
            let bounds = if value.starts_with(['<', '>', '=', '!']) { text } else { format!("={value}") };
            TermTest::Version(VersionRequirement::parse(&bounds).map_err(|error| fault(&error.message))?)
        }
        "net" | "host" => TermTest::Net(
            network(value).ok_or_else(|| fault("must be an address or a network, as in net:192.0.2.0/24"))?,
        ),
        "hostkey" => TermTest::HostKey(text),
        "port" => TermTest::Port(value.parse().map_err(|_| fault("must be a port from 0 to 65535"))?),
        "seen" => return within("s.last_seen", value, holds).ok_or_else(|| fault(AGES)),
        "first" => return within("s.first_seen", value, holds).ok_or_else(|| fault(AGES)),
        "finding" => TermTest::Finding(text),
        "sensor" => TermTest::Sensor(text),
        _ => {
            let column = COLUMNS.iter().find(|(name, _)| *name == field);
            let Some((_, column)) = column else { return Err(FilterError::Field(word.to_owned())) };
            TermTest::Is(column, text)
        }
    };
    Ok(FilterTerm { holds, test })
}

impl TermTest {
    /// True if the banner alone decides the test.
    pub(super) fn is_of_banners(&self) -> bool {
        match self {
            Self::Is(column, _) => column.starts_with("b."),
            Self::Says(_) | Self::Version(_) | Self::OneOf(_) => true,
            _ => false,
        }
    }
}

const AGES: &str = "an age is >7d (longer ago) or <24h";

fn network(text: &str) -> Option<IpNet> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.ok().map(|network| network.trunc())
}

/// Parses `<24h`: more recent than that; `>7d`: older.
fn within(column: &'static str, value: &str, holds: bool) -> Option<FilterTerm> {
    let (is_within, age) = match (value.strip_prefix('<'), value.strip_prefix('>')) {
        (Some(age), _) => (true, age),
        (_, Some(age)) => (false, age),
        (None, None) => return None,
    };
    Some(FilterTerm { holds: holds == is_within, test: TermTest::Within(column, time_reference::age(age)?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_or_refused() {
        let good = "product:openssh version:<9.6 version:9.6 net:198.51.100.7/24 host:2001:db8::1 !port:22 seen:>7d \
                    first:<24h finding:critical sensor:edge side:client state:gone debian banner:x:y hostkey:SHA256:x";
        let filter = ServiceFilter::parse(good.split(' ')).unwrap();
        assert_eq!(filter.terms.len(), 15);
        assert!(matches!(&filter.terms[3].test, TermTest::Net(net) if net.to_string() == "198.51.100.0/24"));
        assert!(!filter.terms[5].holds && !filter.terms[6].holds && filter.terms[7].holds);
        for bad in ["colour:red", "port:ssh", "net:here", "seen:7d", "seen:>soon", "version:<", "product:"] {
            assert!(ServiceFilter::parse([bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_of_a_text_stand_between_spaces_or_in_quotes() {
        assert_eq!(
            words(r#" product:"Apache httpd"  net:::1 "a b" "#),
            ["product:Apache httpd", "net:::1", "a b"]
        );
        assert!(words("  \"\" ").is_empty());
        assert!(ServiceFilter::from_text("").unwrap().is_empty());
        assert!(ServiceFilter::from_text("product:ssh colour:red").is_err());
    }

    #[test]
    fn versions_are_named_where_they_are_not_too_many() {
        let versions = |count: usize| (0..count).map(|it| format!("9.{it}")).collect::<Vec<_>>();
        let filter = ServiceFilter::parse(["!version:<9.6", "product:openssh"]).unwrap();
        let few = filter.naming(&versions(10));
        assert!(matches!(&few.terms[0].test, TermTest::OneOf(names) if *names == versions(6)), "{few:?}");
        assert!(!few.terms[0].holds && !few.asks_versions() && few.only_tests_banners());
        let many = ServiceFilter::parse(["version:>=9"]).unwrap().naming(&versions(NAMED + 1));
        assert!(many.asks_versions() && !many.admits(Some("8")));
    }

    #[test]
    fn a_version_is_compared_as_rules_compare_it() {
        let filter = ServiceFilter::parse(["version:<9.6"]).unwrap();
        assert!(filter.admits(Some("9.2p1")) && !filter.admits(Some("9.10p1")) && !filter.admits(None));
        let filter = ServiceFilter::parse(["!version:<9.6"]).unwrap();
        assert!(filter.admits(None) && !filter.admits(Some("9.2p1")));
    }

    #[test]
    fn each_field_stands_in_the_reference() {
        let names = NAMES.split([',', ' ']).filter(|name| !name.is_empty() && *name != "and");
        bannerwall_test_support::reference::assert_named("reference/filters.md", names);
    }
}
