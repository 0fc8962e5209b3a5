//! Changes to a packet before it is forwarded.

/// A change of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PacketPatch {
    /// The packet stays as long as it is, and these bytes are written into it.
    Write {
        /// The offset from the start of the IP header.
        at: usize,
        /// A TCP header.
        octets: Vec<u8>,
    },
    /// This packet takes its place.
    Replace(Vec<u8>),
}

impl PacketPatch {
    /// The changed packet; `None` if it has to be whole and is not: `wire_length` is its length on the wire.
    pub fn apply(&self, packet: &[u8], wire_length: usize) -> Option<Vec<u8>> {
        match self {
            Self::Replace(packet) => Some(packet.clone()),
            Self::Write { at, octets } => {
                let mut packet = packet.get(..wire_length)?.to_vec();
                packet.get_mut(*at..)?.get_mut(..octets.len())?.copy_from_slice(octets);
                Some(packet)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_written_into_whole_packets_only() {
        let patch = PacketPatch::Write { at: 40, octets: vec![7; 7] };
        assert_eq!(patch.apply(&[0; 46], 46), None, "it is too short");
        assert_eq!(patch.apply(&[0; 47], 48), None, "it was cut");
        assert_eq!(patch.apply(&[0; 47], 47), Some([[0; 40].as_slice(), &[7; 7]].concat()));
        assert_eq!(PacketPatch::Replace(vec![1, 2]).apply(&[0; 9], 90), Some(vec![1, 2]));
    }
}
