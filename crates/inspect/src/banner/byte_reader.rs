//! Reads binary messages value by value.

/// Takes values from the start of a slice. Each method returns none, and the message is malformed, if the
/// slice is too short.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByteReader<'o>(pub(super) &'o [u8]);

impl<'o> ByteReader<'o> {
    /// Takes this number of bytes.
    pub(super) fn take(&mut self, count: usize) -> Option<&'o [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    /// Takes a byte.
    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    /// Takes a number of two bytes, the most significant one first.
    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Takes a number of four bytes, the most significant one first.
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes a variable-length integer, RFC 9000 section 16.
    pub(super) fn varint(&mut self) -> Option<u64> {
        let first = self.u8()?;
        let rest = self.take((1 << (first >> 6)) - 1)?;
        Some(rest.iter().fold(u64::from(first & 0x3f), |value, octet| value << 8 | u64::from(*octet)))
    }

    /// Takes bytes after their number in one byte.
    pub(super) fn after_u8(&mut self) -> Option<&'o [u8]> {
        let count = self.u8()?;
        self.take(count.into())
    }

    /// Takes bytes after their number in two bytes.
    pub(super) fn after_u16(&mut self) -> Option<&'o [u8]> {
        let count = self.u16()?;
        self.take(count.into())
    }

    /// Takes bytes after their number in four bytes.
    pub(super) fn after_u32(&mut self) -> Option<&'o [u8]> {
        let count = self.u32()?;
        self.take(usize::try_from(count).ok()?)
    }

    /// Takes bytes after their number in a variable-length integer.
    pub(super) fn after_varint(&mut self) -> Option<&'o [u8]> {
        let count = self.varint()?;
        self.take(usize::try_from(count).ok()?)
    }
}
