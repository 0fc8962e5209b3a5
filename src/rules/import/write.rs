//! Weaknesses as the text of a rule file.

use std::fmt::Write as _;

use super::products::Product;
use super::{Origin, Products, Wanted, Weakness};
use crate::event::Verdict;
use crate::rules::advisory::{Line, PackageVersion, State, Status};

/// Characters of a description that a title shows.
const TITLE: usize = 120;

/// The whole file.
pub(super) fn file(origin: Origin, weaknesses: &[Weakness], products: &Products, wanted: &Wanted) -> String {
    let mut text = format!("# Made by `bannerwall rules import {}` from the {origin}", origin.prefix);
    if !wanted.date.is_empty() {
        text.push_str(&format!(" of {}", wanted.date));
    }
    text.push_str(".\n# The data are their makers'; import them anew rather than changing this file.\n\n");
    text.push_str(&format!("[pack]\ntags = [\"advisory\", {}]\n", quoted(origin.prefix)));
    for weakness in weaknesses {
        if let Some(product) = products.of(&weakness.package) {
            rule(&mut text, origin, weakness, product, wanted);
        }
    }
    text
}

fn rule(text: &mut String, origin: Origin, weakness: &Weakness, product: &Product, wanted: &Wanted) {
    let mut key = |key: &str, value: String| {
        // Writing into a String does not fail.
        let _ = writeln!(text, "{key} = {value}");
    };
    key("\n[[rule]]\nid", quoted(&id(origin, weakness)));
    key("title", quoted(&title(weakness)));
    key("protocol", quoted(&product.protocol));
    if let Some(from) = &product.from {
        key("from", quoted(from));
    }
    for (field, pattern) in &product.asked {
        let field = if field.contains('.') { quoted(field) } else { field.clone() };
        key(&format!("match.{field}"), quoted(pattern));
    }
    key("action", quoted(wanted.action.name()));
    key("severity", quoted(weakness.severity.name()));
    key("category", quoted("advisory"));
    key("references", list(weakness.references.iter().map(|reference| quoted(reference))));
    let exploited = wanted.exploited.holds(&weakness.name);
    let tags = [weakness.package.as_str()].into_iter().chain(exploited.then_some("kev"));
    key("tags", list(tags.map(quoted)));
    key("advisory.source", quoted(origin.name));
    if !wanted.date.is_empty() {
        key("advisory.date", quoted(&wanted.date));
    }
    key("advisory.report", list(wanted.report.iter().map(|verdict| quoted(verdict.name()))));
    if wanted.block_unknown {
        key("advisory.block_unknown", true.to_string());
    }
    if !product.spelled.is_empty() {
        let pairs = product.spelled.iter().map(|(shown, own)| format!("{} = {}", quoted(shown), quoted(own)));
        key("advisory.spelled", format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", ")));
    }
    if !weakness.upstream.is_empty() {
        key("advisory.upstream", quoted(&weakness.upstream.join(" || ")));
    }
    let lines: Vec<String> = weakness.lines.iter().map(|line| format!("    {},\n", package(line))).collect();
    if !lines.is_empty() {
        key("advisory.packages", format!("[\n{}]", lines.concat()));
    }
    let Some(template) = &product.banner else { return };
    let shown = |line: &Line, version: &PackageVersion| {
        quoted(&banner(template, &line.distribution, version, product))
    };
    let mut examples: Vec<String> = Vec::new();
    let mut counterexamples: Vec<String> = Vec::new();
    for line in weakness.lines.iter().filter(|line| line.distribution == "Ubuntu") {
        if wanted.report.contains(&Verdict::Vulnerable) {
            examples.extend(line.affected.last().map(|version| shown(line, version)));
        }
    }
    let debian = weakness.lines.iter().filter(|line| line.distribution == "Debian");
    for (line, began) in debian.filter_map(|line| Some((line, line.began()?))) {
        match &line.state {
            State::Fixed(fix) if began.shown() < fix.shown() => {
                if began.shown().upstream != fix.shown().upstream {
                    continue;
                }
                if wanted.report.contains(&Verdict::Vulnerable) {
                    examples.push(shown(line, &began));
                }
                if !wanted.report.contains(&Verdict::Mended) {
                    counterexamples.push(shown(line, fix));
                }
            }
            State::Said(Status::NotAffected) if !wanted.report.contains(&Verdict::Mended) => {
                counterexamples.push(shown(line, &began));
            }
            _ => {}
        }
    }
    for (name, banners) in [("examples", &mut examples), ("counterexamples", &mut counterexamples)] {
        banners.sort();
        banners.dedup();
        if !banners.is_empty() {
            key(name, list(banners.drain(..)));
        }
    }
}

fn id(origin: Origin, weakness: &Weakness) -> String {
    format!("{}-{}-{}", origin.prefix, weakness.package, weakness.name.to_ascii_lowercase())
}

/// `openssh: a race in a signal handler (CVE-2024-6387)`.
fn title(weakness: &Weakness) -> String {
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

fn package(line: &Line) -> String {
    let mut text =
        format!("{{ distribution = {}, release = {}", quoted(&line.distribution), quoted(&line.release));
    if let Some(newest) = &line.newest {
        text.push_str(&format!(", newest = {}", quoted(newest.text())));
    }
    if !line.affected.is_empty() {
        text.push_str(&format!(", affected = {}", list(line.affected.iter().map(|one| quoted(one.text())))));
    }
    let (key, value) = match &line.state {
        State::Fixed(fix) => ("fixed", fix.text()),
        State::Said(status) => ("status", status.name()),
    };
    text.push_str(&format!(", {key} = {} }}", quoted(value)));
    text
}

/// A package version as a banner shows it.
fn banner(template: &str, distribution: &str, version: &PackageVersion, product: &Product) -> String {
    let lossy = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
    let own = lossy(version.shown().upstream);
    let spelled = product.spelled.iter().find(|(_, package)| **package == own);
    let upstream = spelled.map_or(own.as_str(), |(shown, _)| shown);
    template
        .replace("{version}", upstream)
        .replace("{distribution}", distribution)
        .replace("{revision}", &lossy(version.shown().revision))
}

/// A text as TOML has it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn list(entries: impl Iterator<Item = String>) -> String {
    format!("[{}]", entries.collect::<Vec<_>>().join(", "))
}
