//! How many targets are under way at once: few while answers come quickly, all that there is room
//! for where nobody answers.
//!
//! The window asked for is what a scan of silent addresses needs: rate times timeout. Targets that
//! answer need only rate times round trip; more of them at once make nothing faster, but overrun a
//! server's or a router's queue, and lost connection requests come back a second later or never. So the
//! window opens from a few, doubling, as long as that costs nobody time. No clock, no input or output.

use super::timers::Nanos;

/// Where it begins, and what it never falls below.
const FEWEST: usize = 256;
/// How long answers are gathered before the window is looked at.
const EPOCH: Nanos = 5_000_000;
/// Round trips longer by this much than twice the shortest mean that something queues.
const SLACK: Nanos = 2_000_000;
/// A lost connection request is sent again after a second (RFC 6298).
const SENT_AGAIN: Nanos = 1_000_000_000;

/// What came since the window was looked at last.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Answers {
    count: u64,
    /// Of all round trips together.
    whole: Nanos,
    shortest: Option<Nanos>,
    longest: Nanos,
}

impl Answers {
    /// A target answered after `round_trip`.
    pub(super) fn add(&mut self, round_trip: Nanos) {
        self.count += 1;
        self.whole = self.whole.saturating_add(round_trip);
        self.shortest = Some(self.shortest.map_or(round_trip, |shortest| shortest.min(round_trip)));
        self.longest = self.longest.max(round_trip);
    }

    /// Takes over what another lane has gathered.
    pub(super) fn join(&mut self, other: Self) {
        self.count += other.count;
        self.whole = self.whole.saturating_add(other.whole);
        self.shortest = self.shortest.into_iter().chain(other.shortest).min();
        self.longest = self.longest.max(other.longest);
    }
}

/// The number of targets that may be under way.
#[derive(Debug)]
pub(super) struct Window {
    most: usize,
    limit: usize,
    /// When the current epoch began.
    since: Nanos,
    /// The shortest round trip of the whole scan.
    shortest: Nanos,
    /// No shrinking before this time: losses are told a second late.
    settled: Nanos,
}

impl Window {
    /// A window of `most` targets, hardly open.
    pub(super) fn new(most: usize) -> Self {
        Self { most, limit: most.min(FEWEST), since: 0, shortest: Nanos::MAX, settled: 0 }
    }

    /// How many may be under way.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether it is time to bring what was gathered.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now.saturating_sub(self.since) >= EPOCH
    }

    /// When it is time, for one who waits only for that.
    pub(super) fn due(&self) -> Nanos {
        self.since.saturating_add(EPOCH)
    }

    /// Opens or closes the window by what an epoch brought; `reached` when it was the limit.
    pub(super) fn adapt(&mut self, answers: Answers, reached: bool, now: Nanos) {
        let length = now.saturating_sub(self.since).max(1);
        self.since = now;
        self.shortest = answers.shortest.map_or(self.shortest, |shortest| shortest.min(self.shortest));
        if answers.longest >= SENT_AGAIN && self.shortest < SENT_AGAIN / 4 {
            if now >= self.settled {
                self.limit = (self.limit / 2).max(FEWEST).min(self.most);
                self.settled = now.saturating_add(SENT_AGAIN);
            }
            return;
        }
        if reached
            && (answers.count == 0 || !self.queues(&answers) || self.is_mostly_silent(&answers, length))
        {
            self.limit = (self.limit * 2).min(self.most);
        }
    }

    fn queues(&self, answers: &Answers) -> bool {
        let mean = answers.whole / answers.count.max(1);
        mean > self.shortest.saturating_mul(2).saturating_add(SLACK)
    }

    /// By Little's law: those that answer are fewer than half of those under way.
    fn is_mostly_silent(&self, answers: &Answers, length: Nanos) -> bool {
        u128::from(answers.whole) * 2 < u128::from(length) * self.limit as u128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Nanos = 1_000_000;

    fn answers(count: u64, round_trip: Nanos) -> Answers {
        let mut answers = Answers::default();
        (0..count).for_each(|_| answers.add(round_trip));
        answers
    }

    /// The limit after `epochs` of the same answers.
    fn after(window: &mut Window, epochs: u64, answers: Answers) -> usize {
        let start = window.due();
        (0..epochs).for_each(|epoch| window.adapt(answers, true, start + epoch * EPOCH));
        window.limit()
    }

    #[test]
    fn silence_opens_it_within_a_few_epochs() {
        assert_eq!(after(&mut Window::new(65_536), 8, Answers::default()), 65_536);
        assert_eq!(Window::new(10).limit(), 10);
    }

    #[test]
    fn a_server_that_queues_is_not_given_more() {
        let mut window = Window::new(65_536);
        window.adapt(answers(1, MILLISECOND / 10), false, EPOCH);
        // 256 under way, all answered, in five milliseconds each.
        assert_eq!(after(&mut window, 100, answers(256, 5 * MILLISECOND)), FEWEST);
    }

    #[test]
    fn a_far_network_is_given_what_its_distance_needs() {
        let far = answers(20, 80 * MILLISECOND);
        assert_eq!(after(&mut Window::new(4096), 10, far), 4096);
    }

    #[test]
    fn silent_targets_among_those_of_a_slow_server_do_not_hold_the_scan_up() {
        let mut window = Window::new(65_536);
        window.adapt(answers(1, MILLISECOND / 10), false, EPOCH);
        assert_eq!(after(&mut window, 9, answers(5, 10 * MILLISECOND)), 65_536);
    }

    #[test]
    fn answers_to_requests_sent_again_close_it_once_a_second() {
        let mut window = Window::new(65_536);
        after(&mut window, 8, answers(1, MILLISECOND));
        let late = answers(3, SENT_AGAIN + MILLISECOND);
        assert_eq!(after(&mut window, 20, late), 32_768);
        assert_eq!(after(&mut window, 2000, late), FEWEST);
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut window = Window::new(4096);
        window.adapt(Answers::default(), false, EPOCH);
        assert_eq!(window.limit(), FEWEST);
    }
}
