//! Imports of other programs' results: nmap's XML, Zeek's logs, Suricata's events. Each row becomes the
//! sightings that bannerwall would have recorded. A file that is read twice counts once.

mod conversion;
mod eve;
mod nmap;
mod zeek;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::database::RunWriter;
use super::error::StoreError;
use super::sighting::{AssetBanner, AssetKey, BannerKind, NamedSoftware, SightingContent};
use super::store::{RunDescription, SightingRecord, SightingStore as _};
use crate::database::DatabaseLocation;
use crate::event::Timestamp;

/// Number of sightings that are written together.
const BATCH: usize = 1_000;

/// Largest size of a line in bytes.
const LINE: u64 = 1 << 20;

/// Format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportFormat {
    /// nmap's XML.
    NmapXml,
    /// Zeek's `known_services`, `software`, `ssh` and `http` logs, with tabs or as JSON.
    Zeek,
    /// EVE JSON, of Suricata or bannerwall.
    Eve,
}

/// Counts of a file's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportCounts {
    /// Number of rows: hosts' ports, lines, events.
    pub rows: u64,
    /// Number of rows without anything to record.
    pub passed_over: u64,
}

/// Error of an import.
#[derive(Debug, thiserror::Error)]
pub enum InventoryImportError {
    /// The inventory cannot be written.
    #[error("--inventory {0}")]
    Store(#[from] StoreError),
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// A row is malformed.
    #[error("{}:{line}: {why}; earlier rows were imported", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// Description of the fault.
        why: String,
    },
}

/// Imports files into an inventory.
#[derive(Debug)]
pub struct FileImporter {
    writer: RunWriter,
    batch: Vec<SightingRecord>,
    imported: ImportCounts,
}

/// Description of a row's fault.
type RowFault = String;

impl FileImporter {
    /// Opens or creates the inventory at a place.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(place: &DatabaseLocation, sensor: String, about: String) -> Result<Self, StoreError> {
        let run = RunDescription { source: "import", once: true, reports_changes: false, sensor, about };
        Ok(Self {
            writer: RunWriter::open(place, &run)?,
            batch: Vec::new(),
            imported: ImportCounts::default(),
        })
    }

    /// Reads a file, compressed by gzip or not. Without a format, its first bytes decide.
    ///
    /// # Errors
    /// See [`InventoryImportError`].
    pub fn read(
        &mut self,
        path: &Path,
        format: Option<ImportFormat>,
    ) -> Result<ImportCounts, InventoryImportError> {
        self.imported = ImportCounts::default();
        // The same file may be named twice, compressed and not.
        self.writer.forget_counted();
        let file = |error| InventoryImportError::File { path: path.to_owned(), error };
        let mut lines = NumberedLines { input: open(path).map_err(file)?, number: 0 };
        let outcome = match format.or(told(&mut lines).map_err(file)?) {
            Some(ImportFormat::NmapXml) => nmap::read(&mut lines, self),
            Some(ImportFormat::Zeek) => zeek::read(&mut lines, self),
            Some(ImportFormat::Eve) => eve::read(&mut lines, self),
            None => {
                Err(ImportFileError::Fault("not nmap's XML, a log of Zeek or EVE JSON; pass --from".into()))
            }
        };
        self.write()?;
        outcome.map(|()| self.imported).map_err(|ending| match ending {
            ImportFileError::Store(error) => error.into(),
            ImportFileError::Read(error) => file(error),
            ImportFileError::Fault(why) => {
                InventoryImportError::Row { path: path.to_owned(), line: lines.number.max(1), why }
            }
        })
    }

    /// Ends the run.
    ///
    /// # Errors
    /// The end could not be recorded.
    pub fn end(mut self) -> Result<(), StoreError> {
        self.write()?;
        self.writer.finish(0)
    }

    /// Counts a row, and whether it held anything to record.
    fn count(&mut self, says_something: bool) {
        self.imported.rows += 1;
        self.imported.passed_over += u64::from(!says_something);
    }

    fn said(
        &mut self,
        asset: &AssetKey,
        (banner, software): (AssetBanner, NamedSoftware),
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.tell(asset, SightingContent::Said(banner), software, at)
    }

    fn tell(
        &mut self,
        asset: &AssetKey,
        what: SightingContent,
        software: NamedSoftware,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.batch.push(SightingRecord {
            asset: asset.clone(),
            what,
            software,
            first: at,
            last: at,
            count: 1,
        });
        if self.batch.len() >= BATCH { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        while !self.batch.is_empty() {
            let taken = self.writer.write(&self.batch)?;
            self.batch.drain(..taken.records);
        }
        Ok(())
    }
}

/// The reason why reading a file ended early.
#[derive(Debug)]
enum ImportFileError {
    Store(StoreError),
    Read(io::Error),
    Fault(RowFault),
}

impl From<StoreError> for ImportFileError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for ImportFileError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl From<RowFault> for ImportFileError {
    fn from(why: RowFault) -> Self {
        Self::Fault(why)
    }
}

/// The lines of a file, with a count.
struct NumberedLines {
    input: Box<dyn BufRead>,
    number: u64,
}

impl NumberedLines {
    /// Returns the next line that is not empty, without its end.
    fn next(&mut self) -> Result<Option<String>, ImportFileError> {
        loop {
            let mut line = Vec::new();
            self.number += 1;
            if (&mut self.input).take(LINE + 1).read_until(b'\n', &mut line)? == 0 {
                return Ok(None);
            }
            if line.len() as u64 > LINE {
                return Err(ImportFileError::Fault(format!("a line of more than {LINE} bytes")));
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\r', '\n']);
            if !text.is_empty() {
                return Ok(Some(text.to_owned()));
            }
        }
    }
}

fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    let mut input: Box<dyn BufRead> = if path.as_os_str() == "-" {
        Box::new(BufReader::new(io::stdin()))
    } else {
        Box::new(BufReader::new(File::open(path)?))
    };
    let is_packed = input.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    Ok(if is_packed { Box::new(BufReader::new(MultiGzDecoder::new(input))) } else { input })
}

/// Returns the format by the first bytes.
fn told(lines: &mut NumberedLines) -> io::Result<Option<ImportFormat>> {
    let first = lines.input.fill_buf()?;
    let start = first.iter().position(|octet| !octet.is_ascii_whitespace()).unwrap_or_default();
    let first = first.get(start..).unwrap_or_default();
    let line = first.split(|octet| *octet == b'\n').next().unwrap_or_default();
    Ok(match first.first() {
        Some(b'<') => Some(ImportFormat::NmapXml),
        Some(b'#') => Some(ImportFormat::Zeek),
        Some(b'{') if line.windows(12).any(|word| word == b"\"event_type\"") => Some(ImportFormat::Eve),
        Some(b'{') => Some(ImportFormat::Zeek),
        _ => None,
    })
}

/// Returns an empty banner.
fn silent() -> (AssetBanner, NamedSoftware) {
    (AssetBanner::new(BannerKind::Banner, ""), NamedSoftware::default())
}
