//! Output of changes: as events in the outputs of the run, and as notifications.

use std::io;

use super::change::InventoryChange;
use super::inventory_time::InventoryTime;
use super::notify::{ChangeNotifier, NotificationReceivers};
use crate::event::{ChangeFacts, Event, EventKind, EventSink as _, EventSource, Timestamp};
use crate::output::ChannelHandle;

/// Emits changes.
pub(super) struct ChangeEmitter {
    source: EventSource,
    outputs: Vec<ChannelHandle>,
    notifier: Option<ChangeNotifier>,
    /// Time before which nothing is emitted.
    learned: Option<InventoryTime>,
}

impl ChangeEmitter {
    /// Opens the outputs; nothing is emitted before `learned`.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn open(
        source: EventSource,
        sensor: &str,
        outputs: Vec<ChannelHandle>,
        receivers: &NotificationReceivers,
        learned: Option<InventoryTime>,
    ) -> io::Result<Self> {
        let notifier =
            if receivers.is_empty() { None } else { Some(ChangeNotifier::start(sensor, receivers)?) };
        Ok(Self { source, outputs, notifier, learned })
    }

    /// Emits changes, unless the inventory is still learning.
    pub(super) fn emit(&self, changes: Vec<InventoryChange>) {
        if changes.is_empty() || self.learned.is_some_and(|learned| InventoryTime::now() < learned) {
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

    fn event(&self, change: &InventoryChange) -> Event {
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
