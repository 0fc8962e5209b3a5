//! One direction of an SSH connection: its identification and, where it is wanted, its KEXINIT.

use std::sync::Arc;

use crate::banner::{Banner, Progress, SshBanner, kex, ssh};
use crate::event::{Application, EventKind, Protocol, Side, SshFacts, SshSide};
use crate::rules::Stage;

use super::judge::{Judge, Matched, Question};

/// What is known of the two sides.
#[derive(Debug, Default)]
pub(super) struct Ssh {
    /// Nothing before a side was identified; shared with the events that tell it.
    facts: Option<Arc<SshFacts>>,
    told: bool,
}

/// How far one direction came.
#[derive(Debug)]
pub(super) enum Reached {
    /// More octets are needed: a line end, or so many in all.
    Line(usize),
    /// So many octets are needed in all.
    Octets(usize),
    /// So many octets were gone over that may come before the KEXINIT.
    Skipped(usize),
    /// The identification was read: so many octets, and the line where the KEXINIT is wanted, too.
    Identified(usize, Option<Vec<u8>>),
    /// Nothing more is wanted.
    Finished(usize),
    /// It was not SSH after all.
    Never,
}

impl Ssh {
    /// Reads the identification at the start of `input`.
    pub(super) fn identify(&mut self, from: Side, input: &[u8], judge: &mut Judge<'_>) -> Reached {
        let (read, consumed) = match ssh::identify(from, input) {
            Progress::More => return Reached::Line(ssh::READ_LIMIT),
            Progress::Never(_) => return Reached::Never,
            Progress::Done { value, consumed } => (value, consumed),
        };
        judge.desk.counters.count_banner(Protocol::Ssh, from);
        judge.note_message(read.anomalies);
        let wants_kex = judge.law.config.collect_kex || judge.law.rules.needs().kex;
        let banner = SshBanner { from, identification: read.identification, kex: None };
        let known = judge.desk.familiar.know(&banner, &judge.law.rules, judge.law.fingerprints());
        *self.side_mut(from) = Some(known.side);
        if read.identification.line.contains(&b'\r') {
            // Dropbear's client leaves these out.
            let line: Vec<u8> = read.identification.line.iter().copied().filter(|it| *it != b'\r').collect();
            self.suspect(from, &line, judge);
        }
        if !known.indifferent {
            self.ask(banner, if wants_kex { Stage::Head } else { Stage::Whole }, judge);
        }
        if wants_kex {
            Reached::Identified(consumed, Some(read.identification.line.to_vec()))
        } else {
            Reached::Finished(consumed)
        }
    }

    /// Reads the packet at the start of `input`, the KEXINIT or one that may precede it, behind the
    /// identification `line` and `before` octets of other packets.
    pub(super) fn exchange(
        &mut self,
        from: Side,
        line: &[u8],
        before: usize,
        input: &[u8],
        judge: &mut Judge<'_>,
    ) -> Reached {
        let (identification, _) = ssh::parse_line(line);
        let (kex, consumed) = match kex::packet(input) {
            kex::Packet::More(octets) => return Reached::Octets(octets),
            kex::Packet::Other(octets) if before + octets < kex::PACKET_LIMIT => {
                return Reached::Skipped(octets);
            }
            kex::Packet::Other(_) | kex::Packet::Never(_) => (None, input.len()),
            kex::Packet::KexInit(value, octets) => (Some(value), octets),
        };
        if let Some(kex) = &kex
            && let Some(side) = self.side_mut(from)
        {
            side.hassh = Some(kex.hassh_of(from));
        }
        self.ask(SshBanner { from, identification, kex }, Stage::Rest, judge);
        Reached::Finished(consumed)
    }

    /// Judges a line that only some implementations take for an identification. What the side's
    /// identification is stays open.
    pub(super) fn suspect(&self, from: Side, line: &[u8], judge: &mut Judge<'_>) {
        judge.note_message(ssh::disputed());
        let (identification, _) = ssh::parse_line(line);
        self.ask(SshBanner { from, identification, kex: None }, Stage::Head, judge);
    }

    /// Judges a side whose KEXINIT will not come any more.
    pub(super) fn give_up_kex(&mut self, from: Side, line: &[u8], judge: &mut Judge<'_>) {
        let (identification, _) = ssh::parse_line(line);
        self.ask(SshBanner { from, identification, kex: None }, Stage::Rest, judge);
    }

    /// Tells what was seen, once; nothing if nothing was.
    pub(super) fn tell(&mut self, judge: &mut Judge<'_>) {
        if !self.told
            && let Some(facts) = &self.facts
        {
            self.told = true;
            judge.emit(
                EventKind::Application(Application::Ssh(Arc::clone(facts))),
                None,
                Some(Protocol::Ssh),
                None,
            );
        }
    }

    /// Whether a side was identified.
    pub(super) fn knows(&self, from: Side) -> bool {
        self.side(from).is_some()
    }

    fn ask(&self, banner: SshBanner<'_>, stage: Stage, judge: &mut Judge<'_>) {
        let product = self.side(banner.from).and_then(|side| side.fingerprint.as_ref());
        let banner = Banner::Ssh(banner);
        let question = Question { banner: &banner, stage, request: None, product, transaction: None };
        judge.ask(&question, &mut Matched::default(), || {
            Application::Ssh(self.facts.clone().unwrap_or_default())
        });
    }

    fn side(&self, from: Side) -> Option<&SshSide> {
        let facts = self.facts.as_ref()?;
        match from {
            Side::Client => facts.client.as_ref(),
            Side::Server => facts.server.as_ref(),
        }
    }

    /// What is known of a side, to be changed.
    fn side_mut(&mut self, from: Side) -> &mut Option<SshSide> {
        let facts = Arc::make_mut(self.facts.get_or_insert_default());
        match from {
            Side::Client => &mut facts.client,
            Side::Server => &mut facts.server,
        }
    }
}
