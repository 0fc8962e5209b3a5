//! The page of the inventory that a guard keeps, with the alerts of this very guard.

use super::GuardError;
use crate::diagnostics::tell;
use crate::inventory::RecordConfig;
use crate::serve::{Alerts, Caller, ServeConfig, Server};

/// The running page; stops when dropped.
#[derive(Debug)]
pub(super) struct Page {
    alerts: Alerts,
    config: ServeConfig,
    server: Option<Server>,
}

impl Page {
    /// A page that is not shown yet, though alerts may be told to it.
    ///
    /// # Errors
    /// There is no thread for alerts.
    pub(super) fn new(config: &ServeConfig, inventory: Option<&RecordConfig>) -> Result<Self, GuardError> {
        let sensor = inventory.map_or("", |inventory| inventory.sensor.as_str());
        let alerts = Alerts::start(format!("guard/{sensor}"))?;
        Ok(Self { alerts, config: config.clone(), server: None })
    }

    /// Listens and answers, from threads of its own.
    ///
    /// # Errors
    /// The page cannot be shown.
    pub(super) fn open(&mut self) -> Result<(), GuardError> {
        let server = self.config.start(&self.alerts)?;
        tell(format_args!("bannerwall: the page is at {}", server.url()));
        self.server = Some(server);
        Ok(())
    }

    /// Answers nobody any more.
    pub(super) fn close(&mut self) {
        self.server = None;
    }

    /// A way of alerts to it, for one thread.
    pub(super) fn caller(&self) -> Caller {
        self.alerts.caller()
    }
}
