//! `/proc/net/netfilter/nfnetlink_queue`: the kernel's counters of each queue.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

use crate::error::CallError;

/// The table of the calling thread's network namespace.
const TABLE: &str = "/proc/thread-self/net/netfilter/nfnetlink_queue";

/// One queue's line in the kernel's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelCounters {
    /// The queue's number.
    pub queue: u16,
    /// Netlink address of its owner.
    pub portid: u32,
    /// Packets that wait for a verdict.
    pub waiting: u64,
    /// Copy range in bytes.
    pub copy_range: u32,
    /// Packets dropped because the queue was full; fail-open passes are not counted.
    pub dropped_queue_full: u64,
    /// Packets dropped because the socket's buffer was full; fail-open passes are not counted.
    pub dropped_socket_full: u64,
    /// Identification of the last queued packet; also counts packets lost to a full socket.
    pub last_packet: u32,
}

/// The table, held open, because the process that may open it is not always the one that reads it.
static HELD: OnceLock<File> = OnceLock::new();

/// Opens the table of the calling thread's network namespace once for all threads. Then a program can
/// still read it after it has given up root: the file belongs to root, with mode 0440.
///
/// # Errors
///
/// The table cannot be opened; it does not exist before the first queue is bound.
pub fn hold_table() -> Result<(), CallError> {
    let table = File::open(TABLE).map_err(failed)?;
    // If another is held already, it is of the same kind.
    let _ = HELD.set(table);
    Ok(())
}

fn failed(source: io::Error) -> CallError {
    CallError { call: "read(/proc/net/netfilter/nfnetlink_queue)", source }
}

/// Returns the table's current text.
fn text() -> io::Result<String> {
    let opened;
    let table = match HELD.get() {
        Some(held) => held,
        None => {
            opened = File::open(TABLE)?;
            &opened
        }
    };
    let mut text = Vec::new();
    let mut part = [0; 4096];
    loop {
        // By position, since all threads share the held file's own.
        match table.read_at(&mut part, text.len() as u64)? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            length => text.extend_from_slice(part.get(..length).unwrap_or_default()),
        }
    }
}

impl KernelCounters {
    /// Reads the counters of `queue`; `None` if nothing is bound to it.
    ///
    /// # Errors
    ///
    /// The table cannot be read, which requires root.
    pub fn of(queue: u16) -> Result<Option<Self>, CallError> {
        Ok(Self::all()?.into_iter().find(|counters| counters.queue == queue))
    }

    /// Reads the counters of every bound queue in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// The table cannot be read, which requires root.
    pub fn all() -> Result<Vec<Self>, CallError> {
        match text() {
            Ok(table) => Ok(table.lines().filter_map(Self::parse).collect()),
            // The file is created by the kernel's nfnetlink_queue module.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(source) => Err(failed(source)),
        }
    }

    /// Reads one line: number, portid, waiting, copy mode, copy range, dropped for a full queue,
    /// dropped for a full socket, last identification, 1.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_whitespace();
        let queue = fields.next()?.parse().ok()?;
        let portid = fields.next()?.parse().ok()?;
        let waiting = fields.next()?.parse().ok()?;
        let _copy_mode = fields.next()?;
        let copy_range = fields.next()?.parse().ok()?;
        let dropped_queue_full = fields.next()?.parse().ok()?;
        let dropped_socket_full = fields.next()?.parse().ok()?;
        let last_packet = fields.next()?.parse().ok()?;
        Some(Self {
            queue,
            portid,
            waiting,
            copy_range,
            dropped_queue_full,
            dropped_socket_full,
            last_packet,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::KernelCounters;

    #[test]
    fn a_line_of_the_kernels_table_is_read() {
        let line = "    7  31337    12 2   512     3     4     9001  1";
        let expected = KernelCounters {
            queue: 7,
            portid: 31337,
            waiting: 12,
            copy_range: 512,
            dropped_queue_full: 3,
            dropped_socket_full: 4,
            last_packet: 9001,
        };
        assert_eq!(KernelCounters::parse(line), Some(expected));
        assert_eq!(KernelCounters::parse("7 31337 12"), None);
    }
}
