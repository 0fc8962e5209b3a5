//! What is held of one target until it is over. However much a host answers, and however many rules match
//! it, that is bounded in sum by what the user asks for.

use std::sync::Arc;

use ahash::AHashSet;

use crate::event::{AnomalyFacts, Application, Event, EventKind, HttpFacts, HttpResponseFacts};
use crate::terms::Anomaly;

/// Octets of one target's events that are held as they are.
pub(super) const WHOLE: usize = 1 << 20;

/// Events that most targets have at most: a banner and a match. (Room for four, which a vector would begin
/// with, is more than 1,024 octets, for which glibc tidies its whole heap up each time.)
const EVENTS: usize = 2;

/// The events of one target. Behind the first [`WHOLE`] octets of them answers lose their header fields (but
/// `Server`), and what was told of the target before is not told again.
#[derive(Debug)]
pub(super) struct Held {
    events: Vec<Event>,
    octets: usize,
    excess: Option<Box<Excess>>,
}

/// What came behind the first octets.
#[derive(Debug, Default)]
struct Excess {
    /// Rules and anomalies that were told.
    told: AHashSet<String>,
    /// The last answer that was cut, by its transaction: alerts share it.
    answer: Option<(Option<u32>, Arc<HttpFacts>)>,
    cut: u64,
    repeated: u64,
}

impl Default for Held {
    fn default() -> Self {
        Self { events: Vec::with_capacity(EVENTS), octets: 0, excess: None }
    }
}

impl Held {
    pub(super) fn push(&mut self, mut event: Event) {
        if self.octets >= WHOLE && !self.excess().shorten(&mut event) {
            return;
        }
        self.octets = self.octets.saturating_add(event.weight());
        self.events.push(event);
    }

    /// All that is held, and a word about what is not.
    pub(super) fn into_events(mut self) -> Vec<Event> {
        if let (Some(excess), Some(last)) = (self.excess, self.events.last()) {
            let mut event = Event { kind: EventKind::Anomaly(excess.facts()), ..last.clone() };
            event.flow.iter_mut().for_each(|flow| flow.transaction = None);
            self.events.push(event);
        }
        self.events
    }

    fn excess(&mut self) -> &mut Excess {
        let events = &self.events;
        self.excess.get_or_insert_with(|| {
            let told = events.iter().filter_map(name).map(str::to_owned).collect();
            Box::new(Excess { told, ..Excess::default() })
        })
    }
}

impl Excess {
    /// Makes an event short; false where it says nothing new.
    fn shorten(&mut self, event: &mut Event) -> bool {
        if name(event).is_some_and(|name| !self.told.insert(name.to_owned())) {
            self.repeated += 1;
            return false;
        }
        let transaction = event.flow.as_ref().and_then(|flow| flow.transaction);
        match &mut event.kind {
            EventKind::Application(Application::Http(facts)) => {
                *facts = Arc::new(without_fields(facts));
                self.answer = Some((transaction, Arc::clone(facts)));
                self.cut += 1;
            }
            EventKind::Alert(facts) => {
                if let Some((of, answer)) = &self.answer
                    && *of == transaction
                {
                    Arc::make_mut(facts).application = Application::Http(Arc::clone(answer));
                }
            }
            _ => {}
        }
        true
    }

    fn facts(&self) -> AnomalyFacts {
        let detail = format!(
            "more than {} KiB of results: {} answers without their header fields, {} alerts and anomalies that \
             repeat others left out",
            WHOLE >> 10,
            self.cut,
            self.repeated
        );
        AnomalyFacts::new(Anomaly::ScanResultsCut, detail)
    }
}

/// What an event is known by, where one of a kind says enough of a target.
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
