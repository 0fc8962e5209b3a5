//! Translation of the engine's decision into the kernel's verdict: offload by marks, and the answer to a
//! truncated packet.
//!
//! This module has no side effects: other modules send resets and count.

use super::recent_packets::RecentPackets;
use super::source::{ConnectionMark, MAXIMUM_COPY_RANGE, PacketAnswer, PacketVerdict, QueuedPacket};
use crate::engine::Decision;
use crate::hook::{MarkField, MarkState};
use crate::packet::{self, PacketPatch, ParsedPacket};
use crate::rules::PacketMark;

/// Number of consecutive answers to packets that are still too short, after which the guard stops asking for
/// more bytes: the number of packets that can have been queued before a larger copy range took effect.
const PATIENCE: u32 = 1 << 16;

/// Marks packets that take back a release, to tell them from packets that meet a hook again for another
/// reason. It is larger than the number of any hook.
const TAKES_BACK: u8 = 0x80;

/// Next-header value of an IPv6 header without extensions.
const TCP: u8 = 6;

/// The method by which the kernel learns of a decided flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OffloadMethod {
    /// None: the guard judges every packet.
    Never,
    /// A mark on the deciding packet, which goes through the hook once more to save it.
    Hook,
    /// A mark on the connection that goes with the verdict, if the kernel supports it.
    Verdict,
}

/// Translates decisions into verdicts.
#[derive(Debug, Clone)]
pub(super) struct VerdictTranslator {
    /// The two bits of the mark that bannerwall uses.
    pub(super) mark: MarkField,
    /// The method by which the kernel passes or drops packets of decided flows without the guard.
    pub(super) offload: OffloadMethod,
    /// The verdict on a packet that the engine cannot see whole.
    pub(super) failure: PacketVerdict,
    /// Number of bytes of each packet that the kernel copies now.
    pub(super) copy_range: u32,
    /// Number of decisions handed to the kernel.
    pub(super) handed: u64,
    /// Packets that were requeued with a decision.
    around: RecentPackets,
    /// Number of consecutive packets that were too short.
    short: u32,
}

impl VerdictTranslator {
    pub(super) fn new(
        mark: MarkField,
        offload: OffloadMethod,
        failure: PacketVerdict,
        copy_range: u32,
    ) -> Self {
        Self { mark, offload, failure, copy_range, handed: 0, around: RecentPackets::new(), short: 0 }
    }

    /// Returns the answer to a packet that was decided before it arrived. The hook's own rules would not have
    /// led it here, so the mark is honoured without them.
    pub(super) fn answer_marked_packet(&self, queued: &QueuedPacket<'_>) -> Option<PacketAnswer> {
        match self.mark.read(queued.mark) {
            MarkState::Undecided => None,
            MarkState::Ours if !is_reset(queued) => None,
            MarkState::Pass | MarkState::Ours => Some(PacketAnswer::new(PacketVerdict::Accept)),
            MarkState::Block => Some(PacketAnswer::new(PacketVerdict::Drop)),
        }
    }

    /// Returns the answer to a packet that is not judged.
    pub(super) fn failure_answer(&self, queued: &QueuedPacket<'_>) -> PacketAnswer {
        self.cleaned(queued, PacketAnswer::new(self.failure))
    }

    /// Returns the answer to a packet that the engine has just judged. `mark` is the mark that a rule sets on
    /// it.
    pub(super) fn answer(
        &mut self,
        queued: &QueuedPacket<'_>,
        decision: &Decision,
        mark: Option<PacketMark>,
    ) -> PacketAnswer {
        let answer = self.answer_marked(queued, decision, mark);
        self.cleaned(queued, answer)
    }

    /// Removes the hook's mark from a packet that passes.
    fn cleaned(&self, queued: &QueuedPacket<'_>, answer: PacketAnswer) -> PacketAnswer {
        // No mark is left to clean on a dropped packet, and an answer with a mark has written these bits
        // itself.
        match answer.mark {
            None if answer.verdict != PacketVerdict::Drop && self.was_released(queued) => {
                PacketAnswer { mark: Some(self.mark.write(queued.mark, MarkState::Undecided)), ..answer }
            }
            _ => answer,
        }
    }

    /// True if a packet with a payload comes from the end whose data is queued while the connection is
    /// released, or was released before the packet was requeued.
    fn is_of_released(&self, queued: &QueuedPacket<'_>) -> bool {
        let has_octets = || {
            let parsed = packet::parse(queued.payload, queued.wire_length);
            matches!(parsed, Ok(ParsedPacket::Tcp(it)) if it.flags().is_plain() && it.wire_payload_length() > 0)
        };
        self.mark.read(queued.mark) == MarkState::RELEASED && has_octets()
    }

    /// True if the packet has the mark of a released flow, from the hook or from another program.
    fn was_released(&self, queued: &QueuedPacket<'_>) -> bool {
        self.mark.read(queued.mark) == MarkState::RELEASED && !is_reset(queued)
    }

    fn answer_marked(
        &mut self,
        queued: &QueuedPacket<'_>,
        decision: &Decision,
        mark: Option<PacketMark>,
    ) -> PacketAnswer {
        if let Decision::More { octets } = decision {
            return self.requeue_longer(queued, *octets);
        }
        self.short = 0;
        match decision {
            // The engine does not know of the release: it comes from an earlier guard.
            Decision::Undecided if self.is_of_released(queued) => self.take_back(queued, mark),
            Decision::Undecided | Decision::Keep | Decision::More { .. } => self.accept(queued, mark),
            // A flow that a rule marks stays in the queue, since each of its packets must get the mark.
            // Its next packets would skip the queue, and with it the rule's mark.
            Decision::Pass if mark.is_some() => self.accept(queued, mark),
            Decision::Patch(patch) => self.patch(queued, patch, mark),
            Decision::Pass => self.decided(queued, MarkState::Pass, PacketVerdict::Accept),
            Decision::Release | Decision::Stand => self.release(queued),
            Decision::Regain => self.revoke_release(queued, mark),
            Decision::Block | Decision::Reject(_) => {
                self.decided(queued, MarkState::Block, PacketVerdict::Drop)
            }
            Decision::Drop => PacketAnswer::new(PacketVerdict::Drop),
        }
    }

    /// Accepts a packet as it is changed. In a connection that is released, by a guard before this one, the
    /// hook takes that back first: what the other end answers has to be seen.
    fn patch(
        &mut self,
        queued: &QueuedPacket<'_>,
        patch: &PacketPatch,
        mark: Option<PacketMark>,
    ) -> PacketAnswer {
        let released = self.is_of_released(queued);
        let answer = if released { self.take_back(queued, mark) } else { self.accept(queued, mark) };
        let goes_on = answer.verdict == PacketVerdict::Accept;
        PacketAnswer { patch: goes_on.then(|| Box::new(patch.clone())), ..answer }
    }

    /// Accepts, with a rule's mark on the bits that are the rule's and not ours.
    fn accept(&self, queued: &QueuedPacket<'_>, mark: Option<PacketMark>) -> PacketAnswer {
        match mark {
            None => PacketAnswer::new(PacketVerdict::Accept),
            Some(PacketMark { value, mask }) => {
                let mask = mask & !self.mark.mask();
                // The bits of a release belong to the hook and must not leave this machine with the packet.
                let before =
                    if self.was_released(queued) { queued.mark & !self.mark.mask() } else { queued.mark };
                PacketAnswer::with_mark(PacketVerdict::Accept, (before & !mask) | (value & mask))
            }
        }
    }

    /// Has the hook save that a body may pass. The hook asks the kernel which end has sent the packet, so a
    /// mark that goes with the verdict would not do.
    fn release(&mut self, queued: &QueuedPacket<'_>) -> PacketAnswer {
        // The hook cannot tell whether such a packet has a payload, and so from which end it may come.
        // Byte 6 of an IPv6 header is the next header (RFC 8200 section 3).
        let is_extended = matches!(queued.payload, [0x60..=0x6f, _, _, _, _, _, next, ..] if *next != TCP);
        let is_not_told = self.offload == OffloadMethod::Never || is_extended;
        if is_not_told || self.around.check_repeat(queued.hook, queued.payload) {
            return PacketAnswer::new(PacketVerdict::Accept);
        }
        PacketAnswer::with_mark(PacketVerdict::Repeat, self.mark.write(queued.mark, MarkState::RELEASED))
    }

    /// Returns the answer to the packet from which on no packet may pass uninspected. A packet that was
    /// queued before the release took effect goes through the hook once more, which tells whether it is in
    /// effect.
    fn revoke_release(&mut self, queued: &QueuedPacket<'_>, mark: Option<PacketMark>) -> PacketAnswer {
        if self.is_of_released(queued) {
            return self.take_back(queued, mark);
        }
        let is_over = self.offload == OffloadMethod::Never || self.was_released(queued);
        // A second visit without the hook's mark shows that no release is in force.
        if is_over || self.around.check_repeat(queued.hook, queued.payload) {
            return self.accept(queued, mark);
        }
        PacketAnswer::with_mark(PacketVerdict::Repeat, self.mark.write(queued.mark, MarkState::Undecided))
    }

    /// Requeues a packet with its mark, by which the hook takes the release back.
    fn take_back(&mut self, queued: &QueuedPacket<'_>, mark: Option<PacketMark>) -> PacketAnswer {
        if self.around.check_repeat(queued.hook | TAKES_BACK, queued.payload) {
            return self.accept(queued, mark);
        }
        PacketAnswer::with_mark(PacketVerdict::Repeat, queued.mark)
    }

    /// Returns the answer to a packet of a decided flow, by which the kernel learns of the decision.
    fn decided(
        &mut self,
        queued: &QueuedPacket<'_>,
        state: MarkState,
        verdict: PacketVerdict,
    ) -> PacketAnswer {
        // Without offload nothing is handed over, and `OffloadCheck` would compare with nothing.
        self.handed += u64::from(self.offload != OffloadMethod::Never);
        match self.offload {
            OffloadMethod::Never => PacketAnswer::new(verdict),
            // The packet was requeued and came back without its mark.
            OffloadMethod::Hook if self.around.check_repeat(queued.hook, queued.payload) => {
                PacketAnswer::new(verdict)
            }
            OffloadMethod::Hook => {
                PacketAnswer::with_mark(PacketVerdict::Repeat, self.mark.write(queued.mark, state))
            }
            OffloadMethod::Verdict => {
                // The mask limits the change to our bits: other programs own the rest of the connection mark.
                let mark = ConnectionMark { value: self.mark.value(state), mask: self.mark.mask() };
                PacketAnswer::with_connection_mark(verdict, mark)
            }
        }
    }

    /// Requeues a truncated packet with a larger copy range, as long as that can help.
    fn requeue_longer(&mut self, queued: &QueuedPacket<'_>, octets: usize) -> PacketAnswer {
        let wanted = u32::try_from(octets).unwrap_or(u32::MAX).min(MAXIMUM_COPY_RANGE);
        let longest = usize::try_from(wanted).unwrap_or(usize::MAX).min(queued.wire_length);
        self.short = self.short.saturating_add(1);
        // NF_REPEAT would return the same bytes again, for ever.
        if queued.payload.len() >= longest || self.short > PATIENCE {
            return PacketAnswer::new(self.failure);
        }
        // The range grows in steps, so that a stream of slightly larger packets does not cause a request each
        // time.
        let range =
            wanted.checked_next_power_of_two().unwrap_or(wanted).clamp(self.copy_range, MAXIMUM_COPY_RANGE);
        self.copy_range = range;
        PacketAnswer::again_with(range)
    }
}

/// True if a packet is a reset. With our mark, it is a reset that the guard has sent.
fn is_reset(queued: &QueuedPacket<'_>) -> bool {
    matches!(packet::parse(queued.payload, queued.wire_length), Ok(ParsedPacket::Tcp(segment)) if segment.flags().rst())
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::engine::ResetPair;
    use crate::packet::TcpFlags;
    use crate::packet::testing::{SegmentBuilder, endpoint};

    fn queued(payload: &[u8], wire_length: usize, mark: u32) -> QueuedPacket<'_> {
        QueuedPacket {
            payload,
            wire_length,
            mark,
            checksum_ready: true,
            input_interface: 1,
            output_interface: 0,
            input_port: 0,
            output_port: 0,
            hardware_address: None,
            hook: 1,
            hardware_protocol: 0x0800,
            timestamp: None,
        }
    }

    fn policy(offload: OffloadMethod) -> VerdictTranslator {
        VerdictTranslator::new(MarkField::default(), offload, PacketVerdict::Accept, 512)
    }

    fn answer(offload: OffloadMethod, decision: &Decision, mark: Option<PacketMark>) -> PacketAnswer {
        policy(offload).answer(&queued(&[0; 40], 40, 0x5), decision, mark)
    }

    fn reject() -> Decision {
        let address = IpAddr::from([192, 0, 2, 1]);
        let packet = Vec::new;
        Decision::Reject(Box::new(ResetPair {
            to_receiver: packet(),
            receiver: address,
            to_sender: packet(),
            sender: address,
        }))
    }

    #[test]
    fn decided_flows_are_handed_to_the_kernel_with_foreign_marks_kept() {
        assert_eq!(
            answer(OffloadMethod::Hook, &Decision::Undecided, None),
            PacketAnswer::new(PacketVerdict::Accept)
        );
        assert_eq!(
            answer(OffloadMethod::Hook, &Decision::Pass, None),
            PacketAnswer::with_mark(PacketVerdict::Repeat, 0x4000_0005)
        );
        assert_eq!(
            answer(OffloadMethod::Hook, &Decision::Block, None),
            PacketAnswer::with_mark(PacketVerdict::Repeat, 0x8000_0005)
        );
        assert_eq!(
            answer(OffloadMethod::Hook, &reject(), None),
            PacketAnswer::with_mark(PacketVerdict::Repeat, 0x8000_0005)
        );
        assert_eq!(
            answer(OffloadMethod::Hook, &Decision::Drop, None),
            PacketAnswer::new(PacketVerdict::Drop)
        );
    }

    #[test]
    fn a_packet_that_comes_back_without_its_mark_goes_around_once() {
        let mut policy = policy(OffloadMethod::Hook);
        let packet = queued(&[7; 40], 40, 0);
        let mut answer = |decision: &Decision| policy.answer(&packet, decision, None);
        assert_eq!(answer(&Decision::Pass), PacketAnswer::with_mark(PacketVerdict::Repeat, 0x4000_0000));
        assert_eq!(answer(&Decision::Pass), PacketAnswer::new(PacketVerdict::Accept));
        assert_eq!(answer(&Decision::Block), PacketAnswer::new(PacketVerdict::Drop));
    }

    #[test]
    fn without_offload_every_packet_is_answered_here() {
        assert_eq!(
            answer(OffloadMethod::Never, &Decision::Pass, None),
            PacketAnswer::new(PacketVerdict::Accept)
        );
        assert_eq!(
            answer(OffloadMethod::Never, &Decision::Block, None),
            PacketAnswer::new(PacketVerdict::Drop)
        );
        assert_eq!(answer(OffloadMethod::Never, &reject(), None), PacketAnswer::new(PacketVerdict::Drop));
    }

    #[test]
    fn a_kernel_that_can_marks_the_connection_with_the_verdict_and_only_our_bits() {
        let marked = |verdict, value| {
            PacketAnswer::with_connection_mark(verdict, ConnectionMark { value, mask: 0xC000_0000 })
        };
        let answer = |decision: &Decision| answer(OffloadMethod::Verdict, decision, None);
        assert_eq!(answer(&Decision::Undecided), PacketAnswer::new(PacketVerdict::Accept));
        assert_eq!(answer(&Decision::Pass), marked(PacketVerdict::Accept, 0x4000_0000));
        assert_eq!(answer(&Decision::Block), marked(PacketVerdict::Drop, 0x8000_0000));
        assert_eq!(answer(&reject()), marked(PacketVerdict::Drop, 0x8000_0000));
        assert_eq!(answer(&Decision::Drop), PacketAnswer::new(PacketVerdict::Drop));
    }

    #[test]
    fn a_rules_mark_takes_its_own_bits_only_and_keeps_the_flow_with_us() {
        let marked = PacketAnswer::with_mark(PacketVerdict::Accept, 0x15);
        let mark = Some(PacketMark { value: 0x10, mask: 0xf0 });
        assert_eq!(answer(OffloadMethod::Hook, &Decision::Undecided, mark), marked);
        assert_eq!(answer(OffloadMethod::Hook, &Decision::Pass, mark), marked);
        let greedy = Some(PacketMark { value: 0xC000_0015, mask: u32::MAX });
        assert_eq!(
            answer(OffloadMethod::Hook, &Decision::Pass, greedy),
            marked,
            "our bits are not for rules"
        );
        assert_eq!(
            answer(OffloadMethod::Hook, &Decision::Block, mark),
            PacketAnswer::with_mark(PacketVerdict::Repeat, 0x8000_0005)
        );
    }

    #[test]
    fn a_packet_that_comes_back_decided_is_answered_without_the_engine() {
        let known = |mark| {
            policy(OffloadMethod::Hook)
                .answer_marked_packet(&queued(&[0; 40], 40, mark))
                .map(|answer| answer.verdict)
        };
        assert_eq!(known(0x5), None);
        assert_eq!(known(0x4000_0000), Some(PacketVerdict::Accept));
        assert_eq!(known(0x8000_0000), Some(PacketVerdict::Drop));
        assert_eq!(known(0xC000_0000), None, "what is no reset is none of ours");
        let reset = segment(TcpFlags::RST);
        let ours =
            policy(OffloadMethod::Hook).answer_marked_packet(&queued(&reset, reset.len(), 0xC000_0000));
        assert_eq!(ours, Some(PacketAnswer::new(PacketVerdict::Accept)));
    }

    fn segment(flags: u8) -> Vec<u8> {
        SegmentBuilder::new(endpoint("192.0.2.1:4000"), endpoint("192.0.2.2:80")).flags(flags).build()
    }

    #[test]
    fn a_release_is_for_the_hook_to_save_whatever_else_the_kernel_can() {
        let packet = segment(TcpFlags::ACK);
        for offload in [OffloadMethod::Hook, OffloadMethod::Verdict] {
            let mut policy = policy(offload);
            let packet = queued(&packet, packet.len(), 0x5);
            let mut answer = || policy.answer(&packet, &Decision::Release, None);
            assert_eq!(answer(), PacketAnswer::with_mark(PacketVerdict::Repeat, 0xC000_0005));
            assert_eq!(answer(), PacketAnswer::new(PacketVerdict::Accept), "it went around");
        }
        assert_eq!(
            answer(OffloadMethod::Never, &Decision::Release, None),
            PacketAnswer::new(PacketVerdict::Accept)
        );
    }

    #[test]
    fn a_request_goes_around_unless_it_has_come_behind_the_release() {
        let packet = segment(TcpFlags::ACK);
        let before = queued(&packet, packet.len(), 0x5);
        let behind = queued(&packet, packet.len(), 0xC000_0005);
        let cleaned = PacketAnswer::with_mark(PacketVerdict::Accept, 0x5);
        for decision in [Decision::Regain, Decision::Undecided] {
            assert_eq!(policy(OffloadMethod::Hook).answer(&behind, &decision, None), cleaned, "{decision:?}");
        }
        let mut policy = policy(OffloadMethod::Verdict);
        assert_eq!(
            policy.answer(&before, &Decision::Regain, None),
            PacketAnswer::with_mark(PacketVerdict::Repeat, 0x5)
        );
        assert_eq!(
            policy.answer(&before, &Decision::Undecided, None),
            PacketAnswer::new(PacketVerdict::Accept)
        );
        assert_eq!(
            policy.failure_answer(&behind),
            cleaned,
            "nor does it keep our mark where it is not judged"
        );
        let mark = Some(PacketMark { value: 0x10, mask: 0xf0 });
        assert_eq!(
            policy.answer(&behind, &Decision::Regain, mark),
            PacketAnswer::with_mark(PacketVerdict::Accept, 0x15)
        );
        assert_eq!(policy.answer(&behind, &Decision::Drop, None), PacketAnswer::new(PacketVerdict::Drop));
    }

    #[test]
    fn octets_on_a_released_connection_go_around_with_the_mark_that_takes_it_back_unless_it_is_to_stay() {
        let packet = SegmentBuilder::new(endpoint("192.0.2.1:4000"), endpoint("192.0.2.2:80"));
        let packet = packet.flags(TcpFlags::ACK).payload(b"GET / HTTP/1.1\r\n").build();
        let led = queued(&packet, packet.len(), 0xC000_0005);
        let cleaned = PacketAnswer::with_mark(PacketVerdict::Accept, 0x5);
        assert_eq!(policy(OffloadMethod::Hook).answer(&led, &Decision::Keep, None), cleaned);
        for decision in [Decision::Regain, Decision::Undecided] {
            let mut policy = policy(OffloadMethod::Hook);
            let around = PacketAnswer::with_mark(PacketVerdict::Repeat, 0xC000_0005);
            assert_eq!(policy.answer(&led, &decision, None), around, "{decision:?}");
            assert_eq!(policy.answer(&led, &Decision::Undecided, None), cleaned, "it was taken back");
        }
        // Queued before the release was in force: it comes again unmarked, or marked.
        let mut policy = policy(OffloadMethod::Hook);
        let before = queued(&packet, packet.len(), 0x5);
        assert_eq!(
            policy.answer(&before, &Decision::Regain, None),
            PacketAnswer::with_mark(PacketVerdict::Repeat, 0x5)
        );
        let around = PacketAnswer::with_mark(PacketVerdict::Repeat, 0xC000_0005);
        assert_eq!(policy.answer(&led, &Decision::Undecided, None), around);
        assert_eq!(policy.answer(&led, &Decision::Undecided, None), cleaned);
    }

    #[test]
    fn a_cut_packet_comes_again_with_enough_of_it() {
        let mut policy = policy(OffloadMethod::Hook);
        let cut = [0; 512];
        let more = |octets| Decision::More { octets };
        assert_eq!(policy.answer(&queued(&cut, 1500, 0), &more(1500), None), PacketAnswer::again_with(2048));
        assert_eq!(policy.copy_range, 2048);
        // Another one that was queued before the range grew.
        assert_eq!(policy.answer(&queued(&cut, 600, 0), &more(600), None), PacketAnswer::again_with(2048));
        let largest = PacketAnswer::again_with(MAXIMUM_COPY_RANGE);
        assert_eq!(policy.answer(&queued(&cut, 70_000, 0), &more(70_000), None), largest);
    }

    #[test]
    fn what_cannot_be_shown_whole_gets_the_failure_verdict_and_never_goes_around_for_ever() {
        let mut policy = policy(OffloadMethod::Hook);
        policy.failure = PacketVerdict::Drop;
        let all = vec![0; usize::try_from(MAXIMUM_COPY_RANGE).unwrap_or_default()];
        let more = Decision::More { octets: 70_000 };
        assert_eq!(
            policy.answer(&queued(&all, 70_000, 0), &more, None),
            PacketAnswer::new(PacketVerdict::Drop)
        );
        let cut = queued(&[0; 512], 1500, 0);
        let more = Decision::More { octets: 1500 };
        let mut answers = (0..=PATIENCE).map(|_| policy.answer(&cut, &more, None));
        assert!(answers.any(|answer| answer == PacketAnswer::new(PacketVerdict::Drop)));
    }
}
