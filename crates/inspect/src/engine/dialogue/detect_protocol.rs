//! Detection of a direction's protocol, from its first bytes and those of the other direction.
//!
//! No byte's looks decide. A client reads any lines before a server's identification, and what one server
//! calls nonsense another takes for a request. So a hypothesis is kept until both ends say otherwise:
//!
//! | the client said | the server said | read on as |
//! |---|---|---|
//! | nothing | nothing | anything |
//! | nothing | `SSH-` | SSH |
//! | nothing | a status line | HTTP, and lines before an SSH identification |
//! | nothing | anything else | lines before an SSH identification |
//! | `SSH-` | anything | SSH, lines before an identification |
//! | a request | a status line | HTTP |
//! | a request | `SSH-` | both, told as `protocol_mismatch` |
//! | a request | anything else | HTTP of the client only, told as `http_unknown_response` |
//! | anything else | nothing | lines that may precede a client's identification |
//! | anything else | `SSH-` | SSH, lines before the client's identification |
//! | anything else | a status line | HTTP of the server only, told as `http_unknown_request` |
//! | a hello of TLS | nothing | TLS, as long as it may be that |
//! | a hello of TLS | a hello or an alert of TLS | TLS |
//! | anything else | anything else | a greeting of the server and what follows it, as far as it is one |
//!
//! What a server says first is listened to as a greeting beside all this, until it is a whole one or none.
//!
//! *Anything else* is a first line (to LF) that no server takes for a request; of a server, the first byte
//! that begins neither an identification nor a status line. A client that has begun a line with something
//! that is no word is taken for one that says anything else as soon as the server does, too.

use super::awaited_input::{FEW, InputNeed};
use super::finding::ReadContext;
use super::read_step::{DialogueInput, ProtocolSwitch, ReadStep, UnreadReason};
use super::state::{Dialogue, DirectionReading, FirstProtocol};
use super::{greeting, http};
use crate::banner::recognise::{FIRST_LINE_LIMIT, LEADING_USUAL, empty_lines};
use crate::banner::unread_protocols::{OtherProtocol, SignatureFit};
use crate::banner::{
    self, ParseProgress, ProtocolRecognition, http as heads, proxy_protocol, recognise, socks,
};
use crate::terms::{Anomaly, Side};

impl Dialogue {
    /// Looks at the first bytes of a direction.
    pub(super) fn recognise(
        &mut self,
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> ReadStep<DirectionReading> {
        let DialogueInput { from, input, .. } = turn;
        if from == Side::Server {
            self.greeting.begin(!turn.peer.is_empty() || self.spoken(Side::Client) != FirstProtocol::Nothing);
        }
        if let Some(step) = read_proxied(turn).or_else(|| self.read_relay(turn)) {
            return step;
        }
        let empty = empty_lines(input);
        if empty > 0 {
            let first = &mut self.direction_mut(from).first;
            first.leading += empty;
            first.spaced |= heads::is_spaced(input.get(..empty).unwrap_or_default());
            return ReadStep::Used(empty, DirectionReading::New);
        }
        if from == Side::Client
            && self.spoken(Side::Server) == FirstProtocol::Other
            && !self.direction_mut(from).word.may_become_request(input)
            && !matches!(input, [4 | 5, ..])
        {
            return self.give_up(from);
        }
        let heard = match from {
            Side::Client if self.spoken(Side::Server) == FirstProtocol::Nothing => {
                self.read_hello(turn, context)
            }
            Side::Client => None,
            Side::Server => self.read_answer(turn),
        };
        if let Some(step) = heard {
            return step;
        }
        match recognise(from, input) {
            ProtocolRecognition::More => wait_for_line(input),
            ProtocolRecognition::Ssh => {
                self.spoke(from, FirstProtocol::Ssh);
                ReadStep::Used(0, DirectionReading::Lines(0))
            }
            ProtocolRecognition::Http => self.begin_http(turn, context),
            ProtocolRecognition::PerhapsSsh | ProtocolRecognition::Relayed => self.begin_other(turn, context),
        }
    }

    /// Looks for a message where bytes are missing before: one that begins with this segment is read,
    /// anything else is left out.
    pub(super) fn resume(
        &mut self,
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> ReadStep<DirectionReading> {
        let first = !context.settings.reads_on();
        let begins_tls = OtherProtocol::TLS.fit(turn.from, turn.input) == SignatureFit::Yes;
        let recognised = recognise(turn.from, turn.input);
        if first
            || begins_tls
            || matches!(recognised, ProtocolRecognition::Ssh | ProtocolRecognition::Relayed)
        {
            return self.recognise(turn, context);
        }
        self.find_message(turn, DirectionReading::Resync, context)
    }

    fn begin_http(
        &mut self,
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> ReadStep<DirectionReading> {
        let from = turn.from;
        self.http.begin(from, turn.input);
        let first = &self.direction(from).first;
        let mut odd = banner::Anomalies::NONE;
        odd.insert_if(first.spaced, Anomaly::LeadingSpace);
        odd.insert_if(first.leading > LEADING_USUAL, Anomaly::LongLeading);
        context.note_all(odd);
        self.spoke(from, FirstProtocol::Http);
        if from == Side::Server {
            match self.spoken(Side::Client) {
                // What is a response to one client may be lines before an identification to another.
                FirstProtocol::Ssh => return ReadStep::Used(0, DirectionReading::Lines(0)),
                FirstProtocol::Other => self.note_unknown_request(context),
                _ => {}
            }
        }
        ReadStep::Used(0, DirectionReading::Http(http::HttpReading::default()))
    }

    fn begin_other(
        &mut self,
        turn: DialogueInput<'_>,
        context: &mut ReadContext<'_>,
    ) -> ReadStep<DirectionReading> {
        let from = turn.from;
        self.spoke(from, FirstProtocol::Other);
        match self.spoken(from.other()) {
            FirstProtocol::Nothing if from == Side::Server && self.client_cannot_be_http(turn.peer) => {
                self.give_up(from)
            }
            FirstProtocol::Nothing | FirstProtocol::Ssh => ReadStep::Used(0, DirectionReading::Lines(0)),
            FirstProtocol::Other => self.give_up(from),
            FirstProtocol::Http => {
                match from {
                    Side::Client => self.note_unknown_request(context),
                    Side::Server => context.note(Anomaly::UnknownResponse),
                }
                ReadStep::Used(0, self.strange(from))
            }
        }
    }

    /// Returns the reading of a side with an unknown protocol while the other side speaks HTTP: a server may
    /// be in the middle of a greeting.
    fn strange(&mut self, from: Side) -> DirectionReading {
        if from == Side::Server && !self.greeting.is_over() {
            return DirectionReading::Greeting(greeting::GreetingReading::First);
        }
        self.foreign(from, UnreadReason::BesideHttp)
    }

    /// Both ends say what is neither SSH nor HTTP: a greeting and what follows it, or nothing that is read.
    fn give_up(&mut self, from: Side) -> ReadStep<DirectionReading> {
        let other = self.behind_hypotheses(from.other());
        self.change(from.other(), other);
        let own = self.behind_hypotheses(from);
        ReadStep::Used(0, own)
    }

    fn behind_hypotheses(&mut self, from: Side) -> DirectionReading {
        match self.greeting.reading(from) {
            Some(reading) => DirectionReading::Greeting(reading),
            None => self.foreign(from, UnreadReason::Unknown),
        }
    }

    /// A server answers by HTTP what was not read as a request.
    fn note_unknown_request(&mut self, context: &mut ReadContext<'_>) {
        context.note(Anomaly::UnknownRequest);
        if matches!(self.direction(Side::Client).reading, DirectionReading::Lines(_)) {
            let reading = self.foreign(Side::Client, UnreadReason::BesideHttp);
            self.change(Side::Client, reading);
        }
    }

    /// Remembers what a side says and what that means for the other one.
    fn spoke(&mut self, from: Side, spoken: FirstProtocol) {
        let other = self.spoken(from.other());
        self.direction_mut(from).first.spoken = spoken;
        self.opening.mismatched |= matches!(
            (spoken, other),
            (FirstProtocol::Ssh, FirstProtocol::Http) | (FirstProtocol::Http, FirstProtocol::Ssh)
        );
        let peer = self.direction(from.other());
        let place = usize::from(peer.amid_line);
        let convert = match (from, spoken, &peer.reading) {
            (Side::Client, FirstProtocol::Ssh, DirectionReading::Http(_)) => {
                Some(DirectionReading::Lines(place))
            }
            (_, FirstProtocol::Http, DirectionReading::Lines(_)) => Some(self.strange(from.other())),
            _ => None,
        };
        if let Some(reading) = convert {
            self.change(from.other(), reading);
        }
    }

    /// Goes over a handshake with a SOCKS server: what follows is relayed, and looked at afresh.
    fn read_relay(&mut self, turn: DialogueInput<'_>) -> Option<ReadStep<DirectionReading>> {
        if turn.from == Side::Server && !self.awaits_relay(turn.peer) {
            return None;
        }
        match socks::handshake(turn.from, turn.input) {
            ParseProgress::More => {
                Some(ReadStep::Wait(InputNeed::another(turn.input), DirectionReading::New))
            }
            ParseProgress::Never(_) => None,
            ParseProgress::Done { consumed, .. } => {
                Some(ReadStep::HandsOver(consumed, ProtocolSwitch::Relayed))
            }
        }
    }

    /// True if the client speaks to a SOCKS server that has not granted its request yet.
    fn awaits_relay(&self, unread: &[u8]) -> bool {
        let client = self.direction(Side::Client);
        let asks = || {
            matches!(client.reading, DirectionReading::New)
                && !unread.is_empty()
                && socks::handshake(Side::Client, unread) == ParseProgress::More
        };
        client.relays > self.direction(Side::Server).relays || asks()
    }
}

/// Goes over the header of a load balancer: what follows is the client's.
fn read_proxied(turn: DialogueInput<'_>) -> Option<ReadStep<DirectionReading>> {
    match proxy_protocol::header(turn.input) {
        _ if turn.from == Side::Server => None,
        ParseProgress::More => Some(ReadStep::Wait(InputNeed::another(turn.input), DirectionReading::New)),
        ParseProgress::Never(_) => None,
        ParseProgress::Done { consumed, .. } => Some(ReadStep::HandsOver(consumed, ProtocolSwitch::Proxied)),
    }
}

fn wait_for_line(input: &[u8]) -> ReadStep<DirectionReading> {
    let few = input.len() < FEW || matches!(socks::handshake(Side::Client, input), ParseProgress::More);
    let need = if few { InputNeed::another(input) } else { InputNeed::line(FIRST_LINE_LIMIT) };
    ReadStep::Wait(need, DirectionReading::New)
}
