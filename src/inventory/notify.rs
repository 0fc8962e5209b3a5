//! Notifications about changes: sent to a URL, or passed to a program. Failed ones are retried, within
//! bounds, and counted; no other thread waits for them.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::http::Uri;
use crossbeam_channel::{Receiver as Inlet, RecvTimeoutError, Sender, TryRecvError, TrySendError, bounded};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;

use super::database::Change;
use crate::diagnostics::tell;
use crate::privileges::give_up_all;

/// Largest number of changes in one message.
const TOGETHER: usize = 100;

/// Largest number of waiting batches; further ones are dropped and counted.
const WAITING: usize = 1_000;

/// Time for which changes gather.
const GATHER: Duration = Duration::from_millis(250);

/// Time limit for a receiver.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pauses before retries of a message.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(15), Duration::from_secs(60)];

/// Time for which the end of a run waits for unsent messages.
const END: Duration = Duration::from_secs(3);

/// Interval at which a running program is checked.
const LOOK: Duration = Duration::from_millis(20);

/// A receiver of notifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Receiver {
    /// A URL that takes JSON by `POST`.
    Url(String),
    /// A command that a shell runs, with JSON on its standard input.
    Command(String),
}

/// Parses the value of a flag that names a URL.
///
/// # Errors
/// Returns the expected form.
pub fn parse_url(text: &str) -> Result<Receiver, &'static str> {
    let uri: Uri = text.parse().map_err(|_| "no URL")?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(_)) => Ok(Receiver::Url(text.to_owned())),
        _ => Err("a URL begins with http:// or https:// and names a host"),
    }
}

/// The notifier's thread; it stops when dropped.
pub(super) struct Notifier {
    batches: Option<Sender<Vec<Change>>>,
    over: Sender<()>,
    lost: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// The content of a notification.
#[derive(Serialize)]
struct Message<'a> {
    /// The name of the sensor.
    sensor: &'a str,
    changes: &'a [Change],
    /// Number of changes that could not be reported before.
    lost: u64,
}

impl Notifier {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has none left.
    pub(super) fn start(sensor: &str, receivers: &[Receiver]) -> io::Result<Self> {
        let (batches, inlet) = bounded(WAITING);
        // Closing this channel signals the end of the run.
        let (over, ending) = bounded(0);
        let lost = Arc::new(AtomicU64::new(0));
        let mut courier = Courier {
            sensor: sensor.to_owned(),
            receivers: receivers.iter().map(|receiver| (receiver.clone(), false)).collect(),
            agent: agent(),
            lost: Arc::clone(&lost),
            ending,
            deadline: None,
        };
        let thread = std::thread::Builder::new().name("notify".to_owned()).spawn(move || {
            give_up_all("notify");
            courier.run(&inlet);
        })?;
        Ok(Self { batches: Some(batches), over, lost, thread: Some(thread) })
    }

    /// Sends changes, or counts them as lost if there is no space.
    pub(super) fn tell(&self, changes: Vec<Change>) {
        let Some(batches) = &self.batches else { return };
        if let Err(TrySendError::Full(changes) | TrySendError::Disconnected(changes)) =
            batches.try_send(changes)
        {
            self.lost.fetch_add(changes.len() as u64, Relaxed);
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        drop(self.batches.take());
        drop(std::mem::replace(&mut self.over, bounded(0).0));
        // A panic of the thread was reported on stderr already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        .max_redirects(0)
        .user_agent(concat!("bannerwall/", env!("CARGO_PKG_VERSION")));
    config.build().into()
}

/// Sends messages, one after the other.
struct Courier {
    sensor: String,
    /// Each receiver, with true if it refused the last message.
    receivers: Vec<(Receiver, bool)>,
    agent: ureq::Agent,
    lost: Arc<AtomicU64>,
    ending: Inlet<()>,
    /// Time after which the end of the run does not wait any longer.
    deadline: Option<Instant>,
}

impl Courier {
    fn run(&mut self, inlet: &Inlet<Vec<Change>>) {
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
            lost => tell(format_args!("bannerwall: nobody was notified of {lost} changes")),
        }
    }

    /// Sends a message to each receiver.
    fn send(&mut self, changes: &[Change]) {
        if self.is_late() {
            self.lost.fetch_add(changes.len() as u64, Relaxed);
            return;
        }
        let lost = self.lost.swap(0, Relaxed);
        let message =
            serde_json::to_vec(&Message { sensor: &self.sensor, changes, lost }).unwrap_or_default();
        let mut receivers = std::mem::take(&mut self.receivers);
        let mut is_told = false;
        for (receiver, refuses) in &mut receivers {
            let outcome = self.deliver(receiver, &message, *refuses);
            if let Err(error) = &outcome {
                if !*refuses {
                    tell(format_args!(
                        "bannerwall: {receiver} is not notified: {error}; what is lost is counted"
                    ));
                }
            } else if *refuses {
                tell(format_args!("bannerwall: {receiver} is notified again"));
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
    fn deliver(&mut self, receiver: &Receiver, message: &[u8], refuses: bool) -> Result<(), String> {
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

    fn attempt(&self, receiver: &Receiver, message: &[u8]) -> Result<(), String> {
        match receiver {
            Receiver::Url(url) => {
                let request = self.agent.post(url).content_type("application/json");
                request.send(message).map(drop).map_err(|error| error.to_string())
            }
            Receiver::Command(command) => run(command, message).map_err(|error| error.to_string()),
        }
    }
}

/// Runs a program with a message for at most [`PATIENCE`].
fn run(command: &str, message: &[u8]) -> io::Result<()> {
    let mut program = Command::new("/bin/sh");
    program.arg("-c").arg(command).stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
    let mut child = program.spawn()?;
    let stdin = child.stdin.take();
    let message = message.to_vec();
    // A program that never reads must not block this thread.
    let writer = std::thread::Builder::new().name("notify-pipe".to_owned()).spawn(move || {
        // A program that exits without reading everything is judged by its exit code.
        let _ = stdin.map(|mut stdin| stdin.write_all(&message));
    });
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() < deadline => std::thread::sleep(LOOK),
            None => {
                // This also kills the processes that the shell has started.
                kill_process_group(Pid::from_child(&child), Signal::KILL)?;
                child.wait()?;
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it takes too long"));
            }
        }
    };
    writer?;
    if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
}

impl std::fmt::Display for Receiver {
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
        assert_eq!(parse_url("https://x.example/a?b"), Ok(Receiver::Url("https://x.example/a?b".to_owned())));
        for bad in ["x.example", "ftp://x.example/", "/path", "http://", "", "http://a b/"] {
            assert!(parse_url(bad).is_err(), "{bad}");
        }
        let shown = parse_url("https://hooks.example/secret?token=1").unwrap().to_string();
        assert_eq!(shown, "--notify hooks.example");
    }

    #[test]
    fn a_program_takes_the_message_or_fails() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("message");
        run(&format!("cat > '{}'", file.display()), b"{}").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"{}");
        assert!(run("exit 3", &[b' '; 1 << 20]).unwrap_err().to_string().contains('3'));
    }
}
