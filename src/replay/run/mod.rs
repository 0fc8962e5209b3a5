//! Runs captures through the engine, and counts frames.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::capture::{CaptureError, CaptureReader, CapturedFrame};
use super::input::CaptureInput;
use crate::engine::{ChecksumState, EngineConfig, EngineCounters, PacketInput, TrackingMode};
use crate::event::{EventSink, EventSource, Timestamp};
use crate::inspector::InlineInspector;
use crate::packet::link::{FrameContent, VlanIds};
use crate::packet::{FragmentReassembler, ParsedPacket, ReassemblyLimits, ReassemblyResult, parse, tunnels};
use crate::rules::RuleSet;
use crate::rules::fingerprint::FingerprintSet;

/// Interval of checks for silent flows, by the capture's clock.
const TICK: Duration = Duration::from_secs(1);

/// Link type of packets that start with IP.
const RAW_IP: u16 = 101;

/// Number of frames between two calls of the observer.
const LOOK_UP: u64 = 4096;

/// Settings of a replay.
#[derive(Debug, Clone)]
pub struct ReplayConfig {
    /// Settings of the engine; its source is always [`EventSource::Replay`], its tracking
    /// [`TrackingMode::Lossy`].
    pub engine: EngineConfig,
    /// Handling of wrong checksums. Captures of the sending host have many, since the network card fills them
    /// in.
    pub checksums: ChecksumState,
}

/// Counters of read data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayTotals {
    /// Number of captures.
    pub files: u64,
    /// Number of frames.
    pub frames: u64,
    /// Number of captured bytes in those frames.
    pub octets: u64,
    /// Number of frames without an IP packet.
    pub not_ip: u64,
    /// Number of frames with an unsupported link type.
    pub unknown_link: u64,
}

/// Error of a capture.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file is invalid.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// No frame has a supported link type.
    #[error("offset 0: link type {0} is not supported")]
    LinkType(u16),
}

/// Inspector for captures.
#[derive(Debug)]
pub struct CaptureReplay {
    inspector: InlineInspector,
    checksums: ChecksumState,
    /// Fragments of packets that may belong to a tunnel; the engine reassembles those with TCP.
    tunnelled: FragmentReassembler,
    last: Timestamp,
    totals: ReplayTotals,
}

impl CaptureReplay {
    /// Returns a new replay.
    pub fn new(config: ReplayConfig, rules: Arc<RuleSet>, fingerprints: Option<Arc<FingerprintSet>>) -> Self {
        let ReplayConfig { mut engine, checksums } = config;
        engine.source = EventSource::Replay;
        // A capture may lack packets that the connection had.
        engine.tracking = TrackingMode::Lossy;
        Self {
            inspector: InlineInspector::new(engine, Arc::new(ArcSwap::new(rules)), fingerprints, TICK),
            checksums,
            tunnelled: FragmentReassembler::new(ReassemblyLimits::default()),
            last: Timestamp::default(),
            totals: ReplayTotals::default(),
        }
    }

    /// Reads one capture to its end, or until `look_up` stops it, which is called periodically.
    ///
    /// Flows that are open at its end continue in the next capture, unless [`Self::finish`] is called in
    /// between.
    ///
    /// # Errors
    ///
    /// The capture is damaged; everything before the damage was inspected.
    /// The capture is damaged; everything before the damage was judged.
    pub fn read(
        &mut self,
        input: CaptureInput,
        sink: &mut impl EventSink,
        mut look_up: impl FnMut() -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ReplayError> {
        self.totals.files += 1;
        let before = self.totals;
        let mut capture = CaptureReader::open(input)?;
        let mut unknown = None;
        while let Some(frame) = capture.next_frame()? {
            unknown = self.frame(&frame, sink).or(unknown);
            // The check reads shared state, so it is not made for each packet.
            if self.totals.frames.is_multiple_of(LOOK_UP) && look_up().is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let skipped = self.totals.unknown_link - before.unknown_link;
        match unknown {
            // Some packets of an unknown link type are skipped. A file without any other packet is an
            // error.
            Some(link) if skipped == self.totals.frames - before.frames => Err(ReplayError::LinkType(link)),
            _ => Ok(ControlFlow::Continue(())),
        }
    }

    /// Ends every flow and emits its remaining events: the next capture is a separate one.
    pub fn finish(&mut self, sink: &mut impl EventSink) {
        self.inspector.finish(self.last, sink);
        self.tunnelled = FragmentReassembler::new(ReassemblyLimits::default());
        self.last = Timestamp::default();
    }

    /// Returns the counters of read data.
    pub fn totals(&self) -> &ReplayTotals {
        &self.totals
    }

    /// Returns the engine's counters.
    pub fn counters(&self) -> &EngineCounters {
        self.inspector.counters()
    }

    /// Handles one frame; returns its link type if that is unsupported.
    fn frame(&mut self, frame: &CapturedFrame<'_>, sink: &mut impl EventSink) -> Option<u16> {
        self.totals.frames += 1;
        self.totals.octets += frame.octets.len() as u64;
        self.clock(frame.timestamp, sink);
        match tunnels::innermost(frame.link, frame.octets) {
            FrameContent::Ip { packet, vlans } => {
                let missing = frame.wire_length - frame.octets.len();
                self.packet(packet, vlans, missing, frame, sink);
                None
            }
            FrameContent::Other => {
                self.totals.not_ip += 1;
                None
            }
            FrameContent::UnknownLink => {
                self.totals.unknown_link += 1;
                Some(frame.link)
            }
        }
    }

    /// Handles the innermost packet of a frame, with `missing` bytes at its end that were not captured.
    fn packet(
        &mut self,
        packet: &[u8],
        vlans: VlanIds,
        missing: usize,
        frame: &CapturedFrame<'_>,
        sink: &mut impl EventSink,
    ) {
        if tunnels::is_piece(packet)
            && let Ok(ParsedPacket::Fragment(fragment)) = parse(packet, packet.len() + missing)
            && let ReassemblyResult::Whole(whole) = self.tunnelled.push(&fragment, self.last)
            && let FrameContent::Ip { packet: inner, vlans: own } = tunnels::innermost(RAW_IP, &whole)
            // The inner packet must be smaller. Otherwise a crafted packet could repeat this without
            // end.
            && inner.len() < whole.len()
        {
            let vlans = if own == VlanIds::default() { vlans } else { own };
            return self.packet(inner, vlans, 0, frame, sink);
        }
        let input = PacketInput {
            now: self.last,
            ip: packet,
            wire_length: packet.len() + missing,
            checksums: self.checksums,
            interface: frame.interface,
            vlan: vlans.as_slice(),
            packet_number: Some(frame.number),
        };
        // Events have already reported the decision, which has no packet to act on.
        let _ = self.inspector.inspect(&input, sink);
    }

    /// Follows the capture's clock, which may jump back (several interfaces, merged files).
    fn clock(&mut self, now: Timestamp, sink: &mut impl EventSink) {
        self.last = now;
        if self.inspector.is_due(now) {
            self.inspector.tick(now, sink);
        }
    }
}

#[cfg(test)]
mod tests;
