//! State of this page's scans, and reserved slots.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::runner::RunnerJob;

/// Reserved slot for a scan, until it is started.
pub(super) struct ScanSlot<'a>(&'a AtomicUsize);

impl<'a> ScanSlot<'a> {
    /// Reserves a slot; the caller must hold the lock of the jobs.
    pub(super) fn taken(starting: &'a AtomicUsize) -> Self {
        starting.fetch_add(1, Ordering::Relaxed);
        Self(starting)
    }
}

impl Drop for ScanSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Merges the observed state of running scans with scans that were started after the observation, which knew
/// `before`.
pub(super) fn merged(own: &[RunnerJob], before: &[i64], seen: Vec<RunnerJob>) -> Vec<RunnerJob> {
    let is_new =
        |job: &&RunnerJob| !before.contains(&job.number) && seen.iter().all(|it| it.number != job.number);
    // A scan that started after the helper was asked is missing in its reply. It must not vanish from
    // the list.
    let new: Vec<RunnerJob> = own.iter().filter(is_new).cloned().collect();
    seen.into_iter().chain(new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_started_during_a_look_is_not_forgotten() {
        let job = |number: i64| RunnerJob { number, ..RunnerJob::default() };
        let over = RunnerJob { is_over: true, ..job(2) };
        // The first one's end is known; the third one was started before it was looked, the fourth one behind
        // that.
        let own = [job(1), job(2), job(3), job(4)];
        let numbers =
            |jobs: &[RunnerJob]| jobs.iter().map(|job| (job.number, job.is_over)).collect::<Vec<_>>();
        let merged = merged(&own, &[1, 2], vec![over, job(3)]);
        assert_eq!(numbers(&merged), [(2, true), (3, false), (4, false)]);
    }
}
