//! Probe within TLS: wraps any other probe, with a handshake before its bytes.
//!
//! The library handles the handshake between the ring's buffers. In parallel, `hearing` reads the server's
//! unencrypted messages, since the library reports nothing about servers that it refuses. If the other probe
//! only connects, the handshake completes the exchange.

mod handshake;
mod record_reader;
mod starttls;

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::super::response_matcher::ResponseMatcher;
use super::super::tls::{ChainVerifier, TlsOptions, TlsTargets};
use super::super::{ExchangeOutcome, Target};
use super::{CloseReason, Probe, ProbeContext, ProbeStep, TlsLayer};
use crate::event::{Timestamp, TlsFacts};
use crate::terms::{AlertCode, GreetingProtocol};
use record_reader::TlsRecordReader;
use starttls::StarttlsUpgrade;

/// Bytes to keep of a server without TLS.
const SAID: usize = 256;

/// Another probe within TLS.
#[derive(Debug)]
pub(in super::super) struct TlsProbe<P> {
    inner: P,
    judge: ResponseMatcher,
    config: Arc<ClientConfig>,
    appraiser: ChainVerifier,
    /// Fixed server name, for all targets.
    name: Option<ServerName<'static>>,
    alpn: Vec<String>,
    second: Vec<String>,
    with: TlsTargets,
    starttls: Option<GreetingProtocol>,
    /// Last decrypted bytes, and the reply to them.
    heard: Vec<u8>,
    answer: Vec<u8>,
}

/// State of one target.
#[derive(Debug)]
pub(in super::super) struct TlsSession<S> {
    inner: S,
    /// Expected name: host name or address.
    name: Option<ServerName<'static>>,
    /// First bytes, as long as they may not be TLS.
    said: Vec<u8>,
    /// True if the exchange has no TLS.
    is_plain: bool,
    /// True once a handshake was tried, or is under way.
    is_tried: bool,
    /// True if TLS follows an exchange without it.
    is_second: bool,
    /// Protocol that upgrades the connections to TLS.
    upgrade: Option<GreetingProtocol>,
    /// True once a handshake has completed.
    is_secured: bool,
    /// True if the server chose an application protocol.
    has_chosen: bool,
    /// First message of the next connection.
    hello: ClientHelloKind,
    /// Facts to report, once.
    facts: Option<TlsFacts>,
    is_told: bool,
    is_greeted: bool,
    ended: Option<ExchangeOutcome>,
}

/// First message of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ClientHelloKind {
    /// The library's hello with the preferred application protocols.
    #[default]
    Preferred,
    /// The same with the other protocols, if the server accepts none of those.
    OtherProtocols,
    /// The hello for old servers, with the result of the library's hello.
    Legacy(ExchangeOutcome),
}

/// State of one connection.
#[derive(Debug, Default)]
pub(in super::super) struct TlsConnection<C> {
    inner: C,
    /// True if the other probe exchanges data on it.
    is_open: bool,
    upgrade: Option<StarttlsUpgrade>,
    tls: Option<Box<TlsHandshake>>,
    /// Reply of the server to the hello for old servers.
    legacy: Option<TlsRecordReader>,
    /// End of the connection, if it was signalled within TLS.
    ended: Option<CloseReason>,
}

/// One handshake, and the data after it.
#[derive(Debug)]
struct TlsHandshake {
    connection: ClientConnection,
    hearing: TlsRecordReader,
    /// True if the library refused the server's messages.
    is_refused: bool,
}

impl<S: Default> Default for TlsSession<S> {
    fn default() -> Self {
        Self {
            inner: S::default(),
            name: None,
            said: Vec::new(),
            is_plain: false,
            is_tried: false,
            is_second: false,
            upgrade: None,
            is_secured: false,
            has_chosen: false,
            hello: ClientHelloKind::default(),
            facts: None,
            is_told: false,
            is_greeted: false,
            ended: None,
        }
    }
}

impl<P: Probe> TlsProbe<P> {
    pub(in super::super) fn new(
        inner: P,
        judge: ResponseMatcher,
        config: Arc<ClientConfig>,
        options: &TlsOptions,
    ) -> Self {
        Self {
            inner,
            judge,
            config,
            appraiser: ChainVerifier::new(Arc::clone(&options.authorities)),
            name: options.name.clone().map(ServerName::DnsName),
            alpn: options.alpn.clone(),
            second: options.second.clone(),
            with: options.with,
            starttls: options.starttls,
            heard: Vec::new(),
            answer: Vec::new(),
        }
    }
}

impl<P: Probe> TlsProbe<P> {
    /// True if the inner probe continues within TLS. After an upgrade it has read its greeting already.
    fn goes_within(session: &TlsSession<P::Session>) -> bool {
        P::TALKS && session.upgrade.is_none()
    }

    /// Continues within TLS after an exchange without it, if the inner probe expects that to help.
    fn continue_within(&self, session: &mut TlsSession<P::Session>) {
        let layer = self.inner.take_tls_layer(&mut session.inner);
        let Some(layer) = layer.filter(|_| !session.is_tried) else { return };
        (session.is_tried, session.is_second, session.is_plain) = (true, true, false);
        if let TlsLayer::Upgrade(protocol) = layer {
            (session.upgrade, session.is_greeted) = (Some(protocol), true);
        }
    }
}

/// True if an exchange ended like one with a server that does not expect TLS.
fn may_be_plain(ended: ExchangeOutcome) -> bool {
    matches!(
        ended,
        ExchangeOutcome::Foreign | ExchangeOutcome::Ended | ExchangeOutcome::Reset | ExchangeOutcome::Silent
    )
}

impl<P: Probe> Probe for TlsProbe<P> {
    type Session = TlsSession<P::Session>;
    type Connection = TlsConnection<P::Connection>;

    const TALKS: bool = true;

    fn sends_in_parts(&self) -> bool {
        self.starttls.is_some() || self.inner.sends_in_parts()
    }

    fn begin(&mut self, session: &mut TlsSession<P::Session>, target: &Target) {
        self.inner.begin(&mut session.inner, target);
        let own = || ServerName::try_from(target.host.as_deref()?.to_owned()).ok();
        let name = self.name.clone().or_else(own);
        session.name = Some(name.unwrap_or_else(|| ServerName::IpAddress(target.address.ip().into())));
        session.said.clear();
        session.facts = None;
        session.ended = None;
        (session.is_secured, session.is_told, session.is_greeted) = (false, false, false);
        (session.has_chosen, session.hello) = (false, ClientHelloKind::default());
        session.is_plain = !self.with.includes(target.address.port());
        (session.is_tried, session.is_second, session.upgrade) = (!session.is_plain, false, self.starttls);
    }

    /// Sends nothing before the connection is accepted: computing a hello costs more than all the rest.
    fn open(
        &mut self,
        session: &mut TlsSession<P::Session>,
        channel: &mut TlsConnection<P::Connection>,
        target: &Target,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) {
        (channel.is_open, channel.upgrade, channel.ended) = (false, None, None);
        (channel.tls, channel.legacy) = (None, None);
        if session.is_plain {
            self.inner.open(&mut session.inner, &mut channel.inner, target, now, out);
        }
    }

    fn accepted(
        &mut self,
        session: &mut TlsSession<P::Session>,
        channel: &mut TlsConnection<P::Connection>,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> bool {
        if session.is_plain {
            return self.inner.accepted(&mut session.inner, &mut channel.inner, now, out);
        }
        match session.upgrade {
            Some(protocol) => channel.upgrade = Some(StarttlsUpgrade::new(protocol)),
            None => self.greet(session, channel, out),
        }
        // `open` returns the inner probe's first bytes later, so these are dropped.
        self.answer.clear();
        self.inner.accepted(&mut session.inner, &mut channel.inner, now, &mut self.answer)
    }

    fn receive(
        &mut self,
        session: &mut TlsSession<P::Session>,
        channel: &mut TlsConnection<P::Connection>,
        octets: &[u8],
        out: &mut Vec<u8>,
        scene: &mut ProbeContext<'_>,
    ) -> ProbeStep {
        if session.is_plain {
            return self.inner.receive(&mut session.inner, &mut channel.inner, octets, out, scene);
        }
        if !session.is_secured {
            let room = SAID.saturating_sub(session.said.len());
            session.said.extend_from_slice(octets.get(..room).unwrap_or(octets));
        }
        if channel.upgrade.is_some() {
            return self.upgrade(session, channel, octets, out, scene);
        }
        if let Some(hearing) = &mut channel.legacy {
            hearing.hear(octets);
            return if hearing.is_over() { ProbeStep::Close } else { ProbeStep::More };
        }
        let Some(tls) = &mut channel.tls else { return ProbeStep::Close };
        if !channel.is_open {
            tls.hearing.hear(octets);
        }
        if !tls.is_refused && self.read(session, channel, octets, out, scene) == ProbeStep::Close {
            return ProbeStep::Close;
        }
        // The library refused the handshake, but more unencrypted messages may follow.
        match &channel.tls {
            Some(tls) if tls.is_refused && tls.hearing.is_over() => ProbeStep::Close,
            _ => ProbeStep::More,
        }
    }

    fn is_nudged(&self) -> bool {
        self.inner.is_nudged()
    }

    fn on_idle(
        &mut self,
        session: &mut TlsSession<P::Session>,
        channel: &mut TlsConnection<P::Connection>,
        out: &mut Vec<u8>,
    ) {
        if session.is_plain {
            self.inner.on_idle(&mut session.inner, &mut channel.inner, out);
        }
    }

    fn on_sibling_closed(
        &mut self,
        session: &mut TlsSession<P::Session>,
        channel: &mut TlsConnection<P::Connection>,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> ProbeStep {
        if session.is_plain {
            return self.inner.on_sibling_closed(&mut session.inner, &mut channel.inner, now, out);
        }
        if !channel.is_open {
            return ProbeStep::More;
        }
        self.answer.clear();
        let Self { inner, answer, .. } = self;
        let step = inner.on_sibling_closed(&mut session.inner, &mut channel.inner, now, answer);
        self.say(channel);
        if let Some(tls) = &mut channel.tls {
            tls.flush(out);
        }
        step
    }

    fn watch(
        &mut self,
        session: &mut TlsSession<P::Session>,
        channel: &mut TlsConnection<P::Connection>,
        now: Timestamp,
    ) -> ProbeStep {
        match channel.is_open || session.is_plain {
            true => self.inner.watch(&mut session.inner, &mut channel.inner, now),
            false => ProbeStep::More,
        }
    }

    fn closed(
        &mut self,
        session: &mut TlsSession<P::Session>,
        channel: &mut TlsConnection<P::Connection>,
        how: CloseReason,
        scene: &mut ProbeContext<'_>,
    ) {
        if session.is_plain {
            self.inner.closed(&mut session.inner, &mut channel.inner, how, scene);
            return self.continue_within(session);
        }
        let tls = channel.tls.take();
        let how = channel.ended.filter(|_| how == CloseReason::Here).unwrap_or(how);
        if session.is_secured {
            self.tell(session, scene);
            if !Self::goes_within(session) {
                return;
            }
            if !channel.is_open {
                // The inner probe counts its connections, so it must see this one open, too.
                self.begin_within(session, channel, scene);
            }
            self.inner.closed(&mut session.inner, &mut channel.inner, how, scene);
            let was_ended = matches!(how, CloseReason::Here | CloseReason::Finished | CloseReason::Reset);
            let is_unanswered = self.inner.is_unanswered(&session.inner);
            let is_over = self.inner.wanted(&session.inner) == 0;
            if was_ended && is_over && is_unanswered && self.has_second(session) {
                self.inner.begin(&mut session.inner, scene.target);
                (session.hello, session.is_secured) = (ClientHelloKind::OtherProtocols, false);
            }
            return;
        }
        let alert = tls.as_ref().and_then(|tls| tls.hearing.facts.alert);
        if alert.is_some_and(|alert| alert.code == AlertCode::NO_APPLICATION_PROTOCOL)
            && self.has_second(session)
        {
            session.hello = ClientHelloKind::OtherProtocols;
            return;
        }
        let ended = match session.hello {
            ClientHelloKind::Legacy(ended) => ended,
            _ => Self::conclude(session, tls.as_deref(), how),
        };
        if self.with != TlsTargets::All && may_be_plain(ended) {
            session.is_plain = true;
            return;
        }
        let is_legacy_worthwhile = self.wants_legacy(session, tls.as_deref(), ended, how);
        let hearing = channel.legacy.take().or_else(|| tls.map(|tls| tls.hearing));
        if let Some(hearing) = hearing.filter(TlsRecordReader::has_facts) {
            self.merge(session, hearing, scene.now);
        }
        if is_legacy_worthwhile {
            session.hello = ClientHelloKind::Legacy(ended);
            return;
        }
        let ended = if session.facts.is_some() { ExchangeOutcome::Refused } else { ended };
        session.ended.get_or_insert(ended);
        self.tell(session, scene);
    }

    fn wanted(&self, session: &TlsSession<P::Session>) -> usize {
        match (session.is_secured, session.ended) {
            _ if session.is_plain => self.inner.wanted(&session.inner),
            (true, _) if Self::goes_within(session) => self.inner.wanted(&session.inner),
            (true, _) | (_, Some(_)) => 0,
            // One connection, until TLS is confirmed.
            (false, None) => 1,
        }
    }

    fn result<'s>(&self, session: &'s TlsSession<P::Session>) -> (ExchangeOutcome, &'s [u8]) {
        match (session.is_secured, session.ended) {
            _ if session.is_plain => self.inner.result(&session.inner),
            (true, _) if P::TALKS => self.inner.result(&session.inner),
            (true, _) => (ExchangeOutcome::Complete, &[]),
            (false, Some(ExchangeOutcome::Refused)) => (ExchangeOutcome::Refused, &[]),
            (false, ended) => (ended.unwrap_or(ExchangeOutcome::Ended), &session.said),
        }
    }
}

#[cfg(test)]
mod tests;
