//! The page of a guard's inventory, as a reader of its alerts.

use std::net::SocketAddr;
use std::time::Duration;

use crate::confinement::Confinement;
use crate::diagnostics::log_line;
use crate::guard::{AttachedError, EventReader, EventSender, ReaderCounts, ReaderStart, RunningReader};
use crate::serve::{AlertFeed, PageServer, ServeConfig};

/// Page that is not served yet.
pub(super) struct PageReader {
    pub(super) config: ServeConfig,
    /// Name of the sensor of the alerts.
    pub(super) sensor: String,
}

/// Page that receives alerts, and serves browsers while it is open.
struct RunningPage {
    alerts: AlertFeed,
    config: ServeConfig,
    server: Option<PageServer>,
}

impl EventReader for PageReader {
    fn check(&self) -> Result<(), AttachedError> {
        Ok(self.config.check()?)
    }

    fn confine(&self, confinement: Confinement) -> Confinement {
        self.config.files().fold(confinement.listening(), Confinement::reading)
    }

    fn start(self: Box<Self>, _start: ReaderStart) -> Result<Box<dyn RunningReader>, AttachedError> {
        let alerts = AlertFeed::start(format!("guard/{}", self.sensor))
            .map_err(|error| format!("cannot start a thread for alerts: {error}"))?;
        Ok(Box::new(RunningPage { alerts, config: self.config, server: None }))
    }
}

impl RunningReader for RunningPage {
    fn sender(&self) -> EventSender {
        let caller = self.alerts.caller();
        Box::new(move |event| caller.show(event))
    }

    fn open(&mut self) -> Result<Option<SocketAddr>, AttachedError> {
        let server = self.config.start(&self.alerts)?;
        log_line(format_args!("bannerwall: the page is at {}", server.url()));
        let address = server.address();
        self.server = Some(server);
        Ok(Some(address))
    }

    fn close(&mut self) {
        self.server = None;
    }

    /// Drops remaining alerts: no browser can see them any more.
    fn finish(self: Box<Self>, _patience: Duration) -> ReaderCounts {
        ReaderCounts::default()
    }
}
