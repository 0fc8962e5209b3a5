//! The parts of docs/src/reference that are made from the program's own tables.
//!
//! A page has them between `<!-- made: NAME -->` and `<!-- end -->`; everything else is written by hand. The
//! test compares them, and `BANNERWALL_WRITE_DOCS=1 cargo test --lib reference` writes them.

mod commands;
mod metrics;
mod names;
mod snippets;

use std::path::PathBuf;
use std::sync::LazyLock;

use regex::Regex;

/// Returns the table of these rows, each already in Markdown.
fn table<const COLUMNS: usize>(
    head: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(COLUMNS));
    for row in rows {
        text.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    text
}

/// Returns `text` as code in a table's cell; nothing if it is empty.
fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|")) }
}

/// Returns what a text of help says, as Markdown in a table's cell: names of flags become code.
fn prose(help: &str) -> String {
    static FLAG: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(^|[\s(,])(--?[a-z][a-z0-9-]*|/[a-z]+(?:/[\w.*-]+)+)").expect("a pattern")
    });
    let plain = |text: &str| {
        let mut escaped = String::new();
        for character in text.chars() {
            match character {
                '\\' | '|' | '*' | '_' | '[' => escaped.extend(['\\', character]),
                other => escaped.push(other),
            }
        }
        escaped
    };
    let mut text = String::new();
    for (at, part) in help.split_whitespace().collect::<Vec<_>>().join(" ").split('`').enumerate() {
        if at % 2 == 1 {
            text.push_str(&code(part));
            continue;
        }
        let mut end = 0;
        for found in FLAG.captures_iter(part) {
            let name = found.get(2).map_or(0..0, |name| name.range());
            text.push_str(&plain(&part[end..name.start]));
            text.push_str(&code(part[name.clone()].trim_end_matches('.')));
            end = name.start + part[name].trim_end_matches('.').len();
        }
        text.push_str(&plain(&part[end..]));
    }
    if text.is_empty() || text.trim_end_matches(')').ends_with(['.', ':', '?', '!']) {
        text
    } else {
        text + "."
    }
}

/// Returns the page with new text in its part `name`; none if the page has no such part.
fn with_part(page: &str, name: &str, text: &str) -> Option<String> {
    let opening = format!("<!-- made: {name} -->\n");
    let (before, rest) = page.split_once(&opening)?;
    let (_, after) = rest.split_once("<!-- end -->")?;
    Some(format!("{before}{opening}\n{}\n\n<!-- end -->{after}", text.trim()))
}

/// Writes the parts of a page, or compares them with the page.
fn keep(page: &str, parts: &[(&str, String)]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/src/reference").join(page);
    let old = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    let new = parts.iter().fold(old.clone(), |text, (name, part)| {
        with_part(&text, name, part).unwrap_or_else(|| panic!("{page} has no part `{name}`"))
    });
    if std::env::var_os("BANNERWALL_WRITE_DOCS").is_some() {
        return std::fs::write(&path, new).unwrap_or_else(|error| panic!("{page}: {error}"));
    }
    let stale = old.lines().zip(new.lines()).find(|(old, new)| old != new);
    assert!(
        old == new,
        "docs/src/reference/{page} is stale: write it with `BANNERWALL_WRITE_DOCS=1 cargo test --lib reference`: {stale:#?}"
    );
}

#[test]
fn a_part_is_replaced_and_the_rest_of_a_page_stays() {
    let page = "# A\n\n<!-- made: x -->\nold\n<!-- end -->\n\nb\n";
    let new = "# A\n\n<!-- made: x -->\n\nnew\n\n<!-- end -->\n\nb\n";
    assert_eq!(with_part(page, "x", "new\n").as_deref(), Some(new));
    assert_eq!(with_part(page, "y", "new"), None);
}
