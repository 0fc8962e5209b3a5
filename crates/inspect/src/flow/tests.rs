use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::event::{Endpoint, Side, Timestamp};
use crate::packet::testing::{SegmentBuilder, endpoint};
use crate::packet::{ParsedPacket, Segment, TcpFlags, parse};

fn client() -> Endpoint {
    endpoint("192.0.2.1:40000")
}

fn server() -> Endpoint {
    endpoint("198.51.100.2:22")
}

fn with_segment<T>(packet: &[u8], act: impl FnOnce(&Segment<'_>) -> T) -> T {
    match parse(packet, packet.len()).unwrap() {
        ParsedPacket::Tcp(segment) => act(&segment),
        other => panic!("no segment: {other:?}"),
    }
}

fn key(port: u16) -> (FlowKey, KeyEnd) {
    let source = Endpoint { port, ..client() };
    with_segment(&SegmentBuilder::new(source, server()).build(), FlowKey::of)
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::default().after(Duration::from_secs(seconds))
}

/// A stream that begins at `next` with its collector.
fn stream(next: u32) -> (StreamState, StreamCollector) {
    let mut stream = StreamState::default();
    stream.open(next);
    (stream, StreamCollector::default())
}

/// Offers a payload and keeps what is fresh.
fn offer(state: &mut (StreamState, StreamCollector), sequence: u32, payload: &[u8]) -> AnomalySet {
    let offer = state.1.offer(&mut state.0, sequence, payload, CollectorLimits::default());
    state.1.keep(offer.fresh);
    offer.anomalies
}

#[test]
fn both_directions_have_one_key() {
    for (a, b) in [(client(), server()), (endpoint("[2001:db8::2]:9"), endpoint("[2001:db8::1]:10"))] {
        let (there, from) = with_segment(&SegmentBuilder::new(a, b).build(), FlowKey::of);
        let (back, to) = with_segment(&SegmentBuilder::new(b, a).build(), FlowKey::of);
        assert_eq!(there, back);
        assert_eq!(from, to.other());
        assert_eq!(there.endpoint(from), a);
        assert_eq!(there.endpoint(to), b);
        assert_eq!(there.flow_id(1), back.flow_id(1));
        assert!(there.flow_id(1) < 1 << 53);
        assert_ne!(there.flow_id(1), there.flow_id(2));
    }
}

#[test]
fn the_table_finds_forgets_and_uses_slots_again() {
    let mut table: FlowTable<()> = FlowTable::new(100);
    let ids: Vec<_> =
        (0..100).map(|port| table.insert(key(port).0, KeyEnd::Low, at(u64::from(port))).unwrap()).collect();
    assert_eq!(table.insert(key(100).0, KeyEnd::Low, at(100)), Err(FullTable));
    for (port, id) in (0..100).zip(&ids) {
        assert_eq!(table.find(&key(port).0), Some(*id));
    }
    assert_eq!(table.oldest(FlowClass::Opening), Some(ids[0]));
    table.touch(ids[0], at(200));
    assert_eq!(table.oldest(FlowClass::Opening), Some(ids[1]));
    table.remove(ids[1]);
    assert_eq!(table.find(&key(1).0), None);
    assert_eq!(table.oldest(FlowClass::Opening), Some(ids[2]));
    table.set_class(ids[2], FlowClass::Passed, at(200));
    assert_eq!((table.count(FlowClass::Opening), table.count(FlowClass::Passed)), (98, 1));
    assert_eq!(table.insert(key(1).0, KeyEnd::Low, at(201)), Ok(ids[1]), "the free slot");
    assert_eq!(table.len(), 100);
}

#[test]
fn flows_expire_in_the_order_of_their_last_packets() {
    let mut table: FlowTable<()> = FlowTable::new(10);
    let first = table.insert(key(1).0, KeyEnd::Low, at(0)).unwrap();
    let second = table.insert(key(2).0, KeyEnd::Low, at(1)).unwrap();
    table.touch(first, at(5));
    let timeout = Duration::from_secs(10);
    assert_eq!(table.expired(FlowClass::Opening, timeout, at(10)), None);
    assert_eq!(table.expired(FlowClass::Opening, timeout, at(11)), Some(second));
    table.remove(second);
    assert_eq!(table.expired(FlowClass::Opening, timeout, at(11)), None);
    assert_eq!(table.expired(FlowClass::Opening, timeout, at(15)), Some(first));
}

#[test]
fn octets_come_out_in_order_across_the_end_of_sequence_space() {
    let mut state = stream(0xffff_fffa);
    assert!(offer(&mut state, 2, b"inet").is_empty());
    assert!(offer(&mut state, 0xffff_fffa, b"SSH-").is_empty());
    assert!(offer(&mut state, 0xffff_fffe, b"2.0-").is_empty());
    assert_eq!(state.1.unread(), b"SSH-2.0-inet");
    assert_eq!(state.0.next(), 6);
}

#[test]
fn the_first_octets_win_and_other_values_are_told() {
    let mut state = stream(100);
    offer(&mut state, 100, b"first");
    assert!(offer(&mut state, 100, b"first").is_empty(), "a plain retransmission");
    assert!(offer(&mut state, 100, b"FIRST plus").contains(Anomaly::OverlapDifferentData));
    assert_eq!(state.1.unread(), b"first plus");

    offer(&mut state, 120, b"held");
    assert!(offer(&mut state, 118, b"abHELD").contains(Anomaly::OverlapDifferentData));
    offer(&mut state, 110, b"01234567");
    assert_eq!(state.1.unread(), b"first plus01234567abheld");
}

#[test]
fn octets_that_were_acknowledged_cannot_be_replaced() {
    let mut state = stream(100);
    offer(&mut state, 100, b"banner");
    state.0.acknowledge(106, 1000);
    assert!(offer(&mut state, 105, b"\0").is_empty(), "a keep-alive probe");
    assert!(offer(&mut state, 100, b"BANNER").is_empty());
}

#[test]
fn data_beyond_the_window_is_left_out() {
    let mut state = stream(100);
    state.0.acknowledge(100, 200);
    assert!(offer(&mut state, 201, b"never").contains(Anomaly::OutOfWindow));
    assert!(offer(&mut state, 200, b"probe").is_empty());
    offer(&mut state, 100, &[b'x'; 100]);
    assert_eq!(state.1.unread().len(), 105);
}

#[test]
fn what_is_held_out_of_order_is_bounded() {
    let mut state = stream(0);
    let mut refused = 0;
    for index in 1..200u32 {
        let anomalies = offer(&mut state, index * 1000, &[1; 900]);
        refused += usize::from(anomalies.contains(Anomaly::ReorderLimit));
    }
    assert_eq!(refused, 199 - CollectorLimits::default().pieces);
    assert!(state.1.memory() <= CollectorLimits::default().octets);
}

#[test]
fn what_goes_on_is_held_wholly_however_much_waits() {
    let limits = CollectorLimits { pieces: 2, octets: 1000 };
    let mut state = stream(0);
    for at in [10, 30] {
        assert!(state.1.offer(&mut state.0, at, &[1; 10], limits).anomalies.is_empty());
    }
    let refused = state.1.offer(&mut state.0, 5, &[1; 40], limits).anomalies;
    assert_eq!(refused.iter().collect::<Vec<_>>(), [Anomaly::ReorderLimit], "nothing of it is held");
    assert!(state.1.offer(&mut state.0, 0, &[1; 50], limits).anomalies.is_empty());
    assert_eq!((state.0.next(), state.1.unread().len()), (50, 50), "what fills the front is held to its end");
}

#[test]
fn what_is_held_follows_octets_that_were_passed_over() {
    for (passed, unread) in [(4, &b"held"[..]), (6, b"ld"), (8, b""), (9, b"")] {
        let mut state = stream(100);
        offer(&mut state, 104, b"held");
        state.0.pass_over(100, passed);
        state.1.promote(&mut state.0);
        assert_eq!(state.1.unread(), unread, "{passed}");
        assert_eq!(state.0.next(), 108.max(100 + u32::try_from(passed).unwrap()));
        assert!(!state.1.is_waiting());
    }
}

#[test]
fn a_gap_that_the_receiver_has_got_over_refuses_nothing() {
    let limits = CollectorLimits { pieces: 2, octets: 1000 };
    let mut state = stream(0);
    state.0.acknowledge(0, 10_000);
    for at in [10, 30] {
        state.1.offer(&mut state.0, at, &[1; 10], limits);
    }
    assert!(state.1.offer(&mut state.0, 60, &[1; 10], limits).anomalies.contains(Anomaly::ReorderLimit));
    state.0.acknowledge(60, 10_000);
    for at in [60, 70, 80] {
        let offer = state.1.offer(&mut state.0, at, &[1; 10], limits);
        assert!(!offer.anomalies.contains(Anomaly::ReorderLimit), "{at}");
        state.1.keep(offer.fresh);
    }
    assert_eq!(state.0.next(), 90);
}

#[test]
fn acknowledged_octets_that_went_another_way_leave_a_gap() {
    let mut state = stream(0);
    offer(&mut state, 0, b"abc");
    state.0.acknowledge(10, 10_000);
    let result = state.1.offer(&mut state.0, 10, b"next", CollectorLimits::default());
    assert_eq!(result.gap, 7);
    assert_eq!(result.fresh, b"next");
    assert!(state.1.unread().is_empty(), "half a line before the gap must not join what follows");
}

#[derive(Default)]
struct Wire(FlowTable<()>);

impl Default for FlowTable<()> {
    fn default() -> Self {
        Self::new(16)
    }
}

impl Wire {
    /// Shows a segment to the flow; says what was odd and whether its data counts.
    fn see(&mut self, segment: &SegmentBuilder) -> TrackedSegment {
        self.see_as(segment, TrackingMode::Inline)
    }

    fn see_as(&mut self, segment: &SegmentBuilder, tracking: TrackingMode) -> TrackedSegment {
        with_segment(&segment.build(), |segment| {
            let (key, from) = FlowKey::of(segment);
            let id = self.0.find(&key).unwrap_or_else(|| self.0.insert(key, from, at(0)).unwrap());
            let flow = self.0.get_mut(id);
            if flow.starts_new_connection(segment, from, tracking) {
                flow.restart_connection(segment, at(1));
            }
            flow.track(segment, from, tracking)
        })
    }

    fn flow(&self) -> &Flow<()> {
        self.0.get(self.0.oldest(FlowClass::Opening).unwrap())
    }

    fn client(&self) -> Endpoint {
        let flow = self.flow();
        flow.key().endpoint(flow.end(Side::Client))
    }

    fn open() -> Self {
        let mut wire = Self::default();
        wire.see(&up().flags(TcpFlags::SYN).sequence(99));
        wire.see(&down().flags(TcpFlags::SYN | TcpFlags::ACK).sequence(999).acknowledgement(100));
        wire.see(&up().sequence(100).acknowledgement(1000));
        wire
    }
}

fn up() -> SegmentBuilder {
    SegmentBuilder::new(client(), server())
}

fn down() -> SegmentBuilder {
    SegmentBuilder::new(server(), client())
}

fn odd(tracked: &TrackedSegment) -> Vec<Anomaly> {
    tracked.anomalies.iter().collect()
}

#[test]
fn the_sender_of_the_syn_is_the_client_also_when_only_the_answer_was_seen() {
    let wire = Wire::open();
    assert_eq!(wire.client(), client());
    assert!(wire.flow().client_known());
    let mut wire = Wire::default();
    wire.see(&down().flags(TcpFlags::SYN | TcpFlags::ACK).sequence(999).acknowledgement(100));
    assert_eq!(wire.client(), client());
    assert!(wire.flow().client_known());
}

#[test]
fn a_capture_may_hold_the_answer_to_a_syn_before_the_syn() {
    let mut wire = Wire::default();
    wire.see(&down().flags(TcpFlags::SYN | TcpFlags::ACK).sequence(999).acknowledgement(100));
    let late = wire.see(&up().flags(TcpFlags::SYN).sequence(99));
    assert!(odd(&late).is_empty());
    assert!(wire.flow().stream(FlowKey::of_client(&wire)).is_from_start());
    let forged = wire.see(&up().flags(TcpFlags::SYN).sequence(7777));
    assert_eq!(odd(&forged), [Anomaly::SynInConnection]);
}

#[test]
fn a_split_handshake_keeps_the_client_and_is_told() {
    let mut wire = Wire::default();
    wire.see(&up().flags(TcpFlags::SYN).sequence(99));
    let split = wire.see(&down().flags(TcpFlags::SYN).sequence(999));
    assert_eq!(odd(&split), [Anomaly::SplitHandshake]);
    wire.see(&up().flags(TcpFlags::SYN | TcpFlags::ACK).sequence(99).acknowledgement(1000));
    assert_eq!(wire.flow().side(FlowKey::of_client(&wire)), Side::Client);
}

impl FlowKey {
    fn of_client(_: &Wire) -> KeyEnd {
        with_segment(&up().build(), |segment| FlowKey::of(segment).1)
    }
}

#[test]
fn only_a_reset_with_the_expected_sequence_number_ends_a_flow() {
    let mut wire = Wire::open();
    let wrong = wire.see(&down().flags(TcpFlags::RST).sequence(1500));
    assert_eq!(odd(&wrong), [Anomaly::ResetWrongSequence]);
    assert!(!wire.flow().is_closed());
    let right = wire.see(&down().flags(TcpFlags::RST).sequence(1000));
    assert!(odd(&right).is_empty());
    assert!(wire.flow().is_closed());
    let after = wire.see(&down().sequence(1000).acknowledgement(100).payload(b"SSH-"));
    assert_eq!(odd(&after), [Anomaly::DataAfterReset]);
}

#[test]
fn a_refused_connection_is_a_valid_reset() {
    let mut wire = Wire::default();
    wire.see(&up().flags(TcpFlags::SYN).sequence(99));
    let forged = wire.see(&down().flags(TcpFlags::RST | TcpFlags::ACK).acknowledgement(7));
    assert_eq!(odd(&forged), [Anomaly::ResetWrongSequence]);
    wire.see(&down().flags(TcpFlags::RST | TcpFlags::ACK).acknowledgement(100));
    assert!(wire.flow().is_closed());
}

#[test]
fn segments_that_no_receiver_accepts_are_ignored() {
    let mut wire = Wire::open();
    let data = up().sequence(100).acknowledgement(1000).payload(b"x");
    for (segment, anomaly) in [
        (data.clone().flags(TcpFlags::PSH), Anomaly::DataWithoutAck),
        (data.clone().acknowledgement(1001), Anomaly::AckOfUnsentData),
        (data.clone().flags(TcpFlags::SYN | TcpFlags::FIN), Anomaly::ContradictoryFlags),
    ] {
        let tracked = wire.see(&segment);
        assert!(tracked.ignore);
        assert_eq!(odd(&tracked), [anomaly]);
    }
    assert!(!wire.see(&data).ignore);
    let missed = wire.see_as(&data.acknowledgement(1001), TrackingMode::Lossy);
    assert!(!missed.ignore, "a capture may lack what was acknowledged");
}

#[test]
fn fast_open_data_that_was_not_taken_is_told() {
    let mut wire = Wire::default();
    wire.see(&up().flags(TcpFlags::SYN).sequence(99).payload(b"GET"));
    let id = wire.0.oldest(FlowClass::Opening).unwrap();
    let end = FlowKey::of_client(&wire);
    wire.0.get_mut(id).stream_mut(end).reach(103);
    let answer = wire.see(&down().flags(TcpFlags::SYN | TcpFlags::ACK).sequence(999).acknowledgement(100));
    assert_eq!(answer.refused, Some(100));
}

#[test]
fn a_syn_alone_does_not_begin_a_flow_anew_but_its_answer_does() {
    let mut wire = Wire::open();
    let syn = wire.see(&up().flags(TcpFlags::SYN).sequence(5000));
    assert_eq!(odd(&syn), [Anomaly::SynInConnection]);
    assert_eq!(wire.flow().stream(FlowKey::of_client(&wire)).next(), 100);
    let answer = down().flags(TcpFlags::SYN | TcpFlags::ACK).sequence(7000).acknowledgement(5001);
    assert!(odd(&wire.see(&answer)).is_empty());
    assert_eq!(wire.flow().stream(FlowKey::of_client(&wire)).next(), 5001);
    assert_eq!(wire.flow().stream(FlowKey::of_client(&wire).other()).next(), 7001);
}

#[test]
fn urgent_and_expiring_data_is_told() {
    let mut wire = Wire::open();
    let data = up().sequence(100).acknowledgement(1000).payload(b"x");
    assert_eq!(odd(&wire.see(&data.clone().urgent(1))), [Anomaly::UrgentData]);
    assert_eq!(odd(&wire.see(&data.hop_limit(3))), [Anomaly::HopLimitDrop]);
}

#[test]
fn an_unscaled_window_counts_where_one_end_offered_no_scale() {
    let mut wire = Wire::default();
    let scale = etherparse::TcpOptionElement::WindowScale(7);
    wire.see(&up().flags(TcpFlags::SYN).sequence(99).option(scale));
    wire.see(&down().flags(TcpFlags::SYN | TcpFlags::ACK).sequence(999).acknowledgement(100));
    wire.see(&up().sequence(100).acknowledgement(1000).window(10));
    let end = FlowKey::of_client(&wire).other();
    let id = wire.0.oldest(FlowClass::Opening).unwrap();
    let stream = wire.0.get_mut(id).stream_mut(end);
    let offer = StreamCollector::default().offer(stream, 1000 + 65_536, b"x", CollectorLimits::default());
    assert!(offer.anomalies.contains(Anomaly::OutOfWindow));
}

/// The plain model: a map of bytes where the first value wins.
#[derive(Default)]
struct Reference(BTreeMap<u32, u8>);

impl Reference {
    fn offer(&mut self, offset: u32, payload: &[u8]) {
        for (at, octet) in (offset..).zip(payload) {
            self.0.entry(at).or_insert(*octet);
        }
    }

    fn in_order(&self) -> Vec<u8> {
        (0..).map_while(|at| self.0.get(&at).copied()).collect()
    }
}

#[test]
fn gibibytes_behind_a_syn_nothing_is_taken_for_older_than_it() {
    let mut stream = StreamState::NEW;
    let options = SynOptions::new(None, false);
    stream.synchronise(&OpeningSyn { initial: 7, from: KeyEnd::Low, hop_limit: 64, options });
    assert!(stream.is_before_start(7) && !stream.is_before_start(8));
    for gibibytes in 1..=9_u32 {
        let next = 8_u32.wrapping_add(gibibytes << 30);
        stream.reach(next);
        assert!(
            !stream.is_before_start(next) && !stream.is_before_start(next.wrapping_sub(9)),
            "{gibibytes}"
        );
    }
}

proptest! {
    #[test]
    fn collecting_equals_a_map_of_octets_where_the_first_wins(
        start: u32,
        segments in proptest::collection::vec((0u32..200, proptest::collection::vec(any::<u8>(), 1..40)), 0..80),
        read in proptest::collection::vec(0usize..50, 80),
    ) {
        let mut state = stream(start);
        let mut reference = Reference::default();
        let mut out = Vec::new();
        let limits = CollectorLimits { pieces: 1000, octets: 100_000 };
        for ((offset, payload), read) in segments.iter().zip(read) {
            reference.offer(*offset, payload);
            let offer = state.1.offer(&mut state.0, start.wrapping_add(*offset), payload, limits);
            state.1.keep(offer.fresh);
            let count = read.min(state.1.unread().len());
            out.extend_from_slice(&state.1.unread()[..count]);
            state.1.advance(&state.0, count);
        }
        out.extend_from_slice(state.1.unread());
        prop_assert_eq!(&out, &reference.in_order());
        prop_assert_eq!(state.0.next(), start.wrapping_add(u32::try_from(out.len()).unwrap()));
    }

    #[test]
    fn other_values_for_an_octet_never_go_unnoticed(
        start: u32,
        cuts in proptest::collection::vec((0usize..60, 1usize..30), 1..20),
        victim in 0usize..19,
    ) {
        let text: Vec<u8> = (0..100u8).collect();
        let mut state = stream(start);
        let mut seen = [false; 100];
        for (index, (at, count)) in cuts.iter().enumerate() {
            let end = (at + count).min(100);
            let mut payload = text[*at..end].to_vec();
            let forged = index == victim && seen[*at];
            if forged {
                payload[0] ^= 0xff;
            }
            let anomalies = offer(&mut state, start.wrapping_add(u32::try_from(*at).unwrap()), &payload);
            // Before any acknowledgement one byte just before the next one may be a keep-alive probe.
            if forged && payload.len() > 1 {
                prop_assert!(anomalies.contains(Anomaly::OverlapDifferentData));
            } else if !forged {
                prop_assert!(anomalies.is_empty());
            }
            seen[*at..end].fill(true);
        }
    }

    #[test]
    fn a_flow_that_begins_again_is_as_a_fresh_one(
        past in proptest::collection::vec((any::<bool>(), any::<u32>(), any::<u32>(), any::<u8>(), any::<u16>(), 0usize..20), 0..40),
        initial in 1_u32 << 20..1 << 31,
        scales in (proptest::option::of(0u8..15), proptest::option::of(0u8..15)),
        hop_limits: (u8, u8),
        signed: bool,
        window: u16,
    ) {
        let mut old = Wire::open();
        for (from_client, sequence, acknowledgement, flags, window, length) in past {
            let builder = if from_client { up() } else { down() };
            let near = |number: u32, base: u32| base.wrapping_add(number >> 28);
            old.see(&builder.sequence(near(sequence, 95)).acknowledgement(near(acknowledgement, 995))
                .flags(flags).window(window).payload(&vec![7; length]));
        }
        let options = |segment: SegmentBuilder, scale: Option<u8>| match (scale, signed) {
            (Some(scale), true) => segment.raw_options(&[1, 3, 3, scale, 19, 18]),
            (Some(scale), false) => segment.raw_options(&[1, 3, 3, scale]),
            (None, true) => segment.raw_options(&[19, 18]),
            (None, false) => segment,
        };
        let first = initial.wrapping_add(1);
        let syn = options(up().flags(TcpFlags::SYN).sequence(initial).window(window).hop_limit(hop_limits.0), scales.0);
        let answer = down().flags(TcpFlags::SYN | TcpFlags::ACK).sequence(!initial).acknowledgement(first);
        let answer = options(answer.window(window).hop_limit(hop_limits.1), scales.1);
        let rest = up().sequence(first).acknowledgement((!initial).wrapping_add(1)).window(window);
        let mut fresh = Wire::default();
        for segment in [syn, answer, rest] {
            fresh.see(&segment);
            old.see(&segment);
        }
        prop_assert_eq!(format!("{:?}", old.flow().ends()), format!("{:?}", fresh.flow().ends()));
    }

    #[test]
    fn any_sequence_of_headers_is_survived(
        segments in proptest::collection::vec((any::<bool>(), any::<u32>(), any::<u32>(), any::<u8>(), any::<u16>(), 0usize..20), 0..60),
        lossy: bool,
    ) {
        let mut wire = Wire::default();
        let tracking = if lossy { TrackingMode::Lossy } else { TrackingMode::Inline };
        for (from_client, sequence, acknowledgement, flags, window, length) in segments {
            let builder = if from_client { up() } else { down() };
            // Small numbers meet each other often.
            let segment = builder.sequence(sequence >> 28).acknowledgement(acknowledgement >> 28)
                .flags(flags).window(window).payload(&vec![7; length]);
            wire.see_as(&segment, tracking);
        }
    }
}
