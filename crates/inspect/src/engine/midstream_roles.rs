//! The roles of a flow whose SYN was not seen: read both ways at first, and corrected once both ends have
//! shown them.

use super::banner_inspector::BannerInspector;
use super::dialogue::{DialogueFinding, FindingSink as _};
use super::mirrored_roles::MirroredRoles;
use super::undecided_flow::UndecidedFlow;
use crate::flow::{StreamState, TrackingMode};

impl UndecidedFlow {
    /// Reads a flow that begins midstream in the other roles, too.
    pub(super) fn mirror_midstream_roles(&mut self, judge: &BannerInspector<'_>) {
        // Memory is accounted for with the first segment.
        let is_new = self.accounted == 0;
        if is_new && judge.settings.tracking == TrackingMode::Inline && judge.flow.is_midstream() {
            self.mirror = Some(Box::new(MirroredRoles::new(&judge.settings.rules, judge.flow)));
        }
    }

    /// Exchanges the roles if what both ends said shows that the guessed ones are wrong; true if it does.
    /// `streams` are the client's and the server's by the guess.
    pub(super) fn correct_roles(
        &mut self,
        streams: [&StreamState; 2],
        judge: &mut BannerInspector<'_>,
    ) -> bool {
        let is_wrong = |mirror: &mut Box<MirroredRoles>| mirror.are_shown() && !self.dialogue.shows_roles();
        let Some(mirror) = self.mirror.take_if(is_wrong) else { return false };
        let MirroredRoles { dialogue, unread, admission, waiting } = *mirror;
        (self.dialogue, self.admission) = (dialogue, admission);
        for ((inlet, unread), stream) in self.inlets.iter_mut().zip(unread).zip(streams) {
            inlet.collector.read_again(stream, unread);
            (inlet.settled, inlet.amid) = (None, None);
        }
        self.inlets.reverse();
        self.condemned.iter_mut().for_each(|condemned| condemned.side = condemned.side.other());
        self.asked.iter_mut().for_each(|(side, ..)| *side = side.other());
        judge.exchange_roles();
        for (protocol, from) in waiting.seen {
            judge.take(DialogueFinding::Seen(protocol, from));
        }
        for (said, transaction) in waiting.exchanges {
            judge.take(DialogueFinding::Exchange(said, transaction));
        }
        self.admission.observe(&mut judge.outcome);
        true
    }
}
