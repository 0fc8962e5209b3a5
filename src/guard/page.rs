//! The page of the inventory that a guard keeps, with the alerts of this very guard.

use super::GuardError;
use crate::diagnostics::tell;
use crate::inventory::RecordConfig;
use crate::serve::{Alerts, Caller, ServeConfig, Server};

/// The running page; stops when dropped.
#[derive(Debug)]
pub(super) struct Page {
    alerts: Alerts,
    _server: Server,
}

impl Page {
    /// Listens and answers, from threads of its own.
    ///
    /// # Errors
    /// The page cannot be shown.
    pub(super) fn start(config: &ServeConfig, inventory: Option<&RecordConfig>) -> Result<Self, GuardError> {
        let sensor = inventory.map_or("", |inventory| inventory.sensor.as_str());
        let alerts = Alerts::start(format!("guard/{sensor}"))?;
        let server = config.start(Some(&alerts))?;
        tell(format_args!("bannerwall: the page is at {}", server.url()));
        Ok(Self { alerts, _server: server })
    }

    /// A way of alerts to it, for one thread.
    pub(super) fn caller(&self) -> Caller {
        self.alerts.caller()
    }
}
