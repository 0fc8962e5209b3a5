//! The writer against destinations that take everything, nothing, too little, and too slowly.

use std::io::{Read as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Mutex;

use super::super::channel::channel;
use super::*;
use crate::event::EventSink as _;
use crate::event::{EventKind, EventSource, StatsFacts, Timestamp};
use crossbeam_channel::bounded;

fn event(number: u64) -> Event {
    let facts = StatsFacts { counters: vec![("n", number)], ..StatsFacts::default() };
    Event {
        timestamp: Timestamp::default(),
        source: EventSource::Guard,
        flow: None,
        kind: EventKind::Stats(Box::new(facts)),
    }
}

/// One number a line, between `begin` and `end`.
struct Numbers;

impl OutputFormat for Numbers {
    fn begin(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        writeln!(out, "begin")
    }

    fn event(&mut self, event: &Event, out: &mut Vec<u8>) -> io::Result<()> {
        let EventKind::Stats(facts) = &event.kind else { return Err(io::ErrorKind::InvalidData.into()) };
        writeln!(out, "{}", facts.counters[0].1)
    }

    fn end(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        writeln!(out, "end")
    }
}

type Step = Box<dyn FnMut(&[u8]) -> io::Result<usize> + Send>;

struct Scripted(Step);

impl Write for Scripted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn scripted(step: impl FnMut(&[u8]) -> io::Result<usize> + Send + 'static) -> OutputDestination {
    OutputDestination::Other(Box::new(Scripted(Box::new(step))))
}

fn lines(numbers: impl IntoIterator<Item = u64>) -> String {
    let numbers = numbers.into_iter().map(|number| format!("{number}\n"));
    format!("begin\n{}end\n", numbers.collect::<String>())
}

#[test]
fn everything_is_written_in_order_and_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events");
    let writer =
        OutputWriter::start(WriterConfig::WAITING, OutputDestination::File(path.clone()), Box::new(Numbers))
            .unwrap();
    let mut handle = writer.handle();
    (0..20_000).for_each(|number| handle.emit(event(number)));
    handle.emit_groups(vec![(20_000..20_003).map(event).collect()]);
    let report = writer.finish();
    assert_eq!((report.written, report.overflowed, report.failed), (20_003, 0, 0));
    assert_eq!(std::fs::read_to_string(path).unwrap(), lines(0..20_003));
}

#[test]
fn a_counting_handle_never_waits_and_counts_what_it_loses() {
    let (release, gate) = bounded::<()>(0);
    let written = Arc::new(Mutex::new(Vec::new()));
    let copy = Arc::clone(&written);
    let destination = scripted(move |bytes| {
        // Held until the test lets go: a disk that hangs.
        let _ = gate.recv();
        copy.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    });
    let config = WriterConfig { capacity: 4, ..WriterConfig::COUNTING };
    let writer = OutputWriter::start(config, destination, Box::new(Numbers)).unwrap();
    let mut handle = writer.handle();
    let total = 100_000;
    (0..total).for_each(|number| handle.emit(event(number)));
    assert!(handle.lost() > 0, "a channel of four cannot hold {total} events");
    drop(release);
    let report = writer.finish();
    assert_eq!(report.written + report.overflowed, total);
    let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
    assert_eq!(text.lines().count() as u64, report.written + 2);
}

#[test]
fn a_reader_that_went_away_is_not_an_error() {
    let writer = OutputWriter::start(
        WriterConfig::WAITING,
        scripted(|_| Err(io::ErrorKind::BrokenPipe.into())),
        Box::new(Numbers),
    )
    .unwrap();
    let mut handle = writer.handle();
    (0..10).for_each(|number| handle.emit(event(number)));
    let report = writer.finish();
    assert!(handle.is_closed());
    assert_eq!((report.failed, report.first_error.is_none()), (0, true));
}

#[test]
fn a_full_disk_is_counted_and_the_next_line_is_whole_again() {
    let text = Arc::new(Mutex::new(Vec::new()));
    let (copy, mut calls) = (Arc::clone(&text), 0);
    let destination = scripted(move |bytes| {
        calls += 1;
        match calls {
            // The disk fills up within the first batch, and has room again afterwards.
            1 => {
                copy.lock().unwrap().extend_from_slice(&bytes[..9]);
                Ok(9)
            }
            2 => Err(io::ErrorKind::StorageFull.into()),
            _ => {
                copy.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
        }
    });
    let config = WriterConfig { capacity: 100_000, ..WriterConfig::WAITING };
    let writer = OutputWriter::start(config, destination, Box::new(Numbers)).unwrap();
    let mut handle = writer.handle();
    (10_000..40_000).for_each(|number| handle.emit(event(number)));
    let report = writer.finish();
    assert!(report.failed > 0 && report.written > 0);
    assert_eq!(report.failed + report.written, 30_000);
    let whole = text.lock().unwrap().iter().filter(|octet| **octet == b'\n').count() as u64;
    // Besides them there are the beginning, the end and the line that was cut.
    assert_eq!(report.written, whole - 3, "what was whole before the disk was full counts as written");
    assert_eq!(report.first_error.unwrap().kind(), io::ErrorKind::StorageFull);
    let text = String::from_utf8(text.lock().unwrap().clone()).unwrap();
    let mut lines = text.lines();
    assert_eq!((lines.next(), lines.next()), (Some("begin"), Some("100")));
    assert!(lines.all(|line| line == "end" || line.len() == 5), "no torn or empty line");
}

#[test]
fn a_log_is_opened_again_after_it_was_moved_away() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("log"), folder.path().join("log.1"));
    let writer =
        OutputWriter::start(WriterConfig::COUNTING, OutputDestination::Log(path.clone()), Box::new(Numbers))
            .unwrap();
    let mut handle = writer.handle();
    handle.emit(event(1));
    while handle.written() < 1 {
        std::thread::yield_now();
    }
    std::fs::rename(&path, &moved).unwrap();
    handle.reopen();
    while !path.exists() {
        std::thread::yield_now();
    }
    handle.emit(event(2));
    writer.finish();
    assert_eq!(std::fs::read_to_string(moved).unwrap(), "begin\n1\n");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "2\nend\n");
}

#[test]
fn a_log_that_could_not_be_opened_again_is_as_soon_as_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("log"), folder.path().join("log.1"));
    let writer =
        OutputWriter::start(WriterConfig::COUNTING, OutputDestination::Log(path.clone()), Box::new(Numbers))
            .unwrap();
    let mut handle = writer.handle();
    let emit = |handle: &mut ChannelHandle, number| {
        handle.emit(event(number));
        while handle.written() < number {
            std::thread::yield_now();
        }
    };
    emit(&mut handle, 1);
    std::fs::rename(&path, &moved).unwrap();
    // Something that can't be opened for writing.
    std::fs::create_dir(&path).unwrap();
    handle.reopen();
    emit(&mut handle, 2);
    // It has been asked for behind the second event, at the latest.
    emit(&mut handle, 3);
    assert_eq!(std::fs::read_to_string(&moved).unwrap(), "begin\n1\n2\n3\n", "nothing is lost");
    std::fs::remove_dir(&path).unwrap();
    emit(&mut handle, 4);
    let report = writer.finish();
    assert_eq!(report.first_error.unwrap().kind(), io::ErrorKind::IsADirectory, "it was tried");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "4\nend\n");
}

#[test]
fn an_event_does_not_wait_for_the_next() {
    let (mut reader, write_end) = std::io::pipe().unwrap();
    let writer = OutputWriter::start(
        WriterConfig::WAITING,
        OutputDestination::Other(Box::new(write_end)),
        Box::new(Numbers),
    )
    .unwrap();
    writer.handle().emit(event(7));
    // Ends only when the bytes come without another event or the end of the run behind them.
    let mut bytes = [0; 8];
    reader.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"begin\n7\n");
    writer.finish();
}

#[test]
fn a_destination_that_cannot_be_opened_is_an_error_at_once() {
    let destination = OutputDestination::File("/nonexistent/events".into());
    let error = OutputWriter::start(WriterConfig::WAITING, destination, Box::new(Numbers)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_reader_that_stalled_does_not_hold_up_the_end() {
    let (until, stalled) = std::sync::mpsc::channel::<()>();
    let destination = scripted(move |bytes| {
        // Till the test is over.
        let _ = stalled.recv();
        Ok(bytes.len())
    });
    let writer = OutputWriter::start(WriterConfig::BATCHES, destination, Box::new(Numbers)).unwrap();
    writer.handle().emit(event(1));
    assert_eq!(writer.finish_within(Duration::from_millis(50)).stuck, 1);
    drop(until);
}

fn fifo(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    path
}

/// Emits events until the FIFO's reader gets one, and gives it.
fn next_line(
    handle: &mut ChannelHandle,
    reader: &mut (impl std::io::BufRead + Send),
    numbers: &mut std::ops::RangeFrom<u64>,
) -> u64 {
    std::thread::scope(|scope| {
        let line = scope.spawn(|| {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            line
        });
        while !line.is_finished() {
            handle.emit(event(numbers.next().unwrap()));
            std::thread::sleep(Duration::from_millis(20));
        }
        line.join().unwrap().trim_end().parse().unwrap()
    })
}

#[test]
fn a_fifo_blocks_nobody_and_its_reader_may_come_late_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    // Behind a link, as a log's name often is.
    let path = folder.path().join("link");
    std::os::unix::fs::symlink(fifo(folder.path()), &path).unwrap();
    // Nobody reads it: start and events go on, and what is lost is counted.
    let writer =
        OutputWriter::start(WriterConfig::COUNTING, OutputDestination::Log(path.clone()), Box::new(Lines))
            .unwrap();
    let mut handle = writer.handle();
    handle.emit(event(1));
    while handle.lost() < 1 {
        std::thread::yield_now();
    }
    let mut numbers = 2..;
    for _ in 0..2 {
        let mut reader = std::io::BufReader::new(std::fs::File::open(&path).unwrap());
        let first = next_line(&mut handle, &mut reader, &mut numbers);
        assert!(first >= 2);
    }
    let before = handle.lost();
    handle.emit(event(numbers.next().unwrap()));
    while handle.lost() == before {
        handle.emit(event(numbers.next().unwrap()));
        std::thread::sleep(Duration::from_millis(20));
    }
    let emitted = numbers.next().unwrap() - 1;
    let report = writer.finish();
    assert_eq!(report.written + report.failed + report.overflowed, emitted, "{report:?}");
    assert!(report.written >= 2 && !handle.is_closed());
}

#[test]
fn a_fifos_reader_is_waited_for_where_nothing_may_be_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = fifo(folder.path());
    let text = std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let destination = OutputDestination::File(path.clone());
            let writer = OutputWriter::start(WriterConfig::WAITING, destination, Box::new(Numbers)).unwrap();
            let mut handle = writer.handle();
            (0..100).for_each(|number| handle.emit(event(number)));
            writer.finish()
        });
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(run.join().unwrap().written, 100);
        text
    });
    assert_eq!(text, lines(0..100));
}

/// Numbers without anything before or behind them.
struct Lines;

impl OutputFormat for Lines {
    fn event(&mut self, event: &Event, out: &mut Vec<u8>) -> io::Result<()> {
        Numbers.event(event, out)
    }
}

#[test]
fn the_loss_of_a_pipes_reader_is_counted_where_the_run_goes_on() {
    let destination = scripted(|_| Err(io::ErrorKind::BrokenPipe.into()));
    let writer = OutputWriter::start(WriterConfig::COUNTING, destination, Box::new(Numbers)).unwrap();
    let mut handle = writer.handle();
    (0..10).for_each(|number| handle.emit(event(number)));
    let report = writer.finish();
    assert_eq!((report.failed, handle.is_closed()), (10, false));
}

#[test]
fn the_channel_is_bounded_in_octets_too() {
    let (release, gate) = bounded::<()>(0);
    let destination = scripted(move |bytes| {
        let _ = gate.recv();
        Ok(bytes.len())
    });
    let config = WriterConfig { octets: 1000, ..WriterConfig::COUNTING };
    let writer = OutputWriter::start(config, destination, Box::new(Numbers)).unwrap();
    let mut handle = writer.handle();
    let big = || {
        let facts = StatsFacts { counters: vec![("n", 1); 1000], ..StatsFacts::default() };
        Event { kind: EventKind::Stats(Box::new(facts)), ..event(0) }
    };
    assert!(big().weight() > 16_000);
    (0..8000).for_each(|_| handle.emit(big()));
    assert!(handle.lost() > 0, "an octet limit of 1,000 cannot hold them");
    drop(release);
    let report = writer.finish();
    assert_eq!(report.written + report.overflowed, 8000);
}

#[test]
fn files_are_for_the_owner_and_planted_links_are_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, target) = (folder.path().join("events"), folder.path().join("target"));
    OutputWriter::start(WriterConfig::WAITING, OutputDestination::Log(path.clone()), Box::new(Lines))
        .unwrap()
        .finish();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o137, 0, "{mode:o}");
    std::fs::write(&target, "mine").unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let start =
        || OutputWriter::start(WriterConfig::WAITING, OutputDestination::File(link.clone()), Box::new(Lines));
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    let error = start().unwrap_err().to_string();
    assert!(error.contains("link: a symbolic link in a folder"), "{error}");
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "mine");
    // In a folder of one's own a link is as good as any.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    start().unwrap().finish();
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "");
}

#[test]
fn a_socket_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let error = OutputWriter::start(WriterConfig::COUNTING, OutputDestination::Log(path), Box::new(Lines))
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("socket: a socket; name a file or a FIFO"), "{error}");
}

/// A consumer that is no writer: it keeps what it takes, and must have all of it.
struct Keeper(Arc<Mutex<Vec<u64>>>);

impl EventConsumer for Keeper {
    fn take(&mut self, event: &Event) {
        let EventKind::Stats(facts) = &event.kind else { return };
        self.0.lock().unwrap().push(facts.counters[0].1);
    }

    fn end(&mut self) {}
}

#[test]
fn a_consumer_that_must_not_lose_gets_everything_in_order() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let config = WriterConfig { capacity: 2, octets: 500, ..WriterConfig::WAITING };
    let feed = ConsumerThread::start("keeper", channel(config), Keeper(Arc::clone(&kept))).unwrap();
    let mut handle = feed.handle();
    (0..5000).for_each(|number| handle.emit(event(number)));
    feed.finish();
    assert_eq!(*kept.lock().unwrap(), (0..5000).collect::<Vec<_>>());
    assert_eq!(handle.lost(), 0);
}

/// A consumer with a fault.
#[derive(Debug)]
struct Panicking;

impl EventConsumer for Panicking {
    fn take(&mut self, _: &Event) {
        // Without a report on stderr, which would look like a failed test.
        std::panic::resume_unwind(Box::new("a fault"));
    }

    fn end(&mut self) {}
}

#[test]
fn nobody_waits_for_room_that_a_panicked_consumer_will_not_make() {
    let config = WriterConfig { capacity: 100, octets: 1, ..WriterConfig::WAITING };
    let feed = ConsumerThread::start("panicking", channel(config), Panicking).unwrap();
    let mut handle = feed.handle();
    (0..1000).for_each(|number| handle.emit(event(number)));
    assert!(handle.lost() > 0, "what comes too late is counted");
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| feed.finish())).unwrap_err();
}

/// Holds everything back until the end.
struct Late(Vec<u8>);

impl OutputFormat for Late {
    fn event(&mut self, event: &Event, _: &mut Vec<u8>) -> io::Result<()> {
        Numbers.event(event, &mut self.0)
    }

    fn rest(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        let part = self.0.len().min(10_000);
        out.extend(self.0.drain(..part));
        Ok(part > 0)
    }

    fn end(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        writeln!(out, "end")
    }
}

#[test]
fn what_a_format_held_back_is_written_before_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events");
    let destination = OutputDestination::File(path.clone());
    let writer = OutputWriter::start(WriterConfig::WAITING, destination, Box::new(Late(Vec::new()))).unwrap();
    let mut handle = writer.handle();
    (0..50_000).for_each(|number| handle.emit(event(number)));
    writer.finish();
    let text = std::fs::read_to_string(path).unwrap();
    assert!(format!("begin\n{text}") == lines(0..50_000), "{} octets", text.len());
}
