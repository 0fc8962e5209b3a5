//! The process that starts one for each connection, and these.

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
    Pid, PidfdFlags, Resource, Rlimit, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, setrlimit, waitid,
};
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};
use tokio_postgres::Config;

use super::super::connection::{Canceller, Connection};
use super::super::tls::Tls;
use super::{Cell, END, End, ROW, read_body, read_length, write_frame};
use crate::confinement::Confinement;
use crate::helper;
use crate::inventory::database::Place;
use crate::privileges::{User, leave_root};

/// The subcommand of such a process.
pub(crate) const SUBCOMMAND: &str = "database-connections";

/// What they are called in lists of processes.
const NAME: &std::ffi::CStr = c"bannerwall-db";

/// How a process ends that is not needed any more.
pub(super) const WELL: &str = "exit status 0";

/// Bytes of memory that a process may write, stacks of its threads included. An answer has 40 MiB at most,
/// and is held up to three times while its buffer grows.
const MEMORY: u64 = 192 << 20;

/// Bytes of the first word: a URL and a password.
const SETUP: usize = 64 << 10;

/// Time for which a server is asked to leave a question that nobody waits for.
const CANCELLING: Duration = Duration::from_secs(2);

/// What connections are made with.
#[derive(Serialize, Deserialize)]
pub(in crate::inventory::database) struct Setup {
    pub(in crate::inventory::database) url: String,
    /// Of its user; not to be shown on a command line.
    pub(in crate::inventory::database) password: Option<Vec<u8>>,
    /// The number of the user that the process becomes; if there is none, it leaves root as the guard does.
    pub(in crate::inventory::database) user: Option<u32>,
}

/// Makes connections on request until stdin ends; what `bannerwall database-connections` does.
///
/// # Errors
/// What is no request, or a call that fails.
pub(crate) fn serve() -> io::Result<()> {
    helper::begin(NAME)?;
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    let mut word = vec![0; SETUP];
    let Some((count, _)) = receive(&control, &mut word)? else { return Ok(()) };
    let setup: Setup = serde_json::from_slice(word.get(..count).unwrap_or_default())?;
    drop(word);
    // Files of certificates may be root's alone.
    let password = setup.password.map(String::from_utf8).transpose().map_err(io::Error::other)?;
    let how = Place::server(&setup.url, password).map_err(io::Error::other)?;
    match setup.user {
        Some(number) => User::find(&number.to_string())?.become_keeping(CapabilitySet::empty())?,
        None => leave_root(CapabilitySet::empty())?,
    }
    setrlimit(Resource::Data, Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) })?;
    confinement().forking().apply_or_tell(true);
    let stream = start_connections(&control)?;
    // Requests are the starter's alone.
    drop(control);
    stream.map_or(Ok(()), |stream| speak(&stream, &how))
}

fn confinement() -> Confinement {
    Confinement::default().finding_servers()
}

/// A process that was started.
struct Started {
    process: OwnedFd,
    /// Where it is told how it ended.
    fate: OwnedFd,
}

/// Starts a process for each request; gives what one is to serve, in that, and nothing once requests have
/// ended.
fn start_connections(control: &OwnedFd) -> io::Result<Option<UnixStream>> {
    let mut all: Vec<Started> = Vec::new();
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
                // Who had it started may have gone.
                let _ = rustix::io::write(&started.fate, fate(started).as_bytes());
            }
            !is_over
        });
        if !is_asked {
            continue;
        }
        let Some((_, descriptors)) = receive(control, &mut [0; 16])? else { return Ok(None) };
        let Ok([stream, fate]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        match fork() {
            Ok(None) => return Ok(Some(stream.into())),
            Ok(Some(number)) => {
                let number = Pid::from_raw(number).ok_or(io::ErrorKind::InvalidData)?;
                all.push(Started { process: pidfd_open(number, PidfdFlags::empty())?, fate });
            }
            Err(error) => {
                let _ = rustix::io::write(&fate, format!("it cannot be started: {error}").as_bytes());
            }
        }
    }
}

/// How a process has ended.
fn fate(started: &Started) -> String {
    match waitid(WaitId::PidFd(started.process.as_fd()), WaitIdOptions::EXITED) {
        Ok(Some(status)) => in_words(&status),
        _ => "nobody knows how".to_owned(),
    }
}

fn in_words(status: &WaitIdStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (_, Some(signal)) => {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("of another name");
            format!("signal {signal} ({name})")
        }
        _ => "nobody knows how".to_owned(),
    }
}

/// A datagram's size, and the descriptors that came with it; none at the end.
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
fn speak(stream: &UnixStream, (config, tls): &(Config, Tls)) -> io::Result<()> {
    // The starter's requests come there.
    rustix::stdio::dup2_stdin(stream)?;
    confinement().apply_or_tell(true);
    let watch = Watch::default();
    watch.clone().start(stream.try_clone()?)?;
    let mut out = BufWriter::new(stream);
    let connection = match Connection::open(config, tls) {
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
        // One of a type that nobody reads is none.
        let cell = row.try_get(column).unwrap_or(Cell::Null);
        bytes = postcard::to_extend(&cell, bytes).map_err(io::Error::other)?;
    }
    write_frame(out, Some(ROW), &bytes)
}

fn write_end(out: &mut impl Write, outcome: Result<u64, super::Fault>, is_lost: bool) -> io::Result<()> {
    let end = postcard::to_allocvec(&End { outcome, is_lost }).map_err(io::Error::other)?;
    write_frame(out, Some(END), &end)?;
    out.flush()
}

/// Ends the process once nobody waits for an answer any more, and what the server works on for it.
#[derive(Clone, Default)]
struct Watch {
    is_working: Arc<AtomicBool>,
    canceller: Arc<OnceLock<Canceller>>,
}

impl Watch {
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

fn cancel(canceller: &Canceller) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    if let Ok(runtime) = runtime {
        // That it could not be told is no harm: the server notices that the connection has ended.
        let _ = runtime.block_on(async { tokio::time::timeout(CANCELLING, canceller.cancel()).await });
    }
}
