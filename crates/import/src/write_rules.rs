//! Writes weaknesses as the text of a rule file.

use std::fmt::Write as _;

use super::products::ProductEntry;
use super::{AdvisoryPublisher, ImportSelection, PackageWeakness};
use bannerwall_inspect::event::{AdvisoryVerdict, Side};
use bannerwall_inspect::rules::advisory::{PackageStatus, PackageVersion, ReleaseAdvisory, ReleaseFixState};
use bannerwall_inspect::rules::kex_marker::KexMarker;

/// Number of characters of a description in a title.
const TITLE: usize = 120;

/// Returns the head of a file.
pub(super) fn head(origin: AdvisoryPublisher, date: &str) -> String {
    let mut text = format!("# Made by `bannerwall rules import {}` from the {origin}", origin.prefix);
    if !date.is_empty() {
        text.push_str(&format!(" of {date}"));
    }
    text.push_str(
        ".\n# The data belong to their publishers. Import them again instead of editing this file.\n\n",
    );
    text.push_str(&format!("[pack]\ntags = [\"advisory\", {}]\n", quoted(origin.prefix)));
    text
}

/// A table of a rule file that is being written.
struct TableWriter<'t>(&'t mut String);

impl TableWriter<'_> {
    fn key(&mut self, key: &str, value: &str) {
        // Writing into a String does not fail.
        let _ = writeln!(self.0, "{key} = {value}");
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key, &quoted(value));
    }
}

/// Appends one rule to `text`.
pub(super) fn rule(
    text: &mut String,
    (origin, date): (AdvisoryPublisher, &str),
    weakness: &PackageWeakness,
    product: &ProductEntry,
    wanted: &ImportSelection,
) {
    let mut table = TableWriter(text);
    table.text("\n[[rule]]\nid", &id(origin, weakness));
    table.text("title", &title(weakness));
    table.text("protocol", &product.protocol);
    if let Some(from) = &product.from {
        table.text("from", from);
    }
    for (field, pattern) in &product.asked {
        let field = if field.contains('.') { quoted(field) } else { field.clone() };
        table.text(&format!("match.{field}"), pattern);
    }
    table.text("action", wanted.action.name());
    table.text("severity", weakness.severity.name());
    table.text("category", "advisory");
    table.key("references", &list(weakness.references.iter().map(|reference| quoted(reference))));
    let exploited = wanted.exploited.holds(&weakness.name);
    let tags = [weakness.package.as_str()].into_iter().chain(exploited.then_some("kev"));
    table.key("tags", &list(tags.map(quoted)));
    advisory(&mut table, (origin, date), weakness, product, wanted);
    if let Some(template) = &product.banner {
        examples(&mut table, template, weakness, product, wanted);
    }
}

/// Writes the rule's advisory.
fn advisory(
    table: &mut TableWriter<'_>,
    (origin, date): (AdvisoryPublisher, &str),
    weakness: &PackageWeakness,
    product: &ProductEntry,
    wanted: &ImportSelection,
) {
    table.text("advisory.source", origin.name);
    if !date.is_empty() {
        table.text("advisory.date", date);
    }
    table.key(
        "advisory.report",
        &list(wanted.reported(weakness).iter().map(|verdict| quoted(verdict.name()))),
    );
    if wanted.block_unknown {
        table.key("advisory.block_unknown", "true");
    }
    if !product.spelled.is_empty() {
        let pairs = product.spelled.iter().map(|(shown, own)| format!("{} = {}", quoted(shown), quoted(own)));
        table.key("advisory.spelled", &format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", ")));
    }
    if !weakness.upstream.is_empty() {
        table.text("advisory.upstream", &weakness.upstream.join(" || "));
    }
    for (name, markers) in evidence(weakness, product) {
        table.key(name, &list(markers.into_iter().map(|marker| quoted(marker.name()))));
    }
    let lines: Vec<String> = weakness.lines.iter().map(|line| format!("    {},\n", package(line))).collect();
    if !lines.is_empty() {
        table.key("advisory.packages", &format!("[\n{}]", lines.concat()));
    }
}

/// Writes banners of packages around the fix as examples.
fn examples(
    table: &mut TableWriter<'_>,
    template: &str,
    weakness: &PackageWeakness,
    product: &ProductEntry,
    wanted: &ImportSelection,
) {
    let shown = |line: &ReleaseAdvisory, version: &PackageVersion| {
        quoted(&banner(template, &line.distribution, version, product))
    };
    let report = wanted.reported(weakness);
    let mut examples: Vec<String> = Vec::new();
    let mut counterexamples: Vec<String> = Vec::new();
    for line in weakness.lines.iter().filter(|line| line.distribution == "Ubuntu") {
        if report.contains(&AdvisoryVerdict::Affected) {
            examples.extend(line.affected.last().map(|version| shown(line, version)));
        }
    }
    let debian = weakness.lines.iter().filter(|line| line.distribution == "Debian");
    for (line, began) in debian.filter_map(|line| Some((line, line.began()?))) {
        match &line.state {
            ReleaseFixState::Fixed(fix) if began.shown() < fix.shown() => {
                if began.shown().upstream != fix.shown().upstream {
                    continue;
                }
                if report.contains(&AdvisoryVerdict::Affected) {
                    examples.push(shown(line, &began));
                }
                if !report.contains(&AdvisoryVerdict::Fixed) {
                    counterexamples.push(shown(line, fix));
                }
            }
            ReleaseFixState::Said(PackageStatus::NotAffected)
                if !report.contains(&AdvisoryVerdict::Fixed) =>
            {
                counterexamples.push(shown(line, &began));
            }
            _ => {}
        }
    }
    for (name, mut banners) in [("examples", examples), ("counterexamples", counterexamples)] {
        // Two releases may have the same version, and so the same banner.
        banners.sort();
        banners.dedup();
        if !banners.is_empty() {
            table.key(name, &list(banners.into_iter()));
        }
    }
}

/// Returns the markers of a key exchange that prove the weakness or its fix, if there are any.
fn evidence(weakness: &PackageWeakness, product: &ProductEntry) -> Vec<(&'static str, Vec<KexMarker>)> {
    if product.protocol != "ssh" {
        return Vec::new();
    }
    let side = match product.from.as_deref() {
        Some("either") => None,
        Some("client") => Some(Side::Client),
        _ => Some(Side::Server),
    };
    let fixing = KexMarker::fixed_markers(&weakness.name, &weakness.package, &weakness.lines, side);
    let both = [
        ("advisory.fixed_if", fixing),
        ("advisory.affected_if", KexMarker::affected_markers(&weakness.name, side)),
    ];
    both.into_iter().filter(|(_, markers)| !markers.is_empty()).collect()
}

/// Returns the rule's id: one for each weakness of a package.
pub(super) fn id(origin: AdvisoryPublisher, weakness: &PackageWeakness) -> String {
    format!("{}-{}-{}", origin.prefix, weakness.package, weakness.name.to_ascii_lowercase())
}

/// `openssh: a race in a signal handler (CVE-2024-6387)`.
fn title(weakness: &PackageWeakness) -> String {
    let words = weakness.description.split(|one: char| one.is_whitespace() || one.is_control());
    let said = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let (package, name) = (&weakness.package, &weakness.name);
    match said.char_indices().nth(TITLE) {
        _ if said.is_empty() => format!("{package}: {name}"),
        Some((end, _)) => {
            let cut = said.get(..end).unwrap_or_default();
            let whole = cut.rsplit_once(' ').map_or(cut, |(whole, _)| whole);
            format!("{package}: {whole} … ({name})")
        }
        None => format!("{package}: {} ({name})", said.trim_end_matches('.')),
    }
}

fn package(line: &ReleaseAdvisory) -> String {
    let mut text =
        format!("{{ distribution = {}, release = {}", quoted(&line.distribution), quoted(&line.release));
    if let Some(newest) = &line.newest {
        text.push_str(&format!(", newest = {}", quoted(newest.text())));
    }
    if !line.affected.is_empty() {
        text.push_str(&format!(", affected = {}", list(line.affected.iter().map(|one| quoted(one.text())))));
    }
    let (key, value) = match &line.state {
        ReleaseFixState::Fixed(fix) => ("fixed", fix.text()),
        ReleaseFixState::Said(status) => ("status", status.name()),
    };
    text.push_str(&format!(", {key} = {} }}", quoted(value)));
    text
}

/// Returns a package version as a banner shows it.
fn banner(template: &str, distribution: &str, version: &PackageVersion, product: &ProductEntry) -> String {
    let lossy = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
    let own = lossy(version.shown().upstream);
    let spelled = product.spelled.iter().find(|(_, package)| **package == own);
    let upstream = spelled.map_or(own.as_str(), |(shown, _)| shown);
    template
        .replace("{version}", upstream)
        .replace("{distribution}", distribution)
        .replace("{revision}", &lossy(version.shown().revision))
}

/// Returns a text as a TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn list(entries: impl Iterator<Item = String>) -> String {
    format!("[{}]", entries.collect::<Vec<_>>().join(", "))
}
