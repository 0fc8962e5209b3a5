//! A guard as packages start it, for minutes or hours, while everything happens to it that happens to a
//! gateway.
//!
//! `scripts/soak MINUTES` runs it. Half of the time under `--on-failure closed`, half under `open`; of each
//! half the first third with restarts, the rest with one guard that lives through everything else.
//! Connections come all the time: allowed and forbidden, short and kept alive, honest and hostile. Now and
//! then all of them pause, and accounts are compared.
//!
//! | variable | meaning |
//! |---|---|
//! | `BANNERWALL_SOAK_MINUTES` | how long, in minutes (default 3) |
//! | `BANNERWALL_SOAK_PROGRAM` | the program (default: this build's) |
//! | `BANNERWALL_SOAK_OUTPUT` | a folder for the report and the samples |
//! | `BANNERWALL_SOAK_SEED` | the first seed of hostile sequences (default 1) |

mod audit;
mod faults;
mod load;
mod place;
mod report;
mod watch;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bannerwall_test_support::as_root;

use faults::{Fault, Faults};
use load::Load;
use place::Place;
use report::Report;
use watch::Watch;

/// How long nothing is done to the guard between two faults.
const CALM: Duration = Duration::from_secs(4);

fn variable(name: &str) -> Option<String> {
    std::env::var(format!("BANNERWALL_SOAK_{name}")).ok()
}

/// The length of a run.
fn duration() -> Duration {
    let minutes = variable("MINUTES").map_or(3.0, |text| text.parse().expect("minutes are a number"));
    Duration::from_secs_f64(minutes * 60.0)
}

/// One half: under one way of failing.
fn half(mode: &'static str, time: Duration, report: &mut Report) {
    let program = variable("PROGRAM").map_or_else(|| env!("CARGO_BIN_EXE_bannerwall").into(), PathBuf::from);
    let place = Place::new(program, mode);
    let load = Load::new();
    let watch = Watch::new();
    let started = Instant::now();
    std::thread::scope(|scope| {
        load.start(scope, &place);
        watch.start(scope, &place);
        let mut faults = Faults::new(&place, &load, &watch);
        faults.audit(report);
        let (mut restarts, mut others) = (Fault::RESTARTS.iter().cycle(), Fault::OTHERS.iter().cycle());
        while started.elapsed() < time / 3 {
            for _ in 0..Fault::RESTARTS.len() {
                faults.calm(CALM);
                faults.inflict(*restarts.next().expect("it is a cycle"), report);
            }
            faults.audit(report);
        }
        // One guard lives through the rest. Once everything has happened to it, it needs no more than it has.
        let mut rounds = 0;
        while started.elapsed() < time {
            if rounds == 1 {
                watch.is_warm();
            }
            rounds += 1;
            for _ in 0..Fault::OTHERS.len() {
                faults.calm(CALM);
                faults.inflict(*others.next().expect("it is a cycle"), report);
            }
            faults.audit(report);
        }
        faults.end(report);
        load.end();
        watch.end();
    });
    report.conclude(mode, &load, &watch);
}

#[test]
#[ignore = "takes minutes; scripts/soak runs it"]
fn a_guard_that_everything_happens_to_loses_and_leaks_nothing() {
    as_root(|| {
        let mut report = Report::new();
        for mode in ["closed", "open"] {
            half(mode, duration() / 2, &mut report);
        }
        let text = report.finish(variable("OUTPUT").map(PathBuf::from).as_deref());
        println!("{text}");
        assert!(report.failures().is_empty(), "{}", report.failures().join("\n"));
    });
}
