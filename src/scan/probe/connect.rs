//! Probe that only connects.

use super::super::{ExchangeOutcome, Target};
use super::{CloseReason, Probe, ProbeContext, ProbeStep};
use crate::event::Timestamp;

/// Sends nothing: a port is open if it accepts.
#[derive(Debug)]
pub(in super::super) struct ConnectProbe;

impl Probe for ConnectProbe {
    type Session = ();
    type Connection = ();

    const TALKS: bool = false;

    fn begin(&mut self, (): &mut (), _target: &Target) {}

    fn open(&mut self, (): &mut (), (): &mut (), _target: &Target, _now: Timestamp, _out: &mut Vec<u8>) {}

    fn receive(
        &mut self,
        (): &mut (),
        (): &mut (),
        _octets: &[u8],
        _out: &mut Vec<u8>,
        _scene: &mut ProbeContext<'_>,
    ) -> ProbeStep {
        ProbeStep::Close
    }

    fn closed(&mut self, (): &mut (), (): &mut (), _how: CloseReason, _scene: &mut ProbeContext<'_>) {}

    fn wanted(&self, (): &()) -> usize {
        0
    }

    fn result<'s>(&self, (): &'s ()) -> (ExchangeOutcome, &'s [u8]) {
        (ExchangeOutcome::None, &[])
    }
}
