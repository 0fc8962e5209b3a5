//! The first octets of both sides: what rules about anything that is not read are asked about, and what
//! the event says of a flow in which nothing was recognised.

use std::sync::Arc;

use crate::banner::other::{FIRST_OCTETS, Naming, OtherBanner, UNKNOWN, name, settle};
use crate::banner::{Banner, Progress, Recognition, greeting, recognise, ssh};
use crate::engine::judge::{Judge, Matched, Question};
use crate::event::{Application, EventKind, OtherFacts, Protocol, Side};
use crate::rules::Stage;

/// What each side said first.
#[derive(Debug, Default)]
pub(super) struct First {
    client: Vec<u8>,
    server: Vec<u8>,
    /// Who spoke first.
    pub(super) from: Option<Side>,
    /// How many octets of client and server the rules were asked about, and which matched.
    asked: [usize; 2],
    matched: Matched,
    /// The flow was told as one that is not read.
    told: bool,
}

impl First {
    /// Takes the next octets of a side; those behind the first [`FIRST_OCTETS`] are let go.
    pub(super) fn hear(&mut self, from: Side, octets: &[u8]) {
        if octets.is_empty() {
            return;
        }
        self.from.get_or_insert(from);
        let kept = self.of_mut(from);
        let room = FIRST_OCTETS.saturating_sub(kept.len());
        kept.extend_from_slice(octets.get(..room).unwrap_or(octets));
    }

    /// What a side said first.
    pub(super) fn of(&self, side: Side) -> &[u8] {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }

    /// A side begins afresh.
    pub(super) fn forget(&mut self, side: Side) {
        self.of_mut(side).clear();
        *self.asked_mut(side) = 0;
    }

    /// Forgets all but the room.
    pub(super) fn recycle(&mut self) -> Self {
        let mut fresh = Self {
            client: std::mem::take(&mut self.client),
            server: std::mem::take(&mut self.server),
            ..Self::default()
        };
        fresh.client.clear();
        fresh.server.clear();
        fresh
    }

    /// Whether more octets would not change what the flow is called.
    pub(super) fn is_settled(&self) -> bool {
        let Some(first) = self.from else { return true };
        match name(first, self.of(first)) {
            Naming::Named(_) => true,
            Naming::More => self.of(first).len() >= FIRST_OCTETS,
            Naming::Unknown => {
                let other = self.of(first.other());
                other.is_empty() || name(first.other(), other) != Naming::More
            }
        }
    }

    /// Asks the rules about a side whose first octets have a name, as often as there are more of them.
    pub(super) fn ask_named(&mut self, judge: &mut Judge<'_>) {
        for side in [Side::Client, Side::Server] {
            if matches!(name(side, self.of(side)), Naming::Named(_)) {
                self.ask(side, judge);
            }
        }
    }

    /// Nothing was recognised: tells the flow by its first octets, once, and asks the rules about what they
    /// were not asked about.
    pub(super) fn conclude(&mut self, judge: &mut Judge<'_>) {
        if self.told || self.from.is_none() {
            return;
        }
        self.told = true;
        let facts = Arc::new(self.facts());
        if let Some(from) = facts.from {
            judge.desk.counters.count_banner(Protocol::Other, from);
        }
        judge.emit(EventKind::Application(Application::Other(facts)), None, Some(Protocol::Other), None);
        for side in [Side::Client, Side::Server] {
            self.ask(side, judge);
        }
    }

    /// Asks the rules about all that a side said first, where that is more than before.
    fn ask(&mut self, side: Side, judge: &mut Judge<'_>) {
        let length = self.of(side).len();
        if std::mem::replace(self.asked_mut(side), length) >= length || !judge.law.rules.needs().other {
            return;
        }
        let mut matched = std::mem::take(&mut self.matched);
        let question = Question {
            banner: &Banner::Other(OtherBanner::settled(side, self.of(side))),
            stage: Stage::Whole,
            request: None,
            product: None,
            transaction: None,
        };
        judge.ask(&question, &mut matched, || Application::Other(Arc::new(self.facts())));
        self.matched = matched;
    }

    /// What events say: the name that either side's octets have, the first speaker's before the other's.
    pub(super) fn facts(&self) -> OtherFacts {
        let first = self.from.unwrap_or(Side::Client);
        let named = |side: Side| settle(side, self.of(side)).map(|name| (side, name.name()));
        let (from, name) = named(first).or_else(|| named(first.other())).unwrap_or((first, UNKNOWN));
        self.facts_as(from, name)
    }

    /// The same where what is read otherwise has a name, too: for a flow that a policy does not allow.
    pub(super) fn facts_of_any(&self, port: u16) -> OtherFacts {
        let facts = self.facts();
        if facts.name != UNKNOWN {
            return facts;
        }
        let first = self.from.unwrap_or(Side::Client);
        let read = [first, first.other()].into_iter().find_map(|side| {
            let name = read_protocol(side, self.of(side), port)?;
            Some((side, name))
        });
        read.map_or(facts, |(side, name)| self.facts_as(side, name))
    }

    fn facts_as(&self, from: Side, name: &'static str) -> OtherFacts {
        let told = |side| self.of(side).iter().copied().take(OtherFacts::TOLD).collect();
        OtherFacts { name, from: Some(from), client: told(Side::Client), server: told(Side::Server) }
    }

    pub(super) fn memory(&self) -> usize {
        self.client.capacity() + self.server.capacity()
    }

    const fn asked_mut(&mut self, side: Side) -> &mut usize {
        let [client, server] = &mut self.asked;
        match side {
            Side::Client => client,
            Side::Server => server,
        }
    }

    const fn of_mut(&mut self, side: Side) -> &mut Vec<u8> {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }
}

/// The name of a protocol that is read, where first octets tell it.
fn read_protocol(side: Side, octets: &[u8], port: u16) -> Option<&'static str> {
    if octets.starts_with(ssh::PREFIX) {
        return Some(Protocol::Ssh.name());
    }
    if recognise(side, octets) == Recognition::Http {
        return Some(Protocol::Http.name());
    }
    match (side, greeting::parse(octets, port)) {
        (Side::Server, Progress::Done { value, .. }) => Some(value.greeting.name()),
        _ => None,
    }
}
