//! Results of `bannerwall rules` in every format, for programs and for people.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use super::CommandFailure;
use super::flags::{FormatName, output_file};
use crate::output::text::ColourMode;

/// Format and destination of results.
#[derive(Debug, Args)]
pub(super) struct TableOutputFlags {
    /// Output format.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: FormatName,
    /// Write results to this file.
    #[arg(short, long, value_name = "FILE", value_parser = output_file)]
    output: Option<PathBuf>,
}

impl TableOutputFlags {
    pub(super) const fn format(&self) -> FormatName {
        self.format
    }

    /// Returns colors for results on a terminal.
    pub(super) fn colour(&self) -> ColourMode {
        ColourMode::for_results(self.file())
    }

    /// Returns the file of the results, if there is one.
    pub(super) fn file(&self) -> Option<&Path> {
        self.output.as_deref()
    }
}

/// Results in every format, written at the end.
pub(super) struct ResultTable {
    columns: &'static [&'static str],
    /// Each row for a program and, unless the text leaves it out, for a person.
    rows: Vec<(serde_json::Value, Option<String>)>,
    summary: Option<String>,
}

impl ResultTable {
    pub(super) fn new(columns: &'static [&'static str]) -> Self {
        Self { columns, rows: Vec::new(), summary: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn add(&mut self, object: serde_json::Value, text: String) {
        self.rows.push((object, Some(text)));
    }

    /// Adds a result that the text leaves out.
    pub(super) fn add_machine_only(&mut self, object: serde_json::Value) {
        self.rows.push((object, None));
    }

    /// Sets the last line of the text.
    pub(super) fn say(&mut self, summary: String) {
        self.summary = Some(summary);
    }

    pub(super) fn write(&self, output: &TableOutputFlags) -> Result<(), CommandFailure> {
        let text = self.render(output.format)?;
        let Some(path) = &output.output else {
            return match (output.format, std::str::from_utf8(&text)) {
                (FormatName::Text, Ok(text)) => super::print_lines(text),
                _ => super::print(&text),
            }
            .map(|_| ());
        };
        let written = std::fs::write(path, &text).with_context(|| format!("cannot write {}", path.display()));
        written.map_err(CommandFailure::Usage)
    }

    fn render(&self, format: FormatName) -> Result<Vec<u8>, CommandFailure> {
        let mut octets = Vec::new();
        match format {
            FormatName::Text => {
                for text in self.rows.iter().filter_map(|(_, text)| text.as_ref()).chain(&self.summary) {
                    writeln!(octets, "{text}")?;
                }
            }
            FormatName::Json => {
                for (object, _) in &self.rows {
                    writeln!(octets, "{object}")?;
                }
            }
            FormatName::Csv => {
                let mut writer = csv::Writer::from_writer(&mut octets);
                writer.write_record(self.columns).map_err(CommandFailure::usage)?;
                for (object, _) in &self.rows {
                    writer
                        .write_record(self.columns.iter().map(|name| cell(&object[*name])))
                        .map_err(CommandFailure::usage)?;
                }
                writer.flush()?;
            }
        }
        Ok(octets)
    }
}

/// Formats a JSON value as the cell of a table.
fn cell(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}
