//! Accounts, compared while nothing is on its way: whatever came must have gone somewhere.

use std::time::{Duration, Instant};

use super::load::Load;
use super::place::{Place, sum};
use super::report::Report;
use super::watch::{Sample, look};

/// Looks at the guard's accounts.
#[derive(Debug, Default)]
pub struct Audit {
    /// What this guard used at the first audit of its life.
    first: Option<Sample>,
}

impl Audit {
    /// Has all connections end, compares, and lets them go on.
    pub fn compare(&mut self, place: &Place, load: &Load, report: &mut Report) {
        let mut fail = |why: String| report.fail(format!("{}: {why}", place.mode));
        if !load.pause() {
            fail("connections do not end".to_owned());
        }
        place.rotate();
        // The hook's counters are read every five seconds, and stale flows each tick.
        std::thread::sleep(Duration::from_secs(7));
        if let Some(why) = waiting(place) {
            fail(why);
        }
        if let Err(why) = accounts(place) {
            fail(why);
        }
        if let Some(why) = self.usage(place) {
            fail(why);
        }
        report.audited();
        load.go_on();
    }

    /// Descriptors and threads of a guard that has nothing to do are as many as at first.
    fn usage(&mut self, place: &Place) -> Option<String> {
        let life = place.life.load(std::sync::atomic::Ordering::Relaxed);
        let now = look(place.guard().id())?;
        let first = self.first.get_or_insert(Sample { life, ..now });
        if first.life != life {
            *first = Sample { life, ..now };
        }
        let same = (now.descriptors, now.threads) == (first.descriptors, first.threads);
        (!same).then(|| {
            format!(
                "{} descriptors and {} threads, at first {} and {}",
                now.descriptors, now.threads, first.descriptors, first.threads
            )
        })
    }
}

/// What waits in the kernel for a verdict when nobody sends anything.
fn waiting(place: &Place) -> Option<String> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let waiting = place.queue().map_or(0, |line| line[2]);
        if waiting == 0 {
            return None;
        }
        if Instant::now() > until {
            return Some(format!("{waiting} packets wait for a verdict"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What was handed over and answered, and what was written. Asking for metrics is a connection that is
/// judged, too: numbers lie between what was there before and what is there afterwards.
fn accounts(place: &Place) -> Result<(), String> {
    let look = || Some((place.queue()?.get(7).copied()?, settled(place)));
    let before = look().ok_or("nobody listens on the queue")?;
    // Counts of events are published once a second.
    std::thread::sleep(Duration::from_secs(2));
    let metrics = place.metrics().ok_or("nobody answers for metrics")?;
    let after = look().ok_or("nobody listens on the queue")?;
    // Each packet that is handed over has a number of its own, and those that do not fit into the socket have
    // one.
    let answered = whole(sum(&metrics, "packets_total") + sum(&metrics, "socket_overruns_total"));
    if !(before.0..=after.0).contains(&answered) {
        return Err(format!("{} to {} packets were handed over and {answered} answered", before.0, after.0));
    }
    let told = whole(sum(&metrics, "events_written_total"));
    if !(before.1..=after.1).contains(&told) {
        let ((filed, piped), lost) = (place.written(), sum(&metrics, "events_dropped_total"));
        let (least, most) = (before.1, after.1);
        return Err(format!(
            "{told} events were written, it says, and {least} to {most} are there ({filed} in files, {piped} by the pipe, \
             {lost} lost)"
        ));
    }
    Ok(())
}

/// What file and pipe hold, once nothing comes any more.
fn settled(place: &Place) -> u64 {
    let all = || {
        let (filed, piped) = place.written();
        filed + piped
    };
    let mut last = all();
    loop {
        std::thread::sleep(Duration::from_millis(1_000));
        let now = all();
        if now == last {
            return now;
        }
        last = now;
    }
}

/// A counter of Prometheus as a number.
fn whole(value: f64) -> u64 {
    format!("{value:.0}").parse().unwrap_or_default()
}
