//! The two bits of the packet mark and the connection mark.

use std::fmt;

/// Value of the two bits on a packet or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MarkState {
    /// 0: nothing decided; the packet is queued.
    Undecided,
    /// 1: decided, pass without queueing.
    Pass,
    /// 2: decided, drop.
    Block,
    /// 3 on a packet: a reset from the guard, which is never queued. See [`MarkState::RELEASED`] for other
    /// packets.
    Ours,
}

impl MarkState {
    /// 3 on a connection: the server's data and the client's bare acknowledgements pass without queueing.
    ///
    /// On a packet (other than a reset) that enters the hook: release the connection, or end the release if
    /// the packet has client data. On a packet that leaves the hook to the queue: the connection is released,
    /// or was when the packet entered the hook.
    pub const RELEASED: Self = Self::Ours;

    const fn bits(self) -> u32 {
        match self {
            Self::Undecided => 0,
            Self::Pass => 1,
            Self::Block => 2,
            Self::Ours => 3,
        }
    }
}

/// Field of two adjacent bits in the 32-bit mark. All other bits belong to other software (`tc`, VPNs,
/// Kubernetes) and are never changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MarkField {
    bit: u8,
}

impl MarkField {
    /// Highest bit for [`MarkField::new`].
    pub const HIGHEST_BIT: u8 = 30;

    /// Returns the field with the lower bit number `bit`, counted from 0; `None` above 30.
    pub const fn new(bit: u8) -> Option<Self> {
        if bit <= Self::HIGHEST_BIT { Some(Self { bit }) } else { None }
    }

    /// Returns the field of `mask`, if that has two adjacent bits.
    pub(super) const fn from_mask(mask: u32) -> Option<Self> {
        if mask.count_ones() != 2 || mask >> mask.trailing_zeros() != 3 {
            return None;
        }
        // A u32 has at most 31 trailing zeros once two bits are set.
        Some(Self { bit: mask.trailing_zeros().to_le_bytes()[0] })
    }

    /// Returns the number of the lower bit.
    pub const fn bit(self) -> u8 {
        self.bit
    }

    /// Returns the mask of both bits.
    pub const fn mask(self) -> u32 {
        3 << self.bit
    }

    /// Returns `state` at its position in the mark, all other bits zero.
    pub const fn value(self, state: MarkState) -> u32 {
        state.bits() << self.bit
    }

    /// Returns the value of the two bits in `mark`.
    pub const fn read(self, mark: u32) -> MarkState {
        match (mark >> self.bit) & 3 {
            1 => MarkState::Pass,
            2 => MarkState::Block,
            3 => MarkState::Ours,
            _ => MarkState::Undecided,
        }
    }

    /// Returns `mark` with the two bits set to `state`.
    pub const fn write(self, mark: u32, state: MarkState) -> u32 {
        (mark & !self.mask()) | self.value(state)
    }
}

/// Bits 30 and 31: far from the usual numbers of marks, and outside of Tailscale's 0x00ff0000, kube-proxy's
/// 0xc000 and Cilium's 0x0f00.
impl Default for MarkField {
    fn default() -> Self {
        Self { bit: Self::HIGHEST_BIT }
    }
}

impl fmt::Display for MarkField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#x}", self.mask())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [MarkState; 4] = [MarkState::Undecided, MarkState::Pass, MarkState::Block, MarkState::Ours];

    #[test]
    fn writing_keeps_foreign_bits_and_reads_back() {
        for bit in 0..=MarkField::HIGHEST_BIT {
            let field = MarkField::new(bit).expect("within the mark");
            for state in STATES {
                for mark in [0, 0x1234_5678, u32::MAX] {
                    let written = field.write(mark, state);
                    assert_eq!(field.read(written), state, "bit {bit}");
                    assert_eq!(written & !field.mask(), mark & !field.mask(), "bit {bit}");
                }
            }
            assert_eq!(MarkField::from_mask(field.mask()), Some(field));
        }
    }

    #[test]
    fn a_field_must_fit_into_the_mark() {
        assert_eq!(MarkField::new(31), None);
        for mask in [0, 1, 5, 7, 0x8000_0001, u32::MAX] {
            assert_eq!(MarkField::from_mask(mask), None, "{mask:#x}");
        }
    }
}
