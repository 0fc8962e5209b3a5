//! The client of the control socket.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::message::{ControlReply, ControlRequest, PEER, REPLY, line, work};
use super::socket_path::FOLDER;

/// Error of a request to a guard.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No guard listens at the path.
    #[error(
        "no guard listens at {}: {source} (start one with `bannerwall guard`, or name the running one by its \
         --queue or --control)",
        path.display()
    )]
    NoGuard {
        /// Path of the socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// This user may not connect.
    #[error(
        "cannot connect to {}: {source} (run this as root, as the guard's user, or as a member of its group)",
        path.display()
    )]
    NotPermitted {
        /// Path of the socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The guard did not reply as it should.
    #[error("the guard at {} did not reply: {source}", path.display())]
    Silent {
        /// Path of the socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The guard refused the request.
    #[error("{0}")]
    Refused(String),
}

/// Sends a request to the guard that listens at one of these paths.
///
/// # Errors
///
/// No guard listens or replies, or it refuses.
pub fn ask<T: DeserializeOwned>(places: &[PathBuf], request: &ControlRequest) -> Result<T, ControlError> {
    let (path, stream) = connect(places)?;
    let reply = exchange(&stream, request);
    match reply.map_err(|source| ControlError::Silent { path: path.to_owned(), source })? {
        ControlReply::Result(result) => Ok(result),
        ControlReply::Error(why) => Err(ControlError::Refused(why)),
    }
}

/// Connects to the first path at which a guard listens. The error is about the path at which a guard most
/// likely runs.
fn connect(places: &[PathBuf]) -> Result<(&Path, UnixStream), ControlError> {
    // Of several errors the most telling one is reported: a guard that refuses says more than a missing file.
    let weight = |error: &io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => 0,
        io::ErrorKind::NotFound => 2,
        _ => 1,
    };
    let mut failed: Option<(&Path, io::Error)> = None;
    for path in places.iter().map(PathBuf::as_path) {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok((path, stream)),
            Err(error) => {
                if failed.as_ref().is_none_or(|(_, known)| weight(&error) < weight(known)) {
                    failed = Some((path, error));
                }
            }
        }
    }
    let (path, source) = failed.unwrap_or_else(|| (Path::new(FOLDER), io::ErrorKind::NotFound.into()));
    let path = path.to_owned();
    Err(match source.kind() {
        io::ErrorKind::PermissionDenied => ControlError::NotPermitted { path, source },
        _ => ControlError::NoGuard { path, source },
    })
}

fn exchange<T: DeserializeOwned>(
    mut stream: &UnixStream,
    request: &ControlRequest,
) -> io::Result<ControlReply<T>> {
    stream.set_read_timeout(Some(work(request) + PEER))?;
    stream.set_write_timeout(Some(PEER))?;
    stream.write_all(&line(request)?)?;
    let mut reply = String::new();
    BufReader::new(stream.take(REPLY)).read_line(&mut reply).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, "no reply in time: it is stopped or hangs")
        }
        _ => error,
    })?;
    serde_json::from_str(&reply).map_err(io::Error::from)
}
