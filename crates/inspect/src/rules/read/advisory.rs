//! Reads `advisory = { … }` of a rule: a distribution's data about a weakness, release by release.

use serde_spanned::Spanned;
use toml::de::DeValue;

use super::super::advisory::{Advisory, PackageStatus, PackageVersion, ReleaseAdvisory, ReleaseFixState};
use super::super::kex_marker::KexMarker;
use super::super::suggest;
use super::rule_values;
use super::toml_value::{Entry, SpannedText, ValueReader};
use crate::event::AdvisoryVerdict;

const KEYS: &[&str] = &[
    "source",
    "date",
    "report",
    "block_unknown",
    "spelled",
    "packages",
    "upstream",
    "fixed_if",
    "affected_if",
];
const LINE_KEYS: &[&str] = &["distribution", "release", "newest", "affected", "fixed", "status"];

/// Reads an advisory; none if it has a fault.
pub(super) fn read(reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) -> Option<Advisory> {
    let errors = reader.report.errors();
    let mut advisory = Advisory {
        source: String::new(),
        date: String::new(),
        report: vec![AdvisoryVerdict::Affected, AdvisoryVerdict::Unknown],
        block_unknown: false,
        spelled: Vec::new(),
        lines: Vec::new(),
        upstream: None,
        fixed_if: Vec::new(),
        affected_if: Vec::new(),
    };
    for (key, span, value) in reader.table("advisory", value)? {
        match key {
            "source" => advisory.source = own_line(reader, key, value),
            "date" => advisory.date = own_line(reader, key, value),
            "report" => advisory.report = report(reader, value),
            "block_unknown" => match value.get_ref() {
                DeValue::Boolean(choice) => advisory.block_unknown = *choice,
                _ => reader.error(&value.span(), "`block_unknown` must be true or false"),
            },
            "spelled" => advisory.spelled = spelled(reader, value),
            "packages" => advisory.lines = lines(reader, value),
            "upstream" => {
                advisory.upstream = rule_values::requirement(reader, key, value).map(|(asked, _)| asked);
            }
            "fixed_if" => advisory.fixed_if = markers(reader, key, value),
            "affected_if" => advisory.affected_if = markers(reader, key, value),
            _ => reader.unknown_key(&span, key, "an advisory", KEYS.iter().copied()),
        }
    }
    if advisory.source.is_empty() {
        reader.error(&value.span(), "the advisory has no `source`: name the publisher of the data");
    }
    let silent = advisory.lines.is_empty() && advisory.upstream.is_none();
    if silent && reader.report.errors() == errors {
        let help =
            "`packages = [{ distribution = \"Debian\", release = \"12\", fixed = \"1:9.2p1-2+deb12u3\" }]`";
        reader.error_with_help(&value.span(), "the advisory has no data about a package", help);
    }
    (reader.report.errors() == errors).then_some(advisory)
}

fn own_line(reader: &mut ValueReader<'_>, key: &str, value: &Spanned<DeValue<'_>>) -> String {
    rule_values::line(reader, key, value).map(|text| text.value).unwrap_or_default()
}

/// `report = ["affected", "unknown"]`.
fn report(reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) -> Vec<AdvisoryVerdict> {
    match value.get_ref() {
        DeValue::Array(values) => {
            values.iter().filter_map(|value| reader.name("report", value, &AdvisoryVerdict::NAMES)).collect()
        }
        _ => reader.name("report", value, &AdvisoryVerdict::NAMES).into_iter().collect(),
    }
}

/// `fixed_if = ["strict-kex-server"]`.
fn markers(reader: &mut ValueReader<'_>, key: &str, value: &Spanned<DeValue<'_>>) -> Vec<KexMarker> {
    let mut all = Vec::new();
    for text in reader.texts(key, value) {
        match (KexMarker::named(&text.value), suggest::nearest(&text.value, KexMarker::names())) {
            (Some(marker), _) => all.push(marker),
            (None, Some(nearest)) => {
                let message = format!("there is no marker `{}`", text.value);
                reader.error_with_help(&text.span, message, format!("did you mean `{nearest}`?"));
            }
            (None, None) => reader.error(&text.span, format!("there is no marker `{}`", text.value)),
        }
    }
    all
}

/// Reads `spelled = { "10.0p2" = "10.0p1" }`: the version in banners, and its spelling in the
/// package.
fn spelled(reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (shown, _, value) in reader.table("spelled", value).unwrap_or_default() {
        let package = rule_values::line(reader, shown, value);
        all.extend(package.map(|package| (shown.to_owned(), package.value)));
    }
    all
}

fn lines(reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) -> Vec<ReleaseAdvisory> {
    let DeValue::Array(values) = value.get_ref() else {
        reader.error(&value.span(), "`packages` must be a list of tables, one for each release");
        return Vec::new();
    };
    values.iter().filter_map(|value| line(reader, value)).collect()
}

fn line(reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) -> Option<ReleaseAdvisory> {
    let (mut distribution, mut release) = (None, None);
    let (mut newest, mut affected, mut fixed, mut status) = (None, Vec::new(), None, None);
    let entries = reader.table("packages[…]", value)?;
    let read = reading(&entries);
    for (key, span, value) in entries {
        match key {
            "distribution" => distribution = rule_values::line(reader, key, value),
            "release" => release = rule_values::line(reader, key, value),
            "newest" => newest = version(reader, key, value, read),
            "affected" => affected = versions(reader, key, value, read),
            "fixed" => fixed = version(reader, key, value, read),
            "status" => status = reader.name(key, value, &PackageStatus::NAMES),
            _ => reader.unknown_key(&span, key, "a release of an advisory", LINE_KEYS.iter().copied()),
        }
    }
    let state = match (fixed, status) {
        (Some(fixed), None) => ReleaseFixState::Fixed(fixed),
        (None, Some(status)) => ReleaseFixState::Said(status),
        _ => {
            let message = "a release has either `fixed`, the version with the fix, or `status`";
            reader.error(&value.span(), message);
            return None;
        }
    };
    let named = |text: Option<SpannedText>| text.map(|text| text.value).filter(|text| !text.is_empty());
    let (Some(distribution), Some(release)) = (named(distribution), named(release)) else {
        reader.error(&value.span(), "a release has a `distribution` and a `release`");
        return None;
    };
    Some(ReleaseAdvisory { distribution, release, newest, affected, state })
}

/// Parser of a package version.
type Reading = fn(&str) -> Result<PackageVersion, String>;

/// Returns dpkg's parser for Debian's and Ubuntu's versions, and the lenient one for others.
fn reading(entries: &[Entry<'_, '_>]) -> Reading {
    let dpkg = entries.iter().any(|(key, _, value)| {
        let text = value.get_ref().as_str();
        *key == "distribution" && text.is_some_and(|name| matches!(name, "Debian" | "Ubuntu"))
    });
    if dpkg { PackageVersion::parse } else { PackageVersion::foreign }
}

fn versions(
    reader: &mut ValueReader<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    read: Reading,
) -> Vec<PackageVersion> {
    let mut all = Vec::new();
    for text in reader.texts(key, value) {
        match read(&text.value) {
            Ok(version) => all.push(version),
            Err(reason) => reader.error(&text.span, reason),
        }
    }
    all
}

fn version(
    reader: &mut ValueReader<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    read: Reading,
) -> Option<PackageVersion> {
    let text = reader.text(key, value)?;
    read(&text.value).map_err(|reason| reader.error(&text.span, reason)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_stands_in_the_documentation() {
        bannerwall_test_support::reference::assert_named("reference/rules.md", KEYS.iter().chain(LINE_KEYS));
    }
}
