//! Probe that only connects.

use super::super::{Conversation, Target};
use super::{Closed, Probe, Scene, Step};
use crate::event::Timestamp;

/// Sends nothing: a port is open if it accepts.
#[derive(Debug)]
pub(in super::super) struct Connect;

impl Probe for Connect {
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
        _scene: &mut Scene<'_>,
    ) -> Step {
        Step::Close
    }

    fn closed(&mut self, (): &mut (), (): &mut (), _how: Closed, _scene: &mut Scene<'_>) {}

    fn wanted(&self, (): &()) -> usize {
        0
    }

    fn result<'s>(&self, (): &'s ()) -> (Conversation, &'s [u8]) {
        (Conversation::None, &[])
    }
}
