//! The counters of a hook that is up, read again and again.

use super::status::{self, Installed};
use super::tables::Tables;
use super::{Counters, HookError, Queues, Scope, Variant};

/// The places (families and variants) that hold a hook to given queues.
pub struct Watch {
    places: Vec<Tables>,
}

impl Watch {
    /// Looks for the hook that leads to `queues`, whoever put it up.
    ///
    /// # Errors
    /// Where iptables is missing or refuses.
    pub fn find(variant: Variant, queues: Queues) -> Result<Self, HookError> {
        let mut places = Vec::new();
        for (_, tables) in Scope::from(variant).places() {
            let tables = tables?;
            let installed = status::of(&tables)?.installed;
            if matches!(installed, Installed::Complete(config, _) if config.queues == queues) {
                places.push(tables);
            }
        }
        Ok(Self { places })
    }

    /// Whether there is such a hook.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// What the rules have counted since they were made, over all places.
    ///
    /// # Errors
    /// Where a place no longer holds the hook.
    pub fn counters(&self) -> Result<Counters, HookError> {
        let mut sum = Counters::default();
        for tables in &self.places {
            let counters = status::read_counters(&tables.list()?);
            sum.queued += counters.queued;
            sum.passed += counters.passed;
            sum.blocked += counters.blocked;
        }
        Ok(sum)
    }
}
