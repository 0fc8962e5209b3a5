//! `/proc/net/netfilter/nfnetlink_queue`: what the kernel counts for each queue.

use std::{fs, io};

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
    /// Copy range in octets.
    pub copy_range: u32,
    /// Packets dropped because the queue was full; fail-open passes are not counted.
    pub dropped_queue_full: u64,
    /// Packets dropped because the socket's buffer was full; fail-open passes are not counted.
    pub dropped_socket_full: u64,
    /// Identification of the last packet queued; counts those lost to a full socket too.
    pub last_packet: u32,
}

impl KernelCounters {
    /// Reads the counters of `queue`; `None` where nobody listens on it.
    ///
    /// # Errors
    ///
    /// When the table cannot be read, which takes root.
    pub fn of(queue: u16) -> Result<Option<Self>, CallError> {
        Ok(Self::all()?.into_iter().find(|counters| counters.queue == queue))
    }

    /// Reads the counters of every bound queue in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// When the table cannot be read, which takes root.
    pub fn all() -> Result<Vec<Self>, CallError> {
        match fs::read_to_string(TABLE) {
            Ok(table) => Ok(table.lines().filter_map(Self::parse).collect()),
            // The file appears with the kernel's nfnetlink_queue module.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(source) => Err(CallError { call: "read(/proc/net/netfilter/nfnetlink_queue)", source }),
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
