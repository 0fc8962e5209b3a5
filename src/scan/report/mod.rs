//! Selection of results: events are kept until their target is finished, filtered by `--match` and `--open`,
//! then passed to the writer together.
//!
//! Results go to the writer in batches, at least every few milliseconds. Waking its thread for each result
//! would cost more than all other work on a target.

mod bounded_events;
mod collected;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use regex::bytes::Regex;

use super::session::store::ResultFeed;
use super::targets::{FinishedTarget, TargetPlan, TargetTracker};
use super::{ExchangeOutcome, OutcomeSink, TargetOutcome};
use crate::event::{
    ApplicationFacts, Endpoint, Event, EventKind, EventSink, EventSource, FlowContext, FlowEndpoints,
    PortState, Side, TransportProtocol,
};
use crate::output::ChannelHandle;
pub use collected::CollectedEvents;

/// Bytes to show of a response in another protocol.
const SHOWN: usize = 256;
/// Limit of targets in a batch of results.
const BATCH: usize = 256;
/// Longest delay of a result before its batch is sent.
const HELD: Duration = Duration::from_millis(20);

/// Selection of results.
#[derive(Debug, Clone, Default)]
pub struct ResultSelection {
    /// Show only open ports.
    pub open_only: bool,
    /// Hide closed and silent ports (in a long table for a person).
    pub hide_unanswered: bool,
    /// Emit a `connect` event for every target, instead of only for those without other events.
    pub always_connect: bool,
    /// Show only targets that match all of these.
    pub patterns: Vec<ResultPattern>,
}

/// Pattern of `--match`.
#[derive(Debug, Clone)]
pub enum ResultPattern {
    /// SSH identification line, a line of a greeting, or the summary and certificate of a TLS handshake.
    Banner(Regex),
    /// Header field of an HTTP response, by name.
    Header(String, Regex),
}

impl ResultPattern {
    fn matches(&self, events: &[Event]) -> bool {
        events.iter().any(|event| match (&event.kind, self) {
            (EventKind::Application(ApplicationFacts::Ssh(facts)), Self::Banner(regex)) => {
                facts.server.as_ref().is_some_and(|side| regex.is_match(side.banner.as_bytes()))
            }
            (EventKind::Application(ApplicationFacts::Greeting(facts)), Self::Banner(regex)) => {
                facts.lines.iter().any(|line| regex.is_match(line.as_bytes()))
            }
            (EventKind::Application(ApplicationFacts::Tls(facts)), Self::Banner(regex)) => {
                let certificate = facts.certificate();
                let names = certificate.iter().flat_map(|it| &it.names);
                let texts = certificate.iter().flat_map(|it| [&it.subject, &it.issuer]).chain(names);
                regex.is_match(facts.line(Side::Server).as_bytes())
                    || texts.into_iter().any(|text| regex.is_match(text.as_bytes()))
            }
            (EventKind::Application(ApplicationFacts::Http(facts)), Self::Header(name, regex)) => {
                let headers = facts.response.iter().flat_map(|response| &response.headers);
                let mut named = headers.filter(|field| field.name.eq_ignore_ascii_case(name));
                named.any(|field| regex.is_match(field.value.as_bytes()))
            }
            _ => false,
        })
    }
}

/// Results of one thread.
#[derive(Debug)]
pub struct ScanReport {
    plan: Arc<TargetPlan>,
    tracker: Arc<TargetTracker>,
    writer: ChannelHandle,
    store: Option<ResultFeed>,
    selection: Arc<ResultSelection>,
    /// Events of unfinished targets. A resumed scan probes such a target again, so it must not be reported
    /// twice.
    collected: CollectedEvents,
    /// Results to pass on, and all targets that finished since the last time.
    groups: Vec<Vec<Event>>,
    /// Results for the store, shown or not.
    seen: Vec<Vec<Event>>,
    over: Vec<FinishedTarget>,
    handed_over: Instant,
}

impl ScanReport {
    /// Returns a report of the targets that `tracker` records for `plan`.
    pub fn new(
        plan: Arc<TargetPlan>,
        tracker: Arc<TargetTracker>,
        writer: ChannelHandle,
        selection: Arc<ResultSelection>,
    ) -> Self {
        Self {
            plan,
            tracker,
            writer,
            store: None,
            selection,
            collected: CollectedEvents::default(),
            groups: Vec::new(),
            seen: Vec::new(),
            over: Vec::with_capacity(BATCH),
            handed_over: Instant::now(),
        }
    }

    /// Adds a store for results.
    pub fn stored_in(self, store: Option<ResultFeed>) -> Self {
        Self { store, ..self }
    }

    fn hand_over(&mut self) {
        if let Some(store) = &self.store {
            store.emit_groups(std::mem::take(&mut self.seen));
        }
        self.writer.emit_groups(std::mem::take(&mut self.groups));
        // Targets count as finished only once their results are passed on: a checkpoint waits for the writer
        // first.
        self.plan.finish(&self.tracker, &self.over);
        self.over.clear();
    }

    /// Returns the events of a target for the store, if any.
    fn seen(&self, outcome: &TargetOutcome<'_>, events: &[Event]) -> Option<Vec<Event>> {
        let address = outcome.target.address;
        let wants = |store: &ResultFeed| store.wants(address.ip(), address.port(), outcome.state);
        self.store.as_ref().filter(|store| wants(store))?;
        Some(std::iter::once(connect_event(outcome)).chain(events.iter().cloned()).collect())
    }
}

impl ResultSelection {
    /// True if a target matches: all patterns of `--match`, or else any rule.
    pub fn is_matched(&self, outcome: &TargetOutcome<'_>, events: &[Event]) -> bool {
        match self.patterns.is_empty() {
            true => outcome.matches > 0,
            false => self.patterns.iter().all(|pattern| pattern.matches(events)),
        }
    }

    /// True if a target is shown.
    pub fn is_shown(&self, outcome: &TargetOutcome<'_>, matched: bool) -> bool {
        let hidden = match outcome.state {
            PortState::Open => false,
            PortState::Closed | PortState::Filtered => self.open_only || self.hide_unanswered,
            PortState::Error => self.open_only,
        };
        !hidden && (matched || self.patterns.is_empty())
    }
}

impl EventSink for ScanReport {
    fn emit(&mut self, event: Event) {
        self.collected.emit(event);
    }
}

impl OutcomeSink for ScanReport {
    fn finished(&mut self, outcome: &TargetOutcome<'_>) {
        let mut events = self.collected.take(outcome);
        if let Some(seen) = self.seen(outcome, &events) {
            self.seen.push(seen);
        }
        let matched = self.selection.is_matched(outcome, &events);
        // Findings count on hidden servers, too: `--fail-on` checks the network and not what is shown of it.
        let finished = FinishedTarget::new(outcome, matched).with_findings(&events);
        if self.selection.is_shown(outcome, matched) {
            if self.selection.always_connect || events.is_empty() {
                events.insert(0, connect_event(outcome));
            }
            self.collected.sign(outcome, &mut events);
            self.groups.push(events);
        }
        self.over.push(finished);
        if self.over.len() >= BATCH {
            self.hand_over();
        }
    }

    fn turn(&mut self, now: Instant) {
        if self.over.is_empty() {
            self.handed_over = now;
        } else if now.duration_since(self.handed_over) >= HELD {
            self.handed_over = now;
            self.hand_over();
        }
    }

    fn end(&mut self) {
        self.hand_over();
    }
}

/// Returns the `connect` event of a target.
pub fn connect_event(outcome: &TargetOutcome<'_>) -> Event {
    let mut facts = outcome.facts();
    if outcome.conversation != ExchangeOutcome::None {
        facts.reason = outcome.conversation.name().into();
    }
    if outcome.conversation != ExchangeOutcome::Complete && !outcome.banner.is_empty() {
        let shown = outcome.banner.get(..SHOWN).unwrap_or(outcome.banner);
        facts.said = String::from_utf8_lossy(shown).into_owned();
    }
    let address = outcome.target.address;
    let unspecified = match address {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let flow = FlowContext {
        id: outcome.target.index,
        transport: TransportProtocol::Tcp,
        endpoints: FlowEndpoints {
            client: Endpoint { address: unspecified, port: 0 },
            server: Endpoint { address: address.ip(), port: address.port() },
        },
        from: Some(Side::Server),
        interface: None,
        vlan: Vec::new(),
        packet_number: None,
        transaction: None,
        protocol: None,
        established: None,
        midstream: false,
    };
    // The report is the place where results get their wall-clock time.
    let timestamp = SystemTime::now().into();
    Event { timestamp, source: EventSource::Scan, flow: Some(flow), kind: EventKind::Connect(facts) }
}

#[cfg(test)]
mod tests;
