//! What is done about trains that get lost: who receives tells what stayed incomplete, and who sends has its
//! kernel segment packets for a while, so that a lost datagram loses one segment and not some forty.
//!
//! ```text
//! report | 0xf0 | packets of several pieces that came whole (4) | that stayed incomplete (4) |
//! ```
//!
//! A report goes like a packet, sealed where there are keys; no packet and no header for segmentation begins
//! as it does. Without keys anybody may make one up, which makes a tunnel slower and nothing else.
//!
//! There is nothing between long trains and single segments: of packets that are longer than the device's
//! `gso_max_size` the kernel makes single segments, too (`gso_features_check`), and an open TCP connection
//! does not learn of a new one.

use std::io::IoSlice;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus::IntGauge;

use super::device::Device;

/// The first octet of a report, and how many there are.
const KIND: u8 = 0xf0;
const OCTETS: usize = 9;

/// Reports are at least so far apart, and tell of so many losses at least.
const APART: Duration = Duration::from_millis(250);
const LOSSES: u32 = 4;

/// Of so many trains one may be lost. A connection gets more through by trains than by segments up to here,
/// and stands nearly still where one of three is lost.
const ONE_OF: u64 = 10;

/// How long there are single segments: at first, and where trains were lost again each time.
const PAUSE: Duration = Duration::from_secs(4);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);

/// What became of packets that went as several pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    whole: u32,
    incomplete: u32,
}

impl Report {
    /// As it is sent.
    pub fn to_octets(self) -> [u8; OCTETS] {
        let mut octets = [KIND; OCTETS];
        octets[1..5].copy_from_slice(&self.whole.to_be_bytes());
        octets[5..].copy_from_slice(&self.incomplete.to_be_bytes());
        octets
    }

    /// Reads a report; `None` where these are the parts of anything else.
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

/// Counts for the next report.
#[derive(Debug, Default)]
pub struct Tally {
    next: Report,
    sent: Option<Instant>,
}

impl Tally {
    /// A packet of several pieces is whole.
    pub fn whole(&mut self) {
        self.next.whole = self.next.whole.saturating_add(1);
    }

    /// So many stayed incomplete.
    pub fn incomplete(&mut self, packets: u64) {
        self.next.incomplete =
            self.next.incomplete.saturating_add(u32::try_from(packets).unwrap_or(u32::MAX));
    }

    /// The report that is to be sent now, if any. The time is asked only where it matters.
    pub fn due(&mut self, now: impl FnOnce() -> Instant) -> Option<Report> {
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

/// Whether trains are sent.
#[derive(Debug)]
pub struct Trains {
    pace: Mutex<Pace>,
    /// 1 where they are.
    shown: IntGauge,
}

impl Trains {
    /// They are, where the device has any.
    pub fn new(device: &Device, shown: IntGauge) -> Self {
        shown.set(i64::from(device.has_super_packets()));
        Self { pace: Mutex::default(), shown }
    }

    /// Takes note of what the peer tells.
    pub fn heard(&self, report: Report, device: &Device, now: Instant) {
        self.change(device, |pace| pace.heard(report, now).then_some(false));
    }

    /// Tries them again when it is time; asked several times a second.
    pub fn tick(&self, device: &Device, now: Instant) {
        self.change(device, |pace| pace.tick(now).then_some(true));
    }

    fn change(&self, device: &Device, decide: impl FnOnce(&mut Pace) -> Option<bool>) {
        if !device.has_super_packets() {
            return;
        }
        // Held until the device has it, so that it has what was decided last.
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        // A kernel that refuses leaves everything as it was.
        if let Some(long) = decide(&mut pace)
            && device.take_super_packets(long).is_ok()
        {
            self.shown.set(i64::from(long));
        }
    }
}

/// When there are trains.
#[derive(Debug)]
struct Pace {
    /// There are none until then.
    until: Option<Instant>,
    /// Since when there are some again.
    since: Option<Instant>,
    /// For how long there were none the last time.
    pause: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { until: None, since: None, pause: PAUSE }
    }
}

impl Pace {
    /// True if there are to be none from now on.
    fn heard(&mut self, report: Report, now: Instant) -> bool {
        if self.until.is_some() || !report.is_bad() {
            return false;
        }
        let is_again = self.since.is_some_and(|since| now.saturating_duration_since(since) < self.pause);
        self.pause = if is_again { (2 * self.pause).min(LONGEST_PAUSE) } else { PAUSE };
        self.until = Some(now + self.pause);
        true
    }

    /// True if there are to be some from now on.
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
        let report = Report { whole: 0x0102_0304, incomplete: 5 };
        let octets = report.to_octets();
        assert_eq!(octets, [0xf0, 1, 2, 3, 4, 0, 0, 0, 5]);
        assert_eq!(Report::read(&[IoSlice::new(&octets)]), Some(report));
        assert_eq!(Report::read(&[IoSlice::new(&octets[..8])]), None);
        assert_eq!(Report::read(&[IoSlice::new(&[0x45; 9])]), None);
        assert_eq!(Report::read(&[IoSlice::new(&octets), IoSlice::new(&[])]), None);
        assert_eq!(Report::read(&[]), None);
    }

    #[test]
    fn losses_are_told_a_few_times_a_second() {
        let (mut tally, start) = (Tally::default(), Instant::now());
        tally.whole();
        tally.incomplete(3);
        assert_eq!(tally.due(|| panic!("too few")), None);
        tally.incomplete(1);
        assert_eq!(tally.due(|| start), Some(Report { whole: 1, incomplete: 4 }));
        tally.incomplete(u64::MAX);
        assert_eq!(tally.due(|| start + APART / 2), None);
        assert_eq!(tally.due(|| start + APART), Some(Report { whole: 0, incomplete: u32::MAX }));
    }

    #[test]
    fn trains_pause_where_many_are_lost_and_longer_where_they_are_again() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        let (good, bad) = (Report { whole: 90, incomplete: 10 }, Report { whole: 89, incomplete: 10 });
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
        assert!(Report { whole: u32::MAX, incomplete: u32::MAX }.is_bad() && !Report::default().is_bad());
    }
}
