//! Bounded storage for the events of one unfinished target. The bound holds for any number of responses and
//! matching rules.

use std::sync::Arc;

use ahash::AHashSet;

use crate::event::{
    AnomalyFacts, ApplicationFacts, Event, EventKind, HttpFacts, HttpResponseFacts, MatchedText,
};
use crate::terms::Anomaly;

/// Bytes of a target's events to keep in full.
pub(super) const WHOLE: usize = 1 << 20;

/// Usual number of events of a target: a banner and a match. A vector's default of four needs more than 1,024
/// bytes, and glibc then consolidates its whole heap each time.
const EVENTS: usize = 2;

/// Events of one target. After the first [`WHOLE`] bytes, responses lose their header fields (except
/// `Server`), and repeated alerts and anomalies are dropped.
#[derive(Debug)]
pub(super) struct BoundedEvents {
    events: Vec<Event>,
    octets: usize,
    /// Alerts that hold for the whole server: the rule, and the header field that it matched.
    for_server: AHashSet<String>,
    excess: Option<Box<ExcessState>>,
}

/// State after the first bytes.
#[derive(Debug, Default)]
struct ExcessState {
    /// Rules and anomalies that were already reported.
    told: AHashSet<String>,
    /// Last shortened response, by its transaction: alerts share it.
    answer: Option<(Option<u32>, Arc<HttpFacts>)>,
    cut: u64,
    repeated: u64,
}

impl Default for BoundedEvents {
    fn default() -> Self {
        Self { events: Vec::with_capacity(EVENTS), octets: 0, for_server: AHashSet::new(), excess: None }
    }
}

impl BoundedEvents {
    pub(super) fn push(&mut self, mut event: Event) {
        // A header field of the server comes with every response. One alert about it is enough.
        if server_alert(&event).is_some_and(|key| !self.for_server.insert(key)) {
            return;
        }
        if self.octets >= WHOLE && !self.excess().shorten(&mut event) {
            return;
        }
        self.octets = self.octets.saturating_add(event.weight());
        self.events.push(event);
    }

    /// Returns the kept events, with an anomaly about the dropped ones.
    pub(super) fn into_events(mut self) -> Vec<Event> {
        if let (Some(excess), Some(last)) = (self.excess, self.events.last()) {
            let mut event = Event { kind: EventKind::Anomaly(excess.facts()), ..last.clone() };
            event.flow.iter_mut().for_each(|flow| flow.transaction = None);
            self.events.push(event);
        }
        self.events
    }

    fn excess(&mut self) -> &mut ExcessState {
        let events = &self.events;
        self.excess.get_or_insert_with(|| {
            let told = events.iter().filter_map(name).map(str::to_owned).collect();
            Box::new(ExcessState { told, ..ExcessState::default() })
        })
    }
}

impl ExcessState {
    /// Shortens an event; returns false if it repeats an earlier one.
    fn shorten(&mut self, event: &mut Event) -> bool {
        if name(event).is_some_and(|name| !self.told.insert(name.to_owned())) {
            self.repeated += 1;
            return false;
        }
        let transaction = event.flow.as_ref().and_then(|flow| flow.transaction);
        match &mut event.kind {
            EventKind::Application(ApplicationFacts::Http(facts)) => {
                *facts = Arc::new(without_fields(facts));
                self.answer = Some((transaction, Arc::clone(facts)));
                self.cut += 1;
            }
            EventKind::Alert(facts) => {
                if let Some((of, answer)) = &self.answer
                    && *of == transaction
                {
                    Arc::make_mut(facts).application = ApplicationFacts::Http(Arc::clone(answer));
                }
            }
            _ => {}
        }
        true
    }

    fn facts(&self) -> AnomalyFacts {
        let detail = format!(
            "results over {} KiB: responses without header fields {}, repeated alerts and anomalies left out \
             {}",
            WHOLE >> 10,
            self.cut,
            self.repeated
        );
        AnomalyFacts::new(Anomaly::ScanResultsCut, detail)
    }
}

/// Returns the key of an alert about a header field, or about none at all.
fn server_alert(event: &Event) -> Option<String> {
    let EventKind::Alert(facts) = &event.kind else { return None };
    match facts.matched.as_deref() {
        None => Some(facts.rule.clone()),
        Some(MatchedText { field, text }) if field.starts_with("header.") => {
            Some(format!("{} {field} {text}", facts.rule))
        }
        Some(_) => None,
    }
}

/// Returns the key for repetitions of an event.
fn name(event: &Event) -> Option<&str> {
    match &event.kind {
        EventKind::Alert(facts) => Some(&facts.rule),
        EventKind::Anomaly(facts) => Some(facts.name),
        _ => None,
    }
}

fn without_fields(facts: &HttpFacts) -> HttpFacts {
    let mut short = HttpFacts {
        request: facts.request.clone(),
        response: facts.response.as_ref().map(|response| {
            let server = |name: &str| name.eq_ignore_ascii_case("Server");
            let headers: Vec<_> =
                response.headers.iter().filter(|field| server(&field.name)).take(1).cloned().collect();
            let gone = u32::try_from(response.headers.len() - headers.len()).unwrap_or(u32::MAX);
            HttpResponseFacts {
                headers,
                left_out: response.left_out.saturating_add(gone),
                ..response.clone()
            }
        }),
    };
    if let Some(request) = &mut short.request {
        let gone = u32::try_from(request.headers.len()).unwrap_or(u32::MAX);
        request.left_out = request.left_out.saturating_add(gone);
        request.headers = Vec::new();
    }
    short
}
