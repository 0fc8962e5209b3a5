//! One direction of an SSH connection: its identification and, where it is wanted, its KEXINIT.

use std::sync::Arc;

use crate::banner::{Banner, Progress, SshBanner, kex, ssh};
use crate::event::{Application, EventKind, Protocol, Side, SshFacts, SshSide};
use crate::rules::Stage;

use super::judge::{Judge, Question};

/// What is known of the two sides.
#[derive(Debug, Default)]
pub(super) struct Ssh {
    facts: SshFacts,
    /// Whether the client and the server were identified.
    known: [bool; 2],
    told: bool,
}

/// How far one direction came.
#[derive(Debug)]
pub(super) enum Reached {
    /// More octets are needed.
    More,
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
            Progress::More => return Reached::More,
            Progress::Never(_) => return Reached::Never,
            Progress::Done { value, consumed } => (value, consumed),
        };
        judge.counters.count_banner(Protocol::Ssh, from);
        judge.note_message(read.anomalies);
        let wants_kex = judge.config.collect_kex || judge.rules.needs().kex;
        let banner = SshBanner { from, identification: read.identification, kex: None };
        let known = judge.familiar.know(&banner, judge.rules, judge.fingerprints);
        self.put(from, known.side);
        if !known.indifferent {
            self.ask(banner, if wants_kex { Stage::Head } else { Stage::Whole }, judge);
        }
        if wants_kex {
            Reached::Identified(consumed, Some(read.identification.line.to_vec()))
        } else {
            Reached::Finished(consumed)
        }
    }

    /// Reads the KEXINIT at the start of `input`, behind the identification `line`.
    pub(super) fn exchange(
        &mut self,
        from: Side,
        line: &[u8],
        input: &[u8],
        judge: &mut Judge<'_>,
    ) -> Reached {
        let (identification, _) = ssh::parse_line(line);
        let (kex, consumed) = match kex::parse(input) {
            Progress::More => return Reached::More,
            Progress::Never(_) => (None, input.len()),
            Progress::Done { value, consumed } => (Some(value), consumed),
        };
        if let (Some(kex), Some(side)) = (&kex, self.side_mut(from)) {
            side.hassh = Some(kex.hassh_of(from));
        }
        self.ask(SshBanner { from, identification, kex }, Stage::Rest, judge);
        Reached::Finished(consumed)
    }

    /// Judges a side whose KEXINIT will not come any more.
    pub(super) fn give_up_kex(&mut self, from: Side, line: &[u8], judge: &mut Judge<'_>) {
        let (identification, _) = ssh::parse_line(line);
        self.ask(SshBanner { from, identification, kex: None }, Stage::Rest, judge);
    }

    /// Tells what was seen, once; nothing if nothing was.
    pub(super) fn tell(&mut self, judge: &mut Judge<'_>) {
        if !self.told {
            let facts = self.facts.clone();
            self.emit(facts, judge);
        }
    }

    /// As [`Ssh::tell`], where nothing more will be asked about what was seen.
    pub(super) fn tell_at_last(&mut self, judge: &mut Judge<'_>) {
        let facts = std::mem::take(&mut self.facts);
        self.emit(facts, judge);
    }

    fn emit(&mut self, facts: SshFacts, judge: &mut Judge<'_>) {
        if !self.told && self.known.contains(&true) {
            self.told = true;
            judge.emit(EventKind::Ssh(Arc::new(facts)), None, Some(Protocol::Ssh), None);
        }
    }

    /// Whether a side was identified.
    pub(super) const fn knows(&self, from: Side) -> bool {
        let [client, server] = self.known;
        match from {
            Side::Client => client,
            Side::Server => server,
        }
    }

    fn ask(&self, banner: SshBanner<'_>, stage: Stage, judge: &mut Judge<'_>) {
        let side = match banner.from {
            Side::Client => &self.facts.client,
            Side::Server => &self.facts.server,
        };
        let product = side.as_ref().and_then(|side| side.fingerprint.as_ref());
        let banner = Banner::Ssh(banner);
        let question = Question { banner: &banner, stage, request: None, product, transaction: None };
        judge.ask(&question, || Application::Ssh(Arc::new(self.facts.clone())));
    }

    fn put(&mut self, from: Side, side: SshSide) {
        let [client, server] = &mut self.known;
        match from {
            Side::Client => (*client, self.facts.client) = (true, Some(side)),
            Side::Server => (*server, self.facts.server) = (true, Some(side)),
        }
    }

    const fn side_mut(&mut self, from: Side) -> Option<&mut SshSide> {
        match from {
            Side::Client => self.facts.client.as_mut(),
            Side::Server => self.facts.server.as_mut(),
        }
    }
}
