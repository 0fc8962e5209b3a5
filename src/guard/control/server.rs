//! The guard's end of the control socket.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use super::message::{ControlReply, ControlRequest, PEER, REPLY, REQUEST, line};
use crate::guard::private_socket::{PrivateSocket, UnboundSocket};

/// The socket of a guard and the thread that serves it. Both end when this value is dropped.
#[derive(Debug)]
pub struct ControlServer {
    _socket: PrivateSocket,
}

impl ControlServer {
    /// Listens at `path`. A socket of a dead guard there is removed. `handle` executes requests.
    pub fn start(
        path: &Path,
        socket: UnboundSocket,
        handle: impl Fn(&ControlRequest) -> Result<Value, String> + Send + 'static,
    ) -> io::Result<Self> {
        let mut socket = socket.bind(path)?;
        socket.serve("control", move |stream| {
            // A peer that disconnects or sends an invalid request harms only itself.
            let _ = serve(&stream, &handle);
            ControlFlow::Continue(())
        })?;
        Ok(Self { _socket: socket })
    }
}

fn serve(
    mut stream: &UnixStream,
    handle: &impl Fn(&ControlRequest) -> Result<Value, String>,
) -> io::Result<()> {
    // Peers are served one after the other, so none may hold the socket for long.
    stream.set_read_timeout(Some(PEER))?;
    stream.set_write_timeout(Some(PEER))?;
    let mut request = String::new();
    BufReader::new(stream.take(REQUEST)).read_line(&mut request)?;
    let reply = match serde_json::from_str(&request) {
        Ok(request) => handle(&request).map_or_else(ControlReply::Error, ControlReply::Result),
        Err(error) => ControlReply::Error(format!("not a request: {error}")),
    };
    let mut bytes = line(&reply)?;
    if bytes.len() as u64 > REPLY {
        bytes = line(&ControlReply::<Value>::Error(format!("the reply is longer than {REPLY} bytes")))?;
    }
    stream.write_all(&bytes)
}
