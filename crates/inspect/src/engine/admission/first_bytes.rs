//! The first bytes of both sides: what rules about anything that is not read are asked about, and what
//! the event says of a flow in which nothing was recognised.

use std::sync::Arc;

use crate::banner::unread_protocols::{FIRST_OCTETS, OtherBanner, ProtocolNaming, UNKNOWN, name, settle};
use crate::banner::{Banner, ParseProgress, ProtocolRecognition, greeting, recognise, ssh};
use crate::engine::banner_inspector::BannerInspector;
use crate::engine::dialogue::{DialogueFinding, FindingSink, FoundBanner, MatchedRules};
use crate::event::{ApplicationFacts, OtherFacts, Protocol, Side};
use crate::rules::BannerStage;

/// The first bytes of each side.
#[derive(Debug, Default)]
pub(super) struct FirstBytes {
    client: SideBytes,
    server: SideBytes,
    /// The side that spoke first.
    pub(super) from: Option<Side>,
    /// The rules that matched.
    matched: MatchedRules,
    /// The flow was told as one that is not read.
    told: bool,
}

/// The first bytes of one side.
#[derive(Debug)]
struct SideBytes {
    octets: Vec<u8>,
    /// The name of the first bytes; final, except for [`ProtocolNaming::More`].
    naming: ProtocolNaming,
    looked: usize,
    /// Number of bytes that the rules have seen.
    asked: usize,
}

impl Default for SideBytes {
    fn default() -> Self {
        Self { octets: Vec::new(), naming: ProtocolNaming::More, looked: 0, asked: 0 }
    }
}

impl SideBytes {
    /// Returns the name of the bytes, and determines it again if there are more of them than the last time.
    fn naming(&mut self, from: Side) -> ProtocolNaming {
        if self.naming == ProtocolNaming::More && self.looked < self.octets.len() {
            self.looked = self.octets.len();
            self.naming = name(from, &self.octets);
        }
        self.naming
    }

    /// Forgets all but the room.
    fn recycle(&mut self) -> Self {
        let mut octets = std::mem::take(&mut self.octets);
        octets.clear();
        Self { octets, ..Self::default() }
    }
}

impl FirstBytes {
    /// Takes the next bytes of a side; those behind the first [`FIRST_OCTETS`] are let go.
    pub(super) fn take_bytes(&mut self, from: Side, octets: &[u8]) {
        if octets.is_empty() {
            return;
        }
        self.from.get_or_insert(from);
        let kept = &mut self.side_mut(from).octets;
        let room = FIRST_OCTETS.saturating_sub(kept.len());
        kept.extend_from_slice(octets.get(..room).unwrap_or(octets));
    }

    /// Returns the first bytes of a side.
    pub(super) fn of(&self, side: Side) -> &[u8] {
        match side {
            Side::Client => &self.client.octets,
            Side::Server => &self.server.octets,
        }
    }

    /// Returns the name of a side's bytes.
    pub(super) fn naming(&mut self, side: Side) -> ProtocolNaming {
        self.side_mut(side).naming(side)
    }

    /// A side begins afresh.
    pub(super) fn forget(&mut self, side: Side) {
        let heard = self.side_mut(side);
        *heard = heard.recycle();
    }

    /// Forgets all but the room.
    pub(super) fn recycle(&mut self) -> Self {
        Self { client: self.client.recycle(), server: self.server.recycle(), ..Self::default() }
    }

    /// True if more bytes would not change what the flow is called.
    pub(super) fn is_settled(&mut self) -> bool {
        let Some(first) = self.from else { return true };
        match self.naming(first) {
            ProtocolNaming::Named(_) => true,
            ProtocolNaming::More => self.of(first).len() >= FIRST_OCTETS,
            ProtocolNaming::Unknown => {
                let other = first.other();
                self.of(other).is_empty() || self.naming(other) != ProtocolNaming::More
            }
        }
    }

    /// Asks the rules about a side whose first bytes have a name, as often as there are more of them.
    pub(super) fn ask_named(&mut self, judge: &mut BannerInspector<'_>) {
        for side in [Side::Client, Side::Server] {
            if matches!(self.naming(side), ProtocolNaming::Named(_)) {
                self.ask(side, judge);
            }
        }
    }

    /// Nothing was recognised: tells the flow by its first bytes, once, and asks the rules about what they
    /// were not asked about.
    pub(super) fn conclude(&mut self, judge: &mut BannerInspector<'_>) {
        if self.told || self.from.is_none() {
            return;
        }
        self.told = true;
        let facts = Arc::new(self.facts());
        if let Some(from) = facts.from {
            judge.take(DialogueFinding::Seen(Protocol::Other, from));
        }
        judge.take(DialogueFinding::Exchange(ApplicationFacts::Other(facts), None));
        for side in [Side::Client, Side::Server] {
            self.ask(side, judge);
        }
    }

    /// Asks the rules about all that a side said first, where that is more than before.
    fn ask(&mut self, side: Side, judge: &mut BannerInspector<'_>) {
        let length = self.of(side).len();
        if std::mem::replace(&mut self.side_mut(side).asked, length) >= length
            || !judge.settings.rules.needs().other
        {
            return;
        }
        let mut matched = std::mem::take(&mut self.matched);
        judge.take(DialogueFinding::Banner(FoundBanner {
            banner: &Banner::Other(OtherBanner::settled(side, self.of(side))),
            stage: BannerStage::Whole,
            request: None,
            product: None,
            transaction: None,
            matched: &mut matched,
            facts: &|| ApplicationFacts::Other(Arc::new(self.facts())),
        }));
        self.matched = matched;
    }

    /// Returns the facts for events: the name of either side's bytes, with the first speaker's before the
    /// other's.
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
        self.client.octets.capacity() + self.server.octets.capacity()
    }

    const fn side_mut(&mut self, side: Side) -> &mut SideBytes {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }
}

/// The name of a protocol that is read, where first bytes tell it.
fn read_protocol(side: Side, octets: &[u8], port: u16) -> Option<&'static str> {
    if octets.starts_with(ssh::PREFIX) {
        return Some(Protocol::Ssh.name());
    }
    if recognise(side, octets) == ProtocolRecognition::Http {
        return Some(Protocol::Http.name());
    }
    match (side, greeting::parse(octets, port)) {
        (Side::Server, ParseProgress::Done { value, .. }) => Some(value.greeting.name()),
        _ => None,
    }
}
