//! Programs that listen on queues: the guards among them, and their process state.
//!
//! A queue belongs to a netlink socket. `/proc/net/netlink` shows the socket's inode, and `/proc/PID/fd` the
//! processes with that socket.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use bannerwall_ffi::error::CallError;
use bannerwall_ffi::queue::KernelCounters;

/// Number of `NETLINK_NETFILTER` in the protocol column.
const NETFILTER: &str = "12";

/// Program that listens on a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueListener {
    /// Running guard.
    Guard,
    /// Guard that a signal has stopped: process id.
    Stopped(u32),
    /// Other program: process id and name.
    Foreign(u32, String),
    /// Process hidden from this one.
    Hidden,
}

impl QueueListener {
    /// True unless the queue's packets certainly reach no guard.
    pub const fn may_judge(&self) -> bool {
        matches!(self, Self::Guard | Self::Hidden)
    }
}

impl fmt::Display for QueueListener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guard => formatter.write_str("a guard listens"),
            Self::Stopped(id) => {
                write!(
                    formatter,
                    "its guard, process {id}, is stopped: packets wait (to continue it: kill -CONT {id})"
                )
            }
            Self::Foreign(id, name) => {
                write!(
                    formatter,
                    "process {id} (`{name}`) listens and is not a guard: no packet is inspected"
                )
            }
            Self::Hidden => formatter.write_str("its listener is hidden from this user (run as root)"),
        }
    }
}

/// Returns the listeners of all bound queues in the calling thread's network namespace.
///
/// # Errors
///
/// The kernel's table of queues cannot be read.
pub fn listeners() -> Result<BTreeMap<u16, QueueListener>, CallError> {
    let queues = KernelCounters::all()?;
    if queues.is_empty() {
        return Ok(BTreeMap::new());
    }
    // By `thread-self`: the table is that of a network namespace, and a thread may have another one than its
    // process.
    let table = fs::read_to_string("/proc/thread-self/net/netlink").unwrap_or_default();
    let sockets: Vec<(u16, Option<String>)> =
        queues.iter().map(|queue| (queue.queue, inode(&table, queue.portid))).collect();
    let mut holders: BTreeMap<String, Vec<SocketOwner>> = BTreeMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let held = held_by(&process.path(), &sockets);
        for inode in held {
            holders.entry(inode).or_default().extend(SocketOwner::read(&process.path()));
        }
    }
    // By name: that of another user's process is readable, unlike its executable.
    let own = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let listener = |inode: Option<String>| {
        let of = inode.and_then(|inode| holders.get(&inode));
        judge(of.map_or(&[][..], Vec::as_slice), own.trim_end())
    };
    Ok(sockets.into_iter().map(|(queue, inode)| (queue, listener(inode))).collect())
}

/// Returns the inode of the netfilter socket with this port id.
fn inode(table: &str, address: u32) -> Option<String> {
    table.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let is_it = words.next()? == NETFILTER && words.next()?.parse() == Ok(address);
        words.last().filter(|_| is_it).map(str::to_owned)
    })
}

/// Returns the sockets in the list that a process has open.
fn held_by(process: &Path, sockets: &[(u16, Option<String>)]) -> Vec<String> {
    let links = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let open: Vec<_> = links.filter_map(|link| fs::read_link(link.path()).ok()).collect();
    let is_open = |inode: &&String| open.iter().any(|link| link.as_os_str() == &*format!("socket:[{inode}]"));
    sockets.iter().filter_map(|(_, inode)| inode.as_ref()).filter(is_open).cloned().collect()
}

/// Process with an open socket.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SocketOwner {
    id: u32,
    name: String,
    is_stopped: bool,
}

impl SocketOwner {
    fn read(folder: &Path) -> Option<Self> {
        let id = folder.file_name()?.to_str()?.parse().ok()?;
        let status = fs::read_to_string(folder.join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let is_stopped = field("State:").is_some_and(|state| state.starts_with('T'));
        Some(Self { id, name: field("Name:")?.to_owned(), is_stopped })
    }
}

/// Evaluates the processes that hold a queue's socket, with `own` as the name of guards. A service manager
/// may hold the socket, too.
fn judge(holders: &[SocketOwner], own: &str) -> QueueListener {
    let mut guards = holders.iter().filter(|process| process.name == own);
    match (guards.clone().find(|guard| !guard.is_stopped), guards.next(), holders.first()) {
        (Some(_), _, _) => QueueListener::Guard,
        (None, Some(guard), _) => QueueListener::Stopped(guard.id),
        (None, None, Some(other)) => QueueListener::Foreign(other.id, other.name.clone()),
        (None, None, None) => QueueListener::Hidden,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_found_by_its_protocol_and_address() {
        let table = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n\
            000000001ce20b66 0   77         00000000 0        0        0     2        0        4       \n\
            000000001ce20b67 12  77         00000000 0        0        0     2        0        5       \n\
            000000001ce20b68 12  4294959103 00000040 0        0        0     2        0        6       \n";
        assert_eq!(inode(table, 77).as_deref(), Some("5"));
        assert_eq!(inode(table, 4_294_959_103).as_deref(), Some("6"));
        assert_eq!(inode(table, 4), None);
    }

    #[test]
    fn one_guard_that_runs_is_enough_and_other_programs_are_named() {
        let process = |id, name: &str, is_stopped| SocketOwner { id, name: name.to_owned(), is_stopped };
        let (manager, stopped) = (process(1, "systemd", false), process(7, "bannerwall", true));
        let judge = |holders: &[SocketOwner]| judge(holders, "bannerwall");
        assert_eq!(judge(&[]), QueueListener::Hidden);
        assert_eq!(judge(std::slice::from_ref(&manager)), QueueListener::Foreign(1, "systemd".to_owned()));
        assert_eq!(judge(&[manager.clone(), stopped.clone()]), QueueListener::Stopped(7));
        assert_eq!(judge(&[manager, stopped, process(8, "bannerwall", false)]), QueueListener::Guard);
        assert!(QueueListener::Hidden.may_judge() && !QueueListener::Stopped(7).may_judge());
    }
}
