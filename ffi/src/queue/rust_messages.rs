//! Messages to the kernel, written in Rust: the same bytes as `libnetfilter_queue`, without it.
//!
//! It replaces [`libnetfilter_queue`](super::libnetfilter_queue), function by function;
//! see [`attribute`](super::attribute).

use super::attribute::{HEADERS, attribute, halves, number};
use crate::sys;

/// `NFNL_SUBSYS_QUEUE`, the upper byte of a message's type.
const SUBSYSTEM: u16 = 3;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;

/// Both headers of a message of `kind`.
#[must_use]
pub(super) fn begin(message: &mut [u32], kind: u16, queue: u16) -> bool {
    let Some(headers) = message.first_chunk_mut::<{ HEADERS / 4 }>() else { return false };
    let [high, low] = queue.to_be_bytes();
    // Family and version of `struct nfgenmsg` are zero; the sender sets sequence and port.
    *headers = [20, halves(SUBSYSTEM << 8 | kind, REQUEST), 0, 0, u32::from_ne_bytes([0, 0, high, low])];
    true
}

/// `NFQA_CFG_CMD`.
#[must_use]
pub(super) fn command(message: &mut [u32], command: u8) -> bool {
    attribute(message, sys::NFQA_CFG_CMD, &[command, 0, 0, 0])
}

/// `NFQA_CFG_PARAMS`.
#[must_use]
pub(super) fn copy(message: &mut [u32], mode: u8, range: u32) -> bool {
    let [a, b, c, d] = range.to_be_bytes();
    attribute(message, sys::NFQA_CFG_PARAMS, &[a, b, c, d, mode])
}

/// `NFQA_CFG_QUEUE_MAXLEN`.
#[must_use]
pub(super) fn maximum_length(message: &mut [u32], length: u32) -> bool {
    number(message, sys::NFQA_CFG_QUEUE_MAXLEN, length)
}

/// `NFQA_VERDICT_HDR`.
#[must_use]
pub(super) fn verdict(message: &mut [u32], id: u32, code: u32) -> bool {
    let mut value = [0; 8];
    let (verdict, packet) = value.split_at_mut(4);
    verdict.copy_from_slice(&code.to_be_bytes());
    packet.copy_from_slice(&id.to_be_bytes());
    attribute(message, sys::NFQA_VERDICT_HDR, &value)
}

/// `NFQA_MARK`.
#[must_use]
pub(super) fn mark(message: &mut [u32], mark: u32) -> bool {
    number(message, sys::NFQA_MARK, mark)
}

/// `NFQA_PAYLOAD`.
#[must_use]
pub(super) fn payload(message: &mut [u32], octets: &[u8]) -> bool {
    attribute(message, sys::NFQA_PAYLOAD, octets)
}

#[cfg(all(test, feature = "libnetfilter_queue"))]
mod tests {
    use proptest::prelude::*;

    use super::super::libnetfilter_queue;
    use super::*;

    /// Bytes that a message gains, by the library or here.
    #[derive(Debug, Clone)]
    enum Part {
        Command(u8),
        Copy(u8, u32),
        MaximumLength(u32),
        Verdict(u32, u32),
        Mark(u32),
        Payload(Vec<u8>),
    }

    impl Part {
        fn by_library(&self, message: &mut [u32]) -> bool {
            match self {
                Self::Command(command) => libnetfilter_queue::command(message, *command),
                Self::Copy(mode, range) => libnetfilter_queue::copy(message, *mode, *range),
                Self::MaximumLength(length) => libnetfilter_queue::maximum_length(message, *length),
                Self::Verdict(id, code) => libnetfilter_queue::verdict(message, *id, *code),
                Self::Mark(mark) => libnetfilter_queue::mark(message, *mark),
                Self::Payload(octets) => libnetfilter_queue::payload(message, octets),
            }
        }

        fn here(&self, message: &mut [u32]) -> bool {
            match self {
                Self::Command(command) => super::command(message, *command),
                Self::Copy(mode, range) => copy(message, *mode, *range),
                Self::MaximumLength(length) => maximum_length(message, *length),
                Self::Verdict(id, code) => verdict(message, *id, *code),
                Self::Mark(mark) => super::mark(message, *mark),
                Self::Payload(octets) => payload(message, octets),
            }
        }
    }

    fn part() -> impl Strategy<Value = Part> {
        prop_oneof![
            any::<u8>().prop_map(Part::Command),
            any::<(u8, u32)>().prop_map(|(mode, range)| Part::Copy(mode, range)),
            any::<u32>().prop_map(Part::MaximumLength),
            any::<(u32, u32)>().prop_map(|(id, code)| Part::Verdict(id, code)),
            any::<u32>().prop_map(Part::Mark),
            prop::collection::vec(any::<u8>(), 0..120).prop_map(Part::Payload),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn messages_are_the_librarys_to_the_octet_and_end_where_its_do(
            kind in 0_u16..256,
            queue in any::<u16>(),
            parts in prop::collection::vec(part(), 0..8),
            room in 0_usize..200,
        ) {
            // What stood in our buffer before must not show; libmnl leaves padding as it was.
            let (mut theirs, mut ours) = (vec![0; room], vec![u32::MAX; room]);
            let begun = libnetfilter_queue::begin(&mut theirs, kind, queue);
            prop_assert_eq!(begin(&mut ours, kind, queue), begun);
            for part in &parts {
                prop_assert_eq!(begun && part.by_library(&mut theirs), begun && part.here(&mut ours));
            }
            if begun {
                prop_assert_eq!(ours[0], theirs[0]);
                let words = ours[0] as usize / 4;
                prop_assert_eq!(&ours[..words], &theirs[..words]);
            }
        }
    }

    #[test]
    fn the_longest_payload_is_the_librarys_and_a_longer_one_none() {
        for length in [65_528, 65_529, 65_530, 65_531, 65_532] {
            let octets: Vec<u8> = (0..length).map(|number: u32| number.to_le_bytes()[0]).collect();
            let (mut theirs, mut ours) = (vec![0; 20_000], vec![0; 20_000]);
            assert!(libnetfilter_queue::begin(&mut theirs, 1, 7) && begin(&mut ours, 1, 7));
            assert_eq!(libnetfilter_queue::payload(&mut theirs, &octets), length <= 65_531);
            assert_eq!(payload(&mut ours, &octets), length <= 65_531);
            assert_eq!(theirs, ours, "{length}");
        }
    }
}
