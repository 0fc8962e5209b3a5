//! What an application reads against what the engine judged, over random hostile sequences of segments.
//!
//! The same sequences (a seed each) run in two ways: against a model of Linux's receive path with the
//! engine in this process, and against the kernel's own sockets through a guard on a router. Each asks:
//!
//! - a forbidden message must never be read whole by the application;
//! - software that the application took from what it read was told in an event;
//! - honest conversations come through whole.
//!
//! | variable | meaning |
//! |---|---|
//! | `BANNERWALL_DIFFERENTIAL_SEED` | plays this one seed and prints its trace |
//! | `BANNERWALL_DIFFERENTIAL_SECONDS` | how long each test goes on (default: a few seconds) |
//! | `BANNERWALL_DIFFERENTIAL_FIRST` | the first seed of a run (default 1) |
//! | `BANNERWALL_DIFFERENTIAL_REPORT` | counts failing seeds into this file instead of failing |

use crate::bench;
use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bannerwall_test_support::raw::{Battlefield, Cargo, Hostile, Moods, RawEnd};
use bannerwall_test_support::{Guard, JUDGES_ALL, Signal, as_root};

use crate::bench::{Bench, Verdict};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// Sequences that are played at once over real sockets.
const LANES: usize = 160;

/// Failing seeds whose traces are printed.
const SHOWN: usize = 5;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(format!("BANNERWALL_DIFFERENTIAL_{name}")).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("BANNERWALL_DIFFERENTIAL_{name} is a number")))
}

fn duration() -> Duration {
    Duration::from_secs(variable("SECONDS").unwrap_or(4))
}

/// Seeds for a bounded time, or the one that was asked for.
struct Seeds {
    next: AtomicU64,
    only: Option<u64>,
    deadline: Instant,
}

impl Seeds {
    fn new() -> Self {
        let only = variable("SEED");
        let first = only.or(variable("FIRST")).unwrap_or(1);
        Self { next: AtomicU64::new(first), only, deadline: Instant::now() + duration() }
    }

    fn next(&self) -> Option<u64> {
        let seed = self.next.fetch_add(1, Ordering::Relaxed);
        match self.only {
            Some(only) => (seed == only).then_some(seed),
            None => (Instant::now() < self.deadline).then_some(seed),
        }
    }
}

/// Failures by their kind, with the first few traces.
#[derive(Default)]
struct Failures {
    played: u64,
    read_whole: u64,
    kinds: BTreeMap<&'static str, Vec<u64>>,
    traces: Vec<String>,
}

impl Failures {
    fn add(&mut self, kind: &'static str, seed: u64, trace: impl FnOnce() -> String) {
        let seeds = self.kinds.entry(kind).or_default();
        seeds.push(seed);
        if seeds.len() <= SHOWN {
            self.traces.push(format!("## {kind}, BANNERWALL_DIFFERENTIAL_SEED={seed}\n{}\n", trace()));
        }
    }

    fn conclude(&self, name: &str, started: Instant) {
        let seconds = started.elapsed().as_secs_f64();
        let mut text = format!(
            "{name}: {} sequences in {seconds:.1} s, an application read a whole message in {}\n",
            self.played, self.read_whole
        );
        for (kind, seeds) in &self.kinds {
            let first = &seeds[..seeds.len().min(20)];
            text.push_str(&format!("{kind}: {} ({first:?})\n", seeds.len()));
        }
        println!("{text}");
        let traces = self.traces.join("\n");
        if let Some(file) = std::env::var_os("BANNERWALL_DIFFERENTIAL_REPORT") {
            std::fs::write(file, format!("{text}\n{traces}")).expect("the file can be written");
            return;
        }
        assert!(self.kinds.is_empty(), "{text}\n{traces}");
    }
}

/// What an application made of what it read, and whether that may be.
pub(crate) fn judge(
    hostile: &Hostile,
    read: &[u8],
    is_told: impl FnOnce(&str) -> bool,
) -> Option<&'static str> {
    let software = hostile.cargo.software(hostile.role, read)?;
    if Cargo::is_forbidden(&software) {
        return Some("a forbidden message was read");
    }
    (!is_told(&String::from_utf8_lossy(&software))).then_some("what was read was not told")
}

fn play_in_process(seed: u64, is_loud: bool) -> (Verdict, String) {
    let mut hostile = Hostile::new(seed);
    let bench = Bench::new(&hostile, is_loud);
    let (local, remote) = bench.addresses();
    let mut end = RawEnd::new(bench, hostile.role, local, remote, bench::start(&hostile));
    if !is_loud {
        end = end.quiet();
    }
    hostile.play(&mut end, false);
    end.medium.conclude(&hostile)
}

#[test]
fn the_engine_judges_what_a_model_of_linux_reads() {
    let (seeds, started) = (Seeds::new(), Instant::now());
    let failures = Mutex::new(Failures::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(2);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = seeds.next() {
                    let (verdict, _) = play_in_process(seed, false);
                    let mut failures = failures.lock().expect("no thread panics");
                    failures.played += 1;
                    failures.read_whole += u64::from(verdict.software.is_some());
                    if let Some(kind) = verdict.failure {
                        failures.add(kind, seed, || play_in_process(seed, true).1);
                    }
                }
            });
        }
    });
    if let Some(seed) = seeds.only {
        println!("{}", play_in_process(seed, true).1);
    }
    failures.into_inner().expect("no thread panics").conclude("model", started);
}

/// Sequences that are played before they are judged, which bounds the memory that a long run takes.
const ROUND: usize = 10_000;

/// A sequence that was played over real sockets.
struct Played {
    hostile: Hostile,
    raw_port: (String, u16),
    reads: Vec<Vec<u8>>,
    trace: String,
}

fn play_on_wire(field: &Battlefield, seed: u64, has_fragments: bool) -> Played {
    let mut hostile = Hostile::new(seed);
    let talk = hostile.cargo.talk(hostile.role);
    let (mut end, application) = field.pair(hostile.role, hostile.v6, talk);
    hostile.play(&mut end, has_fragments);
    let truth = hostile.cargo.software(hostile.role, hostile.truth);
    // What is on its way arrives.
    application
        .has_read(Duration::from_millis(50), |read| hostile.cargo.software(hostile.role, read) == truth);
    let reads = application.reads();
    let raw_port = (end.local.ip().to_string(), end.local.port());
    Played { hostile, raw_port, reads, trace: end.trace() }
}

/// Plays a round; nothing once the time is over.
fn play_all(field: &Battlefield, seeds: &Seeds, has_fragments: bool) -> Vec<Played> {
    let played = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                let has_room = || played.lock().expect("no lane panics").len() < ROUND;
                while let Some(seed) = has_room().then(|| seeds.next()).flatten() {
                    let one = play_on_wire(field, seed, has_fragments);
                    played.lock().expect("no lane panics").push(one);
                }
            });
        }
    });
    played.into_inner().expect("no lane panics")
}

/// What events say of one flow: the raw end's address and port, and a software's name.
fn told(guard: &Guard) -> HashSet<(String, u64, String)> {
    let mut told = HashSet::new();
    for event in guard.events() {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let mut software = Vec::new();
        for side in ["client", "server"] {
            software.push(text(&event["ssh"][side]["software_version"]));
        }
        software.push(text(&event["http"]["http_user_agent"]));
        let fields = event["http"]["response_headers"].as_array().cloned().unwrap_or_default();
        software.extend(
            fields.iter().filter(|field| field["name"] == "Server").map(|field| text(&field["value"])),
        );
        for (address, port) in [("src_ip", "src_port"), ("dest_ip", "dest_port")] {
            let end = (text(&event[address]), event[port].as_u64().unwrap_or_default());
            told.extend(software.iter().map(|software| (end.0.clone(), end.1, software.clone())));
        }
    }
    told
}

/// Plays a round behind a guard of its own; false where nothing was left to play.
fn play_round(field: &Battlefield, seeds: &Seeds, failures: &mut Failures) -> bool {
    let flags = format!("--hook forward --enforce {JUDGES_ALL}");
    let mut guard = Guard::start(&field.router, PROGRAM, Cargo::RULES, &flags);
    let played = play_all(field, seeds, true);
    guard.process.signal(Signal::TERM);
    assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
    let told = told(&guard);
    for Played { hostile, raw_port: (address, port), reads, trace } in &played {
        failures.played += 1;
        for read in reads {
            let software = hostile.cargo.software(hostile.role, read);
            failures.read_whole += u64::from(software.is_some());
            let key = |software: &str| (address.clone(), u64::from(*port), software.to_owned());
            if let Some(kind) = judge(hostile, read, |software| told.contains(&key(software))) {
                failures.add(kind, hostile.seed, || format!("{trace}\n= \"{}\"", read.escape_ascii()));
            }
        }
    }
    !played.is_empty()
}

#[test]
fn a_guard_judges_what_the_kernel_gives_to_applications() {
    as_root(|| {
        let (seeds, started) = (Seeds::new(), Instant::now());
        let field = Battlefield::new();
        let mut failures = Failures::default();
        while play_round(&field, &seeds, &mut failures) {}
        failures.conclude("kernel", started);
    });
}

/// Whether some model of Linux read what the kernel did.
fn compare(played: &Played, failures: &mut Failures) {
    failures.played += 1;
    let hostile = &played.hostile;
    let read = played.reads.first().cloned().unwrap_or_default();
    let models = Moods::ALL.map(|moods| bench::read_without_guard(hostile.seed, moods));
    let of = |read: &[u8]| hostile.cargo.software(hostile.role, read);
    failures.read_whole += u64::from(of(&read).is_some());
    // That the kernel takes less proves nothing: what is late, or echoes another time than its own.
    if of(&read).is_some() && !models.iter().any(|model| of(model) == of(&read)) {
        failures.add("the model and the kernel differ", hostile.seed, || {
            let model = models[0].escape_ascii();
            format!("{}\nkernel \"{}\"\nmodel  \"{model}\"", played.trace, read.escape_ascii())
        });
    }
}

/// The model has to be as the kernel: without a guard both applications read the same.
#[test]
fn the_model_reads_what_the_kernel_reads() {
    as_root(|| {
        let (seeds, started) = (Seeds::new(), Instant::now());
        let field = Battlefield::new();
        let mut failures = Failures::default();
        loop {
            // It puts no fragments together.
            let round = play_all(&field, &seeds, false);
            if round.is_empty() {
                break;
            }
            round.iter().for_each(|played| compare(played, &mut failures));
        }
        // When an application reads and what was marked urgent meanwhile differ now and then.
        let differing: usize = failures.kinds.values().map(Vec::len).sum();
        println!("the model differs in {differing} of {} sequences", failures.played);
        if differing * 100 > usize::try_from(failures.played).unwrap_or(0) {
            failures.conclude("model against kernel", started);
        }
    });
}
