//! The last line of a guard, for a person: what it saw, and what it did.

use super::supervise::GuardRun;
use crate::diagnostics::{log_line, several};

impl GuardRun {
    /// Logs the totals of the run: connections, alerts, blocks by rule, uninspected packets.
    pub(super) fn log_summary(&self) {
        let engines = self.workers.iter().map(|worker| worker.tally.latest().engine);
        let connections: u64 = engines.map(|engine| engine.flows + engine.udp_flows).sum();
        let uninspected = match self.host.metrics.uninspected_packets.get() {
            Some(packets) => packets.to_string(),
            None => "unknown".to_owned(),
        };
        let connections = several(connections, "connection");
        let alerts = self.blocks.totals();
        log_line(format_args!("bannerwall: {connections}, {alerts}, uninspected packets {uninspected}"));
    }
}
