//! SSH: the identification of each side and, where it is wanted, its KEXINIT.

use std::sync::Arc;

use crate::banner::{Banner, ParseProgress, SshBanner, kexinit, ssh};
use crate::event::{ApplicationFacts, Protocol, Side, SshFacts, SshSide};
use crate::rules::BannerStage;

use super::awaited_input::InputNeed;
use super::finding::{DialogueFinding, FoundBanner, MatchedRules, ReadContext};
use super::read_step::{DialogueInput, ReadStep};

/// The facts about both sides.
#[derive(Debug, Default)]
pub struct SshState {
    /// Nothing before a side was identified; shared with the events that tell it.
    facts: Option<Arc<SshFacts>>,
    is_told: bool,
}

/// The progress in one direction.
#[derive(Debug)]
pub enum SshReading {
    /// Before the end of the identification.
    Identification,
    /// Behind this identification line and so many bytes of packets.
    Kex(Vec<u8>, usize),
}

impl SshReading {
    /// Bytes of memory held.
    pub(super) const fn memory(&self) -> usize {
        match self {
            Self::Identification => 0,
            Self::Kex(line, _) => line.capacity(),
        }
    }
}

/// The next reading of a side.
#[derive(Debug)]
pub enum SshNext {
    /// As SSH.
    Reading(SshReading),
    /// All that is wanted of it was read.
    Done,
    /// It looked like an identification and is none.
    NotSsh,
}

impl SshState {
    /// Reads an identification or, where it is wanted, the KEXINIT behind it.
    pub(super) fn read(
        &mut self,
        reading: SshReading,
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> ReadStep<SshNext> {
        match reading {
            SshReading::Identification => self.identify(turn, context),
            SshReading::Kex(line, before) => self.exchange((line, before), turn, context),
        }
    }

    fn identify(&mut self, turn: DialogueInput<'_>, context: &mut ReadContext<'_>) -> ReadStep<SshNext> {
        let DialogueInput { from, input, .. } = turn;
        match ssh::identify(from, input) {
            ParseProgress::More => {
                ReadStep::Wait(InputNeed::line(ssh::READ_LIMIT), SshNext::Reading(SshReading::Identification))
            }
            ParseProgress::Never(_) => ReadStep::Used(input.len(), SshNext::NotSsh),
            ParseProgress::Done { value, consumed } => {
                let wants_kex = context.settings.kex;
                self.take_identification(from, &value, wants_kex, context);
                let line = || value.identification.line.to_vec();
                let next =
                    if wants_kex { SshNext::Reading(SshReading::Kex(line(), 0)) } else { SshNext::Done };
                ReadStep::Used(consumed, next)
            }
        }
    }

    /// True if nothing more is read where octets of a side are missing or its end has come; nothing changes
    /// before its identification was read.
    pub(super) fn end(&self, from: Side, reading: &SshReading, context: &mut ReadContext<'_>) -> bool {
        let SshReading::Kex(line, _) = reading else { return false };
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
        context.find(DialogueFinding::Seen(Protocol::Ssh, from));
        context.note_all(read.anomalies);
        let banner = SshBanner { from, identification: read.identification, kex: None };
        let known = context.sink.identify(from, read.identification.line);
        *self.side_mut(from) = Some(known.side);
        if read.identification.line.contains(&b'\r') {
            // Dropbear's client leaves these out.
            self.judge_disputed_line(from, &ssh::without_returns(read.identification.line), context);
        }
        let stage = if wants_kex { BannerStage::Head } else { BannerStage::Whole };
        if !known.indifferent || context.asks_policy {
            self.ask(banner, stage, context);
        }
    }

    /// Reads the packet at the start of the input, the KEXINIT or one that may precede it, behind the
    /// identification line and so many bytes of other packets.
    fn exchange(
        &mut self,
        (line, before): (Vec<u8>, usize),
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> ReadStep<SshNext> {
        let DialogueInput { from, input, .. } = turn;
        let (kex, consumed) = match kexinit::packet(input) {
            kexinit::KexPacket::More(octets) => {
                return ReadStep::Wait(
                    InputNeed::octets(octets),
                    SshNext::Reading(SshReading::Kex(line, before)),
                );
            }
            kexinit::KexPacket::Other(octets) if before + octets < kexinit::PACKET_LIMIT => {
                return ReadStep::Used(octets, SshNext::Reading(SshReading::Kex(line, before + octets)));
            }
            kexinit::KexPacket::Other(_) | kexinit::KexPacket::Never(_) => (None, input.len()),
            kexinit::KexPacket::KexInit(value, octets) => (Some(value), octets),
        };
        if let Some(kex) = &kex
            && let Some(side) = self.side_mut(from)
        {
            Arc::make_mut(side).hassh = Some(kex.hassh_of(from));
        }
        let (identification, _) = ssh::parse_line(&line);
        self.ask(SshBanner { from, identification, kex }, BannerStage::Rest, context);
        ReadStep::Used(consumed, SshNext::Done)
    }

    /// Judges a line that only some implementations take for an identification. What the side's
    /// identification is stays open.
    pub(super) fn judge_disputed_line(&self, from: Side, line: &[u8], context: &mut ReadContext<'_>) {
        context.note_all(ssh::disputed());
        let (identification, _) = ssh::parse_line(line);
        // No KEXINIT is waited for behind it.
        self.ask(SshBanner { from, identification, kex: None }, BannerStage::Whole, context);
    }

    /// Judges a side whose KEXINIT will not come any more.
    fn give_up_kex(&self, from: Side, line: &[u8], context: &mut ReadContext<'_>) {
        // What matches nothing by itself matches nothing at its end.
        if !context.sink.identify(from, line).indifferent {
            let (identification, _) = ssh::parse_line(line);
            self.ask(SshBanner { from, identification, kex: None }, BannerStage::Rest, context);
        }
    }

    /// Tells what was seen, once; nothing if nothing was.
    pub(super) fn emit(&mut self, context: &mut ReadContext<'_>) {
        if !self.is_told
            && let Some(facts) = &self.facts
        {
            self.is_told = true;
            context.find(DialogueFinding::Exchange(ApplicationFacts::Ssh(Arc::clone(facts)), None));
        }
    }

    /// True if a side was identified.
    pub(super) fn is_identified(&self, from: Side) -> bool {
        self.side(from).is_some()
    }

    fn ask(&self, banner: SshBanner<'_>, stage: BannerStage, context: &mut ReadContext<'_>) {
        context.find(DialogueFinding::Banner(FoundBanner {
            product: self.side(banner.from).and_then(|side| side.fingerprint.as_ref()),
            banner: &Banner::Ssh(banner),
            stage,
            request: None,
            transaction: None,
            matched: &mut MatchedRules::default(),
            facts: &|| ApplicationFacts::Ssh(self.facts.clone().unwrap_or_default()),
        }));
    }

    fn side(&self, from: Side) -> Option<&SshSide> {
        let facts = self.facts.as_ref()?;
        match from {
            Side::Client => facts.client.as_deref(),
            Side::Server => facts.server.as_deref(),
        }
    }

    /// Returns the mutable facts about a side.
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

/// Returns the start of the line in `input` that is an identification, as far as it goes.
pub(super) fn identification_line(input: &[u8], amid_line: bool) -> Option<usize> {
    let begins = |at: &usize| {
        let rest = input.get(*at..).unwrap_or_default();
        !rest.is_empty() && begins_identification(rest)
    };
    let starts = memchr::memchr_iter(b'\n', input).map(|end| end + 1);
    (!amid_line).then_some(0).into_iter().chain(starts).find(begins)
}
