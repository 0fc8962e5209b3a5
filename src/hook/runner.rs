//! A process that runs iptables for a guard that may run nothing itself.
//!
//! It is this program again (`bannerwall runner`), started before the guard gives up what that takes. It
//! reads nothing from the network, and is asked over pipes, a line of JSON each way. What can be asked for is
//! a [`Call`]: to read our table, or to change our own chains in it and the jumps to them; a [`BanCall`]
//! about our table of bans; and a [`Question`] about the machine. It ends with the guard.

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

/// The subcommand of such a process.
pub(crate) const SUBCOMMAND: &str = "runner";
/// What it is called in lists of processes.
const NAME: &std::ffi::CStr = c"bannerwall-run";

/// What can be asked for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Request {
    Look(Question),
    Ban(BanCall),
    Call(Call),
}

/// What a call led to.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Ended(Ended),
    /// The program could not be run.
    Failed(String),
}

/// The process, as who asks it sees it; it ends with this value.
#[derive(Debug)]
pub struct Runner {
    child: Mutex<Child>,
    /// `None` once it has not answered: what comes next would be the answer to another question.
    pipes: Mutex<Option<Pipes>>,
}

#[derive(Debug)]
struct Pipes {
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Runner {
    /// Starts the process, with what this one may do now.
    ///
    /// # Errors
    /// This program can't be started again.
    pub(crate) fn start() -> io::Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .arg0("bannerwall")
            .arg(SUBCOMMAND)
            // A terminal's Ctrl-C is for the guard alone, which has the hook taken down then.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let pipes = pipes.map(|(requests, answers)| Pipes { requests, answers: BufReader::new(answers) });
        Ok(Self { child: Mutex::new(child), pipes: Mutex::new(pipes) })
    }

    /// True if the process has ended.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait(), Ok(Some(_)) | Err(_))
    }

    /// Has a program run.
    ///
    /// # Errors
    /// It could not be, or the process has ended.
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

    /// Has somebody look at the machine.
    ///
    /// # Errors
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
        // It ends with its input.
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
    io::Error::new(io::ErrorKind::BrokenPipe, "the process that runs iptables for this one has ended")
}

/// Answers calls on stdin until it ends; what `bannerwall runner` does.
///
/// # Errors
/// What is no call, or a pipe that breaks.
pub(crate) fn serve() -> io::Result<()> {
    // Else it is called after the link that it was started by.
    rustix::thread::set_name(NAME)?;
    // A service manager's signal goes to all processes of a service; this one is needed until the guard has
    // ended.
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
            Request::Call(_) => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, "rules that are not the hook's"))
            }
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
