//! Destination of results. A resumed scan appends to its file.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use super::SessionError;
use crate::output::{ContinuedFormat, OutputDestination, OutputFormat, OutputWriter, WriterConfig};

/// Format and destination of results.
pub struct ResultOutput {
    /// Format.
    pub format: Box<dyn OutputFormat>,
    /// Destination. A [`OutputDestination::File`] of an earlier run is continued.
    pub destination: OutputDestination,
    /// True if the format has an end that nothing can follow, so its file cannot be continued.
    pub is_document: bool,
}

impl ResultOutput {
    /// Starts the writer; `goes_on` is true if an earlier run has written results.
    pub(super) fn start(self, goes_on: bool) -> Result<OutputWriter, SessionError> {
        let Self { format, destination, is_document } = self;
        let name = match &destination {
            OutputDestination::File(path) | OutputDestination::Log(path) => path.display().to_string(),
            OutputDestination::Stdout | OutputDestination::Other(_) => "standard output".to_owned(),
        };
        let fault = |error| SessionError::Results { name: name.clone(), error };
        let (destination, format) = match destination {
            OutputDestination::File(path) if goes_on && path.exists() => {
                // XML has one root element: nothing can follow its end.
                if is_document {
                    return Err(SessionError::NotContinued(path));
                }
                // A killed run may have left half a line. The checkpoint does not count its target as
                // finished, so it is probed again.
                cut_torn_line(&path).map_err(fault)?;
                let format: Box<dyn OutputFormat> = Box::new(ContinuedFormat(format));
                (OutputDestination::Log(path), format)
            }
            destination => (destination, format),
        };
        OutputWriter::start(WriterConfig::BATCHES, destination, format).map_err(fault)
    }
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
