//! The packet tricks of `packets.rs` and `moments.rs`, one row each.
//!
//! A trick shows a guard one message (the decoy) and brings another (the truth) to the application.
//! Each ends by delivering the truth as an honest end would, with retransmissions.

use std::time::Duration;

use bannerwall_test_support::raw::{AnyEnd as End, Extension, Flags, Medium as _, Packet, Role};

/// Which ends can play a trick.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Both.
    Both,
    /// Only a raw client, against a real server.
    Client,
    /// Only a raw server, against a real client.
    Server,
}

impl Ends {
    pub(crate) fn includes(self, role: Role) -> bool {
        match self {
            Self::Both => true,
            Self::Client => role == Role::Client,
            Self::Server => role == Role::Server,
        }
    }
}

/// What is to arrive, and what the guard is to believe; both have one length. Where the truth is
/// allowed, both are the same: who plays a trick with the same octets deceives nobody.
#[derive(Clone, Copy)]
pub(crate) struct Shot {
    pub(crate) truth: &'static [u8],
    pub(crate) decoy: &'static [u8],
}

/// A trick.
#[derive(Clone, Copy)]
pub(crate) struct Trick {
    pub(crate) name: &'static str,
    pub(crate) ends: Ends,
    /// Needs IPv6.
    pub(crate) v6_only: bool,
    pub(crate) play: fn(&mut End, Shot),
}

const fn trick(name: &'static str, ends: Ends, play: fn(&mut End, Shot)) -> Trick {
    Trick { name, ends, v6_only: false, play }
}

const fn v6_trick(name: &'static str, play: fn(&mut End, Shot)) -> Trick {
    Trick { name, ends: Ends::Both, v6_only: true, play }
}

/// Tricks that still bring forbidden messages past a guard: played and counted, but no failure yet.
pub(crate) const PENDING: &[&str] = &[];

/// Every trick.
pub(crate) const TRICKS: &[Trick] = &[
    trick("nothing at all", Ends::Both, |end, shot| {
        end.open();
        deliver(end, shot);
    }),
    trick("decoy with an MD5 signature", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| end.segment(0, shot.decoy).signed());
    }),
    trick("decoy with an option longer than the header", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| {
            let mut option = [0; 20];
            option[..2].copy_from_slice(&[200, 60]);
            end.segment(0, shot.decoy).option(&option)
        });
    }),
    trick("decoy with FIN and an MD5 signature", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| {
            end.segment(0, shot.decoy).flags(Flags::ACK | Flags::FIN | Flags::PSH).signed()
        });
    }),
    trick("decoy that acknowledges one octet too little", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| acknowledging(end, shot, 1));
    }),
    trick("decoy that acknowledges what is long past", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| acknowledging(end, shot, 66_000));
    }),
    trick("decoy that acknowledges what was never sent", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| acknowledging(end, shot, 0_u32.wrapping_sub(50_000)));
    }),
    trick("decoy with an old timestamp", Ends::Both, |end, shot| {
        end.open_by(true, |_| {});
        let decoy = end.aged(0, shot.decoy, 100_000);
        send(end, &decoy);
        deliver(end, shot);
    }),
    trick("opening segment repeated with the decoy", Ends::Both, |end, shot| {
        end.open();
        let flags = if end.role == Role::Client { Flags::SYN } else { Flags::SYN | Flags::ACK };
        let packet = Packet { payload: shot.decoy.to_vec(), ..end.opening(flags) };
        send(end, &packet);
        deliver(end, shot);
    }),
    trick("opening segment repeated with the decoy before the handshake ends", Ends::Client, |end, shot| {
        end.open_by(false, |end| {
            let packet = Packet { payload: shot.decoy.to_vec(), ..end.opening(Flags::SYN) };
            send(end, &packet);
        });
        deliver(end, shot);
    }),
    trick("SYN with the decoy", Ends::Client, |end, shot| {
        let packet = Packet { payload: shot.decoy.to_vec(), ..end.opening(Flags::SYN) };
        end.answered(&packet);
        end.acknowledge();
        deliver(end, shot);
    }),
    trick("SYN-ACK with the decoy", Ends::Server, |end, shot| {
        end.await_syn();
        let packet = Packet { payload: shot.decoy.to_vec(), ..end.opening(Flags::SYN | Flags::ACK) };
        end.answered(&packet);
        deliver(end, shot);
    }),
    trick("decoy before the SYN-ACK", Ends::Server, |end, shot| {
        end.open_by(false, |end| put(end, |end| end.segment(0, shot.decoy)));
        deliver(end, shot);
    }),
    trick("simultaneous open with the decoy", Ends::Server, |end, shot| {
        end.await_syn();
        let packet = Packet { payload: shot.decoy.to_vec(), ..end.opening(Flags::SYN) };
        send(end, &packet);
        let answer = end.opening(Flags::SYN | Flags::ACK);
        end.answered(&answer);
        end.acknowledge();
        deliver(end, shot);
    }),
    trick("simultaneous open", Ends::Server, |end, shot| {
        end.await_syn();
        put(end, |end| end.opening(Flags::SYN));
        let answer = end.opening(Flags::SYN | Flags::ACK);
        end.answered(&answer);
        end.acknowledge();
        deliver(end, shot);
    }),
    trick("SYN-ACK before the client's SYN", Ends::Client, |end, shot| {
        put(end, |end| end.opening(Flags::SYN | Flags::ACK));
        end.begin_anew(end.start);
        end.open();
        deliver(end, shot);
    }),
    trick("SYN-ACK that expires before the client's SYN", Ends::Client, |end, shot| {
        let packet = Packet { hop_limit: 2, ..end.opening(Flags::SYN | Flags::ACK) };
        send(end, &packet);
        end.begin_anew(end.start);
        end.open();
        deliver(end, shot);
    }),
    trick("decoy that expires, beside others that just arrive", Ends::Both, |end, shot| {
        end.hop_limit = 3;
        before_truth(end, shot, |end| Packet { hop_limit: 2, ..end.segment(0, shot.decoy) });
    }),
    trick("decoy that expires", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| Packet { hop_limit: 2, ..end.segment(0, shot.decoy) });
    }),
    trick("decoy longer than a later link takes", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| end.segment(0, &padded(shot.decoy, 1_300)));
    }),
    v6_trick("decoy behind an option to be discarded by", |end, shot| {
        before_truth(end, shot, |end| end.segment(0, shot.decoy).extension(Extension::Destination(0xbe)));
    }),
    v6_trick("decoy behind a routing header with segments left", |end, shot| {
        before_truth(end, shot, |end| end.segment(0, shot.decoy).extension(Extension::Routing(1)));
    }),
    v6_trick("decoy with a wrong checksum behind a routing header", |end, shot| {
        before_truth(end, shot, |end| Packet {
            bad_checksum: true,
            ..end.segment(0, shot.decoy).extension(Extension::Routing(1))
        });
    }),
    v6_trick("decoy behind two hop-by-hop headers", |end, shot| {
        before_truth(end, shot, |end| {
            end.segment(0, shot.decoy).extension(Extension::HopByHop).extension(Extension::HopByHop)
        });
    }),
    v6_trick("truth behind twenty destination headers", |end, shot| {
        end.open();
        let mut packet = end.segment(0, shot.truth);
        packet.extensions = vec![Extension::Destination(1); 20];
        send(end, &packet);
        deliver(end, shot);
    }),
    v6_trick("truth behind a hop-by-hop header", |end, shot| {
        before_truth(end, shot, |end| end.segment(0, shot.truth).extension(Extension::HopByHop));
    }),
    v6_trick("truth behind a routing header that is done", |end, shot| {
        before_truth(end, shot, |end| end.segment(0, shot.truth).extension(Extension::Routing(0)));
    }),
    v6_trick("truth in an atomic fragment", |end, shot| {
        before_truth(end, shot, |end| end.segment(0, shot.truth).extension(Extension::AtomicFragment));
    }),
    trick("decoy with a wrong checksum", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| Packet { bad_checksum: true, ..end.segment(0, shot.decoy) });
    }),
    trick("long decoy with a wrong checksum", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| Packet {
            bad_checksum: true,
            ..end.segment(0, &padded(shot.decoy, 950))
        });
    }),
    trick("decoy without any flag", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| end.segment(0, shot.decoy).flags(0));
    }),
    trick("decoy with SYN", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| end.segment(0, shot.decoy).flags(Flags::SYN | Flags::ACK));
    }),
    trick("decoy with SYN and FIN", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| end.segment(0, shot.decoy).flags(Flags::SYN | Flags::FIN));
    }),
    trick("decoy beyond the window", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| end.segment(9_000_000, shot.decoy));
    }),
    trick("decoy before the window", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| end.segment(-10_000, shot.decoy));
    }),
    trick("decoy that ends where the data begins", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| end.segment(-signed(shot.decoy.len()), shot.decoy));
    }),
    trick("overlap, the decoy held and then the truth over it", Ends::Both, |end, shot| {
        end.open();
        put(end, |end| end.segment(1, &shot.decoy[1..]));
        deliver(end, shot);
    }),
    trick("overlap, the middle held and then the truth", Ends::Both, |end, shot| {
        end.open();
        put(end, |end| end.segment(4, &shot.decoy[4..20]));
        deliver(end, shot);
    }),
    trick("overlap, a held piece replaced by one that covers it", Ends::Both, |end, shot| {
        end.open();
        put(end, |end| end.segment(8, &shot.decoy[8..14]));
        put(end, |end| end.segment(8, &shot.truth[8..]));
        put(end, |end| end.segment(0, &shot.truth[..8]));
        deliver(end, shot);
    }),
    trick("overlap, held pieces covered from before", Ends::Both, |end, shot| {
        end.open();
        put(end, |end| end.segment(10, &shot.decoy[10..14]));
        put(end, |end| end.segment(16, &shot.decoy[16..]));
        put(end, |end| end.segment(2, &shot.truth[2..]));
        put(end, |end| end.segment(0, &shot.truth[..2]));
        deliver(end, shot);
    }),
    trick("overlap by one octet that was not wanted yet", Ends::Both, |end, shot| {
        // As nfqws' `multidisorder` with `seqovl=1`.
        end.open();
        let differs = (8..shot.truth.len()).find(|at| shot.truth[*at] != shot.decoy[*at]);
        let at = differs.unwrap_or(8);
        let second = [&shot.decoy[at..=at], &shot.truth[at + 1..]].concat();
        put(end, |end| end.segment(signed(at), &second));
        put(end, |end| end.segment(0, &shot.truth[..=at]));
        deliver(end, shot);
    }),
    trick("urgent octet, pointer zero", Ends::Both, |end, shot| {
        urgent(end, shot, |end, text, at| {
            let mut packet = end.segment(signed(at), &text[at..]);
            (packet.flags, packet.urgent_pointer) = (packet.flags | Flags::URG, 0);
            send(end, &packet);
        });
    }),
    trick("urgent octet, pointer beside its data", Ends::Both, |end, shot| {
        urgent(end, shot, |end, text, at| {
            let mut packet = end.segment(signed(at), &text[at..]);
            (packet.flags, packet.urgent_pointer) = (packet.flags | Flags::URG, 1);
            send(end, &packet);
        });
    }),
    trick("urgent octet announced by an empty segment", Ends::Both, |end, shot| {
        urgent(end, shot, |end, text, at| {
            let mut packet = end.segment(signed(at), b"");
            (packet.flags, packet.urgent_pointer) = (Flags::ACK | Flags::URG, 1);
            send(end, &packet);
            put(end, |end| end.segment(signed(at), &text[at..]));
        });
    }),
    trick("tiny segments, last one first", Ends::Both, |end, shot| {
        end.open();
        for at in (0..shot.truth.len()).rev() {
            put_only(end, |end| end.segment(signed(at), &shot.truth[at..=at]));
        }
        deliver(end, shot);
    }),
    trick("a hundred tiny segments, last one first", Ends::Both, |end, shot| {
        end.open();
        let long = padded(shot.truth, 130);
        for at in (0..long.len()).rev() {
            put_only(end, |end| end.segment(signed(at), &long[at..=at]));
        }
        deliver(end, shot);
    }),
    trick("tiny segments in order", Ends::Both, |end, shot| {
        end.open();
        for at in 0..shot.truth.len() {
            put_only(end, |end| end.segment(signed(at), &shot.truth[at..=at]));
        }
        deliver(end, shot);
    }),
    trick("decoy resets with a wrong number", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| end.segment(30_000, b"").flags(Flags::RST));
    }),
    trick("decoy reset with an MD5 signature", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| end.segment(0, b"").flags(Flags::RST | Flags::ACK).signed());
    }),
    trick("decoy reset that expires", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| Packet {
            hop_limit: 2,
            ..end.segment(0, b"").flags(Flags::RST | Flags::ACK)
        });
    }),
    trick("decoy reset with a wrong checksum", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| Packet {
            bad_checksum: true,
            ..end.segment(0, b"").flags(Flags::RST | Flags::ACK)
        });
    }),
    trick("decoy FIN that expires", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| Packet {
            hop_limit: 2,
            ..end.segment(0, b"").flags(Flags::FIN | Flags::ACK)
        });
    }),
    trick("decoy FIN with a wrong number", Ends::Both, |end, shot| {
        before_truth(end, shot, |end| end.segment(9_000_000, b"").flags(Flags::FIN | Flags::ACK));
    }),
    trick("reset with an MD5 signature within the truth", Ends::Both, |end, shot| {
        end.open();
        end.deliver(&shot.truth[..10], 8);
        put(end, |end| end.segment(10, b"").flags(Flags::RST | Flags::ACK).signed());
        deliver(end, shot);
    }),
    trick("truth in fragments", Ends::Both, |end, shot| {
        end.open();
        let packet = Packet { identification: 77, ..end.segment(0, shot.truth) };
        packet.fragments(16).iter().for_each(|fragment| end.send_octets(fragment));
        deliver(end, shot);
    }),
    trick("truth in fragments, last one first", Ends::Both, |end, shot| {
        end.open();
        let packet = Packet { identification: 78, ..end.segment(0, shot.truth) };
        packet.fragments(8).iter().rev().for_each(|fragment| end.send_octets(fragment));
        deliver(end, shot);
    }),
    trick("decoy and truth in fragments of one packet", Ends::Both, |end, shot| {
        end.open();
        let decoy = Packet { identification: 79, ..end.segment(0, shot.decoy) }.fragments(16);
        let truth = Packet { identification: 79, ..end.segment(0, shot.truth) }.fragments(16);
        end.send_octets(&decoy[1]);
        truth.iter().for_each(|fragment| end.send_octets(fragment));
        deliver(end, shot);
    }),
    trick("the same port again with the number that comes next", Ends::Client, |end, shot| {
        again(end, shot, 0, Flags::RST | Flags::ACK);
    }),
    trick("the same port again behind a reset with URG", Ends::Client, |end, shot| {
        again(end, shot, 700_000, Flags::RST | Flags::URG);
    }),
    trick("the same port again behind a reset with FIN", Ends::Client, |end, shot| {
        again(end, shot, 700_000, Flags::RST | Flags::FIN);
    }),
    trick("the same port again behind a reset with ACK and URG", Ends::Client, |end, shot| {
        again(end, shot, 700_000, Flags::RST | Flags::ACK | Flags::URG);
    }),
    trick("answer in the server's name", Ends::Client, |end, shot| {
        end.open();
        end.deliver(&shot.truth[..20], 8);
        let mut forged = Packet::new(end.remote, end.local);
        forged.sequence = end.peer_next;
        forged.acknowledgement = end.segment(20, b"").sequence;
        forged.payload = b"HTTP/1.1 204 No Content\r\n\r\n".to_vec();
        // It comes back here, too, and means nothing.
        let next = end.peer_next;
        send(end, &forged);
        end.peer_next = next;
        deliver(end, shot);
    }),
];

/// Tricks with time; the longest takes more than five minutes.
pub(crate) const SLOW: &[Trick] = &[
    trick("silence for 122 s before the first octet", Ends::Server, |end, shot| {
        end.open();
        silence(end, 122, 0);
        deliver(end, shot);
    }),
    trick("silence for 122 s behind the first octet", Ends::Both, |end, shot| {
        end.open();
        end.deliver(&shot.truth[..1], 7);
        silence(end, 122, 1);
        deliver(end, shot);
    }),
    trick("130 s within the message, which then comes in two pieces", Ends::Both, |end, shot| {
        end.open();
        end.deliver(&shot.truth[..12], 7);
        silence(end, 130, 12);
        end.deliver(&shot.truth[..18], 7);
        deliver(end, shot);
    }),
    trick("25 s behind a reset with an MD5 signature", Ends::Both, |end, shot| {
        end.open();
        end.deliver(&shot.truth[..10], 7);
        put(end, |end| end.segment(10, b"").flags(Flags::RST | Flags::ACK).signed());
        silence(end, 25, 10);
        deliver(end, shot);
    }),
    trick("the last octets again when the block is forgotten", Ends::Both, |end, shot| {
        end.open();
        let most = shot.truth.len() - 4;
        end.deliver(&shot.truth[..most], 7);
        deliver(end, shot);
        silence(end, 312, most);
        deliver(end, shot);
    }),
];

/// Tricks that stand within a banner for longer than a guard waits, or go on long after a reset: it blocks
/// allowed ones as well.
pub(crate) const TOO_SLOW: &[&str] = &[
    "silence for 122 s behind the first octet",
    "130 s within the message, which then comes in two pieces",
    "25 s behind a reset with an MD5 signature",
];

/// Says nothing for so long, and then acknowledges.
fn silence(end: &mut End, seconds: u64, sent: usize) {
    end.medium.pause(Duration::from_secs(seconds));
    put(end, |end| end.segment(signed(sent), b"").flags(Flags::ACK));
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).expect("a small number")
}

fn padded(octets: &[u8], length: usize) -> Vec<u8> {
    let mut octets = octets.to_vec();
    octets.resize(length, b'x');
    octets
}

/// Sends a packet and gives it time to arrive before the next.
fn send(end: &mut End, packet: &Packet) {
    end.send(packet);
    end.settle();
}

/// As [`send`], of what is made by what the end knows.
fn put(end: &mut End, packet: impl FnOnce(&End) -> Packet) {
    put_only(end, packet);
    end.settle();
}

/// As [`put`], but the next packet may follow at once.
fn put_only(end: &mut End, packet: impl FnOnce(&End) -> Packet) {
    let packet = packet(end);
    end.send(&packet);
}

fn deliver(end: &mut End, shot: Shot) {
    end.deliver(shot.truth, 7);
}

/// An ordinary handshake, the decoy, and then the truth.
fn before_truth(end: &mut End, shot: Shot, decoy: impl FnOnce(&End) -> Packet) {
    end.open();
    end.settle();
    let decoy = decoy(end);
    send(end, &decoy);
    deliver(end, shot);
}

/// The decoy with an acknowledgement `short` octets below what came, in another window than before:
/// Linux takes the data of a segment that is as predicted whatever it acknowledges.
fn acknowledging(end: &End, shot: Shot, short: u32) -> Packet {
    let mut packet = end.segment(0, shot.decoy);
    // As if nothing of the other end's data had come yet.
    packet.acknowledgement = end.peer_start.wrapping_sub(short);
    packet.window = 50_000;
    packet
}

/// How far before the end of a message the name of its software is being told.
const WITHIN_NAME: usize = 13;

/// The truth with one octet more in the software's name, which the receiver is to take out as urgent.
fn urgent(end: &mut End, shot: Shot, play: fn(&mut End, &[u8], usize)) {
    end.open();
    let mut text = shot.truth.to_vec();
    // Where the truth is allowed, the urgent octet stands behind it and changes nothing.
    let place = if shot.truth == shot.decoy { text.len() } else { text.len() - WITHIN_NAME };
    text.insert(place, b'!');
    end.deliver(&text[..place], 7);
    play(end, &text, place);
    end.settle();
    end.medium.pause(Duration::from_millis(50));
    end.deliver(&text, 6);
}

/// An allowed connection that is ended by `ending`, and another from the same port.
fn again(end: &mut End, shot: Shot, ahead: u32, flags: u8) {
    end.open();
    end.deliver(shot.decoy, 7);
    end.medium.pause(Duration::from_millis(100));
    end.settle();
    put(end, |end| end.segment(signed(shot.decoy.len()), b"").flags(flags));
    let next = end.segment(signed(shot.decoy.len()), b"").sequence;
    end.begin_anew(next.wrapping_add(ahead));
    end.open();
    deliver(end, shot);
}
