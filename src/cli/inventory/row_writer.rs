//! Streamed results as text, JSON lines or CSV: there can be millions of rows.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::cli::flags::{FormatName, output_file};
use crate::cli::terminal_lines::fit;
use crate::cli::{CliExitCode, CommandFailure};
use crate::output::csv::plain;
use crate::output::text::ColourMode;

/// Format and destination of results.
#[derive(Debug, Args)]
pub(in crate::cli) struct RowOutputFlags {
    /// Output format; `json` is one object a line.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: FormatName,
    /// Write results to this file.
    #[arg(short, long, value_name = "FILE", value_parser = output_file)]
    output: Option<PathBuf>,
}

impl RowOutputFlags {
    /// Returns the output file, if there is one.
    pub(in crate::cli) fn path(&self) -> Option<&Path> {
        self.output.as_deref()
    }

    /// Returns colors for results on a terminal.
    pub(in crate::cli) fn colour(&self) -> ColourMode {
        ColourMode::for_results(self.path())
    }

    /// True if results are rows of columns.
    pub(in crate::cli) fn has_columns(&self) -> bool {
        self.format == FormatName::Csv
    }
}

/// Creates the output file, or returns stdout.
pub(in crate::cli) fn create(output: Option<&Path>) -> Result<Box<dyn Write>, CommandFailure> {
    let Some(path) = output else { return Ok(Box::new(BufWriter::new(io::stdout()))) };
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()));
    Ok(Box::new(BufWriter::new(file.map_err(CommandFailure::Usage)?)))
}

/// Writer of results of one kind.
pub(in crate::cli) struct RowWriter {
    format: FormatName,
    columns: &'static [&'static str],
    out: Box<dyn Write>,
    is_stdout: bool,
    /// True if the reader closed the pipe.
    closed: bool,
}

impl RowWriter {
    /// Starts the output; `columns` are the fields of a CSV row, in order.
    pub(in crate::cli) fn start(
        output: &RowOutputFlags,
        columns: &'static [&'static str],
    ) -> Result<Self, CommandFailure> {
        Self::open(output.format, output.output.as_deref(), columns)
    }

    /// Starts the output in a format, to a file or stdout.
    pub(in crate::cli) fn open(
        format: FormatName,
        output: Option<&Path>,
        columns: &'static [&'static str],
    ) -> Result<Self, CommandFailure> {
        let out = create(output)?;
        let mut rows = Self { format, columns, out, is_stdout: output.is_none(), closed: false };
        if rows.format == FormatName::Csv {
            rows.record(columns.iter().map(|column| (*column).to_owned()))?;
        }
        Ok(rows)
    }

    /// Writes a result; `text` is its form for a person.
    pub(in crate::cli) fn add(
        &mut self,
        result: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), CommandFailure> {
        match self.format {
            FormatName::Text if self.is_stdout => self.put(fit(&text()).as_bytes(), b"\n"),
            FormatName::Text => self.put(text().as_bytes(), b"\n"),
            FormatName::Json => self.put(&serde_json::to_vec(result).map_err(CommandFailure::usage)?, b"\n"),
            FormatName::Csv => {
                let object = serde_json::to_value(result).map_err(CommandFailure::usage)?;
                self.record(self.columns.iter().map(|column| plain(&cell(&object[*column]))))
            }
        }
    }

    /// Flushes the output.
    pub(in crate::cli) fn finish(mut self) -> Result<CliExitCode, CommandFailure> {
        let flushed = self.out.flush();
        self.ignore_closed_pipe(flushed).map(|()| CliExitCode::Done)
    }

    fn record(&mut self, cells: impl Iterator<Item = String>) -> Result<(), CommandFailure> {
        let mut line = csv::Writer::from_writer(Vec::new());
        line.write_record(cells).map_err(CommandFailure::usage)?;
        let octets = line.into_inner().map_err(|error| CommandFailure::usage(error.into_error()))?;
        self.put(&octets, b"")
    }

    fn put(&mut self, octets: &[u8], end: &[u8]) -> Result<(), CommandFailure> {
        if self.closed {
            return Ok(());
        }
        let written = self.out.write_all(octets).and_then(|()| self.out.write_all(end));
        self.ignore_closed_pipe(written)
    }

    /// Ignores a closed pipe.
    fn ignore_closed_pipe(&mut self, written: io::Result<()>) -> Result<(), CommandFailure> {
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            other => Ok(other?),
        }
    }
}

/// Formats a JSON value as a cell; a finding becomes its rule's id.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(" "),
        Value::Object(fields) => fields.get("rule").map(cell).unwrap_or_default(),
        other => other.to_string(),
    }
}
