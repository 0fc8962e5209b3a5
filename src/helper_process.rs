//! Helper processes: this program again, started before its parent is confined, for what that may not do
//! itself. Parent and helper exchange lines of JSON over pipes. A helper exits with its parent.

use std::ffi::CStr;
use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

/// Bytes of a line: a hook with all its ports has some thousand, the table of others any number of rules.
const LINE: u64 = 64 << 20;

/// A helper process, as its parent sees it; it exits when this value is dropped.
#[derive(Debug)]
pub(crate) struct HelperProcess {
    child: Mutex<Child>,
    /// `None` once an exchange has failed: what comes next would answer another request.
    pipes: Mutex<Option<HelperPipes>>,
    /// Message once it has exited.
    gone: &'static str,
}

#[derive(Debug)]
struct HelperPipes {
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// Returns the command that starts this program again with a hidden subcommand.
pub(crate) fn command(subcommand: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    // A terminal's Ctrl-C is for the parent alone, which needs the helper until it has finished.
    command.arg0("bannerwall").arg(subcommand).process_group(0);
    command
}

/// Names the calling process for lists of processes, and ignores the signals that a service manager sends to
/// all processes of a service: the parent needs its helpers until it has finished.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn begin(name: &CStr) -> io::Result<()> {
    rustix::thread::set_name(name)?;
    // A handler and not SIG_IGN, which programs that the helper starts would inherit.
    let received = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::clone(&received))?;
    }
    Ok(())
}

impl HelperProcess {
    /// Starts a helper with the rights of the calling thread; `gone` is the message of requests once it has
    /// exited.
    ///
    /// # Errors
    /// This program cannot be started again.
    pub(crate) fn start(subcommand: &str, gone: &'static str) -> io::Result<Self> {
        let mut child = command(subcommand).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let pipes =
            pipes.map(|(requests, answers)| HelperPipes { requests, answers: BufReader::new(answers) });
        Ok(Self { child: Mutex::new(child), pipes: Mutex::new(pipes), gone })
    }

    /// Sends a line that the helper does not answer.
    ///
    /// # Errors
    /// It has exited.
    pub(crate) fn send(&self, line: &impl Serialize) -> io::Result<()> {
        self.with_pipes(|pipes| write_line(&mut pipes.requests, line).map(Some))
    }

    /// Sends a request, and waits for the answer.
    ///
    /// # Errors
    /// It has exited, or answers something else.
    pub(crate) fn request<A: for<'de> Deserialize<'de>>(&self, request: &impl Serialize) -> io::Result<A> {
        self.with_pipes(|pipes| {
            write_line(&mut pipes.requests, request)?;
            read_line(&mut pipes.answers)
        })
    }

    /// True if the helper has exited, or can be asked nothing more.
    pub(crate) fn is_gone(&self) -> bool {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(child.try_wait(), Ok(Some(_)) | Err(_)) || self.pipes().is_none()
    }

    fn with_pipes<T>(
        &self,
        exchange: impl FnOnce(&mut HelperPipes) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        let gone = || io::Error::new(io::ErrorKind::BrokenPipe, self.gone);
        let mut pipes = self.pipes();
        let outcome = exchange(pipes.as_mut().ok_or_else(gone)?).and_then(|answer| answer.ok_or_else(gone));
        if outcome.is_err() {
            *pipes = None;
        }
        outcome.map_err(|error| if error.kind() == io::ErrorKind::BrokenPipe { gone() } else { error })
    }

    fn pipes(&self) -> MutexGuard<'_, Option<HelperPipes>> {
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        // It exits at the end of its input.
        *self.pipes() = None;
        let _ = self.child.lock().unwrap_or_else(PoisonError::into_inner).wait();
    }
}

/// The side of the helper: requests on stdin, answers on stdout.
#[derive(Debug)]
pub(crate) struct HelperRequests(BufReader<io::Stdin>);

impl HelperRequests {
    /// Returns the requests of the parent.
    pub(crate) fn of_parent() -> Self {
        Self(BufReader::new(io::stdin()))
    }

    /// Reads a line that has no answer; none if the parent has gone.
    ///
    /// # Errors
    /// The line is something else.
    pub(crate) fn receive<T: for<'de> Deserialize<'de>>(&mut self) -> io::Result<Option<T>> {
        read_line(&mut self.0)
    }

    /// Answers each request until the parent closes the pipe.
    ///
    /// # Errors
    /// A line is no request, or a pipe breaks.
    pub(crate) fn answer<R, A>(mut self, mut answer: impl FnMut(R) -> A) -> io::Result<()>
    where
        R: for<'de> Deserialize<'de>,
        A: Serialize,
    {
        let mut answers = io::stdout();
        while let Some(request) = self.receive()? {
            match write_line(&mut answers, &answer(request)) {
                // The process that asked has exited, with a message of its own.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
                written => written?,
            }
        }
        Ok(())
    }
}

/// Writes a line of JSON.
fn write_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

/// Reads the next line; none at the end.
fn read_line<T: for<'de> Deserialize<'de>>(input: &mut BufReader<impl io::Read>) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    input.by_ref().take(LINE).read_until(b'\n', &mut line)?;
    if line.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_slice(&line)?)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_value_and_nothing_else() {
        let read = |text: &str| read_line::<[u8; 2]>(&mut BufReader::new(text.as_bytes()));
        assert_eq!(read("[1,2]\n").unwrap(), Some([1, 2]));
        assert_eq!(read("").unwrap(), None);
        for wrong in ["x\n", "{}\n", "[1]\n", "[1,2] [3,4]\n", "\n"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
