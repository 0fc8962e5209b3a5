//! Probe for greetings: servers that send lines of text first.

use super::super::response_matcher::ResponseMatcher;
use super::super::{ExchangeOutcome, Target};
use super::{CloseReason, Probe, ProbeContext, ProbeStep};
use crate::banner::{ParseProgress, greeting};
use crate::event::Timestamp;
use crate::terms::GreetingProtocol;

/// Limit of a buffer, in bytes, to keep for the next target.
const KEPT: usize = 1024;

/// Reads the first reply of a server.
#[derive(Debug)]
pub(in super::super) struct GreetingProbe {
    judge: ResponseMatcher,
    /// Expected protocol; without it the port and the greeting decide.
    expected: Option<GreetingProtocol>,
}

/// Data of one target so far.
#[derive(Debug, Default)]
pub(in super::super) struct GreetingSession {
    collected: Vec<u8>,
    port: u16,
    /// Result of the exchange, once it is over.
    result: Option<ExchangeOutcome>,
}

impl GreetingProbe {
    pub(in super::super) fn new(judge: ResponseMatcher, expected: Option<GreetingProtocol>) -> Self {
        Self { judge, expected }
    }

    fn look(&self, said: &mut GreetingSession, scene: &mut ProbeContext<'_>) -> ProbeStep {
        let usual = self.expected.and_then(|greeting| greeting.ports().first().copied());
        let result = match greeting::parse(&said.collected, usual.unwrap_or(said.port)) {
            ParseProgress::More => return ProbeStep::More,
            ParseProgress::Never(_) => ExchangeOutcome::Foreign,
            ParseProgress::Done { value, .. } => {
                self.judge.greeting(&value, scene);
                ExchangeOutcome::Complete
            }
        };
        said.result = Some(result);
        ProbeStep::Close
    }
}

impl Probe for GreetingProbe {
    type Session = GreetingSession;
    type Connection = ();

    const TALKS: bool = true;

    fn begin(&mut self, said: &mut GreetingSession, target: &Target) {
        said.collected.clear();
        said.collected.shrink_to(KEPT);
        said.port = target.address.port();
        said.result = None;
    }

    fn open(
        &mut self,
        _said: &mut GreetingSession,
        (): &mut (),
        _target: &Target,
        _now: Timestamp,
        _out: &mut Vec<u8>,
    ) {
    }

    fn receive(
        &mut self,
        said: &mut GreetingSession,
        (): &mut (),
        octets: &[u8],
        _out: &mut Vec<u8>,
        scene: &mut ProbeContext<'_>,
    ) -> ProbeStep {
        said.collected.extend_from_slice(octets);
        self.look(said, scene)
    }

    fn closed(
        &mut self,
        said: &mut GreetingSession,
        (): &mut (),
        how: CloseReason,
        _scene: &mut ProbeContext<'_>,
    ) {
        let silent = said.collected.is_empty();
        said.result.get_or_insert(match how {
            CloseReason::Here | CloseReason::Finished => ExchangeOutcome::Ended,
            CloseReason::Reset => ExchangeOutcome::Reset,
            CloseReason::Silent | CloseReason::Expired if silent => ExchangeOutcome::Silent,
            CloseReason::Silent | CloseReason::Expired => ExchangeOutcome::TimedOut,
            CloseReason::Failed(error) | CloseReason::Broke(error) => ExchangeOutcome::Failed(error),
        });
    }

    fn wanted(&self, said: &GreetingSession) -> usize {
        usize::from(said.result.is_none())
    }

    fn result<'s>(&self, said: &'s GreetingSession) -> (ExchangeOutcome, &'s [u8]) {
        (said.result.unwrap_or(ExchangeOutcome::None), &said.collected)
    }
}
