//! Helper process that starts scans for a page that is not permitted to run programs.
//!
//! It is a helper process ([`crate::helper_process`], `bannerwall scan-runner`), started before the page is
//! confined. It reads nothing from the network. It starts only `bannerwall scan`, with arguments that it
//! builds itself from an [`PageScanOrder`], within the limits of the page's command line. Its scans exit with
//! it, even if it is killed: each scan requests a signal from the kernel for that case ([`end_with_parent`]).
//! If the process dies, the page starts no more scans until its own restart, since nothing that serves
//! browsers may start a program.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::order::{PageScanOrder, ScanPermissions};
use crate::database::DatabaseLocation;
use crate::helper_process::{self, HelperProcess, HelperRequests};

/// Subcommand of such a process.
pub(crate) const SUBCOMMAND: &str = "scan-runner";

/// Environment variable that names the process with which a scan exits.
const PARENT: &str = "BANNERWALL_SCAN_RUNNER";

/// Name in process lists.
const NAME: &std::ffi::CStr = c"bannerwall-scn";

/// Limit of concurrent scans.
pub(super) const AT_ONCE: usize = 2;

/// Exit status of an interrupted scan.
pub(super) const INTERRUPTED: i32 = 130;

/// Limits of a scan's stored output: lines, and bytes of a line.
const LINES: usize = 20;
const LINE: u64 = 2_048;

/// Time for a scan to stop, after the first and after the second signal.
const PATIENCE: Duration = Duration::from_secs(3);

/// Settings of all scans.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunnerSetup {
    inventory: Vec<u8>,
    /// Password of the inventory's server, which must not appear on a command line.
    password: Option<Vec<u8>>,
    bounds: ScanPermissions,
    rules: Vec<PathBuf>,
}

/// Request to the helper process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum RunnerRequest {
    /// Start a scan.
    Start { number: i64, order: PageScanOrder },
    /// Stop a scan: the first request finishes targets under way, the second abandons them.
    Stop { number: i64 },
    /// Return the state of all scans, and forget the `known` ended ones.
    Look { known: Vec<i64> },
}

#[derive(Debug, Serialize, Deserialize)]
enum RunnerReply {
    Jobs(Vec<RunnerJob>),
    Refused(String),
}

/// State of a scan.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct RunnerJob {
    pub(super) number: i64,
    pub(super) is_over: bool,
    /// Exit status; none while it runs, or after a signal.
    pub(super) code: Option<i32>,
    /// Probed targets, and all targets.
    pub(super) asked: (u64, u64),
    /// Last lines of output.
    pub(super) said: Vec<String>,
}

/// Handle of the helper process, which exits when this is dropped.
#[derive(Debug)]
pub(super) struct ScanRunner(HelperProcess);

impl RunnerSetup {
    pub(super) fn new(inventory: &DatabaseLocation, bounds: &ScanPermissions, rules: &[PathBuf]) -> Self {
        let (word, password) = inventory.word();
        Self { inventory: word.into_vec(), password, bounds: bounds.clone(), rules: rules.to_vec() }
    }
}

impl ScanRunner {
    /// Starts the process, with the rights of the calling thread.
    pub(super) fn start(setup: &RunnerSetup) -> io::Result<Self> {
        let helper = HelperProcess::start(SUBCOMMAND, GONE)?;
        helper.send(setup)?;
        Ok(Self(helper))
    }

    pub(super) fn begin(&self, number: i64, order: &PageScanOrder) -> io::Result<()> {
        self.call(&RunnerRequest::Start { number, order: order.clone() }).map(drop)
    }

    pub(super) fn stop(&self, number: i64) -> io::Result<()> {
        self.call(&RunnerRequest::Stop { number }).map(drop)
    }

    pub(super) fn look(&self, known: Vec<i64>) -> io::Result<Vec<RunnerJob>> {
        self.call(&RunnerRequest::Look { known })
    }

    /// True once the process has exited.
    pub(super) fn is_gone(&self) -> bool {
        self.0.is_gone()
    }

    fn call(&self, call: &RunnerRequest) -> io::Result<Vec<RunnerJob>> {
        match self.0.request(call)? {
            RunnerReply::Jobs(jobs) => Ok(jobs),
            RunnerReply::Refused(why) => Err(io::Error::other(why)),
        }
    }
}

/// Message of a page whose helper process has exited.
pub(super) const GONE: &str =
    "the helper process for scans has exited: restart `bannerwall serve` to scan again";

/// Makes this process exit with the helper process that started it, as if interrupted. A scan that no page
/// started is unaffected.
///
/// # Errors
///
/// The helper process has already exited, or the kernel refuses.
pub(crate) fn end_with_parent() -> io::Result<()> {
    let Some(parent) = std::env::var_os(PARENT) else { return Ok(()) };
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // The parent may have exited before the signal was requested.
    let is_there = getppid().is_some_and(|pid| parent == pid.as_raw_pid().to_string().as_str());
    if is_there { Ok(()) } else { Err(io::Error::new(io::ErrorKind::BrokenPipe, GONE)) }
}

/// Handles requests on stdin until its end; this is `bannerwall scan-runner`.
///
/// # Errors
///
/// A request is invalid, or a pipe breaks.
pub(crate) fn serve() -> io::Result<()> {
    helper_process::begin(NAME)?;
    let mut calls = HelperRequests::of_parent();
    let Some(setup) = calls.receive()? else { return Ok(()) };
    let mut scans = StartedScans { setup, running: BTreeMap::new() };
    calls.answer(|call| scans.answer(call))?;
    scans.end();
    Ok(())
}

/// Started scans, by their numbers.
struct StartedScans {
    setup: RunnerSetup,
    running: BTreeMap<i64, RunningScan>,
}

struct RunningScan {
    child: Child,
    job: Arc<Mutex<RunnerJob>>,
}

impl StartedScans {
    fn answer(&mut self, call: RunnerRequest) -> RunnerReply {
        match call {
            RunnerRequest::Start { number, order } => match self.start(number, &order) {
                Ok(()) => RunnerReply::Jobs(Vec::new()),
                Err(why) => RunnerReply::Refused(why),
            },
            RunnerRequest::Stop { number } => match self.running.get_mut(&number).map(RunningScan::tell) {
                Some(true) => RunnerReply::Jobs(Vec::new()),
                Some(false) | None => RunnerReply::Refused("the scan does not run".to_owned()),
            },
            RunnerRequest::Look { known } => {
                self.running.retain(|number, scan| !(known.contains(number) && scan.look().is_over));
                RunnerReply::Jobs(self.running.values_mut().map(RunningScan::look).collect())
            }
        }
    }

    fn start(&mut self, number: i64, order: &PageScanOrder) -> Result<(), String> {
        if self.running.contains_key(&number) {
            return Err(format!("scan #{number} exists already"));
        }
        // The page has checked the order already. It talks to the network, so this process does not
        // trust it.
        let words = order.words(&self.setup.bounds)?;
        let at_once =
            self.running.values_mut().filter_map(|scan| (!scan.look().is_over).then_some(())).count();
        if at_once >= AT_ONCE {
            return Err(format!("{AT_ONCE} scans run already"));
        }
        let (mode, words) = words.split_first().ok_or("no scan")?;
        let inventory = OsString::from_vec(self.setup.inventory.clone());
        // The running program itself, even if its file was replaced by an upgrade meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("bannerwall").args(["scan", mode, "--progress", "lines", "--open", "--inventory"]);
        command.arg(&inventory).env(PARENT, std::process::id().to_string());
        if let Some(password) = &self.setup.password {
            // The environment of a process is readable only by its user. Its command line is readable
            // by all.
            command.env("PGPASSWORD", OsString::from_vec(password.clone()));
        }
        for rules in &self.setup.rules {
            command.arg("--rules").arg(rules);
        }
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start the scan: {error}"))?;
        let job = Arc::new(Mutex::new(RunnerJob { number, ..RunnerJob::default() }));
        let (shared, said) = (Arc::clone(&job), child.stderr.take());
        let listening = std::thread::Builder::new().spawn(move || said.map(|said| listen(said, &shared)));
        if let Err(error) = listening {
            // A child without a reader of its output would block once the pipe is full.
            let _ = child.kill().and_then(|()| child.wait());
            return Err(format!("cannot read the scan's output: {error}"));
        }
        self.running.insert(number, RunningScan { child, job });
        Ok(())
    }

    /// Stops all scans.
    fn end(&mut self) {
        // The first signal lets a scan finish its targets under way, and the second abandons them.
        for _ in 0..2 {
            let begun = Instant::now();
            self.running.values_mut().for_each(|scan| _ = scan.tell());
            while begun.elapsed() < PATIENCE && self.running.values_mut().any(|scan| !scan.look().is_over) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        for scan in self.running.values_mut() {
            let _ = scan.child.kill();
            let _ = scan.child.wait();
        }
    }
}

impl RunningScan {
    /// Sends a signal to stop the scan; returns true if it ran.
    fn tell(&mut self) -> bool {
        if self.look().is_over {
            return false;
        }
        // The child is not reaped yet, so its process id cannot belong to another process.
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok())
    }

    fn look(&mut self) -> RunnerJob {
        // Once the reading thread has dropped its reference, all output is stored.
        let is_heard = Arc::strong_count(&self.job) == 1;
        let ended = if is_heard { self.child.try_wait().ok().flatten() } else { None };
        let mut job = self.job.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(status) = ended {
            (job.is_over, job.code) = (true, status.code());
        }
        job.clone()
    }
}

/// Stores the output of a scan.
fn listen(said: impl Read, job: &Mutex<RunnerJob>) {
    let mut said = BufReader::new(said);
    let mut line = Vec::new();
    while let Ok(1..) = said.by_ref().take(LINE).read_until(b'\n', &mut line) {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        line.clear();
        let mut job = job.lock().unwrap_or_else(PoisonError::into_inner);
        match text.strip_prefix("progress: ").and_then(asked) {
            Some(asked) => job.asked = asked,
            None => {
                if job.said.len() >= LINES {
                    job.said.remove(0);
                }
                job.said.push(text);
            }
        }
    }
}

/// Parses `12/256, open 3, …`.
fn asked(text: &str) -> Option<(u64, u64)> {
    let (asked, all) = text.split(',').next()?.split_once('/')?;
    Some((asked.parse().ok()?, all.parse().ok()?))
}
