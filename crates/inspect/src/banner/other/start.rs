//! A cursor over first octets: each step says at the earliest octet that they are not what is looked for.

use std::ops::RangeInclusive;

/// Why first octets are not (yet) what a signature looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Miss {
    /// Too few of them.
    More,
    /// They are something else.
    Never,
}

pub(super) type Look = Result<(), Miss>;

/// First octets, and how many of them were looked at.
#[derive(Debug, Clone)]
pub(super) struct Start<'a> {
    octets: &'a [u8],
}

impl<'a> Start<'a> {
    pub(super) const fn new(octets: &'a [u8]) -> Self {
        Self { octets }
    }

    /// The next octet.
    pub(super) fn octet(&mut self) -> Result<u8, Miss> {
        let (first, rest) = self.octets.split_first().ok_or(Miss::More)?;
        self.octets = rest;
        Ok(*first)
    }

    /// What was not looked at yet.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.octets
    }

    /// Exactly these octets.
    pub(super) fn is(&mut self, wanted: &[u8]) -> Look {
        wanted.iter().try_for_each(|wanted| require(self.octet()? == *wanted))
    }

    /// One of these octets.
    pub(super) fn among(&mut self, wanted: &[u8]) -> Result<u8, Miss> {
        let octet = self.octet()?;
        require(wanted.contains(&octet)).map(|()| octet)
    }

    /// An octet of this range.
    pub(super) fn within(&mut self, range: RangeInclusive<u8>) -> Result<u8, Miss> {
        let octet = self.octet()?;
        require(range.contains(&octet)).map(|()| octet)
    }

    /// Takes so many decimal digits.
    pub(super) fn digits(&mut self, count: usize) -> Look {
        (0..count).try_for_each(|_| self.within(b'0'..=b'9').map(|_| ()))
    }

    /// So many octets of any value.
    pub(super) fn skip(&mut self, count: usize) -> Look {
        (0..count).try_for_each(|_| self.octet().map(|_| ()))
    }

    /// A number of `width` octets, most significant first, of this range; what can't become one any more
    /// is told at once.
    pub(super) fn number(&mut self, width: u32, range: RangeInclusive<u32>) -> Result<u32, Miss> {
        let mut value = 0_u32;
        for left in (0..width).rev() {
            value = (value << 8) | u32::from(self.octet()?);
            let (low, high) = (range.start() >> (8 * left), range.end() >> (8 * left));
            require((low..=high).contains(&value))?;
        }
        Ok(value)
    }

    /// One of these texts; where one begins with another the shorter stands last.
    pub(super) fn any_of(&mut self, texts: &[&[u8]]) -> Look {
        let mut miss = Miss::Never;
        for text in texts {
            let mut tried = self.clone();
            match tried.is(text) {
                Ok(()) => {
                    *self = tried;
                    return Ok(());
                }
                Err(Miss::More) => miss = Miss::More,
                Err(Miss::Never) => {}
            }
        }
        Err(miss)
    }

    /// The first of these that does not miss, in this order: one that may yet fit is waited for.
    pub(super) fn either(&mut self, ways: &[fn(&mut Self) -> Look]) -> Look {
        for way in ways {
            let mut tried = self.clone();
            match way(&mut tried) {
                Err(Miss::Never) => {}
                Ok(()) => {
                    *self = tried;
                    return Ok(());
                }
                Err(Miss::More) => return Err(Miss::More),
            }
        }
        Err(Miss::Never)
    }

    /// Octets of this kind, `count` of them, up to one that is none and stays.
    pub(super) fn run(&mut self, count: RangeInclusive<usize>, kind: fn(u8) -> bool) -> Look {
        let length = self.octets.iter().position(|octet| !kind(*octet));
        let known = length.unwrap_or(self.octets.len());
        require(known <= *count.end())?;
        let length = length.ok_or(Miss::More)?;
        require(length >= *count.start())?;
        self.skip(length)
    }
}

/// Whether `fact` holds; else the octets are something else.
pub(super) fn require(fact: bool) -> Look {
    if fact { Ok(()) } else { Err(Miss::Never) }
}
