//! Which results reach the writer, and when their targets are counted as over.

use std::io::{self, Write};
use std::sync::Mutex;

use super::bounded_events::BoundedEvents;
use super::*;
use crate::event::{
    AlertFacts, HeaderField, HttpFacts, HttpResponseFacts, MatchedText, ProductFacts, RuleAction, Severity,
    SshFacts, SshSide,
};
use crate::output::{OutputDestination, OutputFormat, OutputWriter, WriterConfig};
use crate::scan::pacing::ScanRate;
use crate::scan::targets::{FeedSnapshot, SetOptions, Shard, TargetFeed, TargetSetBuilder};
use crate::scan::{NextTarget, PortStateReason, Target, TargetSource as _};

/// Each group's address and kinds of events, a line a group.
struct Kinds;

impl OutputFormat for Kinds {
    fn event(&mut self, event: &Event, out: &mut Vec<u8>) -> io::Result<()> {
        self.group(std::slice::from_ref(event), out)
    }

    fn group(&mut self, events: &[Event], out: &mut Vec<u8>) -> io::Result<()> {
        let flow = events.iter().find_map(|event| event.flow.as_ref());
        write!(out, "{}", flow.expect("a target").endpoints.server.address)?;
        for event in events {
            match &event.kind {
                EventKind::Connect(facts) => write!(out, " {}", facts.state.name())?,
                EventKind::Application(ApplicationFacts::Ssh(_)) => write!(out, " ssh")?,
                _ => write!(out, " other")?,
            }
        }
        writeln!(out)
    }
}

/// What was written, for the writer's thread and the test.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Stage {
    plan: Arc<TargetPlan>,
    feed: TargetFeed,
    report: ScanReport,
    writer: OutputWriter,
    written: Shared,
}

impl Stage {
    /// A scan of 192.0.2.0 to 192.0.2.3.
    fn new(selection: ResultSelection) -> Self {
        let mut builder = TargetSetBuilder::default();
        builder.target("192.0.2.0/30").expect("targets");
        let set = builder.build(&"22".parse().expect("a port"), SetOptions::default()).expect("a set");
        let plan = Arc::new(TargetPlan::new(set, 1, Shard::WHOLE, ScanRate::Max, 1, FeedSnapshot::default()));
        let written = Shared::default();
        let destination = OutputDestination::Other(Box::new(written.clone()));
        let writer =
            OutputWriter::start(WriterConfig::BATCHES, destination, Box::new(Kinds)).expect("a thread");
        let (feed, tracker) = plan.feeds(ScanRate::Max).pop().expect("one thread");
        let report = ScanReport::new(Arc::clone(&plan), tracker, writer.handle(), Arc::new(selection));
        Self { plan, feed, report, writer, written }
    }

    /// All four targets, in the order of their addresses.
    fn targets(&mut self) -> Vec<Target> {
        let mut targets = Vec::new();
        while let NextTarget::Target(target) = self.feed.next(Instant::now()) {
            targets.push(target);
        }
        targets.sort_by_key(|target| target.address);
        targets
    }

    /// The server behind `target` identifies itself as `banner`.
    fn says(&mut self, target: &Target, banner: &str) {
        let server = SshSide { banner: banner.to_owned(), ..SshSide::default() };
        let facts = SshFacts { client: None, server: Some(server.into()) };
        let mut event = connect_event(&outcome(target, PortState::Open));
        event.kind = EventKind::Application(ApplicationFacts::Ssh(Arc::new(facts)));
        self.report.emit(event);
    }

    fn finish(mut self) -> String {
        self.report.end();
        self.writer.finish();
        String::from_utf8(self.written.0.lock().expect("no panic").clone()).expect("text")
    }
}

fn outcome(target: &Target, state: PortState) -> TargetOutcome<'_> {
    TargetOutcome {
        target,
        state,
        reason: PortStateReason::NoResponse,
        round_trip: None,
        waited: None,
        conversation: ExchangeOutcome::None,
        matches: 0,
        banner: &[],
    }
}

/// One target of each state; the open one is an SSH server.
fn one_of_each(selection: ResultSelection) -> String {
    let mut stage = Stage::new(selection);
    let targets = stage.targets();
    let states = [PortState::Open, PortState::Closed, PortState::Filtered, PortState::Error];
    for (target, state) in targets.iter().zip(states) {
        if state == PortState::Open {
            stage.says(target, "SSH-2.0-OpenSSH_9.2p1");
        }
        stage.report.finished(&outcome(target, state));
    }
    stage.finish()
}

#[test]
fn events_stand_for_a_target_unless_a_format_wants_its_state_too() {
    let all = "192.0.2.1 closed\n192.0.2.2 filtered\n192.0.2.3 error\n";
    assert_eq!(one_of_each(ResultSelection::default()), format!("192.0.2.0 ssh\n{all}"));
    let always = ResultSelection { always_connect: true, ..ResultSelection::default() };
    assert_eq!(one_of_each(always), format!("192.0.2.0 open ssh\n{all}"));
}

#[test]
fn what_a_person_did_not_ask_for_is_left_out_but_never_an_error_of_this_machine() {
    let open_only = ResultSelection { open_only: true, ..ResultSelection::default() };
    assert_eq!(one_of_each(open_only), "192.0.2.0 ssh\n");
    let long = ResultSelection { hide_unanswered: true, ..ResultSelection::default() };
    assert_eq!(one_of_each(long), "192.0.2.0 ssh\n192.0.2.3 error\n");
}

#[test]
fn patterns_decide_what_is_shown_and_counted_as_matched() {
    let pattern = |text: &str| ResultPattern::Banner(Regex::new(text).expect("a regex"));
    let matching = |patterns: Vec<ResultPattern>| ResultSelection { patterns, ..ResultSelection::default() };
    assert_eq!(one_of_each(matching(vec![pattern("OpenSSH"), pattern("9[.]2")])), "192.0.2.0 ssh\n");
    assert_eq!(one_of_each(matching(vec![pattern("OpenSSH"), pattern("Dropbear")])), "");

    let mut stage = Stage::new(matching(vec![pattern("OpenSSH")]));
    let targets = stage.targets();
    for (target, banner) in targets.iter().zip(["SSH-2.0-OpenSSH_9.2p1", "SSH-2.0-dropbear"]) {
        stage.says(target, banner);
        stage.report.finished(&outcome(target, PortState::Open));
    }
    stage.report.end();
    let counts = stage.plan.counts();
    assert_eq!((counts.open, counts.matched), (2, 1));
}

/// What a host with many pages and fields says, to rules that all match it.
fn flood(held: &mut BoundedEvents, template: &Event, answers: u32) {
    let field = |number| HeaderField { name: format!("X-{number}").into(), value: "x".repeat(1000).into() };
    for transaction in 0..answers {
        let response = HttpResponseFacts {
            headers: std::iter::once(HeaderField { name: "server".into(), value: "flood".into() })
                .chain((0..7).map(field))
                .collect(),
            ..HttpResponseFacts::default()
        };
        let said = ApplicationFacts::Http(Arc::new(HttpFacts { request: None, response: Some(response) }));
        let mut event = template.clone();
        event.flow.iter_mut().for_each(|flow| flow.transaction = Some(transaction));
        held.push(Event { kind: EventKind::Application(said.clone()), ..event.clone() });
        for rule in 0..20 {
            let facts = alert(format!("rule-{rule}"), said.clone());
            held.push(Event { kind: EventKind::Alert(Arc::new(facts)), ..event.clone() });
        }
    }
}

fn alert(rule: String, application: ApplicationFacts) -> AlertFacts {
    AlertFacts {
        rule,
        title: "t".repeat(50),
        category: String::new(),
        action: RuleAction::Alert,
        blocked: false,
        enforced: false,
        severity: Severity::Low,
        references: Vec::new(),
        product: ProductFacts::default(),
        from: Side::Server,
        banner: "HTTP/1.1 200 OK".to_owned(),
        application,
        matched: Some(Box::new(MatchedText { field: "status".to_owned(), text: "200".to_owned() })),
        let_pass: None,
        resets: None,
        verdict: None,
    }
}

#[test]
fn what_is_held_of_one_host_is_bounded_whatever_it_answers() {
    let mut stage = Stage::new(ResultSelection::default());
    let targets = stage.targets();
    let template = connect_event(&outcome(&targets[0], PortState::Open));
    let mut held = BoundedEvents::default();
    // 28 MB of header fields and ten of alerts.
    flood(&mut held, &template, 4000);
    let events = held.into_events();
    let octets: usize = events.iter().map(Event::weight).sum();
    assert!(octets < bounded_events::WHOLE + 4000 * 512, "{octets}");
    let answers = events.iter().filter_map(|event| match &event.kind {
        EventKind::Application(ApplicationFacts::Http(facts)) => facts.response.as_ref(),
        _ => None,
    });
    let answers: Vec<_> = answers.collect();
    assert_eq!(answers.len(), 4000, "every answer is told");
    assert!(answers.iter().all(|answer| answer.header("Server") == Some("flood")));
    assert!(answers.iter().all(|answer| answer.headers.len() + answer.left_out as usize == 8));
    let Some(EventKind::Anomaly(facts)) = events.last().map(|event| &event.kind) else { panic!("not told") };
    let cut = answers.iter().filter(|answer| answer.left_out > 0).count();
    assert!(facts.detail.contains(&format!("responses without header fields {cut}")), "{}", facts.detail);
    let alerts = events.iter().filter(|event| matches!(event.kind, EventKind::Alert(_))).count();
    assert!(facts.detail.contains(&format!("left out {}", 20 * 4000 - alerts)), "{}", facts.detail);

    let mut small = BoundedEvents::default();
    flood(&mut small, &template, 3);
    assert_eq!(small.into_events().len(), 3 * 21, "what is little is whole");
}

#[test]
fn a_target_that_was_stopped_halfway_is_neither_written_nor_over() {
    let mut stage = Stage::new(ResultSelection::default());
    let targets = stage.targets();
    targets.iter().for_each(|target| stage.says(target, "SSH-2.0-x"));
    let over = targets.first().expect("four targets");
    stage.report.finished(&outcome(over, PortState::Open));
    // Not before its result is on its way.
    assert_eq!(stage.plan.counts().finished(), 0);
    stage.report.end();
    let unfinished = stage.plan.snapshot().unfinished;
    let unfinished: u64 = unfinished.iter().map(|range| range.end - range.start).sum();
    assert_eq!((stage.plan.counts().finished(), unfinished), (1, 3));
    assert_eq!(stage.finish(), "192.0.2.0 ssh\n");
}
