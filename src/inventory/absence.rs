//! A server that is away: it is left alone for ever longer, and told of once.

use std::time::Duration;

/// How long it is left alone at last, unless it is said.
const LONGEST: Duration = Duration::from_secs(2);

/// How it stands with a server.
#[derive(Debug)]
pub struct Absence {
    first: Duration,
    longest: Duration,
    next: Duration,
    is_told: bool,
}

impl Absence {
    /// Of one that is there; where it is not, it is left alone for so long at first.
    pub const fn new(first: Duration) -> Self {
        Self { first, longest: LONGEST, next: first, is_told: false }
    }

    /// The same, which is left alone for so long at last.
    pub(super) const fn up_to(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    /// It has not answered: has that told once, and gives how long to leave it alone.
    pub fn goes_on(&mut self, tell: impl FnOnce()) -> Duration {
        if !std::mem::replace(&mut self.is_told, true) {
            tell();
        }
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }

    /// It is there; whether it was told to be away.
    pub fn is_over(&mut self) -> bool {
        self.next = self.first;
        std::mem::take(&mut self.is_told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_and_asked_ever_more_rarely() {
        let mut absence = Absence::new(Duration::from_millis(500));
        assert!(!absence.is_over());
        for _ in 0..2 {
            let mut told = 0;
            let pauses = [(); 4].map(|()| absence.goes_on(|| told += 1).as_millis());
            assert_eq!((pauses, told), ([500, 1000, 2000, 2000], 1));
            assert!(absence.is_over() && !absence.is_over());
        }
    }
}
