use std::io::Cursor;

use proptest::prelude::*;

use super::*;

/// A classic file with these records (seconds, fraction, data, length on the wire).
fn pcap(magic: u32, big_endian: bool, records: &[(u32, u32, &[u8], u32)]) -> Vec<u8> {
    let word = |value: u32| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let short = |value: u16| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut file =
        [word(magic).as_slice(), &short(2), &short(4), &word(0), &word(0), &word(65_535), &word(1)].concat();
    for (seconds, fraction, data, wire) in records {
        let captured = u32::try_from(data.len()).unwrap();
        for value in [*seconds, *fraction, captured, *wire] {
            file.extend(word(value));
        }
        file.extend(*data);
    }
    file
}

fn block(big_endian: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let word = |value: u32| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let padded = body.len().next_multiple_of(4);
    let length = word(u32::try_from(padded + 12).unwrap());
    let mut octets = [word(kind), length].concat();
    octets.extend(body);
    octets.resize(padded + 8, 0);
    octets.extend(length);
    octets
}

fn section(big_endian: bool) -> Vec<u8> {
    let word = |value: u32| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let version = if big_endian { [0, 1, 0, 0] } else { [1, 0, 0, 0] };
    block(big_endian, 0x0a0d_0d0a, &[word(0x1a2b_3c4d).as_slice(), &version, &[0xff; 8]].concat())
}

/// An interface of Ethernet with a name and, where it is given, a resolution.
fn interface(big_endian: bool, resolution: Option<u8>) -> Vec<u8> {
    let short = |value: u16| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut body = [short(1), short(0)].concat();
    body.extend([0; 4]);
    body.extend([short(2), short(4)].concat());
    body.extend(b"eth0");
    if let Some(resolution) = resolution {
        body.extend([short(9), short(1)].concat());
        body.extend([resolution, 0, 0, 0]);
    }
    body.extend([0; 4]);
    block(big_endian, 1, &body)
}

fn enhanced(big_endian: bool, interface: u32, time: u64, data: &[u8], wire: u32) -> Vec<u8> {
    let word = |value: u32| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
    let (high, low) = (u32::try_from(time >> 32).unwrap(), u32::try_from(time & 0xffff_ffff).unwrap());
    let mut body: Vec<u8> =
        [interface, high, low, u32::try_from(data.len()).unwrap(), wire].into_iter().flat_map(word).collect();
    body.extend(data);
    block(big_endian, 6, &body)
}

type Seen = (u64, u64, Vec<u8>, usize);

fn frames(file: &[u8]) -> (Vec<Seen>, Option<CaptureError>) {
    let mut seen = Vec::new();
    let mut capture = match CaptureReader::open(Cursor::new(file.to_vec())) {
        Ok(capture) => capture,
        Err(error) => return (seen, Some(error)),
    };
    loop {
        match capture.next_frame() {
            Ok(Some(frame)) => {
                assert_eq!(frame.link, 1);
                seen.push((
                    frame.number,
                    frame.timestamp.as_nanos(),
                    frame.octets.to_vec(),
                    frame.wire_length,
                ));
            }
            Ok(None) => return (seen, None),
            Err(error) => return (seen, Some(error)),
        }
    }
}

#[test]
fn both_byte_orders_and_resolutions_of_pcap_are_read() {
    for (magic, unit) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
        for big_endian in [false, true] {
            let file = pcap(magic, big_endian, &[(7, 5, b"frame", 5), (8, 6, b"cut", 1500)]);
            let (seen, error) = frames(&file);
            assert!(error.is_none());
            assert_eq!(
                seen,
                [
                    (1, 7 * SECOND + 5 * unit, b"frame".to_vec(), 5),
                    (2, 8 * SECOND + 6 * unit, b"cut".to_vec(), 1500),
                ]
            );
        }
    }
}

#[test]
fn both_byte_orders_of_pcapng_are_read_across_sections() {
    let file: Vec<u8> = [false, true]
        .into_iter()
        .flat_map(|order| {
            [
                section(order),
                interface(order, None),
                block(order, 0x0bad, b"unknown block"),
                enhanced(order, 0, 7_000_005, b"frame", 5),
                interface(order, Some(9)),
                enhanced(order, 1, 8_000_000_006, b"cut", 1500),
                interface(order, Some(0x80 | 10)),
                enhanced(order, 2, 1024 + 512, b"", 0),
            ]
            .concat()
        })
        .collect();
    let (seen, error) = frames(&file);
    assert!(error.is_none(), "{error:?}");
    let expected = [
        (7 * SECOND + 5000, b"frame".to_vec(), 5),
        (8 * SECOND + 6, b"cut".to_vec(), 1500),
        (SECOND * 3 / 2, Vec::new(), 0),
    ];
    let numbered = expected.iter().chain(&expected).zip(1..);
    assert_eq!(
        seen,
        numbered.map(|((time, data, wire), number)| (number, *time, data.clone(), *wire)).collect::<Vec<_>>()
    );
}

#[test]
fn obsolete_packets_of_both_byte_orders_are_read() {
    for order in [false, true] {
        let word = |value: u32| if order { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut obsolete: Vec<u8> = [0_u32, 0, 2_000_000, 5, 5].into_iter().flat_map(word).collect();
        obsolete.extend(b"older");
        let file = [section(order), interface(order, None), block(order, 2, &obsolete)].concat();
        let (seen, error) = frames(&file);
        assert!(error.is_none());
        assert_eq!(seen, [(1, 2 * SECOND, b"older".to_vec(), 5)]);
    }
}

#[test]
fn interfaces_are_named_and_simple_and_obsolete_packets_are_read() {
    let simple = block(false, 3, &[&5_u32.to_le_bytes()[..], b"frame"].concat());
    let mut obsolete: Vec<u8> = [0_u32, 0, 2_000_000, 5, 5].into_iter().flat_map(u32::to_le_bytes).collect();
    obsolete.extend(b"older");
    let file = [section(false), interface(false, None), simple, block(false, 2, &obsolete)].concat();
    let mut capture = CaptureReader::open(Cursor::new(file)).unwrap();
    let frame = capture.next_frame().unwrap().unwrap();
    assert_eq!((frame.octets, frame.interface), (&b"frame"[..], Some("eth0")));
    let frame = capture.next_frame().unwrap().unwrap();
    assert_eq!((frame.octets, frame.timestamp.as_nanos()), (&b"older"[..], 2 * SECOND));
    assert!(capture.next_frame().unwrap().is_none());
}

/// Description of an interface with any name.
fn named_interface(name: &str) -> Vec<u8> {
    let length = u16::try_from(name.len()).unwrap();
    let mut body = [&[1_u8, 0, 0, 0, 0, 0, 0, 0, 2, 0][..], &length.to_le_bytes(), name.as_bytes()].concat();
    body.resize(body.len().next_multiple_of(4) + 4, 0);
    block(false, 1, &body)
}

#[test]
fn names_of_interfaces_take_bounded_memory_and_equal_ones_are_kept_once() {
    let long = "n".repeat(65_000);
    let mut capture = [section(false), named_interface(&long), named_interface(&long[..255])].concat();
    for number in 0..8192 {
        capture.extend(named_interface(&format!("{number:0>255}")));
    }
    capture.extend(named_interface(&long[..255]));
    let packets = [0, 1, 2, 8193, 8194].map(|index| enhanced(false, index, 0, b"frame", 5));
    capture.extend(packets.concat());
    let mut capture = CaptureReader::open(Cursor::new(capture)).unwrap();
    let mut names = Vec::new();
    while let Some(frame) = capture.next_frame().unwrap() {
        names.push(frame.interface.map(|name| (name.len(), name.as_ptr())));
    }
    let [too_long, kept, first, beyond, again] = names.as_slice() else { panic!("{names:?}") };
    assert_eq!((*too_long, *beyond), (None, None));
    assert_eq!((kept.map(|name| name.0), first.map(|name| name.0)), (Some(255), Some(255)));
    assert_eq!(kept, again, "the very same octets");
}

#[test]
fn a_block_shorter_than_its_frame_is_damage_whatever_its_type() {
    // pcap-parser 0.17.0 subtracts with overflow at type 0x80000001 and these lengths.
    for kind in [0x8000_0001_u32, 1, 2, 3, 6, 0x0bad] {
        for stated in 0..12_u32 {
            let short = [kind.to_le_bytes(), stated.to_le_bytes(), [0; 4], [0; 4]].concat();
            let (seen, error) = frames(&[section(false), short].concat());
            assert!(seen.is_empty());
            assert!(matches!(error, Some(CaptureError::Damaged { offset: 28, .. })), "{kind:#x} {stated}");
        }
    }
    let whole = [section(false), block(false, 0x8000_0001, b""), interface(false, None)].concat();
    assert!(frames(&[whole, enhanced(false, 0, 0, b"frame", 5)].concat()).1.is_none());
}

#[test]
fn a_section_of_no_byte_order_is_damage() {
    let mut file = section(false);
    file[8..12].copy_from_slice(b"nope");
    assert!(matches!(frames(&file), (_, Some(CaptureError::Damaged { offset: 0, .. }))));
}

#[test]
fn a_file_that_is_cut_short_gives_what_is_whole_and_says_where() {
    let classic = pcap(0xa1b2_c3d4, false, &[(1, 0, b"first", 5), (2, 0, b"second", 6)]);
    let (seen, error) = frames(&classic[..classic.len() - 1]);
    assert_eq!(seen.len(), 1);
    assert!(matches!(error, Some(CaptureError::Truncated { offset: 45, .. })), "{error:?}");
    let (_, error) = frames(&classic[..20]);
    assert!(matches!(error, Some(CaptureError::Truncated { offset: 0, .. })), "{error:?}");
    let modern = [section(false), interface(false, None), enhanced(false, 0, 0, b"frame", 5)].concat();
    let (seen, error) = frames(&modern[..modern.len() - 1]);
    assert!(seen.is_empty());
    let begin = section(false).len() + interface(false, None).len();
    assert!(
        matches!(error, Some(CaptureError::Truncated { offset, .. }) if offset == begin as u64),
        "{error:?}"
    );
}

#[test]
fn damage_is_told_with_its_offset() {
    let mut classic = pcap(0xa1b2_c3d4, false, &[(1, 0, b"first", 5), (2, 0, b"second", 6)]);
    classic[24 + 16 + 5 + 11] = 0x7f;
    let (seen, error) = frames(&classic);
    assert_eq!(seen.len(), 1);
    assert!(matches!(error, Some(CaptureError::Damaged { offset: 45, .. })), "{error:?}");
    let orphan = [section(false), enhanced(false, 3, 0, b"frame", 5)].concat();
    let (_, error) = frames(&orphan);
    assert!(matches!(error, Some(CaptureError::Damaged { offset: 28, .. })), "{error:?}");
}

#[test]
fn what_is_no_capture_is_refused() {
    for file in [&b""[..], b"x", b"GET / HTTP/1.1\r\n\r\nlong enough to be a header"] {
        assert!(matches!(frames(file), (_, Some(CaptureError::Format))), "{file:?}");
    }
}

#[test]
fn a_record_larger_than_the_window_is_read() {
    let data = vec![7; 3 << 20];
    let (seen, error) = frames(&pcap(0xa1b2_c3d4, false, &[(1, 0, &data, 3 << 20), (2, 0, b"x", 1)]));
    assert!(error.is_none());
    assert_eq!((seen.len(), seen[0].2.len()), (2, data.len()));
}

proptest! {
    #[test]
    fn random_files_never_panic_and_end(
        octets in proptest::collection::vec(any::<u8>(), 0..300),
        flips in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..6),
    ) {
        for start in [&pcap(0xa1b2_c3d4, false, &[])[..], &section(false), &[]] {
            let _ = frames_of_any_link(&[start, &octets].concat());
        }
        let mut modern = [section(false), interface(false, Some(6)), enhanced(false, 0, 9, &octets, 9)].concat();
        for (at, value) in flips {
            let at = at % modern.len();
            modern[at] = value;
        }
        let _ = frames_of_any_link(&modern);
    }
}

fn frames_of_any_link(file: &[u8]) -> usize {
    let Ok(mut capture) = CaptureReader::open(Cursor::new(file.to_vec())) else { return 0 };
    let mut count = 0;
    while let Ok(Some(_)) = capture.next_frame() {
        count += 1;
        assert!(count <= file.len());
    }
    count
}
