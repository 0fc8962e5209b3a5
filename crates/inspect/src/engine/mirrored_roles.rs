//! The dialogue that a flow would be if its server were the client.
//!
//! The client of a connection whose SYN was not seen is a guess, by ports and by what the first bytes look
//! like. Until what both ends say shows it, their bytes are read in both roles, and rules are asked about the
//! banners of either. Events come from the guessed roles alone.

use super::banner_inspector::BannerInspector;
use super::dialogue::{Dialogue, UnfinishedReason};
use crate::event::Side;

/// A flow's bytes as they are read in the other roles. All sides are those of the guessed roles.
#[derive(Debug, Default)]
pub(super) struct MirroredRoles {
    dialogue: Dialogue,
    /// Unread bytes of each side, the guessed client first.
    unread: [Vec<u8>; 2],
}

impl MirroredRoles {
    /// Takes the next bytes of one side.
    pub(super) fn take_bytes(&mut self, from: Side, octets: &[u8], judge: &mut BannerInspector<'_>) {
        if octets.is_empty() {
            return;
        }
        let (dialogue, own, peer) = self.parts(from);
        own.extend_from_slice(octets);
        let used = judge.mirrored(|judge| dialogue.read(from.other(), own, peer, &mut judge.reading()));
        own.drain(..used.min(own.len()));
    }

    /// Goes over `count` bytes of one side that are missing for good.
    pub(super) fn pass_over(&mut self, from: Side, count: u64, judge: &mut BannerInspector<'_>) {
        self.read_unfinished(from, UnfinishedReason::Unseen, judge);
        let (dialogue, own, peer) = self.parts(from);
        own.clear();
        judge.mirrored(|judge| dialogue.pass_over(from.other(), count, peer, &mut judge.reading()));
    }

    /// Reads the known part of a message whose end will not come.
    pub(super) fn read_unfinished(
        &mut self,
        from: Side,
        why: UnfinishedReason,
        judge: &mut BannerInspector<'_>,
    ) {
        let (dialogue, own, _) = self.parts(from);
        judge.mirrored(|judge| dialogue.read_unfinished(from.other(), own, why, &mut judge.reading()));
    }

    /// One side has said all, and that is certain.
    pub(super) fn end(&mut self, from: Side, judge: &mut BannerInspector<'_>) {
        let dialogue = &mut self.dialogue;
        judge.mirrored(|judge| dialogue.end(from.other(), &mut judge.reading()));
    }

    /// Starts one side again: its receiver did not accept its bytes.
    pub(super) fn rewind(&mut self, from: Side) {
        let (dialogue, own, _) = self.parts(from);
        own.clear();
        dialogue.rewind(from.other());
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
        size_of::<Self>() + client.capacity() + server.capacity() + self.dialogue.memory()
    }

    /// Returns the dialogue, the unread bytes of one side, and those of the other.
    fn parts(&mut self, from: Side) -> (&mut Dialogue, &mut Vec<u8>, &[u8]) {
        let [client, server] = &mut self.unread;
        let (own, peer) = match from {
            Side::Client => (client, server),
            Side::Server => (server, client),
        };
        (&mut self.dialogue, own, peer)
    }
}
