//! Events of unfinished targets.

use ahash::AHashMap;

use super::bounded_events::BoundedEvents;
use crate::event::{Event, EventSink};
use crate::scan::TargetOutcome;
use crate::scan::local_address::LocalAddressCache;

/// Events of unfinished targets, by the target's index.
#[derive(Debug, Default)]
pub struct CollectedEvents {
    pending: AHashMap<u64, BoundedEvents>,
    here: LocalAddressCache,
}

impl CollectedEvents {
    /// Takes all events of a finished target.
    pub fn take(&mut self, outcome: &TargetOutcome<'_>) -> Vec<Event> {
        match self.pending.is_empty() {
            true => Vec::new(),
            false => {
                self.pending.remove(&outcome.target.index).map(BoundedEvents::into_events).unwrap_or_default()
            }
        }
    }

    /// Sets the local address, as the target sees it, in events.
    pub fn sign(&mut self, outcome: &TargetOutcome<'_>, events: &mut [Event]) {
        let here = self.here.toward(outcome.target.address.ip());
        let flows = events.iter_mut().filter_map(|event| event.flow.as_mut());
        flows.for_each(|flow| flow.endpoints.client.address = here);
    }
}

impl EventSink for CollectedEvents {
    fn emit(&mut self, event: Event) {
        let Some(flow) = &event.flow else { return };
        self.pending.entry(flow.id).or_default().push(event);
    }
}
