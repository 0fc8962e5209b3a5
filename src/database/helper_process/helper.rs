//! The starter of helper processes, and these processes.

use std::io::{self, BufReader, BufWriter, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bannerwall_ffi::process::fork;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, WaitId, WaitIdOptions, pidfd_open, setrlimit, waitid,
};
use tokio_postgres::Config;

use super::frame::{AnswerEnd, END, HelperFault, ProcessEnd, ROW, read_body, read_length, write_frame};
use super::setup::ConnectionSettings;
use crate::confinement::Confinement;
use crate::database::connection::{DirectConnection, QueryCanceller};
use crate::database::tls::PostgresTls;
use crate::database::url;
use crate::database::values::SqlValue;
use crate::diagnostics::log_line;
use crate::helper_process;
use crate::privileges::give_up_everything;

/// Name of the processes in lists.
const NAME: &std::ffi::CStr = c"bannerwall-db";

/// Number of bytes of memory that a process may use, including its threads' stacks. An answer has at most
/// 40 MiB, and exists up to three times while its buffer grows.
const MEMORY: u64 = 192 << 20;

/// Largest size of the first message in bytes: a URL and a password.
const SETUP: usize = 64 << 10;

/// Pause before a starter that has died is started again, because it may die at once.
const AGAIN: Duration = Duration::from_secs(1);

/// Time limit for cancelling a query whose result is not needed any more.
const CANCELLING: Duration = Duration::from_secs(2);

/// Runs `bannerwall database-connections`: makes connections on request until stdin ends.
///
/// # Errors
/// An invalid request, or a call that failed.
pub(crate) fn serve() -> io::Result<()> {
    helper_process::begin(NAME)?;
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    let mut word = vec![0; SETUP];
    let Some((count, _)) = receive(&control, &mut word)? else { return Ok(()) };
    let setup: ConnectionSettings = serde_json::from_slice(word.get(..count).unwrap_or_default())?;
    drop(word);
    // Only root may be able to read the files of certificates.
    let password = setup.password.map(String::from_utf8).transpose().map_err(io::Error::other)?;
    let how = url::connect_settings(&setup.url, password).map_err(io::Error::other)?;
    give_up_everything(setup.user)?;
    setrlimit(Resource::Data, Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) })?;
    confinement().forking().apply_or_warn(true);
    if !become_starter()? {
        return Ok(());
    }
    let stream = start_connections(&control)?;
    // Only the starter reads requests.
    drop(control);
    stream.map_or(Ok(()), |stream| serve_connection(&stream, &how))
}

fn confinement() -> Confinement {
    Confinement::default().finding_servers()
}

/// Forks the starter, and another one if it dies. Returns true in the starter, and false in its parent once
/// the guard has gone.
fn become_starter() -> io::Result<bool> {
    loop {
        let Some(number) = fork().map_err(io::Error::other)? else { return Ok(true) };
        let number = Pid::from_raw(number).ok_or(io::ErrorKind::InvalidData)?;
        let end = loop {
            match waitid(WaitId::Pid(number), WaitIdOptions::EXITED) {
                Err(rustix::io::Errno::INTR) => {}
                other => break ProcessEnd::from(other?),
            }
        };
        if end.is_clean() {
            return Ok(false);
        }
        log_line(format_args!(
            "bannerwall: the process that starts connections to the server has ended: {end}; it is started again"
        ));
        std::thread::sleep(AGAIN);
    }
}

/// A running helper process.
struct RunningHelper {
    process: OwnedFd,
    /// The pipe for its [`ProcessEnd`].
    end: OwnedFd,
}

/// Starts a process for each request. In that process, it returns the stream to serve; in the starter, it
/// returns none once requests have ended.
fn start_connections(control: &OwnedFd) -> io::Result<Option<UnixStream>> {
    let mut all: Vec<RunningHelper> = Vec::new();
    loop {
        let ended = {
            let mut polled = vec![PollFd::new(control, PollFlags::IN)];
            polled.extend(all.iter().map(|started| PollFd::new(&started.process, PollFlags::IN)));
            match poll(&mut polled, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            polled.iter().map(|it| !it.revents().is_empty()).collect::<Vec<_>>()
        };
        let mut ended = ended.into_iter();
        let is_asked = ended.next().unwrap_or_default();
        all.retain(|started| {
            let is_over = ended.next().unwrap_or_default();
            if is_over {
                let status = waitid(WaitId::PidFd(started.process.as_fd()), WaitIdOptions::EXITED);
                report(&started.end, &status.ok().flatten().into());
            }
            !is_over
        });
        if !is_asked {
            continue;
        }
        let Some((_, descriptors)) = receive(control, &mut [0; 16])? else { return Ok(None) };
        let Ok([stream, end]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        match fork() {
            Ok(None) => return Ok(Some(stream.into())),
            Ok(Some(number)) => {
                let number = Pid::from_raw(number).ok_or(io::ErrorKind::InvalidData)?;
                all.push(RunningHelper { process: pidfd_open(number, PidfdFlags::empty())?, end });
            }
            Err(error) => report(&end, &ProcessEnd::NotStarted(error.to_string())),
        }
    }
}

/// Reports an end to the process that the connection was for, which may have gone.
fn report(pipe: &OwnedFd, end: &ProcessEnd) {
    let _ = postcard::to_allocvec(end).map(|end| rustix::io::write(pipe, &end));
}

/// Returns a datagram's size and its descriptors; none at the end.
fn receive(control: &OwnedFd, word: &mut [u8]) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(word)];
    let received = loop {
        match recvmsg(control, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            descriptors.extend(more);
        }
    }
    Ok((received.bytes > 0).then_some((received.bytes, descriptors)))
}

/// Speaks to the server until the stream ends.
fn serve_connection(stream: &UnixStream, (config, tls): &(Config, PostgresTls)) -> io::Result<()> {
    // Stdin is the starter's channel of requests, which this process must not hold.
    rustix::stdio::dup2_stdin(stream)?;
    confinement().apply_or_warn(true);
    let watch = RequesterWatch::default();
    watch.clone().start(stream.try_clone()?)?;
    let mut out = BufWriter::new(stream);
    let connection = match DirectConnection::open(config, tls) {
        Ok(connection) => connection,
        Err(error) => return write_end(&mut out, Err(error.into()), true),
    };
    let _ = watch.canceller.set(connection.canceller());
    write_end(&mut out, Ok(0), false)?;
    let mut input = BufReader::new(stream);
    while let Some(length) = read_length(&mut input)? {
        let mut frame = Vec::new();
        read_body(&mut input, length, &mut frame)?;
        let work = postcard::from_bytes(&frame).map_err(io::Error::other)?;
        watch.is_working.store(true, Ordering::Release);
        let outcome = connection.run(&work);
        watch.is_working.store(false, Ordering::Release);
        let outcome = match outcome {
            Ok((rows, count)) => {
                rows.iter().try_for_each(|row| write_row(&mut out, row))?;
                Ok(count)
            }
            Err(error) => Err(error.into()),
        };
        write_end(&mut out, outcome, connection.is_lost())?;
    }
    Ok(())
}

fn write_row(out: &mut impl Write, row: &tokio_postgres::Row) -> io::Result<()> {
    let mut bytes = Vec::new();
    for column in 0..row.len() {
        // A value of an unknown type counts as NULL.
        let cell = row.try_get(column).unwrap_or(SqlValue::Null);
        bytes = postcard::to_extend(&cell, bytes).map_err(io::Error::other)?;
    }
    write_frame(out, Some(ROW), &bytes)
}

fn write_end(out: &mut impl Write, outcome: Result<u64, HelperFault>, is_lost: bool) -> io::Result<()> {
    let end = postcard::to_allocvec(&AnswerEnd { outcome, is_lost }).map_err(io::Error::other)?;
    write_frame(out, Some(END), &end)?;
    out.flush()
}

/// Ends the process, and the server's work for it, once its answer is not needed any more.
#[derive(Clone, Default)]
struct RequesterWatch {
    is_working: Arc<AtomicBool>,
    canceller: Arc<OnceLock<QueryCanceller>>,
}

impl RequesterWatch {
    fn start(self, stream: UnixStream) -> io::Result<()> {
        std::thread::Builder::new().name("hang-up".to_owned()).spawn(move || {
            let mut polled = [PollFd::new(&stream, PollFlags::RDHUP)];
            while poll(&mut polled, None) == Err(rustix::io::Errno::INTR) {}
            if let (true, Some(canceller)) = (self.is_working.load(Ordering::Acquire), self.canceller.get()) {
                cancel(canceller);
            }
            std::process::exit(0);
        })?;
        Ok(())
    }
}

fn cancel(canceller: &QueryCanceller) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    if let Ok(runtime) = runtime {
        // A failure does no harm: the server notices that the connection has ended.
        let _ = runtime.block_on(async { tokio::time::timeout(CANCELLING, canceller.cancel()).await });
    }
}
