//! Coverage: each target exactly once, over threads, shards, interruptions and crashes.

use std::collections::HashMap;
use std::net::SocketAddr;

use proptest::prelude::*;

use super::super::{SetOptions, TargetSetBuilder};
use super::*;
use crate::event::PortState;
use crate::scan::{ExchangeOutcome, PortStateReason, TargetOutcome};

fn set(words: &[&str], ports: &str) -> TargetSet {
    let mut builder = TargetSetBuilder::default();
    words.iter().for_each(|word| builder.target(word).unwrap());
    builder.build(&ports.parse().unwrap(), SetOptions::default()).unwrap()
}

fn plan(shard: &str, threads: usize, from: FeedSnapshot) -> Arc<TargetPlan> {
    let set = set(&["192.0.2.0/25", "2001:db8::/123", "198.51.100.7-13"], "22,80,8080");
    Arc::new(TargetPlan::new(set, 7, shard.parse().unwrap(), ScanRate::Max, threads, from))
}

fn closed(target: &Target) -> TargetOutcome<'_> {
    TargetOutcome {
        target,
        state: PortState::Closed,
        reason: PortStateReason::Refused,
        round_trip: None,
        waited: None,
        conversation: ExchangeOutcome::None,
        matches: 0,
        banner: &[],
    }
}

fn next(feed: &mut TargetFeed) -> Option<Target> {
    match feed.next(Instant::now()) {
        NextTarget::Target(target) => Some(target),
        NextTarget::Wait(_) => panic!("no rate, no wait"),
        NextTarget::End => None,
    }
}

#[test]
fn threads_and_shards_cover_everything_exactly_once() {
    let mut seen: HashMap<SocketAddr, u32> = HashMap::new();
    for shard in ["1/3", "2/3", "3/3"] {
        let plan = plan(shard, 2, FeedSnapshot::default());
        let mut feeds = plan.feeds(ScanRate::Max);
        let mut handed = 0;
        // The threads take turns unevenly.
        for turn in 0.. {
            let which = usize::from(turn % 5 == 0);
            let other = 1 - which;
            let target = next(&mut feeds[which].0).map(|target| (which, target));
            let Some((which, target)) =
                target.or_else(|| next(&mut feeds[other].0).map(|target| (other, target)))
            else {
                break;
            };
            *seen.entry(target.address).or_default() += 1;
            plan.finish(&feeds[which].1, &[FinishedTarget::new(&closed(&target), false)]);
            handed += 1;
        }
        assert_eq!((handed, plan.counts().refused), (plan.total(), plan.total()));
        assert_eq!(plan.in_flight(), 0);
        assert_eq!(plan.snapshot().unfinished, []);
    }
    assert_eq!(seen.len(), (128 + 32 + 7) * 3);
    assert!(seen.values().all(|times| *times == 1));
}

#[test]
fn a_closed_plan_hands_out_no_more() {
    let plan = plan("1/1", 1, FeedSnapshot::default());
    let mut feeds = plan.feeds(ScanRate::Max);
    assert!(next(&mut feeds[0].0).is_some());
    plan.close();
    assert!(next(&mut feeds[0].0).is_none());
}

#[test]
fn slow_scans_share_single_targets() {
    let set = set(&["192.0.2.0/24"], "22");
    let plan = TargetPlan::new(set, 1, Shard::WHOLE, "10".parse().unwrap(), 2, FeedSnapshot::default());
    assert_eq!(plan.chunk, 1);
}

#[test]
fn shards_are_read_and_refused() {
    assert_eq!("2/8".parse::<Shard>().unwrap().to_string(), "2/8");
    for wrong in ["0/2", "3/2", "1", "1/0", "a/b", "-1/2", ""] {
        assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
    }
    assert_eq!("3/4".parse::<Shard>().unwrap().share(2), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// However a run is broken off, at whatever point and with whatever under way, the next run
    /// asks exactly what is not over.
    #[test]
    fn a_snapshot_leaves_out_nothing_and_repeats_nothing(
        stops in prop::collection::vec((0_usize..300, any::<u64>()), 0..5),
        threads in 1_usize..4,
    ) {
        let mut over: HashMap<SocketAddr, u32> = HashMap::new();
        let mut from = FeedSnapshot::default();
        for (steps, noise) in stops.into_iter().chain([(usize::MAX, 0)]) {
            let plan = plan("1/1", threads, from);
            let mut feeds = plan.feeds(ScanRate::Max);
            let mut under_way: Vec<(usize, Target)> = Vec::new();
            let mut ended = vec![false; threads];
            let mut state = noise;
            for step in 0..steps {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let thread = step % threads;
                match next(&mut feeds[thread].0) {
                    Some(target) => under_way.push((thread, target)),
                    None => ended[thread] = true,
                }
                let last = ended.iter().all(|ended| *ended);
                // Some targets take longer than others; in the last run all end.
                while under_way.len() > usize::try_from(state >> 60).unwrap() || (last && !under_way.is_empty()) {
                    let at = usize::try_from(state >> 33).unwrap() % under_way.len();
                    let (thread, target) = under_way.swap_remove(at);
                    plan.finish(&feeds[thread].1, &[FinishedTarget::new(&closed(&target), false)]);
                    *over.entry(target.address).or_default() += 1;
                }
                if last {
                    break;
                }
            }
            from = plan.snapshot();
            prop_assert_eq!(from.counts.refused, over.len() as u64);
        }
        prop_assert_eq!(over.len(), (128 + 32 + 7) * 3);
        prop_assert!(over.values().all(|times| *times == 1));
        prop_assert_eq!(&from.unfinished, &[]);
    }
}
