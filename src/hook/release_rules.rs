//! Rules that let the responses of released flows pass, and a classic BPF program for the `bpf` match
//! (`xt_bpf`) that finds segments without payload, exactly.
//!
//! The match sees a packet from its IP header on, reassembled from fragments (by conntrack, which runs
//! before). A segment is bare if the lengths of its headers add up to the IP length, to which its receiver
//! cuts it. Uncertain packets count as ones with payload: IPv6 with extension headers, and packets with their
//! length elsewhere (BIG TCP).

use std::fmt::Write as _;

use super::{HookConfig, MarkState};

/// Instruction of classic BPF: code, jumps if true and if false, operand (`linux/filter.h`).
struct XtBpfInstruction(u16, u8, u8, u32);

const LOAD_BYTE: u16 = 0x30;
const LOAD_BYTE_INDEXED: u16 = 0x50;
const LOAD_HALF: u16 = 0x28;
/// Loads four times the low four bits of a byte into X.
const LOAD_HEADER_LENGTH: u16 = 0xb1;
const AND: u16 = 0x54;
const SHIFT_RIGHT: u16 = 0x74;
const ADD_X: u16 = 0x0c;
const A_TO_X: u16 = 0x07;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_EQUAL_X: u16 = 0x1d;
const RETURN: u16 = 0x06;

const PROGRAM: [XtBpfInstruction; 21] = [
    //  0: ldb [0]                version
    XtBpfInstruction(LOAD_BYTE, 0, 0, 0),
    //  1: rsh #4
    XtBpfInstruction(SHIFT_RIGHT, 0, 0, 4),
    //  2: jeq #6, 11, 3
    XtBpfInstruction(JUMP_EQUAL, 8, 0, 6),
    //  3: ldxb 4*([0]&0xf)       IPv4: length of its header
    XtBpfInstruction(LOAD_HEADER_LENGTH, 0, 0, 0),
    //  4: ldb [x+12]             data offset, in 32-bit words, in the upper four bits
    XtBpfInstruction(LOAD_BYTE_INDEXED, 0, 0, 12),
    //  5: and #0xf0
    XtBpfInstruction(AND, 0, 0, 0xf0),
    //  6: rsh #2                 in bytes
    XtBpfInstruction(SHIFT_RIGHT, 0, 0, 2),
    //  7: add x
    XtBpfInstruction(ADD_X, 0, 0, 0),
    //  8: tax
    XtBpfInstruction(A_TO_X, 0, 0, 0),
    //  9: ldh [2]                total length
    XtBpfInstruction(LOAD_HALF, 0, 0, 2),
    // 10: ja 18
    XtBpfInstruction(JUMP, 0, 0, 7),
    // 11: ldb [6]                IPv6: what follows its header
    XtBpfInstruction(LOAD_BYTE, 0, 0, 6),
    // 12: jeq #6, 13, 20         TCP
    XtBpfInstruction(JUMP_EQUAL, 0, 7, 6),
    // 13: ldb [52]               data offset
    XtBpfInstruction(LOAD_BYTE, 0, 0, 52),
    // 14: and #0xf0
    XtBpfInstruction(AND, 0, 0, 0xf0),
    // 15: rsh #2
    XtBpfInstruction(SHIFT_RIGHT, 0, 0, 2),
    // 16: tax
    XtBpfInstruction(A_TO_X, 0, 0, 0),
    // 17: ldh [4]                payload length
    XtBpfInstruction(LOAD_HALF, 0, 0, 4),
    // 18: jeq x, 19, 20
    XtBpfInstruction(JUMP_EQUAL_X, 0, 1, 0),
    // 19: ret #65535
    XtBpfInstruction(RETURN, 0, 0, 0xffff),
    // 20: ret #0
    XtBpfInstruction(RETURN, 0, 0, 0),
];

/// Flags of segments that neither start nor end a connection.
const PLAIN: &str = "--tcp-flags FIN,SYN,RST,ACK,URG ACK";

/// Returns the rules that pass most packets of released flows; they come early, since they match most
/// packets. No packet with a decision in its mark matches here: those continue to [`rules`].
pub(super) fn first_rules(config: &HookConfig) -> Vec<String> {
    if !config.releases {
        return Vec::new();
    }
    let mask = config.mark.mask();
    let value = config.mark.value(MarkState::RELEASED);
    let released = format!(
        "-p tcp -m connmark --mark {value:#x}/{mask:#x} -m mark --mark 0x0/{mask:#x} -m conntrack --ctdir"
    );
    vec![
        // This matches the server's data. The kernel knows which end sends, not the mark.
        format!("{released} REPLY -m tcp {PLAIN} -j RETURN"),
        // This matches acknowledgements: the client has sent no more data.
        format!("{released} ORIGINAL {} -j RETURN", empty_match()),
    ]
}

/// Returns the other rules about released flows, see [`MarkState::RELEASED`]. The chain `save` saves a
/// packet's mark to its connection.
pub(super) fn rules(config: &HookConfig, save: &str) -> Vec<String> {
    let mask = config.mark.mask();
    let value = config.mark.value(MarkState::RELEASED);
    let [packet, connection] =
        ["mark", "connmark"].map(|kind| format!("-p tcp -m {kind} --mark {value:#x}/{mask:#x}"));
    // A mark that is not a decision of the guard (other rules may have restored it) is cleared.
    let no_decision = format!("{packet} -j MARK --set-xmark 0x0/{mask:#x}");
    if !config.releases {
        return vec![no_decision];
    }
    let (plain, other) = (format!("-m tcp {PLAIN}"), format!("-m tcp ! {PLAIN}"));
    let empty = empty_match();
    let elsewhere = format!("-m connmark ! --mark {value:#x}/{mask:#x}");
    let back = format!("-j CONNMARK --set-xmark 0x0/{mask:#x}");
    vec![
        // The deciding packet returns by NF_REPEAT. A client's packet decides only without data, so no
        // request passes here, wherever its mark comes from.
        format!("{packet} -m conntrack --ctdir ORIGINAL {empty} -g {save}"),
        // A server's packet decides only with data. If the kernel mistakes the server for the client, neither
        // rule matches.
        format!("{packet} -m conntrack --ctdir REPLY {empty} -j MARK --set-xmark 0x0/{mask:#x}"),
        format!("{packet} -m conntrack --ctdir REPLY {plain} -g {save}"),
        // The rest is client data, and packets that are not plain. A mark on data of a released connection
        // ends the release: the guard repeated the packet, or other rules restored the mark, and then more is
        // read.
        format!("-p tcp -m mark --mark {value:#x}/{mask:#x} {elsewhere} -j MARK --set-xmark 0x0/{mask:#x}"),
        format!("{packet} {plain} {back}"),
        // Other packets than data of a released connection end the release before they are queued, so that no
        // reply passes.
        format!("{connection} {other} {back}"),
        // Client data goes to the guard with the connection still released. The guard sees that in the mark,
        // and repeats the packet if the release must end.
        format!("{connection} {plain} -j MARK --set-xmark {value:#x}/{mask:#x}"),
    ]
}

/// Returns the matches for segments without data that neither start nor end a connection.
pub(super) fn empty_match() -> String {
    format!("-m tcp {PLAIN} {}", bare_match())
}

/// Returns the match as iptables accepts and prints it.
fn bare_match() -> String {
    let mut text = format!("-m bpf --bytecode \"{}", PROGRAM.len());
    for XtBpfInstruction(code, jump_true, jump_false, operand) in PROGRAM {
        // Writing to a String cannot fail.
        let _ = write!(text, ",{code} {jump_true} {jump_false} {operand}");
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::testing::{SegmentBuilder, endpoint};

    /// Simulates the kernel's execution of the program.
    fn runs(packet: &[u8]) -> bool {
        let octet = |at: u32| packet.get(usize::try_from(at).unwrap()).copied().map(u32::from);
        let half = |at: u32| Some(octet(at)? << 8 | octet(at + 1)?);
        let (mut a, mut x, mut at) = (0, 0, 0);
        loop {
            let XtBpfInstruction(code, jump_true, jump_false, operand) = PROGRAM[at];
            at += 1;
            // A load beyond the packet ends the program with 0.
            let loaded = match code {
                LOAD_BYTE => octet(operand),
                LOAD_BYTE_INDEXED => octet(x + operand),
                LOAD_HALF => half(operand),
                LOAD_HEADER_LENGTH => octet(operand).map(|octet| 4 * (octet & 0xf)),
                _ => Some(0),
            };
            let Some(loaded) = loaded else { return false };
            let jumps = |taken: bool| usize::from(if taken { jump_true } else { jump_false });
            match code {
                LOAD_HEADER_LENGTH => x = loaded,
                LOAD_BYTE | LOAD_BYTE_INDEXED | LOAD_HALF => a = loaded,
                AND => a &= operand,
                SHIFT_RIGHT => a >>= operand,
                ADD_X => a += x,
                A_TO_X => x = a,
                JUMP => at += usize::try_from(operand).unwrap(),
                JUMP_EQUAL => at += jumps(a == operand),
                JUMP_EQUAL_X => at += jumps(a == x),
                RETURN => return operand != 0,
                _ => panic!("{code}"),
            }
        }
    }

    #[test]
    fn only_a_segment_whose_headers_are_all_there_is_of_it_is_bare() {
        let ends = [("192.0.2.1:4000", "198.51.100.2:80"), ("[2001:db8::1]:4000", "[2001:db8::2]:80")];
        for (client, server) in ends {
            let segment = || SegmentBuilder::new(endpoint(client), endpoint(server));
            let options: [&[u8]; 2] = [&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], &[1; 40]];
            for options in options {
                assert!(runs(&segment().raw_options(options).build()), "{client} {options:?}");
                for payload in [&b"x"[..], b"GET / HTTP/1.1\r\n\r\n", &[0; 1400]] {
                    assert!(!runs(&segment().raw_options(options).payload(payload).build()), "{client}");
                    assert!(!runs(&segment().payload(payload).build()), "{client}");
                }
            }
            let whole = segment().build();
            assert!(runs(&whole), "{client}");
            for length in 0..whole.len() - 1 {
                // Cut before what is looked at.
                let _ = runs(&whole[..length]);
            }
        }
    }

    #[test]
    fn what_can_not_be_told_counts_as_payload() {
        let client = endpoint("[2001:db8::1]:4000");
        let mut packet = SegmentBuilder::new(client, endpoint("[2001:db8::2]:80")).build();
        packet[6] = 60;
        assert!(!runs(&packet), "behind extension headers");
        packet[6] = 6;
        (packet[4], packet[5]) = (0, 0);
        assert!(!runs(&packet), "its length is told elsewhere");
        assert!(!runs(&[]));
    }

    #[test]
    fn the_kernel_takes_programs_of_64_instructions() {
        let text = bare_match();
        assert!(text.starts_with("-m bpf --bytecode \"21,48 0 0 0,116 0 0 4,21 8 0 6,177 0 0 0,"));
        assert!(PROGRAM.len() <= 64 && text.ends_with(",6 0 0 65535,6 0 0 0\""));
    }
}
