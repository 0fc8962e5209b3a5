//! Which of upstream's versions an advisory could report at all, so that an index can leave it out for
//! others.
//!
//! Two orders meet here: that of packages in the data, and that of versions in banners. They agree on the
//! numbers with which a version begins, of which two are compared: what is kept back is too little, never too
//! much.

use super::super::version::Requirement;
use super::{Advisory, Line, State, Status};
use crate::event::Verdict;

impl Advisory {
    /// Versions outside of these are worth no match, whatever else the banner and its key exchange show; none
    /// where any may be.
    pub(in crate::rules) fn bounds(&self) -> Option<Requirement> {
        if self.reports(Verdict::Mended) || !self.spelled.is_empty() {
            return None;
        }
        if self.reports(Verdict::Unknown) && self.betrayed_by.iter().any(|marker| !marker.is_of_packages()) {
            // The key exchange may deny that a version is mended, whichever it is.
            return None;
        }
        // What cannot be told by its version may be by its key exchange.
        let unknown = self.reports(Verdict::Unknown) || !self.betrayed_by.is_empty();
        if unknown && !self.is_mended_above() {
            return None;
        }
        let mut numbers: Vec<[u64; 2]> =
            self.lines.iter().flat_map(Line::upstreams).map(numbers).collect::<Option<_>>()?;
        numbers.sort_unstable();
        let ([low, below_low], [high, below_high]) = (numbers.first()?, numbers.last()?);
        let upper = format!("<{high}.{}", below_high.checked_add(1)?);
        // A package older than all that are named is not vulnerable, but nobody may be able to tell.
        let text = if unknown { upper } else { format!(">={low}.{below_low}dev, {upper}") };
        Requirement::parse(&text).ok()
    }

    /// True if everything above the versions that are named is known to be mended.
    fn is_mended_above(&self) -> bool {
        let settled = |line: &Line| {
            let mended = matches!(line.state, State::Fixed(_) | State::Said(Status::NotAffected));
            mended && line.distribution.eq_ignore_ascii_case("Debian")
        };
        let next = self.lines.iter().find(|line| line.is_development());
        self.upstream.is_none()
            && self.lines.iter().all(settled)
            && next.is_some_and(|line| line.fix().is_some())
    }
}

impl Line {
    /// Upstream's part of every version that the data name.
    fn upstreams(&self) -> impl Iterator<Item = &[u8]> {
        let all = self.affected.iter().chain(self.newest.as_ref()).chain(self.fix());
        all.map(|version| version.shown().upstream)
    }
}

/// The two numbers with which a version begins; a missing one is 0.
fn numbers(version: &[u8]) -> Option<[u64; 2]> {
    let number = |digits: &[u8]| match digits {
        [] => Some(0),
        digits => std::str::from_utf8(digits).ok()?.parse().ok(),
    };
    let digits = |text: &[u8]| text.iter().take_while(|octet| octet.is_ascii_digit()).count();
    let (first, rest) = version.split_at_checked(digits(version))?;
    let second = rest.strip_prefix(b".").unwrap_or_default();
    Some([number(first)?, number(second.get(..digits(second))?)?])
}
