//! A cursor over first bytes: each step fails at the earliest byte that does not fit.

use std::ops::RangeInclusive;

/// The reason why first bytes do not fit a signature (yet).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstBytesMiss {
    /// There are too few of them.
    More,
    /// They differ.
    Never,
}

pub(super) type Look = Result<(), FirstBytesMiss>;

/// First bytes, and the number of inspected ones.
#[derive(Debug, Clone)]
pub(super) struct FirstBytesCursor<'a> {
    octets: &'a [u8],
}

impl<'a> FirstBytesCursor<'a> {
    pub(super) const fn new(octets: &'a [u8]) -> Self {
        Self { octets }
    }

    /// Takes the next byte.
    pub(super) fn octet(&mut self) -> Result<u8, FirstBytesMiss> {
        let (first, rest) = self.octets.split_first().ok_or(FirstBytesMiss::More)?;
        self.octets = rest;
        Ok(*first)
    }

    /// The bytes that were not inspected yet.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.octets
    }

    /// Takes exactly these bytes.
    pub(super) fn is(&mut self, wanted: &[u8]) -> Look {
        wanted.iter().try_for_each(|wanted| require(self.octet()? == *wanted))
    }

    /// Takes one of these bytes.
    pub(super) fn among(&mut self, wanted: &[u8]) -> Result<u8, FirstBytesMiss> {
        let octet = self.octet()?;
        require(wanted.contains(&octet)).map(|()| octet)
    }

    /// Takes a byte of this range.
    pub(super) fn within(&mut self, range: RangeInclusive<u8>) -> Result<u8, FirstBytesMiss> {
        let octet = self.octet()?;
        require(range.contains(&octet)).map(|()| octet)
    }

    /// Takes this number of decimal digits.
    pub(super) fn digits(&mut self, count: usize) -> Look {
        (0..count).try_for_each(|_| self.within(b'0'..=b'9').map(|_| ()))
    }

    /// Takes this number of bytes of any value.
    pub(super) fn skip(&mut self, count: usize) -> Look {
        (0..count).try_for_each(|_| self.octet().map(|_| ()))
    }

    /// Takes a number of `width` bytes in this range, most significant byte first. It fails at the first
    /// byte that excludes the range.
    pub(super) fn number(&mut self, width: u32, range: RangeInclusive<u32>) -> Result<u32, FirstBytesMiss> {
        let mut value = 0_u32;
        for left in (0..width).rev() {
            value = (value << 8) | u32::from(self.octet()?);
            let (low, high) = (range.start() >> (8 * left), range.end() >> (8 * left));
            require((low..=high).contains(&value))?;
        }
        Ok(value)
    }

    /// Takes one of these texts. If one is a prefix of another, the shorter one must come last.
    pub(super) fn any_of(&mut self, texts: &[&[u8]]) -> Look {
        let mut miss = FirstBytesMiss::Never;
        for text in texts {
            let mut tried = self.clone();
            match tried.is(text) {
                Ok(()) => {
                    *self = tried;
                    return Ok(());
                }
                Err(FirstBytesMiss::More) => miss = FirstBytesMiss::More,
                Err(FirstBytesMiss::Never) => {}
            }
        }
        Err(miss)
    }

    /// Tries alternatives in this order and takes the first that does not fail. It waits for one that may
    /// still fit.
    pub(super) fn either(&mut self, ways: &[fn(&mut Self) -> Look]) -> Look {
        for way in ways {
            let mut tried = self.clone();
            match way(&mut tried) {
                Err(FirstBytesMiss::Never) => {}
                Ok(()) => {
                    *self = tried;
                    return Ok(());
                }
                Err(FirstBytesMiss::More) => return Err(FirstBytesMiss::More),
            }
        }
        Err(FirstBytesMiss::Never)
    }

    /// Takes `count` bytes of this kind, up to the first byte of another kind, which stays.
    pub(super) fn run(&mut self, count: RangeInclusive<usize>, kind: fn(u8) -> bool) -> Look {
        let length = self.octets.iter().position(|octet| !kind(*octet));
        let known = length.unwrap_or(self.octets.len());
        require(known <= *count.end())?;
        let length = length.ok_or(FirstBytesMiss::More)?;
        require(length >= *count.start())?;
        self.skip(length)
    }
}

/// Succeeds if `fact` holds; else the bytes differ.
pub(super) fn require(fact: bool) -> Look {
    if fact { Ok(()) } else { Err(FirstBytesMiss::Never) }
}
