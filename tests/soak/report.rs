//! What came of it, for people and for later.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::faults::Fault;
use super::load::{Incident, Kind, Load};
use super::watch::{Sample, Watch, mebi, octets};

/// How long after a fault its consequences come: what was sent before is sent again.
const AFTERWARDS: Duration = Duration::from_secs(8);

/// When something happened to the guard.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub mode: &'static str,
    pub fault: Fault,
    pub begun: Instant,
    pub ended: Instant,
    /// Packets and flows that the guard says it has not inspected.
    pub lost: f64,
    /// It could not be done here.
    pub skipped: bool,
}

/// All that is to be told.
#[derive(Debug, Default)]
pub struct Report {
    failures: Vec<String>,
    windows: Vec<Window>,
    audits: usize,
    halves: Vec<String>,
    samples: String,
}

impl Report {
    pub fn new() -> Self {
        Self { samples: "mode,second,guard,memory_kib,descriptors,threads\n".to_owned(), ..Self::default() }
    }

    pub fn fail(&mut self, why: String) {
        eprintln!("soak: {why}");
        self.failures.push(why);
    }

    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    pub fn window(&mut self, window: Window) {
        let took = (window.ended - window.begun).as_secs_f64();
        let skipped = if window.skipped { ", skipped" } else { "" };
        eprintln!(
            "soak: {}: {} ({took:.1} s{skipped}), {} lost",
            window.mode,
            window.fault.name(),
            window.lost
        );
        self.windows.push(window);
    }

    pub fn audited(&mut self) {
        self.audits += 1;
    }

    /// Judges a half.
    pub fn conclude(&mut self, mode: &'static str, load: &Load, watch: &Watch) {
        let incidents = load.incidents();
        for incident in &incidents {
            if let Some(why) = self.unexplained(mode, incident) {
                let (kind, what) = (incident.kind.name(), &incident.what);
                let seconds = (incident.ended - incident.begun).as_secs_f64();
                self.fail(format!("{mode}: {kind} after {seconds:.1} s: {what}: {why}"));
            }
        }
        if let Some(why) = watch.leak() {
            self.fail(format!("{mode}: {why}"));
        }
        let connections = connections(mode, load, &incidents);
        self.halves.push(connections + &self.happened(mode) + &usage(load, watch));
        for Sample { at, life, memory, descriptors, threads } in watch.samples() {
            let memory = memory >> 10;
            let _ = writeln!(self.samples, "{mode},{at:.1},{life},{memory},{descriptors},{threads}");
        }
    }

    /// What was done to the guard, and how often.
    fn happened(&self, mode: &str) -> String {
        let mut text =
            "\n| what happened | times | not inspected, by its own account |\n|---|---|---|\n".to_owned();
        for fault in Fault::RESTARTS.iter().chain(&Fault::OTHERS) {
            let of = || self.windows.iter().filter(|window| (window.mode, window.fault) == (mode, *fault));
            let done = of().filter(|window| !window.skipped).count();
            let lost: f64 = of().map(|window| window.lost).sum();
            let skipped = if done < of().count() { " (libfaketime is not installed)" } else { "" };
            let _ = writeln!(text, "| {} | {done}{skipped} | {lost} |", fault.name());
        }
        text
    }

    /// Why something may not be; none where it may.
    fn unexplained(&self, mode: &str, incident: &Incident) -> Option<&'static str> {
        if matches!(incident.kind, Kind::New | Kind::KeptAlive) {
            return Some("allowed did not stay allowed");
        }
        let meets = |window: &&Window| {
            let is_during = incident.begun < window.ended + AFTERWARDS && incident.ended > window.begun;
            window.mode == mode && is_during
        };
        if mode == "closed" {
            // A banner of which the last guard has seen the beginning is picked up midstream by the next one.
            let is_cut =
                |window: &Window| Fault::RESTARTS.contains(&window.fault) && incident.begun < window.ended;
            let is_cut = incident.kind == Kind::Hostile && self.windows.iter().filter(meets).any(is_cut);
            return (!is_cut).then_some("blocked did not stay blocked");
        }
        let mut lossy = self.windows.iter().filter(meets).filter(|window| window.fault.may_lose()).peekable();
        if lossy.peek().is_none() {
            return Some("blocked did not stay blocked, and nothing had happened to the guard");
        }
        let is_told = lossy.any(|window| window.lost > 0.0 || window.fault.is_unaccounted());
        (!is_told).then_some("it went by, and that is counted nowhere")
    }

    /// The whole text, written into a folder where there is one.
    pub fn finish(&self, folder: Option<&Path>) -> String {
        let mut text = self.halves.concat();
        let _ = writeln!(
            text,
            "\nAccounts were compared {} times while nothing was on its way: every packet that the kernel had handed over was \
             answered, none waited, every event that was told as written was there, descriptors and threads were as many as \
             before{}.",
            self.audits,
            if self.failures.is_empty() { "" } else { ", but for what stands below" }
        );
        if !self.failures.is_empty() {
            text += "\n## Failures\n\n";
            self.failures.iter().for_each(|why| text += &format!("- {why}\n"));
        }
        if let Some(folder) = folder {
            let written = fs::write(folder.join("results.md"), &text)
                .and_then(|()| fs::write(folder.join("samples.csv"), &self.samples));
            written.expect("the folder can be written");
        }
        text
    }
}

/// What came of connections.
fn connections(mode: &str, load: &Load, incidents: &[Incident]) -> String {
    let mut text = format!(
        "\n## `--on-failure {mode}`\n\n| connections | made | failed, or came through |\n|---|---|---|\n"
    );
    for kind in Kind::ALL {
        let bad = incidents.iter().filter(|incident| incident.kind == kind).count();
        let _ = writeln!(text, "| {} | {} | {bad} |", kind.name(), load.count(kind));
    }
    let may = match mode {
        "closed" => "Hostile segments may come through where a restart fell into a banner, and nowhere else.",
        _ => {
            "What is forbidden may come through where packets went by uninspected, counted, and nowhere else."
        }
    };
    text + "\n" + may + "\n"
}

/// What the guard that lived on has used.
fn usage(load: &Load, watch: &Watch) -> String {
    let longest = load.longest().as_secs_f64();
    let warm = watch.warm();
    let (Some(first), Some(last)) = (warm.first(), warm.last()) else {
        return format!(
            "\nToo short to tell of leaks. The longest allowed connection took {longest:.1} s.\n"
        );
    };
    let range = |of: fn(&Sample) -> u64| {
        let values = || warm.iter().map(of);
        (values().min().unwrap_or_default(), values().max().unwrap_or_default())
    };
    let (least, most) = range(|sample| sample.memory);
    let descriptors = range(|sample| sample.descriptors as u64);
    let threads = range(|sample| sample.threads as u64);
    format!(
        "\nThe guard that lived on, {:.0} s from when all had happened to it once: memory {:.1} to {:.1} MiB, by the line that \
         fits best {:+.1} MiB from beginning to end; descriptors {} to {}, threads {} to {}. The longest allowed connection \
         took {longest:.1} s.\n",
        last.at - first.at,
        mebi(octets(least)),
        mebi(octets(most)),
        mebi(watch.growth()),
        descriptors.0,
        descriptors.1,
        threads.0,
        threads.1,
    )
}
