//! Reaction to lost trains. The receiver reports incomplete packets. The sender then lets its kernel segment
//! packets for a while, so that a lost datagram loses one segment instead of some forty.
//!
//! ```text
//! report | 0xf0 | complete packets of several pieces (4) | incomplete packets (4) |
//! ```
//!
//! A report is sent like a packet, encrypted if there are keys. No packet and no segmentation header starts
//! with the same byte. Without keys anybody can forge a report, which only makes a tunnel slower.
//!
//! There is no step between long trains and single segments. The kernel also segments packets above the
//! device's `gso_max_size` completely (`gso_features_check`), and an open TCP connection does not notice a
//! new value.

use std::io::IoSlice;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus::IntGauge;

use super::device::TunDevice;
use crate::backoff::Backoff;

/// First byte of a report, and its length in bytes.
const KIND: u8 = 0xf0;
const OCTETS: usize = 9;

/// Least interval between reports, and least number of losses in one.
const APART: Duration = Duration::from_millis(250);
const LOSSES: u32 = 4;

/// One lost train in this number is tolerated. Up to this rate trains are faster than segments; with one of
/// three lost, a connection nearly stalls.
const ONE_OF: u64 = 10;

/// Duration of single segments: at first, and the limit if trains are lost again each time.
const PAUSE: Duration = Duration::from_secs(4);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);

/// Numbers of packets that were sent in several pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LossReport {
    whole: u32,
    incomplete: u32,
}

impl LossReport {
    /// Encodes the report.
    pub fn to_octets(self) -> [u8; OCTETS] {
        let mut octets = [KIND; OCTETS];
        octets[1..5].copy_from_slice(&self.whole.to_be_bytes());
        octets[5..].copy_from_slice(&self.incomplete.to_be_bytes());
        octets
    }

    /// Parses a report; `None` for other parts.
    pub fn read(parts: &[IoSlice<'_>]) -> Option<Self> {
        let [part] = parts else { return None };
        let [KIND, a, b, c, d, e, f, g, h] = **part else { return None };
        let [whole, incomplete] = [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes);
        Some(Self { whole, incomplete })
    }

    fn is_bad(self) -> bool {
        let (whole, incomplete) = (u64::from(self.whole), u64::from(self.incomplete));
        incomplete * ONE_OF > whole + incomplete
    }
}

/// Counters for the next report.
#[derive(Debug, Default)]
pub struct LossTally {
    next: LossReport,
    sent: Option<Instant>,
}

impl LossTally {
    /// Counts a complete packet of several pieces.
    pub fn whole(&mut self) {
        self.next.whole = self.next.whole.saturating_add(1);
    }

    /// Counts incomplete packets.
    pub fn incomplete(&mut self, packets: u64) {
        self.next.incomplete =
            self.next.incomplete.saturating_add(u32::try_from(packets).unwrap_or(u32::MAX));
    }

    /// Returns the report to send now, if any. The clock is read only if needed.
    pub fn due(&mut self, now: impl FnOnce() -> Instant) -> Option<LossReport> {
        if self.next.incomplete < LOSSES {
            return None;
        }
        let now = now();
        if self.sent.is_some_and(|sent| now.saturating_duration_since(sent) < APART) {
            return None;
        }
        self.sent = Some(now);
        Some(std::mem::take(&mut self.next))
    }
}

/// Switch between trains and single segments.
#[derive(Debug)]
pub struct TrainSwitch {
    pace: Mutex<TrainSwitchState>,
    /// Metric: 1 while trains are sent.
    shown: IntGauge,
}

impl TrainSwitch {
    /// Enables trains, if the device supports them.
    pub fn new(device: &TunDevice, shown: IntGauge) -> Self {
        shown.set(i64::from(device.has_super_packets()));
        Self { pace: Mutex::default(), shown }
    }

    /// Handles a report of the peer.
    pub fn heard(&self, report: LossReport, device: &TunDevice, now: Instant) {
        self.change(device, |pace| pace.heard(report, now).then_some(false));
    }

    /// Enables trains again after the pause; called several times a second.
    pub fn tick(&self, device: &TunDevice, now: Instant) {
        self.change(device, |pace| pace.tick(now).then_some(true));
    }

    fn change(&self, device: &TunDevice, decide: impl FnOnce(&mut TrainSwitchState) -> Option<bool>) {
        if !device.has_super_packets() {
            return;
        }
        // The lock is held until the device has changed, so that the device matches the last decision.
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        // If the kernel refuses, everything stays as before.
        if let Some(long) = decide(&mut pace)
            && device.take_super_packets(long).is_ok()
        {
            self.shown.set(i64::from(long));
        }
    }
}

/// State of the switch.
#[derive(Debug)]
struct TrainSwitchState {
    /// End of the current pause, if there is one.
    until: Option<Instant>,
    /// Start of the current period with trains.
    since: Option<Instant>,
    pauses: Backoff,
    /// Duration of the last pause.
    pause: Duration,
}

impl Default for TrainSwitchState {
    fn default() -> Self {
        Self { until: None, since: None, pauses: Backoff::new(PAUSE, LONGEST_PAUSE), pause: PAUSE }
    }
}

impl TrainSwitchState {
    /// True if trains must stop now.
    fn heard(&mut self, report: LossReport, now: Instant) -> bool {
        if self.until.is_some() || !report.is_bad() {
            return false;
        }
        let is_again = self.since.is_some_and(|since| now.saturating_duration_since(since) < self.pause);
        if !is_again {
            self.pauses.reset();
        }
        self.pause = self.pauses.next_delay();
        self.until = Some(now + self.pause);
        true
    }

    /// True if trains may start again now.
    fn tick(&mut self, now: Instant) -> bool {
        let is_over = self.until.take_if(|until| *until <= now).is_some();
        if is_over {
            self.since = Some(now);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written_and_nothing_else_is_one() {
        let report = LossReport { whole: 0x0102_0304, incomplete: 5 };
        let octets = report.to_octets();
        assert_eq!(octets, [0xf0, 1, 2, 3, 4, 0, 0, 0, 5]);
        assert_eq!(LossReport::read(&[IoSlice::new(&octets)]), Some(report));
        assert_eq!(LossReport::read(&[IoSlice::new(&octets[..8])]), None);
        assert_eq!(LossReport::read(&[IoSlice::new(&[0x45; 9])]), None);
        assert_eq!(LossReport::read(&[IoSlice::new(&octets), IoSlice::new(&[])]), None);
        assert_eq!(LossReport::read(&[]), None);
    }

    #[test]
    fn losses_are_told_a_few_times_a_second() {
        let (mut tally, start) = (LossTally::default(), Instant::now());
        tally.whole();
        tally.incomplete(3);
        assert_eq!(tally.due(|| panic!("too few")), None);
        tally.incomplete(1);
        assert_eq!(tally.due(|| start), Some(LossReport { whole: 1, incomplete: 4 }));
        tally.incomplete(u64::MAX);
        assert_eq!(tally.due(|| start + APART / 2), None);
        assert_eq!(tally.due(|| start + APART), Some(LossReport { whole: 0, incomplete: u32::MAX }));
    }

    #[test]
    fn trains_pause_where_many_are_lost_and_longer_where_they_are_again() {
        let (mut pace, mut now) = (TrainSwitchState::default(), Instant::now());
        let (good, bad) =
            (LossReport { whole: 90, incomplete: 10 }, LossReport { whole: 89, incomplete: 10 });
        assert!(!pace.heard(good, now) && !pace.tick(now));
        for seconds in [4, 8, 16, 32, 64, 64] {
            assert!(pace.heard(bad, now));
            assert!(!pace.heard(bad, now), "of before");
            now += Duration::from_secs(seconds);
            assert!(!pace.tick(now - Duration::from_millis(1)) && pace.tick(now) && !pace.tick(now));
            now += Duration::from_secs(1);
        }
        now += LONGEST_PAUSE;
        assert!(pace.heard(bad, now));
        assert!(pace.tick(now + PAUSE), "after a good time it begins anew");
        assert!(
            LossReport { whole: u32::MAX, incomplete: u32::MAX }.is_bad() && !LossReport::default().is_bad()
        );
    }
}
