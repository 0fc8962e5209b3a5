//! The TLS handshake on a connection, and the data within.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use ring::rand::{self, Random, SystemRandom};
use rustls::ClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};

use super::super::{CloseReason, Probe, ProbeContext, ProbeStep};
use super::record_reader::TlsRecordReader;
use super::starttls::UpgradeProgress;
use super::{ClientHelloKind, TlsConnection, TlsHandshake, TlsProbe, TlsSession};
use crate::event::{Timestamp, TlsAlert, TlsClient, TlsFacts};
use crate::scan::ExchangeOutcome;
use crate::scan::tls::legacy_hello;
use crate::terms::{AlertCode, Side, TlsVersion};

impl<P: Probe> TlsProbe<P> {
    /// Returns the application protocols to offer.
    fn protocols(&self, session: &TlsSession<P::Session>) -> &[String] {
        match session.hello {
            ClientHelloKind::Preferred => &self.alpn,
            ClientHelloKind::OtherProtocols => &self.second,
            ClientHelloKind::Legacy(_) => &[],
        }
    }

    /// True if the server may get another offer, because it chose none of the first protocols.
    pub(super) fn has_second(&self, session: &TlsSession<P::Session>) -> bool {
        session.hello == ClientHelloKind::Preferred && !self.second.is_empty() && !session.has_chosen
    }

    /// Sends the hello.
    pub(super) fn greet(
        &self,
        session: &mut TlsSession<P::Session>,
        channel: &mut TlsConnection<P::Connection>,
        out: &mut Vec<u8>,
    ) {
        if let ClientHelloKind::Legacy(_) = session.hello {
            let random = rand::generate(&SystemRandom::new()).map_or([0; 32], Random::expose);
            out.extend(legacy_hello(session.name.as_ref(), random));
            channel.legacy = Some(TlsRecordReader::default());
            return;
        }
        let Some(name) = session.name.clone() else { return };
        let alpn = self.protocols(session).iter().map(|name| name.clone().into_bytes()).collect();
        let Ok(mut connection) = ClientConnection::new_with_alpn(Arc::clone(&self.config), name, alpn) else {
            return;
        };
        // The inner probe limits its own bytes; the library's default limit would truncate them.
        connection.set_buffer_limit(None);
        let mut tls =
            Box::new(TlsHandshake { connection, hearing: TlsRecordReader::default(), is_refused: false });
        tls.flush(out);
        channel.tls = Some(tls);
    }

    /// Continues an upgrade to TLS.
    pub(super) fn upgrade(
        &self,
        session: &mut TlsSession<P::Session>,
        channel: &mut TlsConnection<P::Connection>,
        octets: &[u8],
        out: &mut Vec<u8>,
        scene: &mut ProbeContext<'_>,
    ) -> ProbeStep {
        let Some(upgrade) = &mut channel.upgrade else { return ProbeStep::Close };
        let is_greeted = &mut session.is_greeted;
        let way = upgrade.take(octets, out, &mut |banner| {
            if !std::mem::replace(is_greeted, true) {
                self.judge.greeting(banner, scene);
            }
        });
        let ended = match way {
            UpgradeProgress::More => return ProbeStep::More,
            UpgradeProgress::Granted => {
                channel.upgrade = None;
                session.said.clear();
                self.greet(session, channel, out);
                return ProbeStep::More;
            }
            UpgradeProgress::Refused => ExchangeOutcome::Refused,
            UpgradeProgress::Foreign => ExchangeOutcome::Foreign,
        };
        session.ended.get_or_insert(ended);
        ProbeStep::Close
    }

    /// Reads records.
    pub(super) fn read(
        &mut self,
        session: &mut TlsSession<P::Session>,
        channel: &mut TlsConnection<P::Connection>,
        mut octets: &[u8],
        out: &mut Vec<u8>,
        scene: &mut ProbeContext<'_>,
    ) -> ProbeStep {
        while !octets.is_empty() {
            let Some(tls) = &mut channel.tls else { return ProbeStep::Close };
            if !matches!(tls.connection.read_tls(&mut octets), Ok(1..)) {
                return ProbeStep::Close;
            }
            let went = tls.connection.process_new_packets();
            if let (Err(error), false) = (&went, channel.is_open) {
                tls.is_refused = true;
                note_alert(&mut tls.hearing.facts, error);
                return ProbeStep::More;
            }
            if !channel.is_open && !tls.connection.is_handshaking() {
                self.secured(session, channel, scene);
                if !Self::goes_within(session) {
                    return ProbeStep::Close;
                }
                self.begin_within(session, channel, scene);
            }
            let step = self.deliver(session, channel, scene);
            if let Err(error) = went {
                self.broke(session, channel, &error);
                return ProbeStep::Close;
            }
            if step == ProbeStep::Close {
                return ProbeStep::Close;
            }
        }
        if let Some(tls) = &mut channel.tls {
            tls.flush(out);
        }
        ProbeStep::More
    }

    /// Collects the facts of a completed handshake.
    fn secured(
        &mut self,
        session: &mut TlsSession<P::Session>,
        channel: &mut TlsConnection<P::Connection>,
        scene: &ProbeContext<'_>,
    ) {
        let Some(tls) = &mut channel.tls else { return };
        if std::mem::replace(&mut session.is_secured, true) {
            return;
        }
        session.said.clear();
        let mut facts = std::mem::take(&mut tls.hearing.facts);
        let alpn = tls.connection.alpn_protocol();
        session.has_chosen = alpn.is_some();
        if Self::goes_within(session) {
            if session.is_second {
                self.inner.begin(&mut session.inner, scene.target);
            }
            self.inner.negotiated(&mut session.inner, scene.target, alpn);
        }
        let server = facts.server.get_or_insert_default();
        server.alpn = alpn.map(|name| String::from_utf8_lossy(name).into_owned());
        if let Some(chain) = tls.connection.peer_certificates() {
            self.appraise(session, chain, &mut facts, scene.now);
        }
        session.facts = Some(facts);
    }

    /// Adds a chain's certificates, and the result of verifying them, to the server's facts.
    fn appraise(
        &mut self,
        session: &TlsSession<P::Session>,
        chain: &[CertificateDer<'static>],
        facts: &mut TlsFacts,
        now: Timestamp,
    ) {
        let name = session.name.as_ref().filter(|name| matches!(name, ServerName::DnsName(_)));
        let appraisal = self.appraiser.appraise(chain, name, now);
        if let Some(server) = &mut facts.server {
            server.certificates.clone_from(&appraisal.certificates);
        }
        facts.verification.clone_from(&appraisal.verification);
    }

    /// Merges unencrypted facts with those of an earlier connection.
    pub(super) fn merge(
        &mut self,
        session: &mut TlsSession<P::Session>,
        hearing: TlsRecordReader,
        now: Timestamp,
    ) {
        let TlsRecordReader { mut facts, chain, .. } = hearing;
        if !chain.is_empty() {
            self.appraise(session, &chain, &mut facts, now);
        }
        // The first alert answers the newer hello.
        let alert = session.facts.take().and_then(|earlier| earlier.alert);
        facts.alert = alert.or(facts.alert);
        session.facts = Some(facts);
    }

    /// True if the server refused the library's hello, and may accept the one for old servers.
    pub(super) fn wants_legacy(
        &self,
        session: &TlsSession<P::Session>,
        tls: Option<&TlsHandshake>,
        ended: ExchangeOutcome,
        how: CloseReason,
    ) -> bool {
        let is_refused =
            matches!(ended, ExchangeOutcome::Refused | ExchangeOutcome::Ended | ExchangeOutcome::Reset);
        let is_unheard = tls.is_some_and(|tls| tls.hearing.facts.server.is_none());
        is_refused
            && is_unheard
            && how != CloseReason::Expired
            && !matches!(session.hello, ClientHelloKind::Legacy(_))
    }

    /// Starts the inner probe.
    pub(super) fn begin_within(
        &mut self,
        session: &mut TlsSession<P::Session>,
        channel: &mut TlsConnection<P::Connection>,
        scene: &ProbeContext<'_>,
    ) {
        channel.is_open = true;
        self.answer.clear();
        let Self { inner, answer, .. } = self;
        inner.open(&mut session.inner, &mut channel.inner, scene.target, scene.now, answer);
        self.say(channel);
    }

    /// Passes decrypted bytes to the inner probe.
    fn deliver(
        &mut self,
        session: &mut TlsSession<P::Session>,
        channel: &mut TlsConnection<P::Connection>,
        scene: &mut ProbeContext<'_>,
    ) -> ProbeStep {
        let Some(tls) = channel.tls.as_mut().filter(|_| channel.is_open) else { return ProbeStep::More };
        self.heard.clear();
        // An error means that no more bytes are available; the bytes before it are kept.
        let is_over = tls.connection.reader().read_to_end(&mut self.heard).is_ok();
        let mut step = ProbeStep::More;
        if !self.heard.is_empty() {
            self.tell(session, scene);
            self.answer.clear();
            let Self { inner, heard, answer, .. } = self;
            step = inner.receive(&mut session.inner, &mut channel.inner, heard, answer, scene);
            self.say(channel);
        }
        if is_over && step == ProbeStep::More {
            channel.ended = Some(CloseReason::Finished);
            step = ProbeStep::Close;
        }
        step
    }

    /// Encrypts the inner probe's bytes.
    pub(super) fn say(&mut self, channel: &mut TlsConnection<P::Connection>) {
        if let Some(tls) = &mut channel.tls
            && tls.connection.writer().write_all(&self.answer).is_err()
        {
            channel.ended = Some(CloseReason::Reset);
        }
    }

    /// Records that a server ended a connection with an alert, or sent bytes that cannot be decrypted.
    fn broke(
        &self,
        session: &mut TlsSession<P::Session>,
        channel: &mut TlsConnection<P::Connection>,
        error: &rustls::Error,
    ) {
        channel.ended = Some(CloseReason::Reset);
        if let Some(facts) = &mut session.facts {
            note_alert(facts, error);
        }
    }

    /// Reports the handshake once.
    pub(super) fn tell(&self, session: &mut TlsSession<P::Session>, scene: &mut ProbeContext<'_>) {
        let Some(mut facts) = session.facts.take() else { return };
        if std::mem::replace(&mut session.is_told, true) {
            return;
        }
        facts.client = Some(self.offered(session));
        self.judge.tls(facts, scene);
    }

    /// Returns the offer, as far as it matters for the server's facts.
    fn offered(&self, session: &TlsSession<P::Session>) -> TlsClient {
        let names = match &session.name {
            Some(ServerName::DnsName(name)) => vec![name.as_ref().to_owned()],
            _ => Vec::new(),
        };
        let version = match session.hello {
            ClientHelloKind::Legacy(_) => TlsVersion::TLS_1_2,
            _ => TlsVersion::TLS_1_3,
        };
        TlsClient { version, names, alpn: self.protocols(session).to_vec(), ..TlsClient::default() }
    }

    /// Returns the result of an exchange without TLS.
    pub(super) fn conclude(
        session: &TlsSession<P::Session>,
        tls: Option<&TlsHandshake>,
        how: CloseReason,
    ) -> ExchangeOutcome {
        match (tls, how) {
            (Some(tls), _) if tls.hearing.is_foreign() => ExchangeOutcome::Foreign,
            (Some(tls), _) if tls.is_refused || tls.hearing.facts.alert.is_some() => ExchangeOutcome::Refused,
            (_, CloseReason::Here | CloseReason::Finished) => ExchangeOutcome::Ended,
            (_, CloseReason::Reset) => ExchangeOutcome::Reset,
            (_, CloseReason::Silent | CloseReason::Expired) if session.said.is_empty() => {
                ExchangeOutcome::Silent
            }
            (_, CloseReason::Silent | CloseReason::Expired) => ExchangeOutcome::TimedOut,
            (_, CloseReason::Failed(error) | CloseReason::Broke(error)) => ExchangeOutcome::Failed(error),
        }
    }
}

impl TlsHandshake {
    /// Appends the library's pending records to `out`.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        while self.connection.wants_write() && self.connection.write_tls(out).is_ok_and(|count| count > 0) {}
    }
}

/// Records an encrypted alert.
fn note_alert(facts: &mut TlsFacts, error: &rustls::Error) {
    if let rustls::Error::AlertReceived(alert) = error {
        let code = AlertCode(u8::from(*alert));
        facts.alert.get_or_insert(TlsAlert { from: Side::Server, fatal: true, code });
    }
}
