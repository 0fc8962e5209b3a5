//! Number of concurrent targets: few while replies come quickly, all slots if targets stay silent.
//!
//! A scan of silent addresses needs a window of rate times timeout. Targets that answer need only rate times
//! round trip. More of them are not faster, but overrun a server's or a router's queue, and lost connection
//! requests are repeated a second later or never. So the window starts small, and opens by a quarter with
//! each step, as long as each step brings more replies a second. (The round trips themselves do not matter:
//! networks differ.) It doubles while most targets are silent.
//!
//! If most targets answered so far, silence may come from an overrun server or router that drops connection
//! requests. The kernel repeats them after a second, so late replies reveal the overrun shortly after that.
//! Only without such replies the silence counts. This module has no clock, and does no input or output.
//! more than that; only then is such silence believed. No clock, no input or output.

use std::time::Duration;

use bannerwall_ring::timers::Nanos;

/// Initial and smallest window, over all threads: the backlog of a usual listener.
const FEWEST: usize = 128;
/// Shortest time to collect replies before the window adapts. The time is also at least two round trips, so a
/// step takes effect before it is evaluated.
const EPOCH: Nanos = 10_000_000;
const LONGEST_EPOCH: Nanos = 500_000_000;
/// Pause after a step without gain, before the next attempt.
const REST: Nanos = 1_000_000_000;
/// Time after which the kernel repeats a lost connection request (RFC 6298).
const SENT_AGAIN: Nanos = 1_000_000_000;
/// Time to collect completions: an eighth of the shortest round trip, between these limits.
const SHORTEST_GATHERING: Nanos = 1_000_000;
const LONGEST_GATHERING: Nanos = 4_000_000;
/// Duration of a sudden silence without late replies after which it counts.
const DOUBT: Nanos = 1_500_000_000;
/// Duration for which signs of lost connection requests count.
const LOSS_COUNTS: Nanos = 4_000_000_000;
/// Number of recent targets that weigh as much as all earlier ones.
const REMEMBERED: u64 = 16_384;

/// Replies since the last adaptation.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReplyStatistics {
    count: u64,
    /// Sum of all round trips.
    whole: Nanos,
    shortest: Option<Nanos>,
    longest: Nanos,
}

impl ReplyStatistics {
    /// Adds a reply after `round_trip`.
    pub(super) fn add(&mut self, round_trip: Nanos) {
        self.count += 1;
        self.whole = self.whole.saturating_add(round_trip);
        self.shortest = Some(self.shortest.map_or(round_trip, |shortest| shortest.min(round_trip)));
        self.longest = self.longest.max(round_trip);
    }

    /// Adds the replies of another ring worker.
    pub(super) fn join(&mut self, other: Self) {
        self.count += other.count;
        self.whole = self.whole.saturating_add(other.whole);
        self.shortest = self.shortest.into_iter().chain(other.shortest).min();
        self.longest = self.longest.max(other.longest);
    }
}

/// Limit of concurrent targets, adapted to replies.
#[derive(Debug)]
pub(super) struct ConcurrencyWindow {
    fewest: usize,
    most: usize,
    limit: usize,
    /// Limit before the last step, until that step has proved useful.
    before: Option<usize>,
    /// Replies a second that a step must exceed.
    rate: f64,
    /// Start and length of the current epoch.
    since: Nanos,
    epoch: Nanos,
    /// No step before this time.
    rest: Nanos,
    /// No shrinking before this time: losses show up a second late.
    settled: Nanos,
    /// Shortest round trip of the whole scan.
    shortest: Nanos,
    /// Numbers of started and answered targets; old ones weigh less.
    begun: u64,
    answered: u64,
    /// Start of a silence that does not count yet, and whether one has counted.
    doubt: Option<Nanos>,
    believed: bool,
    /// Time until which connection requests seem to get lost.
    lossy: Nanos,
}

impl ConcurrencyWindow {
    /// Returns a small window with the limit `most`, for one of `threads` threads.
    pub(super) fn new(most: usize, threads: usize) -> Self {
        let fewest = (FEWEST / threads.max(1)).max(1);
        Self {
            fewest,
            most,
            limit: most.min(fewest),
            before: None,
            rate: 0.0,
            since: 0,
            epoch: EPOCH,
            rest: 0,
            settled: 0,
            shortest: Nanos::MAX,
            begun: 0,
            answered: 0,
            doubt: None,
            believed: false,
            lossy: 0,
        }
    }

    /// Records the start of a target.
    pub(super) fn begin(&mut self) {
        self.begun += 1;
    }

    /// Returns the time for which completions may collect: a small part of a round trip.
    pub(super) fn gathering(&self) -> Duration {
        let known = if self.shortest == Nanos::MAX { 0 } else { self.shortest / 8 };
        Duration::from_nanos(known.clamp(SHORTEST_GATHERING, LONGEST_GATHERING))
    }

    /// True if connection requests to answering targets seem to get lost.
    pub(super) fn sees_loss(&self, now: Nanos) -> bool {
        now < self.lossy
    }

    /// Returns the limit of concurrent targets.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// True if the window is due for adaptation.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now >= self.due()
    }

    /// Returns the time of the next adaptation.
    pub(super) fn due(&self) -> Nanos {
        self.since.saturating_add(self.epoch)
    }

    /// Adapts the window to the replies of an epoch; `reached` is true if the window was full.
    pub(super) fn adapt(&mut self, answers: ReplyStatistics, reached: bool, now: Nanos) {
        let length = now.saturating_sub(self.since).max(1);
        let mean = answers.whole / answers.count.max(1);
        self.since = now;
        self.epoch = mean.saturating_mul(2).clamp(EPOCH, LONGEST_EPOCH);
        self.shortest = answers.shortest.map_or(self.shortest, |shortest| shortest.min(self.shortest));
        // A reply after the kernel's repetition means that the first request was lost.
        let late = answers.longest >= SENT_AGAIN && self.shortest < SENT_AGAIN / 4;
        let silent = self.is_mostly_silent(&answers, length);
        let doubtful = self.doubts(silent && reached, late, now);
        self.remember(&answers);
        if silent {
            self.before = None;
            if reached && !doubtful {
                self.set(self.limit.saturating_mul(2));
            }
        } else if late {
            self.before = None;
            if now >= self.settled {
                // Half the window: the losses come from an overrun queue, and the next second still reports
                // old ones.
                self.set(self.limit / 2);
                self.settled = now.saturating_add(SENT_AGAIN);
            }
        } else if reached {
            self.step(answers.count as f64 / length as f64, now);
        }
    }

    /// Keeps a step that brought more replies than before, and reverts one that did not.
    fn step(&mut self, rate: f64, now: Nanos) {
        /// Gain of replies that a step, a quarter wider, must bring: half of the possible gain.
        const GAIN: f64 = 1.125;
        if let Some(before) = self.before.take()
            && rate < self.rate * GAIN
        {
            self.set(before);
            self.rest = now.saturating_add(REST);
            return;
        }
        if now >= self.rest {
            self.rate = rate;
            self.before = Some(self.limit);
            self.set(self.limit.saturating_add(self.limit.div_ceil(4)));
        }
    }

    /// True if a silence may come from lost connection requests instead of from empty addresses.
    fn doubts(&mut self, silent: bool, late: bool, now: Nanos) -> bool {
        let since = self.doubt.take();
        if late && (!silent || since.is_some()) {
            self.believed = false;
            self.lossy = now.saturating_add(LOSS_COUNTS);
        }
        let mostly_answered = self.answered.saturating_mul(2) >= self.begun.max(1);
        if !silent || self.believed || !mostly_answered {
            return false;
        }
        let since = since.unwrap_or(now);
        if now.saturating_sub(since) >= DOUBT {
            self.believed = true;
            return false;
        }
        self.doubt = Some(since);
        self.lossy = now.saturating_add(LOSS_COUNTS);
        true
    }

    fn remember(&mut self, answers: &ReplyStatistics) {
        self.answered = self.answered.saturating_add(answers.count);
        // Halving both keeps the ratio, and lets recent targets weigh more.
        if self.begun >= REMEMBERED {
            self.begun /= 2;
            self.answered /= 2;
        }
    }

    fn set(&mut self, limit: usize) {
        self.limit = limit.max(self.fewest).min(self.most);
    }

    /// True if fewer than half of the targets under way answer, by Little's law.
    fn is_mostly_silent(&self, answers: &ReplyStatistics, length: Nanos) -> bool {
        u128::from(answers.whole) * 2 < u128::from(length) * self.limit as u128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Nanos = 1_000_000;

    fn answers(count: usize, round_trip: Nanos) -> ReplyStatistics {
        let mut answers = ReplyStatistics::default();
        (0..count).for_each(|_| answers.add(round_trip));
        answers
    }

    /// Runs a window over a network for `seconds`: of those under way `bring` gives the answers of an epoch.
    fn run(
        window: &mut ConcurrencyWindow,
        seconds: u64,
        bring: impl Fn(usize, Nanos) -> ReplyStatistics,
    ) -> usize {
        let end = window.since + seconds * 1000 * MILLISECOND;
        let mut under_way = 0;
        while window.since < end {
            (under_way..window.limit()).for_each(|_| window.begin());
            let (due, length, limit) = (window.due(), window.epoch, window.limit());
            let answers = bring(limit, length);
            under_way = limit - limit.min(usize::try_from(answers.count).unwrap());
            window.adapt(answers, true, due);
        }
        window.limit()
    }

    /// All answer after `round_trip`, whatever their number.
    fn far(round_trip: Nanos) -> impl Fn(usize, Nanos) -> ReplyStatistics {
        move |limit, length| {
            let count = limit as u64 * length / round_trip;
            answers(usize::try_from(count).unwrap(), round_trip)
        }
    }

    /// One server that answers so many a second: the more wait, the longer each waits.
    fn server(a_second: u64) -> impl Fn(usize, Nanos) -> ReplyStatistics {
        move |limit, length| {
            let count = usize::try_from(a_second * length / (1000 * MILLISECOND)).unwrap();
            answers(count, limit as u64 * 1000 * MILLISECOND / a_second)
        }
    }

    #[test]
    fn silence_opens_it_within_a_few_epochs() {
        let mut window = ConcurrencyWindow::new(65_536, 1);
        (1..=9).for_each(|epoch| window.adapt(ReplyStatistics::default(), true, epoch * EPOCH));
        assert_eq!(window.limit(), 65_536);
        assert_eq!(
            (ConcurrencyWindow::new(10, 1).limit(), ConcurrencyWindow::new(65_536, 4).limit()),
            (10, FEWEST / 4)
        );
    }

    #[test]
    fn a_server_that_queues_is_not_given_more_but_for_a_try_now_and_then() {
        for a_second in [5_000, 20_000, 100_000] {
            let limit = run(&mut ConcurrencyWindow::new(65_536, 1), 10, server(a_second));
            assert!((FEWEST..=FEWEST * 5 / 4).contains(&limit), "{limit} at {a_second}");
        }
    }

    #[test]
    fn a_far_network_is_given_what_its_distance_needs() {
        for round_trip in [MILLISECOND, 20 * MILLISECOND, 150 * MILLISECOND] {
            // The last step to the end may be too small to show that it is of use.
            let limit = run(&mut ConcurrencyWindow::new(4096, 1), 10, far(round_trip));
            assert!(limit * 5 / 4 >= 4096, "{limit} at {round_trip}");
        }
    }

    #[test]
    fn silent_targets_among_those_of_a_slow_server_do_not_hold_the_scan_up() {
        let some = |_: usize, _: Nanos| answers(5, 10 * MILLISECOND);
        assert_eq!(run(&mut ConcurrencyWindow::new(65_536, 1), 1, some), 65_536);
    }

    #[test]
    fn answers_to_requests_sent_again_close_it() {
        let mut window = ConcurrencyWindow::new(65_536, 1);
        window.limit = 65_536;
        window.adapt(answers(65_536, 10 * MILLISECOND), false, EPOCH);
        // All late: an overrun server, once all that is under way waits for it.
        let late = |limit: usize, _: Nanos| answers(limit, SENT_AGAIN + MILLISECOND);
        assert!((8_192..=32_768).contains(&run(&mut window, 1, late)));
        assert_eq!(run(&mut window, 60, late), FEWEST);
    }

    /// A network in which everybody answered at once.
    fn answering(most: usize) -> ConcurrencyWindow {
        let mut window = ConcurrencyWindow::new(most, 1);
        for _ in 0..20 {
            (0..1000).for_each(|_| window.begin());
            let due = window.due();
            window.adapt(answers(1000, MILLISECOND / 10), false, due);
        }
        window
    }

    #[test]
    fn sudden_silence_is_taken_for_loss_until_nothing_came_late() {
        let mut window = answering(65_536);
        let (before, start) = (window.limit(), window.since);
        assert!(!window.sees_loss(start));
        let silence = |_: usize, _: Nanos| ReplyStatistics::default();
        assert_eq!(run(&mut window, 1, silence), before, "an overrun server is not asked for more");
        assert!(window.sees_loss(window.since));
        assert_eq!(run(&mut window, 2, silence), 65_536, "there is nobody");
        assert_eq!(run(&mut window, 4, silence), 65_536);
        assert!(!window.sees_loss(window.since));
    }

    #[test]
    fn late_answers_are_signs_of_loss_where_most_answer_and_not_where_few_do() {
        let mut window = answering(65_536);
        run(&mut window, 1, |limit, _| answers(limit, SENT_AGAIN));
        assert!(window.sees_loss(window.since));
        let mut window = ConcurrencyWindow::new(65_536, 1);
        run(&mut window, 1, |_, _| ReplyStatistics::default());
        window.limit = 8192;
        run(&mut window, 1, |_, _| {
            let mut answers = answers(1, MILLISECOND);
            answers.add(SENT_AGAIN);
            answers
        });
        assert!(window.limit() > 8192 && !window.sees_loss(window.since));
    }

    #[test]
    fn completions_gather_longer_where_round_trips_are_long() {
        let mut window = ConcurrencyWindow::new(4096, 1);
        assert_eq!(window.gathering(), Duration::from_millis(1));
        for (round_trip, expected) in [(150, 4000), (20, 2500), (1, 1000)] {
            window.adapt(answers(1, round_trip * MILLISECOND), false, window.due());
            assert_eq!(window.gathering(), Duration::from_micros(expected));
        }
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut window = ConcurrencyWindow::new(4096, 1);
        window.adapt(ReplyStatistics::default(), false, EPOCH);
        assert_eq!(window.limit(), FEWEST);
    }
}
