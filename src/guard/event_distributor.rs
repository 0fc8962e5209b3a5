//! Destinations of a worker's events. Events of a packet wait here for the outcome of its resets.

use std::ops::Range;
use std::sync::Arc;

use super::block_log::BlockLog;
use super::clock::WallClockOffset;
use super::event_reader::EventSender;
use super::resets::ResetOutcomes;
use crate::event::{Event, EventKind, EventSink, ResetFacts, RuleAction, Side};
use crate::output::ChannelHandle;

/// Passes each event to every output and every reader, with the time of day.
pub(super) struct EventDistributor {
    writers: Vec<ChannelHandle>,
    readers: Vec<EventSender>,
    /// The last blocked connections.
    blocks: Option<Arc<BlockLog>>,
    step: WallClockOffset,
    /// Events that are held back, in their order.
    held: Vec<Event>,
    holding: bool,
}

impl EventDistributor {
    /// Returns sinks for these outputs and readers.
    pub(super) fn new(writers: Vec<ChannelHandle>, readers: Vec<EventSender>) -> Self {
        let (step, held, holding) = (WallClockOffset::default(), Vec::new(), false);
        Self { writers, readers, blocks: None, step, held, holding }
    }

    /// Returns the same sinks with a log of blocked connections.
    pub(super) fn with_block_log(self, blocks: Arc<BlockLog>) -> Self {
        Self { blocks: Some(blocks), ..self }
    }

    /// Sets the difference between the clock of events and the time of day.
    pub(super) fn set_step(&mut self, step: WallClockOffset) {
        self.step = step;
    }

    pub(super) fn step(&self) -> WallClockOffset {
        self.step
    }

    /// Holds events back from now on. Returns the index of the next one.
    pub(super) fn hold(&mut self) -> usize {
        self.holding = true;
        self.held.len()
    }

    /// Returns the range of events held back since `start`.
    pub(super) fn held_since(&self, start: usize) -> Range<usize> {
        start..self.held.len()
    }

    /// Adds the outcomes of resets to these events.
    pub(super) fn complete(&mut self, events: Range<usize>, outcomes: &ResetOutcomes) {
        let Some(events) = self.held.get_mut(events) else { return };
        let sender = events.iter().find_map(|event| match &event.kind {
            EventKind::Drop(_) => event.flow.as_ref()?.from,
            _ => None,
        });
        // Without a drop event there is no packet whose sender could have been reset.
        let Some(sender) = sender else { return };
        let ResetOutcomes { receiver: to_receiver, sender: to_sender } = outcomes.clone();
        let resets = match sender {
            Side::Client => ResetFacts { to_client: to_sender, to_server: to_receiver },
            Side::Server => ResetFacts { to_client: to_receiver, to_server: to_sender },
        };
        for event in events {
            match &mut event.kind {
                EventKind::Drop(facts) if facts.rejected => facts.resets = Some(Box::new(resets.clone())),
                EventKind::Alert(facts) if facts.action == RuleAction::Reject => {
                    Arc::make_mut(facts).resets = Some(Box::new(resets.clone()));
                }
                _ => {}
            }
        }
    }

    /// Emits the events held back, and stops holding events back.
    pub(super) fn release(&mut self) {
        self.holding = false;
        // Taken out of `self` because `deliver` needs all of it. Putting it back keeps the allocation.
        let mut held = std::mem::take(&mut self.held);
        held.drain(..).for_each(|event| self.deliver(event));
        self.held = held;
    }

    fn deliver(&mut self, event: Event) {
        if let Some(blocks) = &self.blocks {
            blocks.record(&event);
        }
        let event = Arc::new(event);
        self.readers.iter_mut().for_each(|send| send(&event));
        self.writers.iter().for_each(|writer| writer.share(&event));
    }
}

impl EventSink for EventDistributor {
    fn emit(&mut self, mut event: Event) {
        // Flows age by the monotonic clock, and events show the wall clock.
        event.timestamp = self.step.wall_clock(event.timestamp);
        if let EventKind::Flow(record) = &mut event.kind {
            for time in [&mut record.start, &mut record.last] {
                *time = self.step.wall_clock(*time);
            }
        }
        if self.holding { self.held.push(event) } else { self.deliver(event) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::event::{EventSource, StatsFacts};

    #[test]
    fn readers_share_one_event() {
        let (sender, received) = crossbeam_channel::unbounded();
        let reader = || -> EventSender {
            let sender = sender.clone();
            Box::new(move |event| sender.send(Arc::clone(event)).unwrap())
        };
        let mut sinks = EventDistributor::new(Vec::new(), vec![reader(), reader()]);
        let facts = StatsFacts { uptime: Duration::ZERO, counters: Vec::new() };
        let kind = EventKind::Stats(Box::new(facts));
        let event =
            Event { timestamp: SystemTime::now().into(), source: EventSource::Guard, flow: None, kind };
        sinks.hold();
        sinks.emit(event);
        assert!(received.is_empty(), "events are held");
        sinks.release();
        let received: Vec<Arc<Event>> = received.try_iter().collect();
        let [first, second] = &*received else { panic!("{} events", received.len()) };
        assert!(Arc::ptr_eq(first, second));
    }
}
