//! Probe for servers whose protocol is not known.
//!
//! ```text
//!  accepted ──► a greeting within half a second? ──► `GET /` ──► reply ──► its first bytes are recognized
//!     │                                                                      │
//!     │                          SSH, greeting, HTTP: the protocol's probe ◄─┤
//!     │                          named, unknown: the bytes are reported    ◄─┤
//!     └─ usual port of HTTP: the probe of HTTP at once                       │
//!                                TLS, or nothing: the same within TLS      ◄─┘
//! ```
//!
//! The table that names protocols is that of the passive engine. The outer [`TlsProbe`](super::TlsProbe) runs
//! this dialogue a second time within TLS, and first within TLS at usual ports of TLS. A probe takes over the
//! connection if the server spoke first. After the question it gets a new one, since its server has read
//! bytes that it did not expect.

mod recognised;

use super::super::response_matcher::ResponseMatcher;
use super::super::tls::TlsTargets;
use super::super::{ExchangeOutcome, Target};
use super::greeting::GreetingSession;
use super::http::{HttpConnection, HttpHost};
use super::ssh::SshSession;
use super::{CloseReason, GreetingProbe, HttpProbe, Probe, ProbeContext, ProbeStep, SshProbe, TlsLayer};
use crate::banner::{ParseProgress, greeting};
use crate::event::Timestamp;
use crate::terms::GreetingProtocol;
use recognised::{RecognisedServer, recognise, settle};

/// Usual ports of HTTP, whose servers get their request at once.
const HTTP_PORTS: [u16; 12] = [80, 81, 591, 3000, 5000, 8000, 8008, 8080, 8081, 8088, 8888, 9090];

/// Usual ports of greetings within TLS.
const GREETING_TLS_PORTS: [u16; 4] = [465, 990, 993, 995];

/// Question to servers that end a connection at an HTTP request. Servers that read lines answer it.
const SHORTER: &[u8] = b"version\r\n";

/// Limit of bytes to recognize a server by.
const LIMIT: usize = 4096;

/// Recognizes servers, and lets the probe of their protocol continue.
#[derive(Debug)]
pub(in super::super) struct AnyProbe {
    judge: ResponseMatcher,
    ssh: SshProbe,
    greeting: GreetingProbe,
    http: HttpProbe,
}

/// State of one target.
#[derive(Debug, Default)]
pub(in super::super) struct AnySession {
    stage: AnyStage,
    question: QuestionTime,
    /// Bytes of a server that is not recognized yet.
    said: Vec<u8>,
    /// True once the server got the question on this connection.
    is_asked: bool,
    is_within_tls: bool,
    /// Layer of TLS that the server wants or may want.
    layer: Option<TlsLayer>,
    ssh: SshSession,
    greeting: GreetingSession,
    http: HttpHost,
}

/// Probe that continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum AnyStage {
    /// None yet: the server is not recognized.
    #[default]
    Listening,
    Ssh,
    Greeting,
    Http,
    /// None: the exchange is over.
    Over(ExchangeOutcome),
}

/// Time of the question that most servers answer: a request for `/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum QuestionTime {
    AtOnce,
    #[default]
    AfterSilence,
    /// After the whole timeout, on a new connection: servers of mail and files may greet late.
    AfterTimeout,
    /// It ended the connection, so a shorter question follows at once.
    Shorter,
}

impl AnyProbe {
    pub(in super::super) fn new(judge: ResponseMatcher, ssh: SshProbe, http: HttpProbe) -> Self {
        let greeting = GreetingProbe::new(judge.clone(), None);
        Self { judge, ssh, greeting, http }
    }

    /// Continues after more bytes of an unrecognized server.
    fn look(
        &mut self,
        session: &mut AnySession,
        channel: &mut HttpConnection,
        out: &mut Vec<u8>,
        scene: &mut ProbeContext<'_>,
    ) -> ProbeStep {
        let stage = match recognise(&session.said, session.is_asked, scene.target.address.port()) {
            RecognisedServer::More if session.said.len() < LIMIT => return ProbeStep::More,
            RecognisedServer::Ssh => AnyStage::Ssh,
            RecognisedServer::Greeting => AnyStage::Greeting,
            // What was a request to us is none to a server that expects TLS.
            RecognisedServer::BadRequest if !session.is_within_tls => {
                session.layer = Some(TlsLayer::Whole);
                AnyStage::Http
            }
            RecognisedServer::Http | RecognisedServer::BadRequest => AnyStage::Http,
            RecognisedServer::Tls => {
                session.layer = Some(TlsLayer::Whole);
                AnyStage::Over(ExchangeOutcome::Foreign)
            }
            RecognisedServer::Other | RecognisedServer::More => self.conclude(session, scene),
        };
        session.stage = stage;
        if session.is_asked || matches!(stage, AnyStage::Over(_)) {
            return ProbeStep::Close;
        }
        let said = std::mem::take(&mut session.said);
        self.open(session, channel, scene.target, scene.now, out);
        self.receive(session, channel, &said, out, scene)
    }

    /// Reports the first bytes of a server that no probe reads.
    fn conclude(&self, session: &AnySession, scene: &mut ProbeContext<'_>) -> AnyStage {
        let is_named = settle(&session.said).is_some();
        self.judge.other(&session.said, scene);
        AnyStage::Over(if is_named { ExchangeOutcome::Complete } else { ExchangeOutcome::Foreign })
    }

    /// Handles the end of a connection to an unrecognized server.
    fn closed_unrecognised(
        &self,
        session: &mut AnySession,
        how: CloseReason,
        scene: &mut ProbeContext<'_>,
    ) -> AnyStage {
        if !session.said.is_empty() {
            return self.conclude(session, scene);
        }
        if how == CloseReason::Silent && session.question == QuestionTime::AfterTimeout {
            session.question = QuestionTime::AtOnce;
            return AnyStage::Listening;
        }
        let is_ended = matches!(how, CloseReason::Finished | CloseReason::Reset);
        if is_ended && session.question != QuestionTime::Shorter {
            session.question = QuestionTime::Shorter;
            return AnyStage::Listening;
        }
        session.layer = Some(TlsLayer::Whole);
        AnyStage::Over(match how {
            CloseReason::Here | CloseReason::Silent | CloseReason::Expired => ExchangeOutcome::Silent,
            CloseReason::Finished => ExchangeOutcome::Ended,
            CloseReason::Reset => ExchangeOutcome::Reset,
            CloseReason::Failed(error) | CloseReason::Broke(error) => ExchangeOutcome::Failed(error),
        })
    }

    /// Recognizes a server that did not answer a request with HTTP, if it is over.
    fn after_http(&self, session: &mut AnySession, scene: &mut ProbeContext<'_>) -> AnyStage {
        if self.http.wanted(&session.http) > 0 {
            return AnyStage::Http;
        }
        let (outcome, said) = self.http.result(&session.http);
        if !self.http.is_unanswered(&session.http) {
            let is_refused = recognised::is_bad_request(said) && !session.is_within_tls;
            session.layer = is_refused.then_some(TlsLayer::Whole);
            return AnyStage::Http;
        }
        if said.is_empty() {
            session.layer = Some(TlsLayer::Whole);
            return AnyStage::Over(outcome);
        }
        session.said = said.to_vec();
        session.is_asked = true;
        match recognise(&session.said, true, scene.target.address.port()) {
            RecognisedServer::Ssh => AnyStage::Ssh,
            RecognisedServer::Greeting => AnyStage::Greeting,
            RecognisedServer::Tls => {
                session.layer = Some(TlsLayer::Whole);
                AnyStage::Over(ExchangeOutcome::Foreign)
            }
            _ => self.conclude(session, scene),
        }
    }

    /// Returns the protocol of a greeting if it can upgrade to TLS.
    fn upgradable(&self, session: &AnySession, port: u16) -> Option<GreetingProtocol> {
        let (outcome, said) = self.greeting.result(&session.greeting);
        let ParseProgress::Done { value, .. } = greeting::parse(said, port) else { return None };
        let may = outcome == ExchangeOutcome::Complete && !session.is_within_tls && value.is_welcome();
        (may && !value.greeting.upgrades().is_empty()).then_some(value.greeting)
    }
}

impl Probe for AnyProbe {
    type Session = AnySession;
    type Connection = HttpConnection;

    const TALKS: bool = true;

    fn sends_in_parts(&self) -> bool {
        self.http.sends_in_parts()
    }

    fn begin(&mut self, session: &mut AnySession, target: &Target) {
        let port = target.address.port();
        session.stage = if HTTP_PORTS.contains(&port) { AnyStage::Http } else { AnyStage::Listening };
        let greets = GreetingProtocol::all().any(|greeting| greeting.ports().contains(&port));
        session.question = if greets { QuestionTime::AfterTimeout } else { QuestionTime::AfterSilence };
        session.said.clear();
        (session.is_asked, session.is_within_tls, session.layer) = (false, false, None);
        self.ssh.begin(&mut session.ssh, target);
        self.greeting.begin(&mut session.greeting, target);
        self.http.begin(&mut session.http, target);
    }

    fn negotiated(&mut self, session: &mut AnySession, target: &Target, protocol: Option<&[u8]>) {
        self.http.negotiated(&mut session.http, target, protocol);
        let port = target.address.port();
        session.is_within_tls = true;
        session.question = match GREETING_TLS_PORTS.contains(&port) {
            true => QuestionTime::AfterTimeout,
            false => QuestionTime::AtOnce,
        };
        if protocol.is_some() || TlsTargets::UsualPorts.includes(port) {
            session.stage = AnyStage::Http;
        }
    }

    fn open(
        &mut self,
        session: &mut AnySession,
        channel: &mut HttpConnection,
        target: &Target,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) {
        session.is_asked = false;
        match session.stage {
            AnyStage::Listening => {
                session.said.clear();
                session.is_asked = matches!(session.question, QuestionTime::AtOnce | QuestionTime::Shorter);
                match session.question {
                    QuestionTime::AtOnce => self.http.write_first(&session.http, out),
                    QuestionTime::Shorter => out.extend_from_slice(SHORTER),
                    QuestionTime::AfterSilence | QuestionTime::AfterTimeout => {}
                }
            }
            AnyStage::Ssh => self.ssh.open(&mut session.ssh, &mut (), target, now, out),
            AnyStage::Greeting => self.greeting.open(&mut session.greeting, &mut (), target, now, out),
            AnyStage::Http => self.http.open(&mut session.http, channel, target, now, out),
            AnyStage::Over(_) => {}
        }
    }

    fn accepted(
        &mut self,
        session: &mut AnySession,
        channel: &mut HttpConnection,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> bool {
        match session.stage {
            AnyStage::Http => self.http.accepted(&mut session.http, channel, now, out),
            _ => false,
        }
    }

    fn receive(
        &mut self,
        session: &mut AnySession,
        channel: &mut HttpConnection,
        octets: &[u8],
        out: &mut Vec<u8>,
        scene: &mut ProbeContext<'_>,
    ) -> ProbeStep {
        match session.stage {
            AnyStage::Listening => {
                let room = LIMIT.saturating_sub(session.said.len());
                session.said.extend_from_slice(octets.get(..room).unwrap_or(octets));
                self.look(session, channel, out, scene)
            }
            AnyStage::Ssh => self.ssh.receive(&mut session.ssh, &mut (), octets, out, scene),
            AnyStage::Greeting => self.greeting.receive(&mut session.greeting, &mut (), octets, out, scene),
            AnyStage::Http => self.http.receive(&mut session.http, channel, octets, out, scene),
            AnyStage::Over(_) => ProbeStep::Close,
        }
    }

    fn is_nudged(&self) -> bool {
        true
    }

    fn on_idle(&mut self, session: &mut AnySession, _channel: &mut HttpConnection, out: &mut Vec<u8>) {
        match (session.stage, session.question) {
            (AnyStage::Listening, QuestionTime::AfterSilence) if !session.is_asked => {
                session.is_asked = true;
                self.http.write_first(&session.http, out);
            }
            (AnyStage::Ssh, _) => self.ssh.on_idle(&mut session.ssh, &mut (), out),
            _ => {}
        }
    }

    fn on_sibling_closed(
        &mut self,
        session: &mut AnySession,
        channel: &mut HttpConnection,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> ProbeStep {
        match session.stage {
            AnyStage::Http => self.http.on_sibling_closed(&mut session.http, channel, now, out),
            _ => ProbeStep::More,
        }
    }

    fn watch(&mut self, session: &mut AnySession, channel: &mut HttpConnection, now: Timestamp) -> ProbeStep {
        match session.stage {
            AnyStage::Http => self.http.watch(&mut session.http, channel, now),
            _ => ProbeStep::More,
        }
    }

    fn closed(
        &mut self,
        session: &mut AnySession,
        channel: &mut HttpConnection,
        how: CloseReason,
        scene: &mut ProbeContext<'_>,
    ) {
        // A connection that ends because its server was recognized is no connection of the new probe.
        if how == CloseReason::Here && std::mem::take(&mut session.is_asked) {
            return;
        }
        match session.stage {
            AnyStage::Listening => session.stage = self.closed_unrecognised(session, how, scene),
            AnyStage::Ssh => self.ssh.closed(&mut session.ssh, &mut (), how, scene),
            AnyStage::Greeting => {
                self.greeting.closed(&mut session.greeting, &mut (), how, scene);
                let protocol = self.upgradable(session, scene.target.address.port());
                session.layer = protocol.map(TlsLayer::Upgrade);
            }
            AnyStage::Http => {
                self.http.closed(&mut session.http, channel, how, scene);
                session.stage = self.after_http(session, scene);
            }
            AnyStage::Over(_) => {}
        }
    }

    fn take_tls_layer(&self, session: &mut AnySession) -> Option<TlsLayer> {
        session.layer.take()
    }

    fn wanted(&self, session: &AnySession) -> usize {
        match session.stage {
            // A server that wants TLS gets no request in clear.
            AnyStage::Http if session.layer.is_some() => 0,
            AnyStage::Listening => 1,
            AnyStage::Ssh => self.ssh.wanted(&session.ssh),
            AnyStage::Greeting => self.greeting.wanted(&session.greeting),
            AnyStage::Http => self.http.wanted(&session.http),
            AnyStage::Over(_) => 0,
        }
    }

    fn result<'s>(&self, session: &'s AnySession) -> (ExchangeOutcome, &'s [u8]) {
        match session.stage {
            AnyStage::Listening => (ExchangeOutcome::Silent, &session.said),
            AnyStage::Ssh => self.ssh.result(&session.ssh),
            AnyStage::Greeting => self.greeting.result(&session.greeting),
            AnyStage::Http => self.http.result(&session.http),
            AnyStage::Over(outcome) => (outcome, &session.said),
        }
    }
}
