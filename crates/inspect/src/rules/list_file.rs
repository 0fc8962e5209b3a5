//! Named lists from files: one entry a line, `#` starts a comment.

use std::collections::HashSet;
use std::path::Path;

use super::diagnostic::{DiagnosticCollector, DiagnosticLevel, RuleDiagnostic};
use super::limits;
use super::scope::{self, AddressSet};
use super::source_file::{ReadFile, SourceFile};

/// The entries of a list, used as values or as networks.
#[derive(Debug)]
pub(super) struct ListFile {
    name: String,
    source: SourceFile,
}

/// Values that a whole field is compared with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListValues {
    /// The list's name, for diagnostics.
    pub(super) name: String,
    /// Its entries.
    pub(super) entries: HashSet<Box<[u8]>>,
}

impl ListFile {
    /// Reads the list `name` from the file `path`, relative to the rule file `beside`.
    pub(super) fn read(name: &str, path: &str, beside: &SourceFile) -> Result<Self, String> {
        let path = Path::new(beside.name()).parent().unwrap_or(Path::new("")).join(path);
        let shown = path.display().to_string();
        let text = beside
            .texts()
            .text(&path, limits::LIST_OCTETS)
            .map_err(|reason| format!("cannot read {shown}: {reason}"))?;
        let list = Self { name: name.to_owned(), source: SourceFile::new(shown, text) };
        let count = list.entries().count();
        if count > limits::LIST_ENTRIES {
            return Err(format!("{count} entries; at most {} are allowed", limits::LIST_ENTRIES));
        }
        Ok(list)
    }

    /// Returns the path and digest of the file.
    pub(super) fn file(&self) -> ReadFile {
        self.source.read_file()
    }

    /// Returns the entries with the offset of each.
    fn entries(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut start = 0;
        self.source.text().split('\n').filter_map(move |line| {
            let at = start;
            start += line.len() + 1;
            let entry = line.trim();
            let comment = entry.is_empty() || entry.starts_with('#');
            (!comment).then(|| (at + (line.len() - line.trim_start().len()), entry))
        })
    }

    /// Returns the entries as values of a field.
    pub(super) fn values(&self) -> ListValues {
        let entries = self.entries().map(|(_, entry)| entry.as_bytes().into()).collect();
        ListValues { name: self.name.clone(), entries }
    }

    /// Returns the entries as networks. An entry that is none is reported at its position.
    pub(super) fn addresses(&self, report: &mut DiagnosticCollector) -> AddressSet {
        let mut networks = Vec::new();
        for (start, entry) in self.entries() {
            // Addresses hold no space, so a comment may follow one.
            let word = entry.split_whitespace().next().unwrap_or(entry);
            match scope::parse_network(word) {
                Some(network) => networks.push(network),
                None if report.is_full() => break,
                None => {
                    let span = start..start + word.len();
                    let message = "not an address or a network, such as `192.0.2.0/24` or `2001:db8::1`";
                    report.push(RuleDiagnostic::at(DiagnosticLevel::Error, &self.source, &span, message));
                }
            }
        }
        AddressSet::new(networks)
    }
}
