//! Probe for greetings: servers that send lines of text first.

use super::super::judge::Judge;
use super::super::{Conversation, Target};
use super::{Closed, Probe, Scene, Step};
use crate::banner::{Progress, greeting};
use crate::event::Timestamp;
use crate::terms::Greeting;

/// Limit of a buffer, in bytes, to keep for the next target.
const KEPT: usize = 1024;

/// Reads the first reply of a server.
#[derive(Debug)]
pub(in super::super) struct Greetings {
    judge: Judge,
    /// Expected protocol; without it the port and the greeting decide.
    expected: Option<Greeting>,
}

/// Data of one target so far.
#[derive(Debug, Default)]
pub(in super::super) struct Said {
    collected: Vec<u8>,
    port: u16,
    /// Result of the exchange, once it is over.
    result: Option<Conversation>,
}

impl Greetings {
    pub(in super::super) fn new(judge: Judge, expected: Option<Greeting>) -> Self {
        Self { judge, expected }
    }

    fn look(&self, said: &mut Said, scene: &mut Scene<'_>) -> Step {
        let usual = self.expected.and_then(|greeting| greeting.ports().first().copied());
        let result = match greeting::parse(&said.collected, usual.unwrap_or(said.port)) {
            Progress::More => return Step::More,
            Progress::Never(_) => Conversation::Foreign,
            Progress::Done { value, .. } => {
                self.judge.greeting(&value, scene);
                Conversation::Complete
            }
        };
        said.result = Some(result);
        Step::Close
    }
}

impl Probe for Greetings {
    type Session = Said;
    type Connection = ();

    const TALKS: bool = true;

    fn begin(&mut self, said: &mut Said, target: &Target) {
        said.collected.clear();
        said.collected.shrink_to(KEPT);
        said.port = target.address.port();
        said.result = None;
    }

    fn open(&mut self, _said: &mut Said, (): &mut (), _target: &Target, _now: Timestamp, _out: &mut Vec<u8>) {
    }

    fn receive(
        &mut self,
        said: &mut Said,
        (): &mut (),
        octets: &[u8],
        _out: &mut Vec<u8>,
        scene: &mut Scene<'_>,
    ) -> Step {
        said.collected.extend_from_slice(octets);
        self.look(said, scene)
    }

    fn closed(&mut self, said: &mut Said, (): &mut (), how: Closed, _scene: &mut Scene<'_>) {
        let silent = said.collected.is_empty();
        said.result.get_or_insert(match how {
            Closed::Here | Closed::Finished => Conversation::Ended,
            Closed::Reset => Conversation::Reset,
            Closed::Silent | Closed::Expired if silent => Conversation::Silent,
            Closed::Silent | Closed::Expired => Conversation::TimedOut,
            Closed::Failed(error) | Closed::Broke(error) => Conversation::Failed(error),
        });
    }

    fn wanted(&self, said: &Said) -> usize {
        usize::from(said.result.is_none())
    }

    fn result<'s>(&self, said: &'s Said) -> (Conversation, &'s [u8]) {
        (said.result.unwrap_or(Conversation::None), &said.collected)
    }
}
