//! Passes requests of the control socket to the main thread.

use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use serde_json::Value;

use super::GuardMessage;
use super::control::{self, ControlRequest};

/// Channel of the reply to the client of a request.
pub(super) type ReplySender = Sender<Result<Value, String>>;

/// Passes a request of the control socket to the main thread and waits for the reply.
pub(super) fn forward(messages: &Sender<GuardMessage>, request: &ControlRequest) -> Result<Value, String> {
    let (sender, receiver) = bounded(1);
    let message = GuardMessage::Request(request.clone(), sender);
    messages.send(message).map_err(|_| "the guard stops".to_owned())?;
    let limit: Duration = control::work(request);
    receiver.recv_timeout(limit).unwrap_or_else(|_| {
        Err(format!("the guard's main thread did not answer within {} s", limit.as_secs()))
    })
}
