//! The fuzz targets' entry points on a stable compiler: their seeds, and random changes to them.
//!
//! `scripts/fuzz` runs the same functions guided by coverage. `BANNERWALL_FUZZ_CASES` sets how many
//! changed inputs each target gets here.

use std::path::Path;

use bannerwall::testing::fuzzing::{FuzzTarget, TARGETS};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

/// The inputs that a target begins with.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} holds no seeds", folder.display());
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// One way to change an input.
#[derive(Debug, Clone)]
enum Change {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Cut(Index),
    Repeat(Index, usize),
}

impl Change {
    fn any() -> impl Strategy<Value = Self> {
        let octets = prop_oneof![
            proptest::collection::vec(any::<u8>(), 1..6),
            proptest::sample::select(vec![
                &b"\r\n"[..],
                b"\n",
                b"\0",
                b": ",
                b" HTTP/1.1\r\n",
                b"SSH-2.0-",
                b"0\r\n\r\n"
            ])
            .prop_map(<[u8]>::to_vec),
        ];
        prop_oneof![
            4 => (any::<Index>(), any::<u8>()).prop_map(|(at, octet)| Self::Set(at, octet)),
            2 => (any::<Index>(), octets).prop_map(|(at, octets)| Self::Insert(at, octets)),
            1 => (any::<Index>(), 1_usize..9).prop_map(|(at, count)| Self::Remove(at, count)),
            1 => any::<Index>().prop_map(Self::Cut),
            1 => (any::<Index>(), 1_usize..40).prop_map(|(at, count)| Self::Repeat(at, count)),
        ]
    }

    fn apply(&self, input: &mut Vec<u8>) {
        if input.is_empty() {
            return;
        }
        let end = |at: usize, count: usize| (at + count).min(input.len());
        match self {
            Self::Set(at, octet) => *at.get_mut(input) = *octet,
            Self::Insert(at, octets) => {
                let at = at.index(input.len());
                input.splice(at..at, octets.iter().copied());
            }
            Self::Remove(at, count) => {
                let at = at.index(input.len());
                input.drain(at..end(at, *count));
            }
            Self::Cut(at) => input.truncate(at.index(input.len())),
            Self::Repeat(at, count) => {
                let at = at.index(input.len());
                let part = input[at..end(at, *count)].to_vec();
                input.splice(at..at, part);
            }
        }
    }
}

fn run(name: &str) {
    let (_, target): &(&str, FuzzTarget) = TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    let seeds = seeds(name);
    for seed in &seeds {
        target(seed);
    }
    let cases: u32 = std::env::var("BANNERWALL_FUZZ_CASES").map_or(20_000, |text| text.parse().unwrap());
    // A case of these compiles patterns, or runs whole conversations.
    let cases = if ["rules", "engine"].contains(&name) { cases.div_ceil(20) } else { cases };
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let changes = proptest::collection::vec(Change::any(), 1..12);
    let random = proptest::collection::vec(any::<u8>(), 0..400);
    runner
        .run(&(any::<Index>(), changes, random), |(seed, changes, random)| {
            let mut input = seed.get(&seeds).clone();
            for change in changes {
                change.apply(&mut input);
            }
            target(&input);
            target(&random);
            Ok(())
        })
        .unwrap();
}

/// A test for each target, and one that none is forgotten.
macro_rules! targets {
    ($($name:ident),+ $(,)?) => {
        $(#[test]
        fn $name() {
            run(stringify!($name));
        })+

        #[test]
        fn every_target_is_tested_here_and_fuzzed_by_cargo_fuzz() {
            let tested = [$(stringify!($name)),+];
            let known: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(tested.as_slice(), known);
            for name in known {
                let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fuzz/fuzz_targets/{name}.rs"));
                assert!(file.exists(), "{}", file.display());
            }
        }
    };
}

targets!(
    packet,
    flow,
    ssh,
    greeting,
    other,
    http,
    framing,
    tls,
    quic,
    certificate,
    capture,
    netlink,
    rules,
    engine
);
