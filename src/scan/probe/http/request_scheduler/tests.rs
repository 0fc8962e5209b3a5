//! The asker against servers that are only rules of behaviour: what they answer, round trip by round
//! trip.

use proptest::prelude::*;

use super::*;
use crate::scan::HttpRequest;

/// What a server does with the request that is its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Answer(AfterResponse),
    Close,
    Stall,
    Hurry,
}

/// What came of asking a server everything.
#[derive(Debug)]
struct Asked {
    asker: RequestScheduler,
    /// How often each request was sent.
    sent: Vec<u32>,
    /// How often each was answered.
    answers: Vec<u32>,
    connections: u32,
    most_at_once: usize,
    /// Round trips, one for making a connection.
    rounds: u32,
}

fn plan(count: u16, method: &str) -> RequestPlan {
    let request = |number| HttpRequest {
        method: method.to_owned(),
        path: format!("/{number}"),
        ..HttpRequest::default()
    };
    let requests: Vec<_> = (0..count).map(request).collect();
    RequestPlan::new(&requests, &[], false)
}

/// Asks `count` requests; the server is told the connection's number, the place on it and the request.
fn ask(plan: &RequestPlan, connections: usize, mut server: impl FnMut(u32, u16, u16) -> Act) -> Asked {
    let count = plan.len();
    let mut asker = RequestScheduler::default();
    asker.begin(count, true, connections);
    let none = vec![0; usize::from(count)];
    let mut asked =
        Asked { asker, sent: none.clone(), answers: none, connections: 0, most_at_once: 0, rounds: 0 };
    let mut lines: Vec<(u32, ConnectionRequests)> = Vec::new();
    while asked.asker.wanted() > 0 {
        asked.rounds += 1;
        assert!(asked.rounds < 20_000, "it never ends: {:?}", asked.asker);
        // Lines that have no more use end, the others go on.
        lines.retain_mut(|(_, line)| {
            asked.asker.fill(line, plan, |number| asked.sent[usize::from(number)] += 1);
            !line.is_idle()
        });
        while lines.len() < asked.asker.wanted() {
            let mut line = ConnectionRequests::default();
            asked.asker.fill(&mut line, plan, |number| asked.sent[usize::from(number)] += 1);
            assert!(!line.is_idle(), "a connection for nothing: {:?}", asked.asker);
            asked.connections += 1;
            lines.push((asked.connections, line));
        }
        asked.most_at_once = asked.most_at_once.max(lines.len());
        lines.retain_mut(|(number, line)| asked.answers_of(*number, line, plan, &mut server));
    }
    asked
}

impl Asked {
    /// What comes on a connection in one round trip; tells whether it goes on.
    fn answers_of(
        &mut self,
        connection: u32,
        line: &mut ConnectionRequests,
        plan: &RequestPlan,
        server: &mut impl FnMut(u32, u16, u16) -> Act,
    ) -> bool {
        for _ in 0..line.in_flight.len() {
            let Some(front) = line.front() else { return true };
            let ended = match server(connection, line.answered, front) {
                Act::Answer(behind) => {
                    self.answers[usize::from(front)] += 1;
                    self.asker.answer(line, behind);
                    (behind != AfterResponse::Another).then_some(PrematureEnd::Closed)
                }
                Act::Close => Some(PrematureEnd::Closed),
                Act::Stall => Some(PrematureEnd::Stalled),
                Act::Hurry => Some(PrematureEnd::Hurried),
            };
            if let Some(how) = ended {
                self.asker.end(line, plan, how);
                return false;
            }
        }
        true
    }

    fn assert_each_answered_once(&self) {
        assert!(self.answers.iter().all(|times| *times == 1), "{self:?}");
        assert!(self.asker.is_complete(), "{self:?}");
    }
}

const ON: Act = Act::Answer(AfterResponse::Another);

#[test]
fn a_server_in_order_is_asked_320_in_two_round_trips() {
    for (connections, rounds) in [(1, 2), (4, 2)] {
        let asked = ask(&plan(320, "GET"), connections, |_, _, _| ON);
        asked.assert_each_answered_once();
        assert_eq!((asked.rounds, asked.most_at_once), (rounds, connections));
        assert!(asked.sent.iter().all(|times| *times == 1), "each goes out once");
    }
}

#[test]
fn connections_share_each_batch_evenly() {
    for (count, most) in [(120, 30), (320, 80), (400, 100)] {
        let mut on_each = std::collections::BTreeMap::new();
        let asked = ask(&plan(count, "GET"), 4, |connection, _, _| {
            *on_each.entry(connection).or_insert(0) += 1;
            ON
        });
        asked.assert_each_answered_once();
        assert!(on_each.len() == 4 && on_each.values().all(|answers| *answers == most), "{on_each:?}");
    }
}

#[test]
fn depth_recovers_after_one_stall_wherever_it_comes() {
    for stall in [0, 1, 5, 8, 40, 100, 300] {
        let mut seen = 0;
        let mut stalled = false;
        let asked = ask(&plan(2000, "GET"), 1, |_, _, _| {
            if seen == stall && !stalled {
                stalled = true;
                return Act::Stall;
            }
            seen += 1;
            ON
        });
        asked.assert_each_answered_once();
        // Without one it takes ten; asking one at a time from there would take hundreds.
        assert!(asked.rounds <= 35, "{} rounds after a stall at {stall}", asked.rounds);
        assert!(asked.asker.depth > 64 * PARTS, "{:?}", asked.asker);
    }
}

#[test]
fn who_announces_the_end_is_believed_at_the_first_answer() {
    let asked = ask(&plan(100, "GET"), 1, |_, _, _| Act::Answer(AfterResponse::Nothing));
    asked.assert_each_answered_once();
    assert_eq!((asked.connections, asked.most_at_once), (100, 4));
    let twice = asked.sent.iter().filter(|times| **times > 1).count();
    assert!(
        twice < FIRST_DEPTH as usize,
        "only what was sent before the first answer goes out again: {twice}"
    );
}

#[test]
fn who_closes_without_a_word_is_found_out_too() {
    for after in [1, 3, 10] {
        let asked = ask(&plan(100, "GET"), 1, |_, place, _| if place < after { ON } else { Act::Close });
        asked.assert_each_answered_once();
        let least = 100_u32.div_ceil(after.into());
        assert!(asked.connections <= least + 10, "{} connections for {after} each", asked.connections);
    }
}

#[test]
fn a_limit_of_requests_a_connection_is_learnt_and_unlearnt() {
    let limited =
        |_, place, _| Act::Answer(if place == 9 { AfterResponse::Nothing } else { AfterResponse::Another });
    let asked = ask(&plan(100, "GET"), 1, limited);
    asked.assert_each_answered_once();
    assert_eq!(asked.connections, 10);
    let twice = asked.sent.iter().filter(|times| **times > 1).count();
    assert!(twice <= 90, "only the first connection is asked too much");
    assert!(asked.sent.iter().all(|times| *times <= 2));
    // One that closed early once is not taken for one that always does.
    let asked = ask(&plan(300, "GET"), 1, |connection, place, _| {
        Act::Answer(if connection == 1 && place == 1 {
            AfterResponse::Nothing
        } else {
            AfterResponse::Another
        })
    });
    asked.assert_each_answered_once();
    assert_eq!(asked.connections, 2);
}

#[test]
fn who_answers_only_the_first_of_several_is_asked_in_turn() {
    let mut behind = 0;
    let asked = ask(&plan(200, "GET"), 1, |_, place, _| {
        // It drops what was sent together with the first request of a connection.
        behind = if place == 0 { 0 } else { behind + 1 };
        if place == 1 { Act::Stall } else { ON }
    });
    asked.assert_each_answered_once();
    assert!(asked.most_at_once == 4);
}

#[test]
fn an_error_that_closes_is_not_held_against_the_server() {
    let asked = ask(&plan(300, "GET"), 1, |_, _, number| {
        Act::Answer(if number == 0 || number == 150 { AfterResponse::Cut } else { AfterResponse::Another })
    });
    asked.assert_each_answered_once();
    assert_eq!((asked.connections, asked.most_at_once), (3, 1));
}

#[test]
fn what_breaks_every_connection_is_given_up_and_the_rest_asked() {
    for act in [Act::Close, Act::Stall] {
        let asked = ask(&plan(200, "GET"), 1, |_, _, number| if number == 50 { act } else { ON });
        assert_eq!(asked.answers.iter().sum::<u32>(), 199, "{asked:?}");
        assert!(asked.asker.is_over() && !asked.asker.is_complete());
        assert_eq!((asked.sent[50], asked.answers[50]), (3, 0));
    }
}

#[test]
fn who_never_answers_is_given_up_soon() {
    // The second connection asks one request: it may have been the pipeline. A server that closes costs
    // little; there it may have been the path, too.
    for (act, connections) in [(Act::Stall, 2), (Act::Close, 4)] {
        let asked = ask(&plan(200, "GET"), 1, |_, _, _| act);
        assert_eq!((asked.connections, asked.asker.answered()), (connections, 0));
        let asked = ask(&plan(1, "GET"), 1, |_, _, _| act);
        assert_eq!(asked.connections, 1);
    }
}

#[test]
fn who_closes_on_a_pipeline_is_found_out_over_any_number_of_connections() {
    for connections in 1..=8 {
        let asked = ask(&plan(62, "GET"), connections, |connection, place, _| {
            if connection <= u32::try_from(connections).expect("few") && place == 0 { Act::Close } else { ON }
        });
        asked.assert_each_answered_once();
    }
}

#[test]
fn what_was_never_asked_comes_before_what_closed() {
    let plan = plan(30, "GET");
    let mut order = Vec::new();
    let mut asker = RequestScheduler::default();
    asker.begin(30, false, 1);
    while asker.wanted() > 0 {
        let mut line = ConnectionRequests::default();
        asker.fill(&mut line, &plan, |number| order.push(number));
        match line.front() {
            Some(front) if front % 3 == 1 => drop(asker.end(&mut line, &plan, PrematureEnd::Closed)),
            _ => asker.answer(&mut line, AfterResponse::Nothing),
        }
    }
    assert_eq!(asker.answered(), 20, "ten fail, each on its own account");
    assert!(order.iter().take(30).copied().eq(0..30), "{order:?}");
    assert!(order.len() <= 30 + 2 * 10, "{order:?}");
}

#[test]
fn waits_that_were_cut_short_are_held_against_nobody() {
    let asked = ask(&plan(60, "GET"), 1, |connection, place, _| match (connection, place) {
        (..=20, 2) => Act::Hurry,
        _ => ON,
    });
    asked.assert_each_answered_once();
}

#[test]
fn an_error_for_a_batch_is_credited_to_the_one_that_it_is_for() {
    for bad in [0, 1, 20, 39, 150] {
        let mut extra = 0;
        let mut asked_for = Vec::new();
        let plan = plan(200, "GET");
        let mut asker = RequestScheduler::default();
        asker.begin(200, true, 1);
        let mut errors = Vec::new();
        while asker.wanted() > 0 {
            let mut line = ConnectionRequests::default();
            loop {
                asker.fill(&mut line, &plan, |number| asked_for.push(number));
                // The server reads all that came together, and answers it once if it likes one of it ill.
                if line.in_flight.contains(&bad) {
                    if line.is_contended() {
                        asker.doubt(&mut line, AfterResponse::Cut);
                        extra += 1;
                    } else {
                        errors.push(line.front());
                        asker.answer(&mut line, AfterResponse::Cut);
                    }
                    break;
                }
                if line.is_idle() {
                    break;
                }
                while !line.is_idle() {
                    asker.answer(&mut line, AfterResponse::Another);
                }
            }
            asker.end(&mut line, &plan, PrematureEnd::Closed);
        }
        assert!(asker.is_complete(), "{bad}: {asker:?}");
        assert_eq!(errors, [Some(bad)]);
        assert!(extra <= 10, "{bad}: {extra} more connections");
    }
}

#[test]
fn what_is_not_idempotent_goes_out_once_and_alone() {
    let asked = ask(&plan(20, "POST"), 1, |_, place, _| if place == 4 { Act::Close } else { ON });
    assert!(asked.sent.iter().all(|times| *times == 1), "{asked:?}");
    // Two are lost until it is known that the server closes behind four.
    assert_eq!(asked.answers.iter().sum::<u32>(), 18);
}

#[test]
fn without_pipelining_each_has_its_connection() {
    let plan = plan(10, "GET");
    let mut asker = RequestScheduler::default();
    asker.begin(10, false, 1);
    for _ in 0..10 {
        assert_eq!(asker.wanted(), 1);
        let mut line = ConnectionRequests::default();
        asker.fill(&mut line, &plan, |_| {});
        assert_eq!(line.in_flight.len(), 1);
        asker.answer(&mut line, AfterResponse::Another);
        asker.fill(&mut line, &plan, |_| {});
        assert!(line.is_idle());
    }
    assert!(asker.is_complete());
}

proptest! {
    /// Whatever a server does, every request ends as answered or given up, none is answered twice,
    /// and there are never more connections than may be.
    #[test]
    fn any_server_is_borne(
        acts in prop::collection::vec(0..12_u8, 1..60),
        count in 1..120_u16,
        connections in 1..6_usize,
        post in any::<bool>(),
    ) {
        let mut turn = 0;
        let plan = plan(count, if post { "POST" } else { "GET" });
        let asked = ask(&plan, connections, |_, _, _| {
            turn += 1;
            match acts[turn % acts.len()] {
                0 => Act::Close,
                1 => Act::Stall,
                2 => Act::Answer(AfterResponse::Nothing),
                3 => Act::Answer(AfterResponse::Cut),
                4 => Act::Hurry,
                _ => ON,
            }
        });
        prop_assert!(asked.asker.is_over());
        prop_assert!(asked.answers.iter().all(|times| *times <= 1));
        prop_assert_eq!(u32::from(asked.asker.answered()), asked.answers.iter().sum::<u32>());
        prop_assert!(asked.most_at_once <= connections.max(4));
        if post {
            prop_assert!(asked.sent.iter().all(|times| *times <= 1));
        }
    }
}

#[test]
fn a_prompt_server_without_keep_alive_is_asked_over_one_connection() {
    let mut asker = RequestScheduler::default();
    asker.begin(100, true, 1);
    asker.manner = RequestMode::OneEach;
    assert_eq!(asker.wanted(), HttpOptions::FALLBACK_CONNECTIONS);
    asker.is_prompt(true);
    assert_eq!(asker.wanted(), 1);
}
