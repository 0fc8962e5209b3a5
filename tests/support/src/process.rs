//! Processes that end with the test, and waiting for what they do.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// When a condition that never comes true fails the test; far above any honest duration, so that a
/// slow machine does not fail.
const PATIENCE: Duration = Duration::from_secs(240);

/// How long the last lines of a process that has ended may take; a child of it may hold the pipe open.
const LAST_LINES: Duration = Duration::from_secs(5);

/// Waits until `condition` gives a value; `what` says what was missed if it never does.
///
/// # Panics
/// When the condition does not come true.
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The JSON lines that a program printed.
///
/// # Panics
/// When a line is not JSON, or the last one is not whole.
pub fn json_lines(printed: &[u8]) -> Vec<serde_json::Value> {
    assert!(printed.last().is_none_or(|last| *last == b'\n'), "the last line is whole");
    let lines = printed.split(|octet| *octet == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).expect("a line of JSON")).collect()
}

/// The JSON lines of a file that is still written: what is not whole yet is left out.
///
/// # Panics
/// When a line is not JSON.
pub fn json_lines_so_far(written: &[u8]) -> Vec<serde_json::Value> {
    let whole = written.iter().rposition(|octet| *octet == b'\n').map_or(0, |end| end + 1);
    json_lines(&written[..whole])
}

/// Text that a thread reads from a process's pipe.
#[derive(Debug, Clone, Default)]
struct Transcript(Arc<(Mutex<Text>, Condvar)>);

#[derive(Debug, Default)]
struct Text {
    text: String,
    ended: bool,
}

impl Transcript {
    fn of(pipe: impl Read + Send + 'static) -> Self {
        let transcript = Self::default();
        let writer = transcript.clone();
        std::thread::spawn(move || writer.collect(pipe));
        transcript
    }

    fn collect(&self, pipe: impl Read) {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        let mut ended = false;
        while !ended {
            line.clear();
            ended = !matches!(reader.read_until(b'\n', &mut line), Ok(octets) if octets > 0);
            let mut text = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
            text.text.push_str(&String::from_utf8_lossy(&line));
            text.ended = ended;
            self.0.1.notify_all();
        }
    }

    fn text(&self) -> String {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).text.clone()
    }

    /// Waits until `found` gives a value for the whole text so far; `None` when the pipe ends (or
    /// patience does) without one.
    fn wait<T>(&self, mut found: impl FnMut(&str) -> Option<T>) -> Option<T> {
        let start = Instant::now();
        let mut text = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let value = found(&text.text);
            if value.is_some() || text.ended || start.elapsed() > PATIENCE {
                return value;
            }
            let waited = self.0.1.wait_timeout(text, Duration::from_secs(1));
            text = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until all is there that was written.
    fn wait_end(&self) {
        let text = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Where the time is over, what is there has to do.
        drop(self.0.1.wait_timeout_while(text, LAST_LINES, |text| !text.ended));
    }
}

/// A process in the background; killed, by its own id, when the value goes away.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: Transcript,
    stderr: Transcript,
}

impl Running {
    /// Starts `command` with both of its outputs collected.
    ///
    /// # Panics
    /// When the program cannot be started.
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = child.stdout.take().map(Transcript::of).unwrap_or_default();
        let stderr = child.stderr.take().map(Transcript::of).unwrap_or_default();
        Self { child, stdout, stderr }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to stdout so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What it has written to stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until stdout holds what `found` looks for.
    ///
    /// # Panics
    /// When the process ends without it.
    pub fn wait_stdout<T>(&self, what: &str, found: impl FnMut(&str) -> Option<T>) -> T {
        self.stdout.wait(found).unwrap_or_else(|| self.missed(what))
    }

    /// Waits until stderr holds what `found` looks for.
    ///
    /// # Panics
    /// When the process ends without it.
    pub fn wait_stderr<T>(&self, what: &str, found: impl FnMut(&str) -> Option<T>) -> T {
        self.stderr.wait(found).unwrap_or_else(|| self.missed(what))
    }

    fn missed(&self, what: &str) -> ! {
        panic!("waited in vain for {what}\nstdout:\n{}\nstderr:\n{}", self.stdout(), self.stderr())
    }

    /// Sends a signal to this process alone.
    ///
    /// # Panics
    /// When it cannot be sent.
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(id.expect("a process id"), signal).expect("the process is there");
    }

    /// Stops the process as Ctrl-Z does, and waits until every thread of it stands still.
    ///
    /// # Panics
    /// When it has ended.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        eventually("the process to stand still", || {
            let mut tasks = std::fs::read_dir(format!("/proc/{}/task", self.id())).expect("it runs");
            let stands = |task: std::io::Result<std::fs::DirEntry>| {
                let status = std::fs::read_to_string(task.expect("a task").path().join("status"));
                status.is_ok_and(|status| status.contains("State:\tT"))
            };
            tasks.all(stands).then_some(())
        });
    }

    /// Lets the process have so many descriptors, up to its hard limit. The kernel lets another user do that
    /// only with `CAP_SYS_RESOURCE` (`prlimit(2)`), so its own user does it.
    ///
    /// # Panics
    /// When the process has ended, or util-linux is missing.
    pub fn limit_descriptors(&self, most: u32) {
        let id = self.id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
        let number = |name: &str| {
            let line =
                status.lines().find_map(|line| line.strip_prefix(name)).expect("every process has one");
            line.split_whitespace().next().expect("a number").to_owned()
        };
        let (user, group) = (number("Uid:"), number("Gid:"));
        let mut command = Command::new("prlimit");
        if user != "0" {
            command = Command::new("setpriv");
            command.args([
                &format!("--reuid={user}"),
                &format!("--regid={group}"),
                "--clear-groups",
                "prlimit",
            ]);
        }
        let status = command.args([&format!("--pid={id}"), &format!("--nofile={most}:")]).status();
        assert!(status.expect("util-linux is there").success(), "descriptors of {id}");
    }

    /// Waits for the end, and for what was written before it.
    ///
    /// # Panics
    /// When it does not end.
    pub fn wait_exit(&mut self) -> ExitStatus {
        let status = eventually("the end of a process", || match self.child.try_wait() {
            Ok(status) => status.map(Ok),
            Err(error) => Some(Err(error)),
        });
        self.stdout.wait_end();
        self.stderr.wait_end();
        status.expect("the process is ours")
    }

    /// Whether it has ended.
    pub fn has_exited(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
