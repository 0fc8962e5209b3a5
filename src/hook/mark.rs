//! The two bits of the packet mark and connection mark that are ours.

use std::fmt;

/// What the two bits say of a packet or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MarkState {
    /// 0: nothing decided; the packet is queued.
    Undecided,
    /// 1: decided, pass without queueing.
    Pass,
    /// 2: decided, drop.
    Block,
    /// 3 of a packet: a reset that the guard made itself, which is never queued. See [`MarkState::RELEASED`]
    /// for others.
    Ours,
}

impl MarkState {
    /// 3 of a connection: what the server sends passes and is not queued, nor what the client acknowledges.
    /// Of a packet that is no reset, on its way into the hook: the connection is to be released, or is not to
    /// be any more where it holds octets of the client's. On its way out of it to the queue: the connection
    /// is released, or was when the packet came into the hook.
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

/// A field of two neighbouring bits in the 32-bit mark; all other bits belong to other software
/// (`tc`, VPNs, Kubernetes) and are never changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MarkField {
    bit: u8,
}

impl MarkField {
    /// The highest number that [`MarkField::new`] takes.
    pub const HIGHEST_BIT: u8 = 30;

    /// The field whose lower bit has number `bit`, counted from 0; `None` above 30.
    pub const fn new(bit: u8) -> Option<Self> {
        if bit <= Self::HIGHEST_BIT { Some(Self { bit }) } else { None }
    }

    /// The field that `mask` covers, when it is two neighbouring bits.
    pub(super) const fn from_mask(mask: u32) -> Option<Self> {
        if mask.count_ones() != 2 || mask >> mask.trailing_zeros() != 3 {
            return None;
        }
        // A u32 has at most 31 trailing zeros once two bits are set.
        Some(Self { bit: mask.trailing_zeros().to_le_bytes()[0] })
    }

    /// Number of the lower bit.
    pub const fn bit(self) -> u8 {
        self.bit
    }

    /// Both bits.
    pub const fn mask(self) -> u32 {
        3 << self.bit
    }

    /// `state` as it stands in the mark, all other bits zero.
    pub const fn value(self, state: MarkState) -> u32 {
        state.bits() << self.bit
    }

    /// What `mark` says.
    pub const fn read(self, mark: u32) -> MarkState {
        match (mark >> self.bit) & 3 {
            1 => MarkState::Pass,
            2 => MarkState::Block,
            3 => MarkState::Ours,
            _ => MarkState::Undecided,
        }
    }

    /// `mark` with our two bits saying `state`, and the rest kept.
    pub const fn write(self, mark: u32, state: MarkState) -> u32 {
        (mark & !self.mask()) | self.value(state)
    }
}

/// Bits 30 and 31: the far end from where people number their own marks, outside Tailscale's
/// 0x00ff0000, kube-proxy's 0xc000 and Cilium's 0x0f00.
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
