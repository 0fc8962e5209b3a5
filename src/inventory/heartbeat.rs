//! A sensor that sees nothing says now and then that it is there, so that it is known from one that is not.
//!
//! On a thread and by connections of its own: what is sent waits for none of it, nor it for that.

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rustix::thread::CapabilitySet;

use super::database::{Inbox, Place};
use super::store::StoreError;
use crate::diagnostics::tell;
use crate::privileges::keep_or_tell;

/// How often.
const EVERY: Duration = Duration::from_secs(60);

/// As long as it is there, so is the sensor.
#[derive(Debug)]
pub(super) struct Heartbeat {
    _stop: Sender<()>,
}

impl Heartbeat {
    /// Begins at once.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(place: &Place) -> std::io::Result<Self> {
        let (stop, stopped) = bounded(0);
        let place = place.clone();
        // Nobody waits for its end: a server that does not answer would hold up that of the program.
        std::thread::Builder::new().name("heartbeat".to_owned()).spawn(move || {
            keep_or_tell("heartbeat", CapabilitySet::empty());
            beat(&stopped, EVERY, || Inbox::open(&place).and_then(|inbox| inbox.beat()));
        })?;
        Ok(Self { _stop: stop })
    }
}

fn beat(stopped: &Receiver<()>, every: Duration, mut say: impl FnMut() -> Result<(), StoreError>) {
    let mut is_told = false;
    loop {
        match say() {
            Ok(()) => is_told = false,
            // That the server is away is told by what sends.
            Err(error) if error.is_of_rights() && !is_told => {
                is_told = true;
                tell(format_args!(
                    "bannerwall: that this sensor is there is not told, its batches are: {error}; `bannerwall fleet init` \
                     of this version makes that"
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
