//! What a running guard does for each request of its control socket.

use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use serde::Serialize;
use serde_json::Value;

use super::Message;
use super::control::{Request, RulesInForce};

/// Time that the main thread may take for a reload.
const RELOAD: Duration = Duration::from_secs(60);

/// Carries out requests, on the thread of the control socket.
pub(super) struct RequestHandler {
    pub(super) messages: Sender<Message>,
}

impl RequestHandler {
    /// Carries out one request; the error is for a person.
    pub(super) fn handle(&self, request: &Request) -> Result<Value, String> {
        match request {
            Request::Reload => self.reload().and_then(value),
        }
    }

    fn reload(&self) -> Result<RulesInForce, String> {
        let (sender, receiver) = bounded(1);
        let gone = || "the guard is busy or stops".to_owned();
        self.messages.send(Message::ReloadRules(Some(sender))).map_err(|_| gone())?;
        receiver.recv_timeout(RELOAD).unwrap_or_else(|_| Err(gone()))
    }
}

fn value(result: impl Serialize) -> Result<Value, String> {
    serde_json::to_value(result).map_err(|error| error.to_string())
}
