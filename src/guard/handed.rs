//! Whether the kernel keeps what it is told of decided connections.
//!
//! A decision is handed over once a connection, and a few times more for packets that were queued before.
//! Where the packets of decided connections come again and again, something takes our bits off the
//! connection mark: a `CONNMARK --save-mark` without a mask, say. They are judged rightly, but each of
//! them is queued, and that is not to stay unnoticed.

use crate::diagnostics::tell;

/// Decisions handed over between two looks, from which on they are compared with connections.
const ENOUGH: u64 = 100;
/// Decisions a new connection that are too many.
const TOO_MANY: u64 = 10;

/// Compares decisions that were handed over with connections.
#[derive(Debug)]
pub(super) struct Handed {
    queue: u16,
    handed: u64,
    flows: u64,
    told: bool,
}

impl Handed {
    pub(super) fn new(queue: u16) -> Self {
        Self { queue, handed: 0, flows: 0, told: false }
    }

    /// Looks at the counts as of now, and tells once.
    pub(super) fn look(&mut self, handed: u64, flows: u64) {
        if self.is_lost(handed, flows) && !self.told {
            self.told = true;
            tell(format_args!(
                "bannerwall: queue {}: packets of decided connections come again and again: something clears their \
                 connection mark, so that nothing is offloaded; `bannerwall doctor` names rules that do",
                self.queue
            ));
        }
    }

    fn is_lost(&mut self, handed: u64, flows: u64) -> bool {
        let (decided, new) = (handed - self.handed, flows.saturating_sub(self.flows));
        (self.handed, self.flows) = (handed, flows);
        decided >= ENOUGH && decided / TOO_MANY >= new.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_decisions_about_few_connections_are_lost_ones() {
        let mut handed = Handed::new(0);
        assert!(!handed.is_lost(99, 0), "a few packets that were queued before");
        assert!(!handed.is_lost(5099, 2000), "many connections");
        assert!(handed.is_lost(5299, 2001));
        assert!(!handed.is_lost(5299, 2001), "nothing new");
    }
}
