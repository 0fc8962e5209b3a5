//! Formats of results, and the files of `--output-all`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::CommonScanFlags;
use crate::cli::flags::with_ending;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ScanFormat {
    Text,
    Json,
    Csv,
    Xml,
    Grepable,
}

impl ScanFormat {
    /// True if the format has a line for each target, with the state of its port.
    pub(super) const fn needs_connects(self) -> bool {
        !matches!(self, Self::Json | Self::Csv)
    }
}

impl CommonScanFlags {
    /// Returns the files of `--output-all` with their formats.
    pub(super) fn copies(&self) -> impl Iterator<Item = (PathBuf, ScanFormat)> {
        const ENDINGS: [(&str, ScanFormat); 5] = [
            ("txt", ScanFormat::Text),
            ("jsonl", ScanFormat::Json),
            ("csv", ScanFormat::Csv),
            ("xml", ScanFormat::Xml),
            ("gnmap", ScanFormat::Grepable),
        ];
        let named = |base: &PathBuf| ENDINGS.map(|(ending, format)| (with_ending(base, ending), format));
        self.output_all.as_ref().map(named).into_iter().flatten()
    }

    /// Returns the files of all results.
    pub(super) fn outputs(&self) -> impl Iterator<Item = PathBuf> {
        self.output.clone().into_iter().chain(self.copies().map(|(path, _)| path))
    }
}
