//! The dialogue that a flow would be if its server were the client.
//!
//! The client of a connection whose SYN was not seen is a guess, by ports and by what the first bytes look
//! like. Until what both ends say shows it, their bytes are read in both roles, and rules are asked about the
//! banners of either. Events come from the guessed roles alone. If the guess turns out to be wrong, the flow
//! takes these roles, with the events and the admission that waited here.

use std::sync::Arc;

use super::admission::FlowAdmission;
use super::banner_inspector::BannerInspector;
use super::dialogue::{Dialogue, UnfinishedReason};
use super::flow_facts::FlowFacts;
use crate::event::{ApplicationFacts, Protocol, Side};
use crate::rules::{Policy, PolicyRuleResult, RuleSet};

/// Events that wait for each flow at most: roles show with the first answer.
const WAITING: usize = 8;

/// A flow's bytes as they are read in the other roles. All sides are those of the guessed roles.
#[derive(Debug, Default)]
pub(super) struct MirroredRoles {
    pub(super) dialogue: Dialogue,
    /// Unread bytes of each side, the guessed client first.
    pub(super) unread: [Vec<u8>; 2],
    /// The admission in these roles; it stops nothing before the roles are shown.
    pub(super) admission: FlowAdmission,
    pub(super) waiting: WaitingFindings,
}

/// Findings that become events if the roles are the true ones. Sides are those of these roles.
#[derive(Debug, Default)]
pub(super) struct WaitingFindings {
    pub(super) seen: Vec<(Protocol, Side)>,
    pub(super) exchanges: Vec<(ApplicationFacts, Option<u32>)>,
    /// The policy of these roles whose rules must be asked about every banner, and what they said.
    pub(super) asks: Option<Arc<Policy>>,
    pub(super) opinions: Vec<(usize, PolicyRuleResult)>,
}

impl WaitingFindings {
    pub(super) fn add_seen(&mut self, protocol: Protocol, from: Side) {
        if self.seen.len() < WAITING {
            self.seen.push((protocol, from));
        }
    }

    pub(super) fn add_exchange(&mut self, said: ApplicationFacts, transaction: Option<u32>) {
        if self.exchanges.len() < WAITING {
            self.exchanges.push((said, transaction));
        }
    }
}

impl MirroredRoles {
    /// Starts to read a flow whose guessed roles are those of `flow`.
    pub(super) fn new(rules: &RuleSet, flow: FlowFacts) -> Self {
        let mut admission = FlowAdmission::default();
        admission.begin(rules, || flow.mirrored().endpoints(), false);
        let waiting = WaitingFindings { asks: admission.policy_with_rules(), ..WaitingFindings::default() };
        Self { admission, waiting, ..Self::default() }
    }

    /// True if both ends have shown that these roles are the true ones.
    pub(super) fn are_shown(&self) -> bool {
        self.dialogue.shows_roles()
    }

    /// Takes the next bytes of one side.
    pub(super) fn take_bytes(&mut self, from: Side, octets: &[u8], judge: &mut BannerInspector<'_>) {
        if octets.is_empty() {
            return;
        }
        self.admission.take_bytes(from.other(), octets);
        self.read_as(from, judge, |dialogue, own, peer, judge| {
            own.extend_from_slice(octets);
            let used = dialogue.read(from.other(), own, peer, &mut judge.reading());
            own.drain(..used.min(own.len()));
        });
        self.admission.narrow(&mut self.waiting.opinions, judge);
    }

    /// Goes over `count` bytes of one side that are missing for good.
    pub(super) fn pass_over(&mut self, from: Side, count: u64, judge: &mut BannerInspector<'_>) {
        self.read_unfinished(from, UnfinishedReason::Unseen, judge);
        self.read_as(from, judge, |dialogue, own, peer, judge| {
            own.clear();
            dialogue.pass_over(from.other(), count, peer, &mut judge.reading());
        });
    }

    /// Reads the known part of a message whose end will not come.
    pub(super) fn read_unfinished(
        &mut self,
        from: Side,
        why: UnfinishedReason,
        judge: &mut BannerInspector<'_>,
    ) {
        self.read_as(from, judge, |dialogue, own, _, judge| {
            dialogue.read_unfinished(from.other(), own, why, &mut judge.reading());
        });
    }

    /// One side has said all, and that is certain.
    pub(super) fn end(&mut self, from: Side, judge: &mut BannerInspector<'_>) {
        self.read_as(from, judge, |dialogue, _, _, judge| dialogue.end(from.other(), &mut judge.reading()));
    }

    /// Starts one side again: its receiver did not accept its bytes.
    pub(super) fn rewind(&mut self, from: Side) {
        let (_, own, _) = parts(&mut self.dialogue, &mut self.unread, from);
        own.clear();
        self.dialogue.rewind(from.other());
    }

    /// True if nothing more is to be read of one side.
    pub(super) fn is_done(&self, from: Side) -> bool {
        self.dialogue.is_done(from.other())
    }

    /// True if `count` bytes of one side may be missing without harm.
    pub(super) fn can_spare(&self, from: Side, count: u64) -> bool {
        self.dialogue.can_spare(from.other(), count)
    }

    /// Bytes of memory held, roughly.
    pub(super) fn memory(&self) -> usize {
        let [client, server] = &self.unread;
        let unread = client.capacity() + server.capacity();
        let waiting: usize = self.waiting.exchanges.iter().map(|(said, _)| said.weight()).sum();
        size_of::<Self>() + unread + waiting + self.dialogue.memory() + self.admission.memory()
    }

    /// Reads by the dialogue, with the unread bytes of one side and those of the other.
    fn read_as(
        &mut self,
        from: Side,
        judge: &mut BannerInspector<'_>,
        read: impl FnOnce(&mut Dialogue, &mut Vec<u8>, &[u8], &mut BannerInspector<'_>),
    ) {
        let Self { dialogue, unread, waiting, .. } = self;
        let (dialogue, own, peer) = parts(dialogue, unread, from);
        judge.mirrored(waiting, |judge| read(dialogue, own, peer, judge));
    }
}

/// Returns the dialogue, the unread bytes of one side, and those of the other.
fn parts<'m>(
    dialogue: &'m mut Dialogue,
    [client, server]: &'m mut [Vec<u8>; 2],
    from: Side,
) -> (&'m mut Dialogue, &'m mut Vec<u8>, &'m [u8]) {
    let (own, peer) = match from {
        Side::Client => (client, server),
        Side::Server => (server, client),
    };
    (dialogue, own, peer)
}
