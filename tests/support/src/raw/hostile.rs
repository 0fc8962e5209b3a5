//! Random sequences of tricks, the same for the same seed.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

use super::end::{Medium, RawEnd, Role};
use super::packet::{Extension, Flags, Packet};
use crate::Talk;

/// What a raw end means to bring to an application, and what it would have a guard believe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cargo {
    /// An SSH identification.
    Ssh,
    /// An HTTP request or response.
    Http,
}

impl Cargo {
    /// A message of the end in `role` whose software is forbidden or allowed; both have one length.
    pub fn message(self, role: Role, is_forbidden: bool) -> &'static [u8] {
        match (self, role, is_forbidden) {
            (Self::Ssh, Role::Server, true) => b"SSH-2.0-dropbear_2022.83\r\n",
            (Self::Ssh, Role::Server, false) => b"SSH-2.0-OpenSSH_9.9p2-ok\r\n",
            (Self::Ssh, Role::Client, true) => b"SSH-2.0-libssh_0.10.6\r\n",
            (Self::Ssh, Role::Client, false) => b"SSH-2.0-OpenSSH_10.0p\r\n",
            (Self::Http, Role::Client, true) => {
                b"GET /a HTTP/1.1\r\nHost: a.example\r\nUser-Agent: sqlmap/1.7.2\r\n\r\n"
            }
            (Self::Http, Role::Client, false) => {
                b"GET /b HTTP/1.1\r\nHost: a.example\r\nUser-Agent: curl/8.14.11\r\n\r\n"
            }
            (Self::Http, Role::Server, true) => {
                b"HTTP/1.1 200 OK\r\nServer: BadHttpd/1.0\r\nContent-Length: 0\r\n\r\n"
            }
            (Self::Http, Role::Server, false) => {
                b"HTTP/1.1 200 OK\r\nServer: OkHttpd/2.10\r\nContent-Length: 0\r\n\r\n"
            }
        }
    }

    /// What the application at the other end of `role` says.
    pub fn talk(self, role: Role) -> Talk {
        let (greeting, answer): (&[u8], &[u8]) = match (self, role) {
            (Self::Ssh, Role::Server) => (b"SSH-2.0-OpenSSH_9.2p1\r\n", b""),
            (Self::Ssh, Role::Client) => (b"SSH-2.0-OpenSSH_9.2p1\r\n", b""),
            (Self::Http, Role::Client) => (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
            (Self::Http, Role::Server) => {
                (b"GET / HTTP/1.1\r\nHost: a.example\r\nUser-Agent: ok/1\r\n\r\n", b"")
            }
        };
        Talk { greeting: greeting.to_vec(), answer: answer.to_vec() }
    }

    /// The software that an application takes from what it has read: that of a whole identification
    /// line, or of a field in a whole head.
    pub fn software(self, role: Role, read: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Ssh => {
                let mut lines = read.split_inclusive(|octet| *octet == b'\n');
                let line = lines.find(|line| line.starts_with(b"SSH-") && line.ends_with(b"\n"))?;
                let mut parts = line.splitn(3, |octet| *octet == b'-').skip(2);
                Some(parts.next()?.trim_ascii_end().to_vec())
            }
            Self::Http => {
                let end = read.windows(4).position(|window| window == b"\r\n\r\n")?;
                let name: &[u8] = if role == Role::Client { b"User-Agent: " } else { b"Server: " };
                let mut lines = read[..end].split(|octet| *octet == b'\n');
                lines.find_map(|line| Some(line.strip_prefix(name)?.trim_ascii_end().to_vec()))
            }
        }
    }

    /// Whether a rule forbids this software.
    pub fn is_forbidden(software: &[u8]) -> bool {
        ["dropbear", "libssh", "sqlmap/", "BadHttpd/"]
            .iter()
            .any(|name| software.starts_with(name.as_bytes()))
    }

    /// The rules that forbid it.
    pub const RULES: &str = r#"
[[rule]]
id = "no-dropbear"
title = "A forbidden server"
protocol = "ssh"
from = "server"
match.software = '^dropbear'
action = "drop"

[[rule]]
id = "no-libssh"
title = "A forbidden client"
protocol = "ssh"
from = "client"
match.software = '^libssh'
action = "drop"

[[rule]]
id = "no-sqlmap"
title = "A forbidden client"
protocol = "http"
from = "client"
match."header.user-agent" = '^sqlmap/'
action = "drop"

[[rule]]
id = "no-badhttpd"
title = "A forbidden server"
protocol = "http"
from = "server"
match."header.server" = '^BadHttpd/'
action = "drop"
"#;
}

/// A random sequence of tricks.
#[derive(Debug, Clone)]
pub struct Hostile {
    /// What decides everything else.
    pub seed: u64,
    /// Which end plays it.
    pub role: Role,
    /// Over IPv6.
    pub v6: bool,
    /// What it is about.
    pub cargo: Cargo,
    /// What is to arrive in the end.
    pub truth: &'static [u8],
    /// What the guard is to believe.
    pub decoy: &'static [u8],
    random: Rng,
}

impl Hostile {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let role = if random.bool() { Role::Client } else { Role::Server };
        let cargo = if random.bool() { Cargo::Ssh } else { Cargo::Http };
        let is_forbidden = random.u8(..) < 192;
        let v6 = random.bool();
        Self {
            seed,
            role,
            v6,
            cargo,
            truth: cargo.message(role, is_forbidden),
            decoy: cargo.message(role, !is_forbidden),
            random,
        }
    }

    /// Plays it. `has_fragments` says whether the medium puts IP fragments together.
    pub fn play<M: Medium>(&mut self, end: &mut RawEnd<M>, has_fragments: bool) {
        let timestamps = self.random.bool();
        let mut within = Self { random: self.random.fork(), ..self.clone() };
        if !end.open_by(timestamps, |end| within.play_handshake(end)) {
            return;
        }
        let count = self.random.usize(1..10);
        let mut last: Option<Packet> = None;
        for _ in 0..count {
            match self.random.u8(..16) {
                0..2 => end.settle(),
                2 => end.medium.pause(Duration::from_millis(self.random.u64(1..30))),
                3 => {
                    if let Some(packet) = &last {
                        end.send(packet);
                    }
                }
                _ => {
                    let packet = self.packet(end);
                    if self.random.u8(..12) == 0 && (9..100).contains(&packet.payload.len()) {
                        self.send_fragments(end, packet.clone(), has_fragments);
                    } else {
                        end.send(&packet);
                    }
                    last = Some(packet);
                }
            }
        }
        end.remark("the whole truth");
        end.deliver(self.truth, 3);
    }

    /// In fragments, or whole where nobody puts them together; headers in front are left out.
    fn send_fragments<M: Medium>(&mut self, end: &mut RawEnd<M>, mut packet: Packet, is_split: bool) {
        packet.extensions.clear();
        packet.identification = self.random.u16(1..);
        let mut fragments = packet.fragments(8 * self.random.usize(1..5));
        if self.random.bool() {
            self.random.shuffle(&mut fragments);
        }
        if !is_split {
            end.send(&packet);
            return;
        }
        for fragment in fragments {
            end.send_octets(&fragment);
        }
    }

    /// What is sent while the handshake stands open.
    fn play_handshake<M: Medium>(&mut self, end: &mut RawEnd<M>) {
        if self.random.u8(..3) != 0 {
            return;
        }
        let decoy = self.decoy.to_vec();
        let mut packet = match (self.random.u8(..4), end.role) {
            (0, Role::Client) => end.opening(Flags::SYN),
            (0, Role::Server) => end.opening(Flags::SYN | Flags::ACK),
            // Simultaneous open, where the other end is a client too.
            (1, Role::Server) => end.opening(Flags::SYN),
            (2, Role::Client) => end.opening(Flags::SYN | Flags::ACK),
            _ => end.segment(0, b""),
        };
        packet.payload = decoy;
        if self.random.u8(..4) == 0 {
            packet = self.trick(end, packet);
        }
        end.send(&packet);
        end.settle();
    }

    /// Any part of the truth, the decoy or a mixture, with or without a trick.
    fn packet<M: Medium>(&mut self, end: &RawEnd<M>) -> Packet {
        let Range { start, end: stop } = self.range();
        let mut octets = match self.random.u8(..8) {
            0..4 => self.decoy[start..stop].to_vec(),
            4..7 => self.truth[start..stop].to_vec(),
            _ => {
                let mut choose = |(one, other): (&u8, &u8)| if self.random.bool() { *one } else { *other };
                self.truth[start..stop].iter().zip(&self.decoy[start..stop]).map(&mut choose).collect()
            }
        };
        if stop == self.truth.len() && self.random.u8(..8) == 0 {
            octets.resize(octets.len() + self.random.usize(1..1150), b'x');
        }
        let offset = i64::try_from(start).unwrap_or(0);
        let packet = end.segment(offset, &octets);
        if self.random.u8(..3) == 0 { packet } else { self.trick(end, packet) }
    }

    /// Mostly from the beginning or to the end: there tricks meet.
    fn range(&mut self) -> Range<usize> {
        let length = self.truth.len();
        let cut = self.random.usize(1..length);
        match self.random.u8(..6) {
            0..2 => 0..length,
            2 => 0..cut,
            3 => cut..length,
            4 => 1..length,
            _ => {
                let start = self.random.usize(0..length - 1);
                start..self.random.usize(start + 1..=length)
            }
        }
    }

    fn trick<M: Medium>(&mut self, end: &RawEnd<M>, mut packet: Packet) -> Packet {
        let offset = i64::from(packet.sequence.wrapping_sub(end.start).cast_signed());
        match self.random.u8(..22) {
            0 => {
                let age = self.random.u32(1..100_000);
                let flags = packet.flags;
                packet = end.aged(offset, &packet.payload, age).flags(flags);
            }
            1 => packet = Packet { options: Vec::new(), ..packet }.signed(),
            2 => {
                // Another window keeps the segment out of the receiver's shortest path.
                packet.window -= self.random.u16(..2);
                let age = [1, 2, 66_000, 1 << 20][self.random.usize(..4)];
                packet.acknowledgement = packet.acknowledgement.wrapping_sub(age);
            }
            3 => packet.acknowledgement = packet.acknowledgement.wrapping_add(self.random.u32(1..100_000)),
            4 => {
                let few = [0, Flags::PSH, Flags::FIN, Flags::FIN | Flags::PSH | Flags::URG];
                packet.flags = few[self.random.usize(..4)];
            }
            5 | 6 => {
                packet.flags |= Flags::URG;
                let length = u16::try_from(packet.payload.len()).unwrap_or(u16::MAX);
                packet.urgent_pointer = [0, 1, 2, length, length + 1, length + 9][self.random.usize(..6)];
            }
            7 => {
                packet.flags |= Flags::URG;
                packet.urgent_pointer = self.random.u16(..40);
                packet.payload.clear();
            }
            8 => packet.flags |= Flags::SYN,
            9 => packet.flags |= [Flags::SYN | Flags::FIN, Flags::SYN | Flags::RST][self.random.usize(..2)],
            10 => {
                packet.flags = [Flags::RST, Flags::RST | Flags::ACK][self.random.usize(..2)];
                packet.sequence = packet.sequence.wrapping_add(self.random.u32(1_000..40_000));
                packet.payload.clear();
            }
            11 => {
                packet.flags |= [Flags::FIN, Flags::RST][self.random.usize(..2)];
                packet = Packet { options: Vec::new(), ..packet }.signed();
            }
            12 | 13 => packet.bad_checksum = true,
            14 => {
                packet.bad_checksum = true;
                let length = self.random.usize(500..1150);
                packet.payload.resize(length, b'x');
            }
            15 => packet.hop_limit = 2,
            16 => {
                let octets: Vec<u8> = (0..4 * self.random.usize(1..6)).map(|_| self.random.u8(..)).collect();
                // Kinds that mean something would make this another trick.
                packet.options.extend(
                    octets
                        .iter()
                        .map(|octet| if matches!(octet, 5 | 8 | 19 | 29 | 30) { 200 } else { *octet }),
                );
                packet.options.truncate(40);
            }
            17 => packet.sequence = packet.sequence.wrapping_add(5_000_000),
            18 => packet.sequence = packet.sequence.wrapping_sub(self.random.u32(1_000..1_000_000)),
            19 => {
                let length = 1_300 - packet.payload.len().min(1_299);
                packet.payload.extend(std::iter::repeat_n(b'x', length));
            }
            _ if self.v6 => {
                let hostile = [Extension::Destination(0xbe), Extension::Routing(1)];
                let harmless = [Extension::Destination(0x3e), Extension::Routing(0), Extension::HopByHop];
                packet.extensions = match self.random.u8(..4) {
                    0 => vec![Extension::HopByHop, Extension::HopByHop],
                    1 => vec![harmless[self.random.usize(..3)]],
                    _ => vec![hostile[self.random.usize(..2)]],
                };
            }
            _ => packet.hop_limit = self.random.u8(1..6),
        }
        packet
    }
}
