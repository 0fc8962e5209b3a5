//! A compiled database: one automaton finds the fingerprints that match, and only the first of them
//! captures.

use std::collections::{BTreeMap, HashSet};

use regex::bytes::{Captures, Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use super::file::{DatabaseEntry, FieldEntry, FingerprintEntry};
use crate::event::ProductFacts;

/// Limit on the compiled form of one pattern, in bytes.
const PATTERN_SIZE: usize = 1 << 20;
/// Limit on the compiled form of one database, in bytes.
const SET_SIZE: usize = 64 << 20;
/// Limit on the lazily built automaton of one database on each thread, in bytes.
const SET_CACHE: usize = 16 << 20;
/// Limit on references from field to field in braces.
const DEPTH: usize = 4;

/// The fingerprints for one kind of text.
#[derive(Debug)]
pub(super) struct FingerprintDatabase {
    pub(super) matches: String,
    protocol: Option<String>,
    set: RegexSet,
    fingerprints: Vec<CompiledFingerprint>,
}

#[derive(Debug)]
struct CompiledFingerprint {
    name: String,
    regex: Regex,
    unless: Option<Regex>,
    fields: BTreeMap<String, FieldEntry>,
}

/// The reason why a fingerprint can't be used.
#[derive(Debug)]
pub(super) struct FingerprintFault {
    pub(super) fingerprint: String,
    pub(super) reason: String,
}

/// The result of a fingerprint for a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentifiedProduct<'f> {
    name: &'f str,
    fields: Vec<(&'f str, String)>,
}

impl FingerprintDatabase {
    pub(super) fn compile(entry: &DatabaseEntry) -> Result<Self, FingerprintFault> {
        let fingerprints =
            entry.fingerprint.iter().map(CompiledFingerprint::compile).collect::<Result<_, _>>()?;
        let set = RegexSetBuilder::new(entry.fingerprint.iter().map(|fingerprint| &fingerprint.pattern))
            .unicode(false)
            .size_limit(SET_SIZE)
            .dfa_size_limit(SET_CACHE)
            .build()
            .map_err(|error| FingerprintFault {
                fingerprint: format!("all that match {}", entry.matches),
                reason: error.to_string(),
            })?;
        Ok(Self { matches: entry.matches.clone(), protocol: entry.protocol.clone(), set, fingerprints })
    }

    pub(super) fn len(&self) -> usize {
        self.fingerprints.len()
    }

    pub(super) fn identify(&self, text: &[u8]) -> Option<IdentifiedProduct<'_>> {
        self.set
            .matches(text)
            .into_iter()
            .filter_map(|index| self.fingerprints.get(index))
            .find_map(|fingerprint| fingerprint.identify(text, self.protocol.as_deref()))
    }
}

impl CompiledFingerprint {
    fn compile(entry: &FingerprintEntry) -> Result<Self, FingerprintFault> {
        let fault = |reason: String| FingerprintFault { fingerprint: entry.name.clone(), reason };
        let build = |pattern: &str| {
            let mut builder = RegexBuilder::new(pattern);
            builder.unicode(false).size_limit(PATTERN_SIZE).dfa_size_limit(PATTERN_SIZE);
            builder.build().map_err(|error| fault(error.to_string()))
        };
        let regex = build(&entry.pattern)?;
        for (field, value) in &entry.fields {
            let FieldEntry::Capture(group) = value else { continue };
            if *group == 0 || *group >= regex.captures_len() {
                let groups = regex.captures_len() - 1;
                return Err(fault(format!(
                    "{field} asks for group {group} of a pattern with {groups} groups"
                )));
            }
        }
        let unless = entry.unless.as_deref().map(build).transpose()?;
        Ok(Self { name: entry.name.clone(), regex, unless, fields: entry.fields.clone() })
    }

    fn identify<'f>(&'f self, text: &[u8], protocol: Option<&'f str>) -> Option<IdentifiedProduct<'f>> {
        if self.unless.as_ref().is_some_and(|unless| unless.is_match(text)) {
            return None;
        }
        let captures = self.regex.captures(text)?;
        let mut fields: Vec<_> = self
            .fields
            .keys()
            .filter(|field| !field.starts_with("_tmp."))
            .filter_map(|field| Some((field.as_str(), self.value(field, &captures, DEPTH)?)))
            .collect();
        if let Some(protocol) = protocol.filter(|_| !self.fields.contains_key("service.protocol")) {
            fields.push(("service.protocol", protocol.to_owned()));
        }
        Some(IdentifiedProduct { name: &self.name, fields })
    }

    /// Returns the value of a field, or none if its group took no part in the match.
    fn value(&self, field: &str, captures: &Captures<'_>, depth: usize) -> Option<String> {
        match self.fields.get(field)? {
            FieldEntry::Capture(group) => {
                Some(String::from_utf8_lossy(captures.get(*group)?.as_bytes()).into_owned())
            }
            FieldEntry::Text(text) => self.interpolate(field, text, captures, depth),
        }
    }

    /// Replaces `{other.field}` in `text` by that field's value. As in Recog, an unknown version is
    /// `-` in a CPE name; any other unknown value omits the field.
    fn interpolate(&self, field: &str, text: &str, captures: &Captures<'_>, depth: usize) -> Option<String> {
        let (mut value, mut rest) = (String::with_capacity(text.len()), text);
        while let Some((before, behind)) = rest.split_once('{') {
            value.push_str(before);
            let name = behind.split_once('}').filter(|(name, _)| is_field_name(name));
            let Some((name, after)) = name else {
                value.push('{');
                rest = behind;
                continue;
            };
            let other = if depth == 0 { None } else { self.value(name, captures, depth - 1) };
            match other {
                Some(other) => value.push_str(&other),
                None if field.ends_with(".cpe23") && name.ends_with(".version") => value.push('-'),
                None => return None,
            }
            rest = after;
        }
        value.push_str(rest);
        Some(value)
    }
}

fn is_field_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|letter: char| letter.is_whitespace() || letter == '{')
}

impl IdentifiedProduct<'_> {
    /// The name of the fingerprint.
    pub fn name(&self) -> &str {
        self.name
    }

    /// The value of a field, `service.version`.
    pub fn get(&self, field: &str) -> Option<&str> {
        self.fields.iter().find(|(name, _)| *name == field).map(|(_, value)| value.as_str())
    }

    /// Every field and its value, in the order of their names.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// Returns vendor, product, version and CPE name of the software. If the fingerprint names no
    /// software, they are those of the device or else the operating system.
    pub fn facts(&self) -> ProductFacts {
        let of = |class: &str, what: &str| {
            self.get(&format!("{class}.{what}")).filter(|value| !value.is_empty()).map(ToOwned::to_owned)
        };
        let named = |class: &&str| of(class, "product").is_some() || of(class, "vendor").is_some();
        let class = ["service", "hw", "os"].into_iter().find(named).unwrap_or("service");
        ProductFacts {
            vendor: of(class, "vendor"),
            product: of(class, "product"),
            version: of(class, "version"),
            cpe: of(class, "cpe23"),
            os: self.operating_system(),
        }
    }

    /// Returns vendor, product and version of the operating system, without repeated words: `Debian
    /// Linux 12.0`.
    fn operating_system(&self) -> Option<String> {
        let mut seen = HashSet::new();
        let words: Vec<_> = ["os.vendor", "os.product", "os.version"]
            .iter()
            .filter_map(|field| self.get(field))
            .flat_map(str::split_whitespace)
            .filter(|word| seen.insert(*word))
            .collect();
        (!words.is_empty()).then(|| words.join(" "))
    }
}
