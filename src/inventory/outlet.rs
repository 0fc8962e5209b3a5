//! Output of changes: as events in the outputs of the run, and as notifications.

use std::io;

use super::database::{Change, Time};
use super::notify::{Notifier, Receivers};
use crate::event::{ChangeFacts, Event, EventKind, EventSink as _, Source, Timestamp};
use crate::output::Handle;

/// Emits changes.
pub(super) struct Outlet {
    source: Source,
    outputs: Vec<Handle>,
    notifier: Option<Notifier>,
    /// Time before which nothing is emitted.
    learned: Option<Time>,
}

impl Outlet {
    /// Opens the outputs; nothing is emitted before `learned`.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn open(
        source: Source,
        sensor: &str,
        outputs: Vec<Handle>,
        receivers: &Receivers,
        learned: Option<Time>,
    ) -> io::Result<Self> {
        let notifier = if receivers.is_empty() { None } else { Some(Notifier::start(sensor, receivers)?) };
        Ok(Self { source, outputs, notifier, learned })
    }

    /// Emits changes, unless the inventory is still learning.
    pub(super) fn tell(&self, changes: Vec<Change>) {
        if changes.is_empty() || self.learned.is_some_and(|learned| Time::now() < learned) {
            return;
        }
        for output in &self.outputs {
            let mut output = output.clone();
            changes.iter().for_each(|change| output.emit(self.event(change)));
        }
        if let Some(notifier) = &self.notifier {
            notifier.tell(changes);
        }
    }

    fn event(&self, change: &Change) -> Event {
        let millis = u64::try_from(change.at.millis()).unwrap_or_default();
        let facts = ChangeFacts {
            kind: change.kind.clone(),
            address: change.address.clone(),
            port: change.port,
            protocol: change.protocol.clone(),
            old: change.old.clone(),
            new: change.new.clone(),
            rule: change.rule.clone(),
            why: change.why.clone(),
            sensor: change.sensor.clone(),
        };
        Event {
            timestamp: Timestamp::from_nanos(millis.saturating_mul(1_000_000)),
            source: self.source,
            flow: None,
            kind: EventKind::Change(Box::new(facts)),
        }
    }
}
