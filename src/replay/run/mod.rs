//! From captures to the engine: the loop, and what it counted.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::capture::{Capture, CaptureError, Frame};
use super::input::Input;
use crate::engine::{Checksums, Counters, EngineConfig, PacketInput, Tracking};
use crate::event::{EventSink, Source, Timestamp};
use crate::inline::Inspector;
use crate::packet::link::{Carried, Vlans};
use crate::packet::{Parsed, Reassembled, Reassembler, ReassemblyLimits, encapsulation, parse};
use crate::rules::RuleSet;
use crate::rules::fingerprint::Fingerprints;

/// How often, by the capture's clock, silent flows are looked for.
const TICK: Duration = Duration::from_secs(1);

/// The link type of packets that begin with IP.
const RAW_IP: u16 = 101;

/// How many frames are read between two looks at the outside world.
const LOOK_UP: u64 = 4096;

/// How captures are read.
#[derive(Debug, Clone)]
pub struct ReplayConfig {
    /// The engine's settings; its source is always [`Source::Replay`], its tracking [`Tracking::Lossy`].
    pub engine: EngineConfig,
    /// Whether segments with wrong checksums are ignored. Captures of the sending host have them in
    /// plenty, since the network card fills them in.
    pub checksums: Checksums,
}

/// What was read so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Captures.
    pub files: u64,
    /// Frames.
    pub frames: u64,
    /// Octets of those frames, as far as they were captured.
    pub octets: u64,
    /// Frames without an IP packet.
    pub not_ip: u64,
    /// Frames of a link type that can't be read.
    pub unknown_link: u64,
}

/// Why a capture was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file is at fault.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// No frame could be read because of its link type.
    #[error("offset 0: link type {0} is not supported")]
    LinkType(u16),
}

/// An inspector that is fed from captures.
#[derive(Debug)]
pub struct Replay {
    inspector: Inspector,
    checksums: Checksums,
    /// Fragments of packets that may be a tunnel's; the engine puts together what carries TCP.
    tunnelled: Reassembler,
    last: Timestamp,
    totals: Totals,
}

impl Replay {
    /// One that has read nothing.
    pub fn new(config: ReplayConfig, rules: Arc<RuleSet>, fingerprints: Option<Arc<Fingerprints>>) -> Self {
        let ReplayConfig { mut engine, checksums } = config;
        engine.source = Source::Replay;
        engine.tracking = Tracking::Lossy;
        Self {
            inspector: Inspector::new(engine, Arc::new(ArcSwap::new(rules)), fingerprints, TICK),
            checksums,
            tunnelled: Reassembler::new(ReassemblyLimits::default()),
            last: Timestamp::default(),
            totals: Totals::default(),
        }
    }

    /// Reads one capture to its end, or until `look_up` says to break, which is asked now and then.
    ///
    /// Flows that are still open at its end go on in the next capture, unless [`Self::finish`] comes
    /// between.
    ///
    /// # Errors
    ///
    /// The capture is damaged; everything before the damage was judged.
    pub fn read(
        &mut self,
        input: Input,
        sink: &mut impl EventSink,
        mut look_up: impl FnMut() -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ReplayError> {
        self.totals.files += 1;
        let before = self.totals;
        let mut capture = Capture::open(input)?;
        let mut unknown = None;
        while let Some(frame) = capture.next_frame()? {
            unknown = self.frame(&frame, sink).or(unknown);
            if self.totals.frames.is_multiple_of(LOOK_UP) && look_up().is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let skipped = self.totals.unknown_link - before.unknown_link;
        match unknown {
            Some(link) if skipped == self.totals.frames - before.frames => Err(ReplayError::LinkType(link)),
            _ => Ok(ControlFlow::Continue(())),
        }
    }

    /// Ends every flow and tells what it still owed: no capture goes on where the last one ended.
    pub fn finish(&mut self, sink: &mut impl EventSink) {
        self.inspector.finish(self.last, sink);
        self.tunnelled = Reassembler::new(ReassemblyLimits::default());
        self.last = Timestamp::default();
    }

    /// What was read so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// What the engine counted so far.
    pub fn counters(&self) -> &Counters {
        self.inspector.counters()
    }

    /// Takes one frame; gives its link type where that can't be read.
    fn frame(&mut self, frame: &Frame<'_>, sink: &mut impl EventSink) -> Option<u16> {
        self.totals.frames += 1;
        self.totals.octets += frame.octets.len() as u64;
        self.clock(frame.timestamp, sink);
        match encapsulation::innermost(frame.link, frame.octets) {
            Carried::Ip { packet, vlans } => {
                let missing = frame.wire_length - frame.octets.len();
                self.packet(packet, vlans, missing, frame, sink);
                None
            }
            Carried::Other => {
                self.totals.not_ip += 1;
                None
            }
            Carried::UnknownLink => {
                self.totals.unknown_link += 1;
                Some(frame.link)
            }
        }
    }

    /// Takes the innermost packet of a frame, `missing` octets of whose end were not captured.
    fn packet(
        &mut self,
        packet: &[u8],
        vlans: Vlans,
        missing: usize,
        frame: &Frame<'_>,
        sink: &mut impl EventSink,
    ) {
        if encapsulation::is_piece(packet)
            && let Ok(Parsed::Fragment(fragment)) = parse(packet, packet.len() + missing)
            && let Reassembled::Whole(whole) = self.tunnelled.push(&fragment, self.last)
            && let Carried::Ip { packet: inner, vlans: own } = encapsulation::innermost(RAW_IP, &whole)
            && inner.len() < whole.len()
        {
            let vlans = if own == Vlans::default() { vlans } else { own };
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
        // What the decision would do to the packet has been told by an event.
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
