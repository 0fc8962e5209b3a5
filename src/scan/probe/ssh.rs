//! The probe that reads SSH identifications.
//!
//! A server speaks first (RFC 4253 section 4.2), perhaps some lines of text before its
//! identification, and in pieces of any size. Where rules ask for the KEXINIT the probe sends an
//! identification of its own with the connect, since many servers wait for one before their KEXINIT; else
//! only to who is silent for a while: multiplexers (sslh) don't know what they are asked for before.

use super::super::judge::{Judge, Known};
use super::super::{Conversation, Target};
use super::{Closed, Probe, Scene, Step};
use crate::banner::{KnownLines, Progress, Protocol, Side, SshBanner, kex, ssh};
use crate::event::Timestamp;

/// What the probe says it is.
const IDENTIFICATION: &[u8] = concat!("SSH-2.0-bannerwall_", env!("CARGO_PKG_VERSION"), "\r\n").as_bytes();
/// A banner's memory is kept for the next target up to this size.
const KEPT: usize = 1024;

/// Reads identifications, and the KEXINIT where a rule needs it.
#[derive(Debug)]
pub(in super::super) struct Ssh {
    judge: Judge,
    known: KnownLines<Known>,
    byte_limit: usize,
    /// The KEXINIT is read.
    kex: bool,
}

/// What one target has said so far.
#[derive(Debug)]
pub(in super::super) struct Said {
    collected: Vec<u8>,
    result: Conversation,
    over: bool,
    /// Our own identification is sent.
    greeted: bool,
}

impl Default for Said {
    fn default() -> Self {
        Self { collected: Vec::new(), result: Conversation::None, over: false, greeted: false }
    }
}

impl Ssh {
    /// Reads the KEXINIT where a rule asks for it, or `hassh` does.
    pub(in super::super) fn new(judge: Judge, byte_limit: usize, hassh: bool) -> Self {
        let kex = hassh || judge.rules().needs().kex;
        Self { judge, known: KnownLines::default(), byte_limit, kex }
    }

    /// Looks at what was collected; `last` when no more will come.
    fn look(&mut self, said: &mut Said, last: bool, scene: &mut Scene<'_>) -> Step {
        let (read, consumed) = match ssh::identify(Side::Server, &said.collected) {
            Progress::Done { value, consumed } => (value, consumed),
            Progress::Never(_) => return conclude(said, Conversation::Foreign),
            Progress::More if said.collected.len() >= self.byte_limit => {
                return conclude(said, Conversation::TooLong);
            }
            Progress::More => return Step::More,
        };
        let mut key_exchange = None;
        if self.kex {
            match kex::parse(said.collected.get(consumed..).unwrap_or_default()) {
                Progress::Done { value, .. } => key_exchange = Some(value),
                Progress::More if !last && said.collected.len() < self.byte_limit => return Step::More,
                Progress::More | Progress::Never(_) => {}
            }
        }
        let banner = SshBanner { from: Side::Server, identification: read.identification, kex: key_exchange };
        self.judge.anomalies(read.anomalies.iter(), Protocol::Ssh, scene);
        self.judge.ssh(&banner, &mut self.known, scene);
        conclude(said, Conversation::Complete)
    }
}

fn conclude(said: &mut Said, result: Conversation) -> Step {
    said.result = result;
    said.over = true;
    Step::Close
}

impl Probe for Ssh {
    type Session = Said;
    type Connection = ();

    const TALKS: bool = true;

    fn begin(&mut self, said: &mut Said, _target: &Target) {
        said.collected.clear();
        said.collected.shrink_to(KEPT);
        said.result = Conversation::None;
        said.over = false;
        said.greeted = false;
    }

    fn open(&mut self, said: &mut Said, (): &mut (), _target: &Target, _now: Timestamp, out: &mut Vec<u8>) {
        if self.kex {
            said.greeted = true;
            out.extend_from_slice(IDENTIFICATION);
        }
    }

    fn is_nudged(&self) -> bool {
        true
    }

    fn nudge(&mut self, said: &mut Said, (): &mut (), out: &mut Vec<u8>) {
        if !std::mem::replace(&mut said.greeted, true) {
            out.extend_from_slice(IDENTIFICATION);
        }
    }

    fn receive(
        &mut self,
        said: &mut Said,
        (): &mut (),
        octets: &[u8],
        _out: &mut Vec<u8>,
        scene: &mut Scene<'_>,
    ) -> Step {
        let room = self.byte_limit.saturating_sub(said.collected.len());
        said.collected.extend_from_slice(octets.get(..room).unwrap_or(octets));
        self.look(said, false, scene)
    }

    fn closed(&mut self, said: &mut Said, (): &mut (), how: Closed, scene: &mut Scene<'_>) {
        if said.over {
            return;
        }
        // The identification may be there, and only the KEXINIT missing.
        if self.look(said, true, scene) == Step::Close {
            return;
        }
        let text = !said.collected.is_empty() && !is_beginning(&said.collected);
        conclude(
            said,
            match how {
                _ if text => Conversation::Foreign,
                Closed::Here | Closed::Finished => Conversation::Ended,
                Closed::Reset => Conversation::Reset,
                Closed::Silent | Closed::Expired if said.collected.is_empty() => Conversation::Silent,
                Closed::Silent | Closed::Expired => Conversation::TimedOut,
                Closed::Failed(error) | Closed::Broke(error) => Conversation::Failed(error),
            },
        );
    }

    fn wanted(&self, said: &Said) -> usize {
        usize::from(!said.over)
    }

    fn result<'s>(&self, said: &'s Said) -> (Conversation, &'s [u8]) {
        (said.result, &said.collected)
    }
}

/// Whether octets are the beginning of an identification, behind whole lines or not.
fn is_beginning(collected: &[u8]) -> bool {
    let line = collected.get(ssh::settled(collected)..).unwrap_or_default();
    line.starts_with(ssh::PREFIX) || (!line.is_empty() && ssh::PREFIX.starts_with(line))
}
