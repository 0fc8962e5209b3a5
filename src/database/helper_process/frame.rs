//! Frames between a helper process and the process that uses its connection.

use std::fmt;
use std::io::{self, Read, Write};

use rustix::process::WaitIdStatus;
use serde::{Deserialize, Serialize};

use crate::database::error::{ANSWER, DatabaseError, ProtocolViolation, ServerError};
use crate::database::message_limits::BESIDE;

/// The letter of a row.
pub(super) const ROW: u8 = b'R';
/// The letter of an answer's end.
pub(super) const END: u8 = b'E';

/// The end of an answer.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AnswerEnd {
    /// Number of changed rows.
    pub(super) outcome: Result<u64, HelperFault>,
    /// True if the connection is unusable.
    pub(super) is_lost: bool,
}

/// The end of a connection's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ProcessEnd {
    /// It exited with this status.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// The kernel did not start it.
    NotStarted(String),
    Unknown,
}

impl ProcessEnd {
    /// Largest size of its encoding in bytes.
    pub(super) const LONGEST: usize = 512;

    /// True if the process was not needed any more.
    pub(super) fn is_clean(&self) -> bool {
        *self == Self::Exited(0)
    }
}

impl From<Option<WaitIdStatus>> for ProcessEnd {
    fn from(status: Option<WaitIdStatus>) -> Self {
        match status.map(|status| (status.exit_status(), status.terminating_signal())) {
            Some((Some(code), _)) => Self::Exited(code),
            Some((_, Some(signal))) => Self::Killed(signal),
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit status {code}"),
            Self::Killed(signal) => {
                let name = signal_hook::low_level::signal_name(*signal).unwrap_or("of another name");
                write!(f, "signal {signal} ({name})")
            }
            Self::NotStarted(why) => write!(f, "it cannot be started: {why}"),
            Self::Unknown => f.write_str("for an unknown reason"),
        }
    }
}

/// An error that a process reports.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HelperFault {
    Server(ServerError),
    Silent,
    Violation(ProtocolViolation),
}

impl From<DatabaseError> for HelperFault {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Postgres(error) => Self::Server(error),
            DatabaseError::Silent => Self::Silent,
            DatabaseError::Violation(violation) => Self::Violation(violation),
            other => Self::Server(ServerError {
                words: other.to_string(),
                code: None,
                is_away: other.is_unavailable(),
            }),
        }
    }
}

impl From<HelperFault> for DatabaseError {
    fn from(fault: HelperFault) -> Self {
        match fault {
            HelperFault::Server(error) => Self::Postgres(error),
            HelperFault::Silent => Self::Silent,
            HelperFault::Violation(violation) => Self::Violation(violation),
        }
    }
}

/// Writes a frame, after its letter if it has one.
pub(super) fn write_frame(out: &mut impl Write, letter: Option<u8>, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    out.write_all(letter.as_slice())?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(bytes)
}

/// Reads the length of a frame; none at the end.
pub(super) fn read_length(input: &mut impl Read) -> io::Result<Option<u32>> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Ok(()) => Ok(Some(u32::from_le_bytes(length))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Appends the body of a frame.
pub(super) fn read_body(input: &mut impl Read, length: u32, to: &mut Vec<u8>) -> io::Result<()> {
    let read = input.take(length.into()).read_to_end(to)?;
    if read == length as usize { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The reason why an answer was not read to its end.
#[derive(Debug)]
pub(super) enum ReadAnswerError {
    System(io::Error),
    Violation(ProtocolViolation),
    /// The process sent something invalid.
    Garbled,
}

impl From<io::Error> for ReadAnswerError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Reads an answer: its rows, each after its length, and its end.
pub(super) fn read_answer(input: &mut impl Read) -> Result<(Vec<u8>, AnswerEnd), ReadAnswerError> {
    let (mut rows, mut received) = (Vec::new(), 0);
    loop {
        let mut letter = [0];
        input.read_exact(&mut letter)?;
        let length = read_length(input)?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        received += u64::from(length) + BESIDE.0;
        // The process is not trusted: a hostile server may control it.
        if received > ANSWER {
            return Err(ReadAnswerError::Violation(ProtocolViolation::Answer));
        }
        match letter {
            [ROW] => {
                rows.extend(length.to_le_bytes());
                read_body(input, length, &mut rows)?;
            }
            [END] => {
                let mut end = Vec::new();
                read_body(input, length, &mut end)?;
                return postcard::from_bytes(&end)
                    .map(|end| (rows, end))
                    .map_err(|_| ReadAnswerError::Garbled);
            }
            _ => return Err(ReadAnswerError::Garbled),
        }
    }
}

/// Returns the rows of an answer.
pub(crate) fn rows(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk()?;
        let (row, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        bytes = rest;
        Some(row)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::database::values;
    use crate::database::values::{SqlParameter, SqlValue, cell_of_process as cell};
    use crate::database::work::{ServerWork, WorkKind};

    fn answer(rows: &[Vec<SqlValue<'_>>], end: &AnswerEnd) -> Vec<u8> {
        let mut out = Vec::new();
        for row in rows {
            let row: Vec<u8> = row.iter().flat_map(|cell| postcard::to_allocvec(cell).unwrap()).collect();
            write_frame(&mut out, Some(ROW), &row).unwrap();
        }
        write_frame(&mut out, Some(END), &postcard::to_allocvec(end).unwrap()).unwrap();
        out
    }

    fn done() -> AnswerEnd {
        AnswerEnd { outcome: Ok(7), is_lost: false }
    }

    #[test]
    fn work_and_answers_come_as_they_were_sent() {
        let values = values![1, "two", vec![3_u8, 0, 255], None::<i64>];
        let many: SqlParameter<'_> = [4_i64, 5].into_iter().collect();
        let before = vec![("INSERT".into(), vec![many])];
        let work = ServerWork {
            kind: WorkKind::Execute,
            before: before.into(),
            text: "SELECT".into(),
            values: values.into(),
        };
        let sent = postcard::to_allocvec(&work).unwrap();
        let read: ServerWork<'_> = postcard::from_bytes(&sent).unwrap();
        assert_eq!(format!("{read:?}"), format!("{work:?}"));

        let cells =
            vec![SqlValue::Integer(-1), SqlValue::Text("ü"), SqlValue::Null, SqlValue::Octets(&[0, 255])];
        let sent = answer(&[cells.clone(), Vec::new()], &done());
        let (bytes, end) = read_answer(&mut &*sent).unwrap();
        assert_eq!(end, done());
        let read: Vec<_> = rows(&bytes).collect();
        assert_eq!(read.len(), 2);
        for (column, expected) in cells.iter().enumerate() {
            assert_eq!(cell(read[0], column), Some(*expected));
        }
        assert_eq!((cell(read[0], 4), cell(read[1], 0)), (None, None));
    }

    #[test]
    fn an_end_is_as_short_as_it_has_to_be() {
        let longest = ProcessEnd::NotStarted("x".repeat(200));
        assert!(postcard::to_allocvec(&longest).unwrap().len() <= ProcessEnd::LONGEST);
        assert!(ProcessEnd::Exited(0).is_clean() && !ProcessEnd::Exited(1).is_clean());
        assert_eq!(ProcessEnd::Killed(9).to_string(), "signal 9 (SIGKILL)");
    }

    #[test]
    fn an_answer_without_end_is_left_before_it_fills_memory() {
        let row = answer(&[vec![SqlValue::Text("a")]], &done());
        let row = &row[..8];
        assert_eq!(row[0], ROW);
        let mut endless = io::Read::chain(&[][..], Endless(row, 0));
        assert!(matches!(
            read_answer(&mut endless),
            Err(ReadAnswerError::Violation(ProtocolViolation::Answer))
        ));
        let huge = [&[ROW][..], &u32::MAX.to_le_bytes()].concat();
        assert!(matches!(
            read_answer(&mut &*huge),
            Err(ReadAnswerError::Violation(ProtocolViolation::Answer))
        ));
    }

    /// The same bytes again and again.
    struct Endless<'a>(&'a [u8], usize);

    impl Read for Endless<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            for byte in &mut *buffer {
                *byte = self.0[self.1 % self.0.len()];
                self.1 += 1;
            }
            Ok(buffer.len())
        }
    }

    proptest! {
        #[test]
        fn whatever_a_process_says_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_answer(&mut &*bytes);
            for row in rows(&bytes) {
                for column in 0..4 {
                    let _ = cell(row, column);
                }
            }
        }
    }
}
