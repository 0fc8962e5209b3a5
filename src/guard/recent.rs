//! The packets that the guard sent around or made itself a moment ago, known again when they come.
//!
//! Both carry our bits of the packet mark, by which the hook knows them. A rule of others that stands before
//! the hook and copies a connection's whole mark to its packets (`CONNMARK --restore-mark` in OUTPUT) takes
//! those off: then a packet that was sent around with a decision would go around for ever, and a reset
//! would be stopped with the connection that it is to end.

/// How many are remembered: more than a batch holds.
const KEPT: usize = 128;
/// Octets of a packet that tell it from others: both headers without options.
const TELLING: usize = 60;

/// Hashes of packets, the oldest replaced first.
#[derive(Debug, Clone)]
pub(super) struct Recent {
    hashes: Vec<u64>,
    next: usize,
    hasher: ahash::RandomState,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self { hashes: Vec::with_capacity(KEPT), next: 0, hasher: ahash::RandomState::new() }
    }

    /// True if a packet met this hook a moment ago; it has now.
    pub(super) fn meets_again(&mut self, hook: u8, packet: &[u8]) -> bool {
        let hash = self.hasher.hash_one((hook, packet.get(..TELLING).unwrap_or(packet)));
        let again = self.hashes.contains(&hash);
        if !again {
            self.keep(hash);
        }
        again
    }

    /// Remembers a reset that is sent.
    pub(super) fn sends(&mut self, reset: &[u8]) {
        if let Some(identity) = identity(reset) {
            let hash = self.hasher.hash_one(identity);
            self.keep(hash);
        }
    }

    /// True if a packet is a reset that was sent a moment ago.
    pub(super) fn has_sent(&self, packet: &[u8]) -> bool {
        if self.hashes.is_empty() {
            return false;
        }
        identity(packet).is_some_and(|identity| self.hashes.contains(&self.hasher.hash_one(identity)))
    }

    fn keep(&mut self, hash: u64) {
        match self.hashes.get_mut(self.next) {
            Some(oldest) => *oldest = hash,
            None => self.hashes.push(hash),
        }
        self.next = (self.next + 1) % KEPT;
    }
}

/// Addresses and TCP header of a reset, which the kernel leaves as they are; none for other packets.
fn identity(packet: &[u8]) -> Option<(&[u8], &[u8])> {
    let first = packet.first()?;
    let (addresses, header) = match first >> 4 {
        4 => (12..20, usize::from(first & 15) * 4),
        _ => (8..40, 40),
    };
    let tcp = packet.get(header..header + 20)?;
    // RST (RFC 9293 section 3.1).
    (tcp.get(13)? & 4 != 0).then_some((packet.get(addresses)?, tcp))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(version: u8, flags: u8, id: u8) -> Vec<u8> {
        let header = if version == 4 { 20 } else { 40 };
        let mut packet = vec![0; header + 20];
        (packet[0], packet[5]) = (version << 4 | 5, id);
        packet[header + 13] = flags;
        packet
    }

    #[test]
    fn a_reset_is_known_again_by_what_the_kernel_leaves_alone() {
        for version in [4, 6] {
            let mut recent = Recent::new();
            let reset = packet(version, 0x14, 0);
            assert!(!recent.has_sent(&reset));
            recent.sends(&reset);
            recent.sends(&packet(version, 0x10, 0));
            assert!(recent.has_sent(&packet(version, 0x14, if version == 4 { 9 } else { 0 })));
            assert!(!recent.has_sent(&packet(version, 0x10, 0)), "no reset");
            for length in 0..reset.len() {
                assert!(!recent.has_sent(&reset[..length]), "{length}");
            }
            let mut other = reset.clone();
            *other.last_mut().unwrap() ^= 1;
            assert!(!recent.has_sent(&other));
            let others = (0..=255).filter(|hook| !recent.meets_again(*hook, &reset)).count();
            assert_eq!(others, 256);
            assert!(!recent.has_sent(&reset), "long ago");
        }
    }

    #[test]
    fn a_packet_that_comes_again_to_the_same_hook_is_known() {
        let mut recent = Recent::new();
        let packet = packet(4, 0x10, 1);
        assert!(!recent.meets_again(3, &packet));
        assert!(!recent.meets_again(1, &packet), "another hook");
        assert!(recent.meets_again(3, &packet) && recent.meets_again(3, &packet));
        assert!(!recent.meets_again(3, &[]));
    }
}
