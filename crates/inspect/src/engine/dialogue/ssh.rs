//! SSH: the identification of each side and, where it is wanted, its KEXINIT.

use std::sync::Arc;

use crate::banner::{Banner, Progress, SshBanner, kex, ssh};
use crate::event::{Application, Protocol, Side, SshFacts, SshSide};
use crate::rules::Stage;

use super::finding::{Finding, FoundBanner, Matched, ReadContext};
use super::need::Need;
use super::step::{Step, Turn};

/// What is known of the two sides.
#[derive(Debug, Default)]
pub struct Ssh {
    /// Nothing before a side was identified; shared with the events that tell it.
    facts: Option<Arc<SshFacts>>,
    is_told: bool,
}

/// How far one direction was read.
#[derive(Debug)]
pub enum Reading {
    /// Before the end of the identification.
    Identification,
    /// Behind this identification line and so many bytes of packets.
    Kex(Vec<u8>, usize),
}

impl Reading {
    /// Bytes of memory held.
    pub(super) const fn memory(&self) -> usize {
        match self {
            Self::Identification => 0,
            Self::Kex(line, _) => line.capacity(),
        }
    }
}

/// How a side is read on.
#[derive(Debug)]
pub enum Next {
    /// As SSH.
    Reading(Reading),
    /// All that is wanted of it was read.
    Done,
    /// It looked like an identification and is none.
    NotSsh,
}

impl Ssh {
    /// Reads an identification or, where it is wanted, the KEXINIT behind it.
    pub(super) fn read(
        &mut self,
        reading: Reading,
        turn: Turn<'_>,
        context: &mut ReadContext<'_>,
    ) -> Step<Next> {
        match reading {
            Reading::Identification => self.identify(turn, context),
            Reading::Kex(line, before) => self.exchange((line, before), turn, context),
        }
    }

    fn identify(&mut self, turn: Turn<'_>, context: &mut ReadContext<'_>) -> Step<Next> {
        let Turn { from, input, .. } = turn;
        match ssh::identify(from, input) {
            Progress::More => Step::Wait(Need::line(ssh::READ_LIMIT), Next::Reading(Reading::Identification)),
            Progress::Never(_) => Step::Used(input.len(), Next::NotSsh),
            Progress::Done { value, consumed } => {
                let wants_kex = context.settings.kex;
                self.take_identification(from, &value, wants_kex, context);
                let line = || value.identification.line.to_vec();
                let next = if wants_kex { Next::Reading(Reading::Kex(line(), 0)) } else { Next::Done };
                Step::Used(consumed, next)
            }
        }
    }

    /// True if nothing more is read where octets of a side are missing or its end has come; nothing changes
    /// before its identification was read.
    pub(super) fn end(&self, from: Side, reading: &Reading, context: &mut ReadContext<'_>) -> bool {
        let Reading::Kex(line, _) = reading else { return false };
        self.give_up_kex(from, line, context);
        true
    }

    /// Judges an identification that was read.
    fn take_identification(
        &mut self,
        from: Side,
        read: &ssh::SshRead<'_>,
        wants_kex: bool,
        context: &mut ReadContext<'_>,
    ) {
        context.find(Finding::Seen(Protocol::Ssh, from));
        context.note_all(read.anomalies);
        let banner = SshBanner { from, identification: read.identification, kex: None };
        let known = context.sink.identify(from, read.identification.line);
        *self.side_mut(from) = Some(known.side);
        if read.identification.line.contains(&b'\r') {
            // Dropbear's client leaves these out.
            self.suspect(from, &ssh::without_returns(read.identification.line), context);
        }
        let stage = if wants_kex { Stage::Head } else { Stage::Whole };
        if !known.indifferent || context.asks_policy {
            self.ask(banner, stage, context);
        }
    }

    /// Reads the packet at the start of the input, the KEXINIT or one that may precede it, behind the
    /// identification line and so many bytes of other packets.
    fn exchange(
        &mut self,
        (line, before): (Vec<u8>, usize),
        turn: Turn<'_>,
        context: &mut ReadContext<'_>,
    ) -> Step<Next> {
        let Turn { from, input, .. } = turn;
        let (kex, consumed) = match kex::packet(input) {
            kex::Packet::More(octets) => {
                return Step::Wait(Need::octets(octets), Next::Reading(Reading::Kex(line, before)));
            }
            kex::Packet::Other(octets) if before + octets < kex::PACKET_LIMIT => {
                return Step::Used(octets, Next::Reading(Reading::Kex(line, before + octets)));
            }
            kex::Packet::Other(_) | kex::Packet::Never(_) => (None, input.len()),
            kex::Packet::KexInit(value, octets) => (Some(value), octets),
        };
        if let Some(kex) = &kex
            && let Some(side) = self.side_mut(from)
        {
            Arc::make_mut(side).hassh = Some(kex.hassh_of(from));
        }
        let (identification, _) = ssh::parse_line(&line);
        self.ask(SshBanner { from, identification, kex }, Stage::Rest, context);
        Step::Used(consumed, Next::Done)
    }

    /// Judges a line that only some implementations take for an identification. What the side's
    /// identification is stays open.
    pub(super) fn suspect(&self, from: Side, line: &[u8], context: &mut ReadContext<'_>) {
        context.note_all(ssh::disputed());
        let (identification, _) = ssh::parse_line(line);
        // No KEXINIT is waited for behind it.
        self.ask(SshBanner { from, identification, kex: None }, Stage::Whole, context);
    }

    /// Judges a side whose KEXINIT will not come any more.
    fn give_up_kex(&self, from: Side, line: &[u8], context: &mut ReadContext<'_>) {
        // What matches nothing by itself matches nothing at its end.
        if !context.sink.identify(from, line).indifferent {
            let (identification, _) = ssh::parse_line(line);
            self.ask(SshBanner { from, identification, kex: None }, Stage::Rest, context);
        }
    }

    /// Tells what was seen, once; nothing if nothing was.
    pub(super) fn tell(&mut self, context: &mut ReadContext<'_>) {
        if !self.is_told
            && let Some(facts) = &self.facts
        {
            self.is_told = true;
            context.find(Finding::Exchange(Application::Ssh(Arc::clone(facts)), None));
        }
    }

    /// True if a side was identified.
    pub(super) fn knows(&self, from: Side) -> bool {
        self.side(from).is_some()
    }

    fn ask(&self, banner: SshBanner<'_>, stage: Stage, context: &mut ReadContext<'_>) {
        context.find(Finding::Banner(FoundBanner {
            product: self.side(banner.from).and_then(|side| side.fingerprint.as_ref()),
            banner: &Banner::Ssh(banner),
            stage,
            request: None,
            transaction: None,
            matched: &mut Matched::default(),
            facts: &|| Application::Ssh(self.facts.clone().unwrap_or_default()),
        }));
    }

    fn side(&self, from: Side) -> Option<&SshSide> {
        let facts = self.facts.as_ref()?;
        match from {
            Side::Client => facts.client.as_deref(),
            Side::Server => facts.server.as_deref(),
        }
    }

    /// What is known of a side, to be changed.
    fn side_mut(&mut self, from: Side) -> &mut Option<Arc<SshSide>> {
        let facts = Arc::make_mut(self.facts.get_or_insert_default());
        match from {
            Side::Client => &mut facts.client,
            Side::Server => &mut facts.server,
        }
    }
}

/// True if `octets` begin an identification, as far as they go.
pub(super) fn begins_identification(octets: &[u8]) -> bool {
    octets.starts_with(ssh::PREFIX) || ssh::PREFIX.starts_with(octets)
}

/// Where a line begins in `input` that is an identification, as far as it goes.
pub(super) fn identification_line(input: &[u8], amid_line: bool) -> Option<usize> {
    let begins = |at: &usize| {
        let rest = input.get(*at..).unwrap_or_default();
        !rest.is_empty() && begins_identification(rest)
    };
    let starts = memchr::memchr_iter(b'\n', input).map(|end| end + 1);
    (!amid_line).then_some(0).into_iter().chain(starts).find(begins)
}
