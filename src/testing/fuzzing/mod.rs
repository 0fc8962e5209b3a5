//! Fuzz targets: one function each, which takes bytes and panics on an error.
//!
//! The coverage-guided targets in `fuzz/` and the property tests in `tests/replay/fuzzing.rs` share these
//! functions, so each can repeat the other's findings. The program does not use this module.

mod banners;
mod handshakes;
mod quic;
mod rule_engine;
mod streams;

pub use banners::{framing, greeting, http, other, ssh};
pub use handshakes::{certificate, tls};
pub use quic::quic;
pub use rule_engine::{engine, rules};
pub use streams::{capture, flow, netlink, packet};

/// Fuzz target.
pub type FuzzTarget = fn(&[u8]);

/// Fuzz targets by the name of their seeds' folder.
pub const TARGETS: &[(&str, FuzzTarget)] = &[
    ("packet", packet),
    ("flow", flow),
    ("ssh", ssh),
    ("greeting", greeting),
    ("other", other),
    ("http", http),
    ("framing", framing),
    ("tls", tls),
    ("quic", quic),
    ("certificate", certificate),
    ("capture", capture),
    ("netlink", netlink),
    ("rules", rules),
    ("engine", engine),
];

/// Takes choices from the front of the fuzzer's bytes; returns zeros once they are used up.
struct FuzzChoices<'a>(&'a [u8]);

impl<'a> FuzzChoices<'a> {
    fn octet(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.octet(), self.octet()])
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
