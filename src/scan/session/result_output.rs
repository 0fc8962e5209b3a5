//! Destination of results. A resumed scan appends to its file.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use super::SessionError;
use crate::output::{
    ContinuedFormat, OutputCopy, OutputDestination, OutputFormat, OutputWriter, WriterConfig,
};

/// Format and destination of results.
pub struct ResultOutput {
    /// Format.
    pub format: Box<dyn OutputFormat>,
    /// Destination. A [`OutputDestination::File`] of an earlier run is continued.
    pub destination: OutputDestination,
    /// True if the format has an end that nothing can follow, so its file cannot be continued.
    pub is_document: bool,
    /// Further files with the same results.
    pub copies: Vec<ResultCopy>,
}

/// A further file with the results of a scan.
pub struct ResultCopy {
    /// File; that of an earlier run is continued.
    pub path: PathBuf,
    /// Format.
    pub format: Box<dyn OutputFormat>,
    /// True if the file cannot be continued.
    pub is_document: bool,
}

impl ResultOutput {
    /// Starts the writer; `goes_on` is true if an earlier run has written results.
    pub(super) fn start(self, goes_on: bool) -> Result<OutputWriter, SessionError> {
        let Self { format, destination, is_document, copies } = self;
        let (destination, format) = match destination {
            OutputDestination::File(path) if goes_on && path.exists() => {
                let format = continued(&path, format, is_document)?;
                (OutputDestination::Log(path), format)
            }
            destination => (destination, format),
        };
        let copies = copies.into_iter().map(|copy| copy.opened(goes_on)).collect::<Result<_, _>>()?;
        OutputWriter::start_with_copies(WriterConfig::BATCHES, (destination, format), copies)
            .map_err(SessionError::Results)
    }
}

impl ResultCopy {
    fn opened(self, goes_on: bool) -> Result<OutputCopy, SessionError> {
        let Self { path, format, is_document } = self;
        let continues = goes_on && path.exists();
        let format = if continues { continued(&path, format, is_document)? } else { format };
        Ok(OutputCopy { path, format, continues })
    }
}

/// Prepares the file of an earlier run, and returns the format that continues it.
fn continued(
    path: &Path,
    format: Box<dyn OutputFormat>,
    is_document: bool,
) -> Result<Box<dyn OutputFormat>, SessionError> {
    // XML has one root element: nothing can follow its end.
    if is_document {
        return Err(SessionError::NotContinued(path.to_owned()));
    }
    // A killed run may have left half a line. The checkpoint does not count its target as finished, so it is
    // probed again.
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    cut_torn_line(path).map_err(named).map_err(SessionError::Results)?;
    Ok(Box::new(ContinuedFormat(format)))
}

/// Removes half a line that a killed process left: its target is unfinished and will be probed again.
fn cut_torn_line(path: &Path) -> std::io::Result<()> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    // A line is always much shorter than one flush.
    file.seek(SeekFrom::Start(length.saturating_sub(1 << 20)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let torn = tail.iter().rev().take_while(|octet| **octet != b'\n').count() as u64;
    if torn > 0 { file.set_len(length - torn) } else { Ok(()) }
}
