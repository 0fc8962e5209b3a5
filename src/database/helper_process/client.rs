//! The client's side: requests connections and uses them.

use std::cell::Cell;
use std::io::{self, BufReader, IoSlice, PipeReader, PipeWriter, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
    socketpair,
};

use super::frame::{AnswerEnd, ProcessEnd, ReadAnswerError, read_answer, write_frame};
use super::setup::{ConnectionSettings, SUBCOMMAND};
use crate::database::connection::PATIENCE;
use crate::database::error::{DatabaseError, Result};
use crate::database::work::ServerWork;
use crate::diagnostics::log_line;
use crate::helper_process;

/// Extra time for the process after the server's time limit.
const LONGER: Duration = Duration::from_secs(5);

/// Time limit of the wait for the reason of a process's end.
const SOON: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// The process that starts a helper for each connection; dropping this value ends it.
#[derive(Debug)]
pub struct ConnectionStarter {
    /// Name of the server, for messages.
    server: String,
    /// A datagram requests a connection. It carries the other end of its stream, and the pipe that
    /// reports the end of its process.
    control: Option<OwnedFd>,
    child: Mutex<Child>,
}

impl ConnectionStarter {
    /// Starts the process, which drops all rights that it does not need; messages show `server`.
    ///
    /// # Errors
    /// This program can't be started again.
    pub(crate) fn start(server: String, setup: &ConnectionSettings) -> io::Result<Self> {
        let (control, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let child = helper_process::command(SUBCOMMAND).stdin(theirs).stdout(Stdio::null()).spawn()?;
        let starter = Self { server, control: Some(control), child: Mutex::new(child) };
        starter.send(&serde_json::to_vec(setup)?, None)?;
        Ok(starter)
    }

    fn send(&self, word: &[u8], with: Option<(&UnixStream, &PipeWriter)>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = with.map(|(stream, end)| [stream.as_fd(), end.as_fd()]);
        if let Some(descriptors) = &descriptors {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        // A starter that does not read must not block the caller.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let control = self.control.as_ref().ok_or_else(gone)?;
        let sent = sendmsg(control, &[IoSlice::new(word)], &mut ancillary, flags);
        sent.map(drop).map_err(|error| match error {
            rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET => gone(),
            other => other.into(),
        })
    }

    /// Requests a process that connects to the server.
    ///
    /// # Errors
    /// The error of the process, or none can be started.
    pub(crate) fn connect(&self) -> Result<ProcessConnection> {
        let (stream, theirs) = UnixStream::pair()?;
        let (end, reporter) = io::pipe()?;
        stream.set_read_timeout(Some(PATIENCE + LONGER))?;
        stream.set_write_timeout(Some(PATIENCE + LONGER))?;
        self.send(b"connect", Some((&theirs, &reporter)))?;
        // Otherwise their closing would not be noticed.
        drop((theirs, reporter));
        let server = self.server.clone();
        let connection = ProcessConnection { server, stream, end, is_lost: Cell::new(false) };
        connection.receive()?;
        Ok(connection)
    }
}

impl Drop for ConnectionStarter {
    fn drop(&mut self) {
        // The process ends with its requests.
        self.control = None;
        let _ = self.child.lock().unwrap_or_else(PoisonError::into_inner).wait();
    }
}

fn gone() -> io::Error {
    io::Error::other("the process that starts connections to the server has ended: restart to use it again")
}

/// A connection to a server by a process of its own, which ends with this value.
pub(crate) struct ProcessConnection {
    server: String,
    stream: UnixStream,
    /// The starter writes the process's end into it.
    end: PipeReader,
    is_lost: Cell<bool>,
}

impl ProcessConnection {
    /// True if the connection is unusable.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.get()
    }

    /// Returns the socket that interrupts a query from another thread, and ends the connection.
    pub(crate) fn interrupter(&self) -> Option<UnixStream> {
        self.stream.try_clone().ok()
    }

    /// Has the server work; the rows of its answer, and how many it changed.
    pub(crate) fn run(&self, work: &ServerWork<'_>) -> Result<(Vec<u8>, u64)> {
        if self.is_lost.get() {
            return Err(DatabaseError::Silent);
        }
        let frame = postcard::to_allocvec(work).map_err(io::Error::other)?;
        match write_frame(&mut &self.stream, None, &frame).and_then(|()| (&self.stream).flush()) {
            Ok(()) => self.receive(),
            Err(error) => Err(self.lose(error.into())),
        }
    }

    fn receive(&self) -> Result<(Vec<u8>, u64)> {
        // Nothing comes behind an answer until something else is asked.
        match read_answer(&mut BufReader::new(&self.stream)) {
            Ok((rows, AnswerEnd { outcome, is_lost })) => {
                self.is_lost.set(is_lost);
                Ok((rows, outcome?))
            }
            Err(unread) => Err(self.lose(unread)),
        }
    }

    /// Gives the process up; why.
    fn lose(&self, unread: ReadAnswerError) -> DatabaseError {
        self.is_lost.set(true);
        // It may have ended already.
        let _ = self.stream.shutdown(Shutdown::Both);
        match unread {
            ReadAnswerError::Violation(violation) => violation.into(),
            ReadAnswerError::Garbled => DatabaseError::Ended("it said what has no meaning".to_owned()),
            ReadAnswerError::System(error) if error.kind() == io::ErrorKind::WouldBlock => {
                DatabaseError::Silent
            }
            ReadAnswerError::System(error) => {
                let end = self.end();
                // As it ends where a question is interrupted.
                if !end.as_ref().is_some_and(ProcessEnd::is_clean) {
                    let end = end.as_ref().map_or_else(|| error.to_string(), ToString::to_string);
                    log_line(format_args!(
                        "bannerwall: {}: the process that speaks to the server has ended: {end}; the next connection starts \
                         another one",
                        self.server
                    ));
                }
                DatabaseError::Ended(end.map_or_else(|| error.to_string(), |end| end.to_string()))
            }
        }
    }

    /// Returns the end of the process, if it is reported soon.
    fn end(&self) -> Option<ProcessEnd> {
        let mut polled = [PollFd::new(&self.end, PollFlags::IN)];
        let mut end = [0; ProcessEnd::LONGEST];
        let count = match poll(&mut polled, Some(&SOON)) {
            Ok(1..) => (&self.end).read(&mut end).ok()?,
            _ => return None,
        };
        postcard::from_bytes(end.get(..count)?).ok()
    }
}
