//! Scans started without a command line, as a page or a schedule would.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Mutex;

use super::*;
use crate::output::OutputDestination;
use crate::output::eve::{EveFormat, EveOptions};
use crate::scan::targets::PortSet;

/// Somebody who looks up `patience` times before the scan is to end.
#[derive(Default)]
struct Page {
    patience: Option<u32>,
    left_out: Vec<SkippedReserved>,
    unresolved: Vec<String>,
    kept: Option<PathBuf>,
}

impl ScanObserver for Page {
    fn unresolved(&mut self, name: &str) {
        self.unresolved.push(name.to_owned());
    }

    fn left_out(&mut self, out: &SkippedReserved) {
        self.left_out.push(out.clone());
    }

    fn poll_decision(&mut self, _counts: &TargetCounts) -> ObserverDecision {
        match &mut self.patience {
            Some(0) => ObserverDecision::Finish,
            Some(left) => {
                *left -= 1;
                ObserverDecision::GoOn
            }
            None => ObserverDecision::GoOn,
        }
    }

    fn report_error(&mut self, fault: &dyn Display) {
        panic!("{fault}");
    }

    fn kept(&mut self, file: &Path, _interrupted: bool) {
        self.kept = Some(file.to_owned());
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn lines(&self) -> Vec<serde_json::Value> {
        let octets = self.0.lock().expect("no writer panicked");
        octets
            .split_inclusive(|octet| *octet == b'\n')
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }
}

impl Write for Shared {
    fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no reader panicked").write(octets)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn options(word: &str, port: u16) -> ScanOptions {
    let targets = TargetOptions { words: vec![word.to_owned()], ..TargetOptions::default() };
    ScanOptions::new(targets, PortSet::from_iter([port]), ProbeOptions::Connect)
}

fn json(shared: &Shared) -> ResultOutput {
    let destination = OutputDestination::Other(Box::new(shared.clone()));
    ResultOutput {
        format: Box::new(EveFormat(EveOptions::default())),
        destination,
        is_document: false,
        copies: Vec::new(),
    }
}

#[test]
fn a_page_starts_a_scan_and_hears_what_is_left_out() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("bound").port();
    let (seen, mut page) = (Shared::default(), Page::default());
    let mut options = options("127.0.0.1", port);
    options.targets.words.push("224.0.0.1".to_owned());
    let session = ScanSession::open(options, json(&seen), None, &mut page).expect("a session");
    let ending = session.run(&mut page).expect("a scan");
    assert_eq!((ending.account.total, ending.account.counts.open), (1, 1));
    assert_eq!((ending.account.input, ending.account.skipped.reserved), (2, 1));
    assert!(!ending.interrupted && page.kept.is_none());
    assert_eq!(page.left_out.len(), 1);
    let lines = seen.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!((&lines[0]["dest_port"], &lines[0]["state"]), (&port.into(), &"open".into()));
}

#[test]
fn a_scan_that_its_page_ends_goes_on_where_it_stood() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, seen) = (folder.path().join("state"), Shared::default());
    let mut options = options("127.0.1.0/28", 1);
    options.keep = Some(CheckpointOptions { path: path.clone(), ..CheckpointOptions::default() });
    options.rate = "1".parse().expect("a rate");
    let mut page = Page { patience: Some(2), ..Page::default() };
    let first = ScanSession::open(options.clone(), json(&seen), None, &mut page).expect("a session");
    let seed = first.seed();
    let ending = first.run(&mut page).expect("a scan");
    let finished = ending.account.counts.finished();
    assert!(ending.interrupted && finished < 16, "{ending:?}");
    assert_eq!(page.kept.as_ref(), Some(&path));

    options.rate = ScanRate::Max;
    let mut page = Page::default();
    let second = ScanSession::open(options, json(&seen), None, &mut page).expect("its file");
    assert_eq!((second.seed(), second.plan().remaining()), (seed, 16 - finished));
    let ending = second.run(&mut page).expect("the rest");
    assert_eq!((ending.account.counts.finished(), ending.account.counts.refused), (16, 16));
    assert!(!path.exists(), "nothing is left to do");
    let mut asked: Vec<_> = seen.lines().iter().map(|line| line["dest_ip"].to_string()).collect();
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), 16, "each once");
    assert_eq!(seen.lines().len(), 16, "each once");
}

#[test]
fn what_cannot_begin_says_whose_fault_it_is() {
    let seen = Shared::default();
    let open = |options| ScanSession::open(options, json(&seen), None, &mut Page::default()).map(drop);
    let mut nobody = options("192.0.2.1", 1);
    nobody.targets.words.clear();
    assert!(matches!(open(nobody), Err(SessionError::NoTargets)));
    let error = open(options("192.0.2.1/99", 1)).expect_err("no such network");
    assert!(matches!(error, SessionError::Targets(_)) && !error.is_of_machine());
}

/// A store that keeps events as JSON, and says that it lost seven findings.
struct LossyStore(OutputWriter, Shared);

impl std::fmt::Debug for LossyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LossyStore")
    }
}

impl ResultStore for LossyStore {
    fn prepare(&self) -> Result<(), StoreFault> {
        Ok(())
    }

    fn start(&mut self, _outputs: Vec<ChannelHandle>) -> Result<ResultFeed, StoreFault> {
        Ok(ResultFeed { handle: self.0.handle(), known: Arc::default() })
    }

    fn finish(self: Box<Self>) -> u64 {
        self.0.finish();
        assert_eq!(self.1.lines().len(), 1, "the closed port was never a server's");
        7
    }
}

#[test]
fn a_store_gets_open_ports_and_its_losses_are_reported() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let open = server.local_addr().expect("bound").port();
    let closed =
        TcpListener::bind("127.0.0.1:0").and_then(|other| other.local_addr()).expect("a port").port();
    let kept = Shared::default();
    let writer = json(&kept).start(false).expect("a writer");
    let store = Some(Box::new(LossyStore(writer, kept)) as Box<dyn ResultStore>);
    let options = ScanOptions { ports: PortSet::from_iter([open, closed]), ..options("127.0.0.1", open) };
    let mut page = Page::default();
    let session = ScanSession::open(options, json(&Shared::default()), store, &mut page).expect("a session");
    let ending = session.run(&mut page).expect("a scan");
    assert_eq!(ending.unkept, 7);
}
