//! Heartbeat of a sensor: it shows that a sensor without sightings is alive.
//!
//! It has its own thread and connections, so that it never waits for the sender of batches, nor the other
//! way round.

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rustix::thread::CapabilitySet;

use super::database::SensorInbox;
use super::error::StoreError;
use crate::database::DatabaseLocation;
use crate::diagnostics::log_line;
use crate::privileges::keep_or_warn;

/// Interval of the heartbeat.
const EVERY: Duration = Duration::from_secs(60);

/// Sends heartbeats while it lives.
#[derive(Debug)]
pub(super) struct SensorHeartbeat {
    _stop: Sender<()>,
}

impl SensorHeartbeat {
    /// Starts at once.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(place: &DatabaseLocation) -> std::io::Result<Self> {
        let (stop, stopped) = bounded(0);
        let place = place.clone();
        // The thread is never joined: a server that does not answer would delay the end of the program.
        std::thread::Builder::new().name("heartbeat".to_owned()).spawn(move || {
            // The thread needs no capability: it only uses a socket.
            keep_or_warn("heartbeat", CapabilitySet::empty());
            beat(&stopped, EVERY, || SensorInbox::open(&place).and_then(|inbox| inbox.send_heartbeat()));
        })?;
        Ok(Self { _stop: stop })
    }
}

fn beat(stopped: &Receiver<()>, every: Duration, mut say: impl FnMut() -> Result<(), StoreError>) {
    let mut is_told = false;
    loop {
        match say() {
            Ok(()) => is_told = false,
            // The sender of batches reports a server that is away.
            Err(error) if error.is_permission_error() && !is_told => {
                is_told = true;
                log_line(format_args!(
                    "bannerwall: cannot send heartbeats, only batches: {error}; run `bannerwall fleet init` \
                     of this version to permit them"
                ));
            }
            Err(_) => {}
        }
        if stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_again_and_again_until_the_sensor_is_gone() {
        let (stop, stopped) = bounded(0);
        let mut stop = Some(stop);
        let mut times = 0;
        beat(&stopped, Duration::from_millis(1), || {
            times += 1;
            if times == 3 {
                stop = None;
            }
            Ok(())
        });
        assert_eq!(times, 3);
    }
}
