//! pcap and pcapng files as a stream of frames; `pcap-parser` reads their structures.
//!
//! Memory is bounded by the largest record, for files of any size. A damaged file yields every frame before
//! the damage, then an error with the offset.

mod pcapng;

use std::io::{self, Read};

use pcap_parser::pcap::{
    parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified, parse_pcap_header,
};
use pcap_parser::{PcapHeader, nom};

use super::stream_window::StreamWindow;
use crate::event::Timestamp;

/// Limit of a record (pcap) or block (pcapng), in bytes.
const RECORD_LIMIT: usize = 16 << 20;

/// Size of a pcap file's header, in bytes.
const PCAP_HEADER: usize = 24;

/// First bytes of a pcapng file: the type of a section header block, the same in both byte orders.
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

const SECOND: u64 = 1_000_000_000;

/// One captured frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturedFrame<'a> {
    /// Number, from 1.
    pub number: u64,
    /// Time of the capture.
    pub timestamp: Timestamp,
    /// `LINKTYPE_` number of its first header.
    pub link: u16,
    /// Captured bytes.
    pub octets: &'a [u8],
    /// Length on the wire; at least `octets.len()`.
    pub wire_length: usize,
    /// Name of the interface in the capture, if there is one.
    pub interface: Option<&'a str>,
}

/// Error of reading a capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Neither pcap nor pcapng.
    #[error("not a pcap or pcapng file (`tcpdump -w FILE` writes one)")]
    Format,
    /// The file ends within a record.
    #[error("offset {offset}: the file is truncated within {what}")]
    Truncated {
        /// Start of the record.
        offset: u64,
        /// Kind of the record.
        what: &'static str,
    },
    /// A record is inconsistent.
    #[error("offset {offset}: {what}")]
    Damaged {
        /// Start of the record.
        offset: u64,
        /// Reason.
        what: &'static str,
    },
    /// The file is unreadable, or cannot be decompressed.
    #[error("offset {offset}: {error}")]
    Read {
        /// Position of the error.
        offset: u64,
        /// Error of the system or the decompressor.
        #[source]
        error: io::Error,
    },
}

/// Open capture.
pub struct CaptureReader<R> {
    window: StreamWindow<R>,
    format: CaptureFormat,
    frames: u64,
    /// Size of the last frame in the window, in bytes.
    taken: usize,
}

enum CaptureFormat {
    Pcap(PcapHeader),
    PcapNg(pcapng::PcapNgSection),
}

/// Record at the start of the window.
enum CaptureRecord {
    /// Frame, with positions from the window's start.
    Frame(FrameAt),
    /// Another record of this size in bytes.
    Other(usize),
    /// Incomplete record; at least this many bytes are needed.
    More(usize),
    /// Inconsistent record.
    Damaged(&'static str),
}

struct FrameAt {
    consumed: usize,
    start: usize,
    captured: usize,
    wire_length: usize,
    timestamp: Timestamp,
    link: u16,
    interface: Option<usize>,
}

impl<R: Read> CaptureReader<R> {
    /// Detects the format from the first bytes.
    ///
    /// # Errors
    ///
    /// The file is not a capture, or unreadable.
    pub fn open(source: R) -> Result<Self, CaptureError> {
        let mut window = StreamWindow::new(source);
        let filled = window.fill(PCAP_HEADER).map_err(|error| CaptureError::Read { offset: 0, error })?;
        if window.data().starts_with(&SECTION_HEADER) {
            return Ok(Self {
                window,
                format: CaptureFormat::PcapNg(pcapng::PcapNgSection::default()),
                frames: 0,
                taken: 0,
            });
        }
        let Ok((_, header)) = parse_pcap_header(window.data()) else {
            // The error differs: a cut capture is damaged, and any other file is none.
            let magic = window.data().first_chunk().is_some_and(is_pcap_magic);
            return Err(match filled {
                false if magic => CaptureError::Truncated { offset: 0, what: "the file header" },
                _ => CaptureError::Format,
            });
        };
        window.consume(PCAP_HEADER);
        Ok(Self { window, format: CaptureFormat::Pcap(header), frames: 0, taken: 0 })
    }

    /// Returns the next frame; `None` at the end.
    ///
    /// # Errors
    ///
    /// The capture cannot be read further; every later call fails, too.
    pub fn next_frame(&mut self) -> Result<Option<CapturedFrame<'_>>, CaptureError> {
        // The last frame borrowed from the window, so its bytes are released only now.
        self.window.consume(std::mem::take(&mut self.taken));
        let at = loop {
            let record = match &mut self.format {
                CaptureFormat::Pcap(header) => pcap_record(header, self.window.data()),
                CaptureFormat::PcapNg(section) => section.record(self.window.data()),
            };
            let offset = self.window.offset();
            match record {
                CaptureRecord::Frame(at) => break at,
                CaptureRecord::Other(length) => self.window.consume(length.max(1)),
                CaptureRecord::Damaged(what) => return Err(CaptureError::Damaged { offset, what }),
                CaptureRecord::More(wanted) if wanted > RECORD_LIMIT => {
                    return Err(CaptureError::Damaged { offset, what: "a record above the size limit" });
                }
                CaptureRecord::More(wanted) => {
                    // At least one byte more: the same request again would loop for ever.
                    let wanted = wanted.max(self.window.data().len() + 1);
                    let filled =
                        self.window.fill(wanted).map_err(|error| CaptureError::Read { offset, error })?;
                    if !filled && self.window.data().is_empty() {
                        return Ok(None);
                    }
                    if !filled {
                        let what = self.format.record_name();
                        return Err(CaptureError::Truncated { offset, what });
                    }
                }
            }
        };
        self.frames += 1;
        Ok(Some(self.frame(&at)))
    }

    fn frame(&mut self, at: &FrameAt) -> CapturedFrame<'_> {
        self.taken = at.consumed;
        let octets = self.window.data().get(at.start..at.start + at.captured).unwrap_or_default();
        let interface = match &self.format {
            CaptureFormat::Pcap(_) => None,
            CaptureFormat::PcapNg(section) => at.interface.and_then(|index| section.interface_name(index)),
        };
        CapturedFrame {
            number: self.frames,
            timestamp: at.timestamp,
            link: at.link,
            octets,
            // A damaged record may claim a shorter packet than it holds.
            wire_length: at.wire_length.max(octets.len()),
            interface,
        }
    }
}

impl CaptureFormat {
    const fn record_name(&self) -> &'static str {
        match self {
            Self::Pcap(_) => "a packet record",
            Self::PcapNg(_) => "a block",
        }
    }
}

const fn is_pcap_magic(octets: &[u8; 4]) -> bool {
    matches!(u32::from_le_bytes(*octets), 0xa1b2_c3d4 | 0xa1b2_3c4d | 0xa1b2_cd34 | 0xd4c3_b2a1 | 0x4d3c_b2a1)
}

fn pcap_record(header: &PcapHeader, data: &[u8]) -> CaptureRecord {
    let (parse, record_header): (fn(_) -> _, _) = match (header.is_modified_format(), header.is_bigendian()) {
        (true, _) => (parse_pcap_frame_modified, 24),
        (false, true) => (parse_pcap_frame_be, 16),
        (false, false) => (parse_pcap_frame, 16),
    };
    let (_, block) = match parse(data) {
        Ok(parsed) => parsed,
        Err(error) => return incomplete(&error, data.len(), "an unreadable packet record"),
    };
    let fraction = u64::from(block.ts_usec) * if header.is_nanosecond_precision() { 1 } else { 1000 };
    CaptureRecord::Frame(FrameAt {
        consumed: record_header + block.data.len(),
        start: record_header,
        captured: block.data.len(),
        wire_length: length(block.origlen),
        timestamp: Timestamp::from_nanos(u64::from(block.ts_sec) * SECOND + fraction),
        link: link_type(header.network.0),
        interface: None,
    })
}

/// Translates a parser's error: more bytes are needed, or the record is damaged.
fn incomplete<E>(error: &nom::Err<E>, have: usize, damage: &'static str) -> CaptureRecord {
    match error {
        nom::Err::Incomplete(nom::Needed::Size(missing)) => {
            CaptureRecord::More(have.saturating_add(missing.get()))
        }
        nom::Err::Incomplete(nom::Needed::Unknown) => CaptureRecord::More(have + 1),
        nom::Err::Error(_) | nom::Err::Failure(_) => CaptureRecord::Damaged(damage),
    }
}

/// Returns the `LINKTYPE_` number; the upper bits of the field hold the length of a frame check sequence.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the lower 16 bits are meant")]
const fn link_type(field: i32) -> u16 {
    field as u16
}

fn length(field: u32) -> usize {
    usize::try_from(field).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
