//! Helper process that runs iptables for a guard that is not permitted to run programs.
//!
//! It is this program again (`bannerwall runner`), started before the guard gives up its rights. It reads
//! nothing from the network. Requests and results are lines of JSON over pipes. A request is a [`Call`] (read
//! the table, or change the hook's chains and jumps), a [`BanCall`] for the table of bans, or a [`Question`]
//! about the machine. The process exits with the guard.

use std::io::{self, BufReader, BufWriter};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

use super::bans::BanCall;
use super::programs::{Call, Ended, Question};
use crate::json_lines::{read_line, write_line};

/// Subcommand of such a process.
pub(crate) const SUBCOMMAND: &str = "runner";
/// Name in process lists.
const NAME: &std::ffi::CStr = c"bannerwall-run";

/// Request to the helper process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Request {
    Look(Question),
    Ban(BanCall),
    Call(Call),
}

/// Result of a request.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Ended(Ended),
    /// The program could not be run.
    Failed(String),
}

/// Handle of the helper process, which exits when this is dropped.
#[derive(Debug)]
pub struct Runner {
    child: Mutex<Child>,
    /// `None` after a failed exchange: the next line would be the result of an earlier request.
    pipes: Mutex<Option<Pipes>>,
}

#[derive(Debug)]
struct Pipes {
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Runner {
    /// Starts the process, with the current rights.
    ///
    /// # Errors
    ///
    /// The program cannot be started again.
    pub(crate) fn start() -> io::Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .arg0("bannerwall")
            .arg(SUBCOMMAND)
            // A terminal's Ctrl-C must stop only the guard, which needs this process to take the hook down.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let pipes = pipes.map(|(requests, answers)| Pipes { requests, answers: BufReader::new(answers) });
        Ok(Self { child: Mutex::new(child), pipes: Mutex::new(pipes) })
    }

    /// True if the process has exited.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait(), Ok(Some(_)) | Err(_))
    }

    /// Runs a program.
    ///
    /// # Errors
    ///
    /// The program cannot be run, or the process has exited.
    pub(super) fn call(&self, call: &Call) -> io::Result<Ended> {
        self.exchange(call)
    }

    /// Runs `nft` about the table of bans.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub(super) fn ban(&self, call: &BanCall) -> io::Result<Ended> {
        self.exchange(call)
    }

    /// Queries the machine.
    ///
    /// # Errors
    ///
    /// As [`Self::call`].
    pub(super) fn ask(&self, question: Question) -> io::Result<Ended> {
        self.exchange(&question)
    }

    fn exchange(&self, request: &impl Serialize) -> io::Result<Ended> {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = pipes.as_mut().ok_or_else(gone).and_then(|pipes| pipes.exchange(request));
        match answer {
            Ok(Answer::Ended(ended)) => Ok(ended),
            Ok(Answer::Failed(why)) => Err(io::Error::other(why)),
            Err(error) => {
                *pipes = None;
                Err(error)
            }
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // The process exits at the end of its input.
        *self.pipes.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let _ = self.child.lock().unwrap_or_else(PoisonError::into_inner).wait();
    }
}

impl Pipes {
    fn exchange(&mut self, request: &impl Serialize) -> io::Result<Answer> {
        write_line(&mut self.requests, request)?;
        read_line(&mut self.answers)?.ok_or_else(gone)
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the helper process that runs iptables has exited")
}

/// Handles requests on stdin until its end; this is `bannerwall runner`.
///
/// # Errors
///
/// A request is invalid, or a pipe breaks.
pub(crate) fn serve() -> io::Result<()> {
    // Without this the name would be `exe`, after the link in /proc.
    rustix::thread::set_name(NAME)?;
    // A service manager sends signals to all processes of a service, but the guard needs this one until it
    // has exited.
    let heard = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::clone(&heard))?;
    }
    let mut requests = BufReader::new(io::stdin());
    let mut answers = BufWriter::new(io::stdout());
    while let Some(request) = read_line::<Request>(&mut requests)? {
        let ended = match request {
            Request::Look(question) => question.ask(),
            Request::Ban(call) => call.run(),
            Request::Call(call) if call.is_ours() => call.run(),
            Request::Call(_) => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "refused: the rules do not belong to the hook",
            )),
        };
        let answer = ended.map_or_else(|error| Answer::Failed(error.to_string()), Answer::Ended);
        write_line(&mut answers, &answer)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::bans::BanElement;
    use super::super::programs::Program;
    use super::super::{Family, Variant};
    use super::*;

    fn call(changes: &[&str]) -> Call {
        Call {
            family: Family::V4,
            variant: Variant::Nft,
            program: Program::Restore,
            changes: changes.iter().map(|change| (*change).to_owned()).collect(),
        }
    }

    #[test]
    fn nothing_but_the_hook_can_be_asked_for() {
        for ours in [
            &[][..],
            &[":BANNERWALL - [0:0]", "-A BANNERWALL -m mark --mark 0x0/0x3 -j RETURN"],
            &["-A FORWARD -p tcp -j BANNERWALL", "-D INPUT ! -o lo -p tcp -j BANNERWALL"],
            &["-F BANNERWALL-PASS", "-X BANNERWALL-PASS"],
        ] {
            assert!(call(ours).is_ours(), "{ours:?}");
        }
        for foreign in [
            "-F INPUT",
            "-F",
            "-P INPUT DROP",
            ":INPUT DROP [0:0]",
            "-A INPUT -j ACCEPT",
            "-A INPUT -j BANNERWALL -j ACCEPT",
            "-D INPUT -j OTHERS -m comment --comment BANNERWALL",
            "-A BANNERWALLS -j DROP",
            "-A BANNERWALL -j TEE --gateway 192.0.2.1",
            "-A BANNERWALL --modprobe=/tmp/x -j RETURN",
            "-A BANNERWALL -m bpf --object-pinned /x -j RETURN",
            "-A BANNERWALL -g OTHERS",
            "-X OTHERS",
            "*filter",
            "COMMIT",
            "-F BANNERWALL\n-F INPUT",
            "-A BANNERWALL -j RETURN\nCOMMIT\n*filter\n-F INPUT",
            "",
        ] {
            assert!(!call(&[foreign]).is_ours(), "{foreign:?}");
        }
    }

    #[test]
    fn a_request_about_bans_is_one_of_our_table() {
        let address = "192.0.2.1".parse().unwrap();
        let add = vec![BanElement::new(address, 60, "no-sqlmap GET /")];
        for call in [
            BanCall::Change { remove: vec![address], add },
            BanCall::Read { elements: true },
            BanCall::Remove,
            BanCall::Try,
        ] {
            let text = serde_json::to_string(&call).unwrap();
            let request: Request = serde_json::from_str(&text).unwrap();
            assert!(matches!(request, Request::Ban(read) if read == call), "{text}");
        }
        for wrong in [r#"{"Change":{"remove":["-f"],"add":[]}}"#, r#"{"Read":{"table":"filter"}}"#] {
            assert!(serde_json::from_str::<Request>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_line_is_a_call_and_nothing_else() {
        let text = serde_json::to_string(&call(&["-F BANNERWALL"])).unwrap() + "\n";
        let read = |text: &str| read_line::<Call>(&mut BufReader::new(text.as_bytes()));
        assert_eq!(read(&text).unwrap(), Some(call(&["-F BANNERWALL"])));
        assert_eq!(read("").unwrap(), None);
        for wrong in ["x\n", "{}\n", r#"{"program":"sh"}"#, "\n"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
