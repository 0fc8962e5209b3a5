//! Memory of the packets that the guard requeued or sent a moment ago, to recognise them when they arrive.
//!
//! Both kinds carry our bits of the packet mark, by which the hook recognises them. A third-party rule before
//! the hook that copies the whole connection mark to packets (`CONNMARK --restore-mark` in OUTPUT) clears
//! those bits. Then a packet requeued with a decision would circulate for ever, and a reset would be dropped
//! with the connection that it is to end.

/// Number of hashes kept, which exceeds the size of a batch.
const KEPT: usize = 128;
/// Number of bytes that identify a packet: both headers without options.
const TELLING: usize = 60;

/// Hashes of packets. A new one replaces the oldest.
#[derive(Debug, Clone)]
pub(super) struct RecentPackets {
    hashes: Vec<u64>,
    next: usize,
    hasher: ahash::RandomState,
}

impl RecentPackets {
    pub(super) fn new() -> Self {
        Self { hashes: Vec::with_capacity(KEPT), next: 0, hasher: ahash::RandomState::new() }
    }

    /// True if a packet met this hook a moment ago. Stores it otherwise.
    pub(super) fn check_repeat(&mut self, hook: u8, packet: &[u8]) -> bool {
        // The hook is part of the identity: a packet of this machine to itself meets OUTPUT and then INPUT,
        // and is no repetition there.
        let hash = self.hasher.hash_one((hook, packet.get(..TELLING).unwrap_or(packet)));
        let again = self.hashes.contains(&hash);
        if !again {
            self.keep(hash);
        }
        again
    }

    /// Stores a reset that the guard sends.
    pub(super) fn record_reset(&mut self, reset: &[u8]) {
        if let Some(identity) = identity(reset) {
            let hash = self.hasher.hash_one(identity);
            self.keep(hash);
        }
    }

    /// True if a packet is a reset that the guard sent a moment ago.
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

/// Returns the addresses and the TCP header of a reset, which the kernel does not change; none for other
/// packets.
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
            let mut recent = RecentPackets::new();
            let reset = packet(version, 0x14, 0);
            assert!(!recent.has_sent(&reset));
            recent.record_reset(&reset);
            recent.record_reset(&packet(version, 0x10, 0));
            assert!(recent.has_sent(&packet(version, 0x14, if version == 4 { 9 } else { 0 })));
            assert!(!recent.has_sent(&packet(version, 0x10, 0)), "no reset");
            for length in 0..reset.len() {
                assert!(!recent.has_sent(&reset[..length]), "{length}");
            }
            let mut other = reset.clone();
            *other.last_mut().unwrap() ^= 1;
            assert!(!recent.has_sent(&other));
            let others = (0..=255).filter(|hook| !recent.check_repeat(*hook, &reset)).count();
            assert_eq!(others, 256);
            assert!(!recent.has_sent(&reset), "long ago");
        }
    }

    #[test]
    fn a_packet_that_comes_again_to_the_same_hook_is_known() {
        let mut recent = RecentPackets::new();
        let packet = packet(4, 0x10, 1);
        assert!(!recent.check_repeat(3, &packet));
        assert!(!recent.check_repeat(1, &packet), "another hook");
        assert!(recent.check_repeat(3, &packet) && recent.check_repeat(3, &packet));
        assert!(!recent.check_repeat(3, &[]));
    }
}
