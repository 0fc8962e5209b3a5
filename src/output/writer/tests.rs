//! The writer against destinations that take everything, nothing, too little, and too slowly.

use std::io::Read as _;
use std::sync::Mutex;

use super::*;
use crate::event::{EventKind, Source, StatsFacts, Timestamp};

fn event(number: u64) -> Event {
    let facts = StatsFacts { counters: vec![("n", number)], ..StatsFacts::default() };
    Event {
        timestamp: Timestamp::default(),
        source: Source::Guard,
        flow: None,
        kind: EventKind::Stats(Box::new(facts)),
    }
}

/// One number a line, between `begin` and `end`.
struct Numbers;

impl Format for Numbers {
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

fn scripted(step: impl FnMut(&[u8]) -> io::Result<usize> + Send + 'static) -> Destination {
    Destination::Other(Box::new(Scripted(Box::new(step))))
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
        Writer::start(WriterConfig::WAITING, Destination::File(path.clone()), Box::new(Numbers)).unwrap();
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
    let config = WriterConfig { capacity: 4, overflow: Overflow::Count };
    let writer = Writer::start(config, destination, Box::new(Numbers)).unwrap();
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
    let writer = Writer::start(
        WriterConfig::WAITING,
        scripted(|_| Err(io::ErrorKind::BrokenPipe.into())),
        Box::new(Numbers),
    )
    .unwrap();
    let mut handle = writer.handle();
    (0..10).for_each(|number| handle.emit(event(number)));
    let report = writer.finish();
    assert!(report.closed && handle.is_closed());
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
    let config = WriterConfig { capacity: 100_000, overflow: Overflow::Wait };
    let writer = Writer::start(config, destination, Box::new(Numbers)).unwrap();
    let mut handle = writer.handle();
    (10_000..40_000).for_each(|number| handle.emit(event(number)));
    let report = writer.finish();
    assert!(report.failed > 0 && report.written > 0);
    assert_eq!(report.failed + report.written, 30_000);
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
        Writer::start(WriterConfig::COUNTING, Destination::Log(path.clone()), Box::new(Numbers)).unwrap();
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
fn an_event_does_not_wait_for_the_next() {
    let (mut reader, write_end) = std::io::pipe().unwrap();
    let writer =
        Writer::start(WriterConfig::WAITING, Destination::Other(Box::new(write_end)), Box::new(Numbers))
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
    let destination = Destination::File("/nonexistent/events".into());
    let error = Writer::start(WriterConfig::WAITING, destination, Box::new(Numbers)).unwrap_err();
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
    let writer = Writer::start(WriterConfig::BATCHES, destination, Box::new(Numbers)).unwrap();
    writer.handle().emit(event(1));
    assert!(writer.finish_within(Duration::from_millis(50)).is_none());
    drop(until);
}
