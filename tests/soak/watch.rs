//! What the guard uses, looked at each second.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use super::place::Place;

/// How much more memory a guard may use in the end than in the beginning, in octets: what allocators leave
/// and what a page more or less is.
const SLACK: f64 = 6.0 * 1024.0 * 1024.0;

/// What a process uses.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    /// Seconds since the beginning of the half.
    pub at: f64,
    /// Which guard it is.
    pub life: u64,
    /// Octets.
    pub memory: u64,
    pub descriptors: usize,
    pub threads: usize,
}

/// All samples of a half.
pub struct Watch {
    started: Instant,
    is_over: AtomicBool,
    samples: Mutex<Vec<Sample>>,
    /// When the guard that lives to the end had filled its tables, in milliseconds since the start.
    warm: AtomicU64,
}

impl Watch {
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            is_over: AtomicBool::new(false),
            samples: Mutex::default(),
            warm: AtomicU64::new(u64::MAX),
        }
    }

    pub fn start<'s>(&'s self, scope: &'s Scope<'s, '_>, place: &'s Place) {
        scope.spawn(move || {
            while !self.is_over.load(Ordering::Relaxed) {
                let (life, id) = {
                    let guard = place.guard();
                    (place.life.load(Ordering::Relaxed), guard.id())
                };
                if let Some(mut sample) = look(id) {
                    (sample.at, sample.life) = (self.started.elapsed().as_secs_f64(), life);
                    self.samples.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
                }
                std::thread::sleep(Duration::from_secs(1));
            }
        });
    }

    /// The guard that lives to the end has filled its tables.
    pub fn is_warm(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.warm.store(now, Ordering::Relaxed);
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub fn samples(&self) -> Vec<Sample> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its samples from then on; none in a run that is too short to tell.
    pub fn warm(&self) -> Vec<Sample> {
        let from = Duration::from_millis(self.warm.load(Ordering::Relaxed));
        self.samples().into_iter().filter(|sample| sample.at >= from.as_secs_f64()).collect()
    }

    /// How much more memory is used after the last sample than after the first, by the line that fits best,
    /// in octets.
    pub fn growth(&self) -> f64 {
        let warm = self.warm();
        let points: Vec<(f64, f64)> = warm.iter().map(|sample| (sample.at, octets(sample.memory))).collect();
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return 0.0 };
        slope(&points) * (last.0 - first.0)
    }

    /// What leaks of memory, if anything does.
    pub fn leak(&self) -> Option<String> {
        let growth = self.growth();
        (growth > SLACK)
            .then(|| format!("memory grows: {:.1} MiB from its first to its last second", mebi(growth)))
    }
}

/// What the guard uses now.
pub fn look(id: u32) -> Option<Sample> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(Sample {
        memory: field("VmRSS:")? << 10,
        threads: usize::try_from(field("Threads:")?).ok()?,
        descriptors: fs::read_dir(format!("/proc/{id}/fd")).ok()?.count(),
        ..Sample::default()
    })
}

/// Octets as a number that can be a fraction; memory stays far below 2^52.
pub fn octets(memory: u64) -> f64 {
    u32::try_from(memory >> 10).map_or(f64::MAX, f64::from) * 1024.0
}

pub fn mebi(octets: f64) -> f64 {
    octets / 1024.0 / 1024.0
}

/// The slope of the line of least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = octets(points.len() as u64 * 1024) / 1024.0;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let above: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let below: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    if below > 0.0 { above / below } else { 0.0 }
}
