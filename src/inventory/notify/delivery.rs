//! The helper process that delivers notifications, so that the process that sees hostile bytes need not speak
//! to servers and run programs.
//!
//! It is a helper process ([`crate::helper_process`], `bannerwall notifier`), started before its parent is
//! confined. It has no capabilities and is not root's, and neither are the programs that it runs. It reads
//! nothing but its parent's requests and the receivers' answers.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use super::receiver::NotificationReceiver;
use crate::confinement::Confinement;
use crate::helper_process::{self, HelperProcess, HelperRequests};
use crate::privileges::{UnprivilegedUser, give_up_everything};

/// The subcommand of such a process.
pub(crate) const SUBCOMMAND: &str = "notifier";

/// Its name in lists of processes.
const NAME: &std::ffi::CStr = c"bannerwall-ntf";

/// Time for which a receiver may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Interval at which a program is looked after.
const LOOK: Duration = Duration::from_millis(20);

/// The first line to the process. Parts of a URL may be secret, so that it is on no command line.
#[derive(Serialize, Deserialize)]
struct DeliverySetup {
    receivers: Vec<NotificationReceiver>,
    /// The number of the user that the process becomes. If there is none, it leaves root as its parent does,
    /// and for programs in any case.
    user: Option<u32>,
}

/// A request to deliver a message once.
#[derive(Serialize, Deserialize)]
struct DeliveryRequest {
    /// The receiver's place in the setup.
    receiver: usize,
    message: String,
}

/// The process, as its parent sees it; it exits when this value is dropped.
#[derive(Debug)]
pub(super) struct DeliveryProcess(HelperProcess);

impl DeliveryProcess {
    /// Starts the process.
    ///
    /// # Errors
    /// This program cannot be started again.
    pub(super) fn start(
        receivers: &[NotificationReceiver],
        user: Option<&UnprivilegedUser>,
    ) -> io::Result<Self> {
        let helper = HelperProcess::start(SUBCOMMAND, "the process that notifies has ended")?;
        helper.send(&DeliverySetup {
            receivers: receivers.to_vec(),
            user: user.map(UnprivilegedUser::number),
        })?;
        Ok(Self(helper))
    }

    /// Delivers a message once.
    ///
    /// # Errors
    /// The receiver does not take it, or the process has exited.
    pub(super) fn attempt(&self, receiver: usize, message: &str) -> io::Result<()> {
        let outcome: Result<(), String> =
            self.0.request(&DeliveryRequest { receiver, message: message.to_owned() })?;
        outcome.map_err(io::Error::other)
    }
}

/// Delivers messages on request until stdin ends; what `bannerwall notifier` does.
///
/// # Errors
/// A line is no request, or a call fails.
pub(crate) fn serve() -> io::Result<()> {
    helper_process::begin(NAME)?;
    let mut requests = HelperRequests::of_parent();
    let Some(DeliverySetup { receivers, user }) = requests.receive()? else { return Ok(()) };
    let is_program = |receiver: &NotificationReceiver| matches!(receiver, NotificationReceiver::Command(_));
    let runs_programs = receivers.iter().any(is_program);
    let of_programs =
        || runs_programs.then(UnprivilegedUser::of_programs).flatten().map(|user| user.number());
    give_up_everything(user.or_else(of_programs))?;
    confine(runs_programs);
    let agent = agent();
    requests.answer(|DeliveryRequest { receiver, message }| match receivers.get(receiver) {
        Some(receiver) => attempt(&agent, receiver, message.as_bytes()),
        None => Err("there is no such receiver".to_owned()),
    })
}

/// Leaves the process what its receivers take. Nothing is known of a program's files.
fn confine(runs_programs: bool) {
    let confinement = Confinement::default().finding_servers();
    if runs_programs {
        confinement.starting_programs().filter_or_warn();
    } else {
        confinement.apply_or_warn(true);
    }
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        .max_redirects(0)
        .user_agent(concat!("bannerwall/", env!("CARGO_PKG_VERSION")));
    config.build().into()
}

fn attempt(agent: &ureq::Agent, receiver: &NotificationReceiver, message: &[u8]) -> Result<(), String> {
    match receiver {
        NotificationReceiver::Url(url) => {
            let request = agent.post(url).content_type("application/json");
            request.send(message).map(drop).map_err(|error| error.to_string())
        }
        NotificationReceiver::Command(command) => run(command, message).map_err(|error| error.to_string()),
    }
}

/// Runs a program that takes a message, for as long as [`PATIENCE`].
fn run(command: &str, message: &[u8]) -> io::Result<()> {
    let mut program = Command::new("/bin/sh");
    program.arg("-c").arg(command).stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
    let mut child = program.spawn()?;
    let stdin = child.stdin.take();
    let message = message.to_vec();
    // One that never reads must not hold us up.
    let writer = std::thread::Builder::new().name("notify-pipe".to_owned()).spawn(move || {
        // One that ends without reading it all is judged by how it ends.
        let _ = stdin.map(|mut stdin| stdin.write_all(&message));
    });
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() < deadline => std::thread::sleep(LOOK),
            None => {
                // And whatever the shell has started.
                kill_process_group(Pid::from_child(&child), Signal::KILL)?;
                child.wait()?;
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it takes too long"));
            }
        }
    };
    writer?;
    if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_takes_the_message_or_fails() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("message");
        run(&format!("cat > '{}'", file.display()), b"{}").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"{}");
        assert!(run("exit 3", &[b' '; 1 << 20]).unwrap_err().to_string().contains('3'));
    }
}
