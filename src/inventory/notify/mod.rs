//! Notifications about changes: sent to a URL, or passed to a program. A thread queues and retries them,
//! within bounds, and counts those that fail; no other thread waits for them. A [helper](delivery) delivers
//! them.

mod delivery;
mod receiver;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::http::Uri;
use crossbeam_channel::{Receiver as Inlet, RecvTimeoutError, Sender, TryRecvError, TrySendError, bounded};
use serde::Serialize;

use self::delivery::DeliveryProcess;
pub(crate) use self::delivery::{SUBCOMMAND, serve};
pub use self::receiver::NotificationReceiver;
use super::change::InventoryChange;
use crate::diagnostics::log_line;
use crate::privileges::{UnprivilegedUser, give_up_all};

/// Largest number of changes in one message.
const TOGETHER: usize = 100;

/// Largest number of waiting batches; further ones are dropped and counted.
const WAITING: usize = 1_000;

/// Time for which changes gather.
const GATHER: Duration = Duration::from_millis(250);

/// Pauses before retries of a message.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(15), Duration::from_secs(60)];

/// Time for which the end of a run waits for unsent messages.
const END: Duration = Duration::from_secs(3);

/// Parses the value of a flag that names a URL.
///
/// # Errors
/// Returns the expected form.
pub fn parse_url(text: &str) -> Result<NotificationReceiver, &'static str> {
    let uri: Uri = text.parse().map_err(|_| "no URL")?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(_)) => Ok(NotificationReceiver::Url(text.to_owned())),
        _ => Err("a URL begins with http:// or https:// and names a host"),
    }
}

/// The receivers of a run, and the process that delivers to them; copies share it.
#[derive(Debug, Clone, Default)]
pub struct NotificationReceivers {
    all: Vec<NotificationReceiver>,
    delivery: Arc<OnceLock<Arc<DeliveryProcess>>>,
}

impl NotificationReceivers {
    /// True if no one is to be notified.
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Starts the process, as `user`, if there are receivers and it does not run yet. A process that is
    /// confined later has to do so before.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(super) fn start_delivery(&self, user: Option<&UnprivilegedUser>) -> io::Result<()> {
        if !self.is_empty() && self.delivery.get().is_none() {
            // Another thread's is as good.
            let _ = self.delivery.set(Arc::new(DeliveryProcess::start(&self.all, user)?));
        }
        Ok(())
    }
}

impl FromIterator<NotificationReceiver> for NotificationReceivers {
    fn from_iter<T: IntoIterator<Item = NotificationReceiver>>(all: T) -> Self {
        Self { all: all.into_iter().collect(), delivery: Arc::default() }
    }
}

impl PartialEq for NotificationReceivers {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

impl Eq for NotificationReceivers {}

/// The thread that queues notifications; it stops when this value is dropped.
pub(super) struct ChangeNotifier {
    batches: Option<Sender<Vec<InventoryChange>>>,
    over: Sender<()>,
    lost: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// The content of a notification.
#[derive(Serialize)]
struct NotificationBody<'a> {
    /// The name of the sensor.
    sensor: &'a str,
    changes: &'a [InventoryChange],
    /// Number of changes that could not be reported before.
    lost: u64,
}

impl ChangeNotifier {
    /// Starts the thread, and the process that delivers unless it runs already.
    ///
    /// # Errors
    /// The system starts no more of them.
    pub(super) fn start(sensor: &str, receivers: &NotificationReceivers) -> io::Result<Self> {
        receivers.start_delivery(None)?;
        let (batches, inlet) = bounded(WAITING);
        // Closing this channel signals the end of the run.
        let (over, ending) = bounded(0);
        let lost = Arc::new(AtomicU64::new(0));
        let mut queue = NotificationQueue {
            sensor: sensor.to_owned(),
            receivers: receivers.all.iter().map(|receiver| (receiver.clone(), false)).collect(),
            delivery: receivers.delivery.get().cloned(),
            lost: Arc::clone(&lost),
            ending,
            deadline: None,
        };
        let thread = std::thread::Builder::new().name("notify".to_owned()).spawn(move || {
            give_up_all("notify");
            queue.run(&inlet);
        })?;
        Ok(Self { batches: Some(batches), over, lost, thread: Some(thread) })
    }

    /// Sends changes, or counts them as lost if there is no space.
    pub(super) fn tell(&self, changes: Vec<InventoryChange>) {
        let Some(batches) = &self.batches else { return };
        if let Err(TrySendError::Full(changes) | TrySendError::Disconnected(changes)) =
            batches.try_send(changes)
        {
            self.lost.fetch_add(changes.len() as u64, Relaxed);
        }
    }
}

impl Drop for ChangeNotifier {
    fn drop(&mut self) {
        drop(self.batches.take());
        drop(std::mem::replace(&mut self.over, bounded(0).0));
        // A panic of the thread was reported on stderr already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Sends messages, one after the other.
struct NotificationQueue {
    sensor: String,
    /// Each receiver, with true if it refused the last message.
    receivers: Vec<(NotificationReceiver, bool)>,
    delivery: Option<Arc<DeliveryProcess>>,
    lost: Arc<AtomicU64>,
    ending: Inlet<()>,
    /// Time after which the end of the run does not wait any longer.
    deadline: Option<Instant>,
}

impl NotificationQueue {
    fn run(&mut self, inlet: &Inlet<Vec<InventoryChange>>) {
        while let Ok(mut changes) = inlet.recv() {
            let gathered = Instant::now() + GATHER;
            while changes.len() < TOGETHER {
                match inlet.recv_deadline(gathered) {
                    Ok(more) => changes.extend(more),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            changes.chunks(TOGETHER).for_each(|changes| self.send(changes));
        }
        match self.lost.load(Relaxed) {
            0 => {}
            lost => log_line(format_args!("bannerwall: changes that reached no receiver: {lost}")),
        }
    }

    /// Sends a message to each receiver.
    fn send(&mut self, changes: &[InventoryChange]) {
        if self.is_late() {
            self.lost.fetch_add(changes.len() as u64, Relaxed);
            return;
        }
        let lost = self.lost.swap(0, Relaxed);
        let message = serde_json::to_string(&NotificationBody { sensor: &self.sensor, changes, lost })
            .unwrap_or_default();
        let mut receivers = std::mem::take(&mut self.receivers);
        let mut is_told = false;
        for (number, (receiver, refuses)) in receivers.iter_mut().enumerate() {
            let outcome = self.deliver(number, &message, *refuses);
            if let Err(error) = &outcome {
                if !*refuses {
                    log_line(format_args!(
                        "bannerwall: {receiver}: cannot notify: {error}; lost changes are counted"
                    ));
                }
            } else if *refuses {
                log_line(format_args!("bannerwall: {receiver} is notified again"));
            }
            *refuses = outcome.is_err();
            is_told |= outcome.is_ok();
        }
        if !is_told {
            self.lost.fetch_add(lost + changes.len() as u64, Relaxed);
        }
        self.receivers = receivers;
    }

    /// Sends a message, with retries after pauses. A receiver that refused the last one gets only one
    /// attempt.
    fn deliver(&mut self, receiver: usize, message: &str, refuses: bool) -> io::Result<()> {
        let pauses = if refuses { &[][..] } else { &PAUSES[..] };
        let mut outcome = self.attempt(receiver, message);
        for pause in pauses {
            if outcome.is_ok() || self.rest(*pause) {
                break;
            }
            outcome = self.attempt(receiver, message);
        }
        outcome
    }

    /// True if the run has ended and its deadline has passed.
    fn is_late(&mut self) -> bool {
        if self.deadline.is_none() && matches!(self.ending.try_recv(), Err(TryRecvError::Disconnected)) {
            self.deadline = Some(Instant::now() + END);
        }
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Waits; returns true if the run has ended and no more attempts may follow.
    fn rest(&mut self, pause: Duration) -> bool {
        if self.deadline.is_none()
            && matches!(self.ending.recv_timeout(pause), Err(RecvTimeoutError::Timeout))
        {
            return false;
        }
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + END);
        let rest = deadline.saturating_duration_since(Instant::now());
        std::thread::sleep(pause.min(rest));
        pause >= rest
    }

    fn attempt(&self, receiver: usize, message: &str) -> io::Result<()> {
        let delivery = self.delivery.as_ref().ok_or_else(|| io::Error::other("nothing delivers"))?;
        delivery.attempt(receiver, message)
    }
}

impl std::fmt::Display for NotificationReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // The part after the host may be a secret.
            Self::Url(url) => {
                let uri: Uri = url.parse().unwrap_or_default();
                write!(f, "--notify {}", uri.host().unwrap_or_default())
            }
            Self::Command(_) => f.write_str("--notify-command"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_scheme_and_host() {
        assert_eq!(
            parse_url("https://x.example/a?b"),
            Ok(NotificationReceiver::Url("https://x.example/a?b".to_owned()))
        );
        for bad in ["x.example", "ftp://x.example/", "/path", "http://", "", "http://a b/"] {
            assert!(parse_url(bad).is_err(), "{bad}");
        }
        let shown = parse_url("https://hooks.example/secret?token=1").unwrap().to_string();
        assert_eq!(shown, "--notify hooks.example");
    }
}
