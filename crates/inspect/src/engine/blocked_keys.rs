//! Verdicts of flows that have lost their place in the table: nothing more of them passes.

use std::collections::HashSet;

use crate::flow::FlowKey;

/// Keys of flows that were blocked or reset. The other end of a reset connection may never have got the
/// reset, or have ignored it, so that the connection goes on where it stood.
///
/// Two halves bound it: once one is full, the older one is forgotten.
#[derive(Debug)]
pub(super) struct BlockedKeys {
    recent: HashSet<FlowKey, ahash::RandomState>,
    older: HashSet<FlowKey, ahash::RandomState>,
    limit: usize,
}

impl BlockedKeys {
    /// Room for `limit` flows at most.
    pub(super) fn new(limit: usize) -> Self {
        let half = || HashSet::with_hasher(ahash::RandomState::new());
        Self { recent: half(), older: half(), limit }
    }

    /// Notes a flow.
    pub(super) fn insert(&mut self, key: FlowKey) {
        if self.recent.len() >= self.limit.div_ceil(2) {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(key);
    }

    /// Takes a flow out; true if it was noted.
    pub(super) fn take(&mut self, key: &FlowKey) -> bool {
        let recent = !self.recent.is_empty() && self.recent.remove(key);
        let older = !self.older.is_empty() && self.older.remove(key);
        recent || older
    }
}
