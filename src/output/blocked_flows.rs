//! Flows whose block was already written: the packets and banners behind it need no line of their own.

use std::collections::HashSet;

use crate::event::{DropReason, Event, EventKind};

/// Identifiers of flows that an alert has reported as blocked.
#[derive(Debug, Default)]
pub(super) struct BlockedFlows(HashSet<u64>);

impl BlockedFlows {
    /// Limit of remembered flows. Without its identifier, a flow may get a second line.
    const LIMIT: usize = 1 << 16;

    /// Remembers the flow of an alert about a block.
    pub(super) fn record(&mut self, event: &Event) {
        if let (EventKind::Alert(facts), Some(flow)) = (&event.kind, &event.flow)
            && facts.blocked
        {
            if self.0.len() >= Self::LIMIT {
                self.0.clear();
            }
            self.0.insert(flow.id);
        }
    }

    /// Returns true if the line about the block already reported `event`.
    pub(super) fn covers(&self, event: &Event) -> bool {
        let follows = match &event.kind {
            EventKind::Application(_) => true,
            EventKind::Drop(facts) => matches!(facts.reason, DropReason::Rules | DropReason::Policy),
            _ => false,
        };
        follows && event.flow.as_ref().is_some_and(|flow| self.0.contains(&flow.id))
    }
}
