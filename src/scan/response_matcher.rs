//! Matches of rules and fingerprints for a response, as events.
//!
//! A replay of the scan's packets gives the same events, with another source.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::Target;
use super::probe::ProbeContext;
use crate::banner::disclosure::DisclosureLimits;
use crate::banner::{
    Anomaly, Banner, GreetingBanner, KnownLines, OtherBanner, RequestHead, ResponseHead, SshBanner, TlsBanner,
};
use crate::event::{
    AlertFacts, AnomalyFacts, ApplicationFacts, Endpoint, Event, EventKind, EventSource, FlowContext,
    FlowEndpoints, GreetingFacts, HostKey, HttpFacts, OtherFacts, ProductFacts, Protocol, RuleAction, Side,
    SshFacts, SshSide, TlsFacts, TransportProtocol,
};
use crate::rules::fingerprint::FingerprintSet;
use crate::rules::{AlertContext, BannerContext, Rule, RuleMatch, RuleSet};

/// Cached facts and alerts of an SSH identification line, shared by the events of all targets with that line.
/// The scope of rules is still checked for each address and port.
#[derive(Debug, Clone)]
pub(super) struct CachedSshMatches {
    /// Facts of the identification.
    facts: Arc<SshFacts>,
    /// Rules that match it for any target: their positions in order, with their alerts; no alert for
    /// `accept`.
    matches: Vec<(usize, Option<Arc<AlertFacts>>)>,
}

/// Rules and fingerprints, shared by all probes of a scan.
#[derive(Debug, Clone)]
pub(super) struct ResponseMatcher {
    rules: Arc<RuleSet>,
    fingerprints: Option<Arc<FingerprintSet>>,
    disclosure: DisclosureLimits,
}

/// Complete response to one HTTP request.
pub(super) struct RequestAndResponse<'a> {
    /// Request.
    pub(super) request: &'a RequestHead<'a>,
    /// Response, with the kept part of the body.
    pub(super) response: &'a ResponseHead<'a>,
    /// Length of the body in bytes, kept or not.
    pub(super) body_length: u64,
    /// Number of the transaction on this target, from 0.
    pub(super) transaction: u32,
}

impl ResponseMatcher {
    pub(super) fn new(
        rules: Arc<RuleSet>,
        fingerprints: Option<Arc<FingerprintSet>>,
        disclosure: DisclosureLimits,
    ) -> Self {
        Self { rules, fingerprints, disclosure }
    }

    pub(super) fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// Reports a server's SSH identification and matching rules, with the host key that the server proved.
    pub(super) fn ssh(
        &self,
        banner: &SshBanner<'_>,
        host_key: Option<HostKey>,
        known: &mut KnownLines<CachedSshMatches>,
        scene: &mut ProbeContext<'_>,
    ) {
        let mut tell = |known: &CachedSshMatches| {
            emit(
                scene,
                Protocol::Ssh,
                None,
                EventKind::Application(ApplicationFacts::Ssh(Arc::clone(&known.facts))),
            );
            let context = context(scene.target, None, None);
            for (rule, alert) in &known.matches {
                if !self.rules.rules().get(*rule).is_some_and(|rule| rule.is_in_scope(&context)) {
                    continue;
                }
                // A rule with `accept` ends the evaluation.
                let Some(alert) = alert else { break };
                report(scene, Protocol::Ssh, None, Arc::clone(alert));
            }
        };
        match banner.kex {
            // A KEXINIT is specific to its host, so it is not cached.
            Some(_) => tell(&self.evaluate_ssh(banner, host_key)),
            None => known.with_cached(banner.identification.line, || self.evaluate_ssh(banner, None), tell),
        }
    }

    /// Evaluates an SSH identification for any target.
    fn evaluate_ssh(&self, banner: &SshBanner<'_>, host_key: Option<HostKey>) -> CachedSshMatches {
        let mut side = SshSide { host_key, ..SshSide::from(banner) };
        if let Some(fingerprints) = &self.fingerprints {
            side.fingerprint = fingerprints.ssh(side.software_version.as_bytes());
        }
        let facts = Arc::new(SshFacts { client: None, server: Some(Arc::new(side)) });
        let product = facts.server.as_ref().and_then(|side| side.fingerprint.as_ref());
        let context = BannerContext { product, ..BannerContext::default() };
        let line = banner.identification.line;
        let found = self.rules.evaluate_anywhere(&Banner::Ssh(banner.clone()), &context);
        let matches = found.iter().filter(|matched| is_effective(matched.rule)).map(|matched| {
            let accepts = matched.rule.action() == RuleAction::Accept;
            let application = || ApplicationFacts::Ssh(Arc::clone(&facts));
            let alert = (!accepts)
                .then(|| Arc::new(alert(matched, product, (line, &self.disclosure), application())));
            (matched.rule.index(), alert)
        });
        CachedSshMatches { matches: matches.collect(), facts: Arc::clone(&facts) }
    }

    /// Reports a greeting and the rules that match it.
    pub(super) fn greeting(&self, banner: &GreetingBanner<'_>, scene: &mut ProbeContext<'_>) {
        let fingerprint = self.fingerprints.as_ref().and_then(|fingerprints| fingerprints.greeting(banner));
        let facts = Arc::new(GreetingFacts { fingerprint, ..GreetingFacts::from(banner) });
        let said = ApplicationFacts::Greeting(Arc::clone(&facts));
        let product = facts.fingerprint.as_ref();
        emit(scene, said.protocol(), None, EventKind::Application(said.clone()));
        for matched in self.effective(&Banner::Greeting(*banner), &context(scene.target, product, None)) {
            let facts = alert(&matched, product, (banner.line(), &self.disclosure), said.clone());
            report(scene, said.protocol(), None, Arc::new(facts));
        }
    }

    /// Reports the first bytes of a server whose protocol is only named, and the rules that match them.
    pub(super) fn other(&self, octets: &[u8], scene: &mut ProbeContext<'_>) {
        let banner = OtherBanner::settled(Side::Server, octets);
        let facts = OtherFacts {
            name: banner.name(),
            from: Some(Side::Server),
            client: Vec::new(),
            server: banner.first.iter().copied().take(OtherFacts::TOLD).collect(),
        };
        let said = ApplicationFacts::Other(Arc::new(facts));
        emit(scene, Protocol::Other, None, EventKind::Application(said.clone()));
        for matched in self.effective(&Banner::Other(banner), &context(scene.target, None, None)) {
            let facts = alert(&matched, None, (banner.line(), &self.disclosure), said.clone());
            report(scene, Protocol::Other, None, Arc::new(facts));
        }
    }

    /// Reports a handshake and the rules that match it.
    pub(super) fn tls(&self, facts: TlsFacts, scene: &mut ProbeContext<'_>) {
        let facts = Arc::new(facts);
        let line = facts.line(Side::Server);
        let said = ApplicationFacts::Tls(Arc::clone(&facts));
        emit(scene, Protocol::Tls, None, EventKind::Application(said.clone()));
        let banner = Banner::Tls(TlsBanner { from: Side::Server, facts: &facts, line: &line });
        let context = BannerContext { now: scene.now, ..context(scene.target, None, None) };
        for matched in self.effective(&banner, &context) {
            let facts = alert(&matched, None, (banner.line(), &self.disclosure), said.clone());
            report(scene, Protocol::Tls, None, Arc::new(facts));
        }
    }

    /// Reports an HTTP transaction and the rules that match its response.
    pub(super) fn http(&self, answer: &RequestAndResponse<'_>, scene: &mut ProbeContext<'_>) {
        let mut response = self.disclosure.response(answer.response);
        response.body_length = answer.body_length;
        if let Some(fingerprints) = &self.fingerprints {
            let title = response.title.as_deref().map(str::as_bytes);
            response.fingerprint = fingerprints.http_response(answer.response, title);
        }
        let request = Some(self.disclosure.request(answer.request));
        let facts = Arc::new(HttpFacts { request, response: Some(response) });
        let product = facts.response.as_ref().and_then(|response| response.fingerprint.as_ref());
        let context = context(scene.target, product, Some(answer.request));
        let banner = Banner::Response(answer.response.clone());
        let line = answer.response.line;
        let transaction = Some(answer.transaction);
        emit(
            scene,
            Protocol::Http,
            transaction,
            EventKind::Application(ApplicationFacts::Http(Arc::clone(&facts))),
        );
        for matched in self.effective(&banner, &context) {
            let facts = alert(
                &matched,
                product,
                (line, &self.disclosure),
                ApplicationFacts::Http(Arc::clone(&facts)),
            );
            report(scene, Protocol::Http, transaction, Arc::new(facts));
        }
    }

    /// Reports one anomaly of a response.
    pub(super) fn anomaly(&self, anomaly: Anomaly, protocol: Protocol, scene: &mut ProbeContext<'_>) {
        emit(scene, protocol, None, EventKind::Anomaly(AnomalyFacts::from(anomaly)));
    }

    /// Reports the anomalies that a parser found.
    pub(super) fn anomalies(
        &self,
        anomalies: impl Iterator<Item = Anomaly>,
        protocol: Protocol,
        scene: &mut ProbeContext<'_>,
    ) {
        for anomaly in anomalies {
            self.anomaly(anomaly, protocol, scene);
        }
    }

    /// Returns the matching rules that take effect, without those that accept.
    fn effective<'r>(&'r self, banner: &Banner<'_>, context: &BannerContext<'_>) -> Vec<RuleMatch<'r>> {
        let mut matches = self.rules.evaluate(banner, context);
        matches.retain(|matched| is_effective(matched.rule) && matched.rule.action() != RuleAction::Accept);
        matches
    }
}

/// True for rules that take effect in a scan. Rules that count matches of one client do not, since a scan
/// sees a banner once. A counting rule with `accept` still ends the evaluation.
fn is_effective(rule: &Rule) -> bool {
    rule.action() == RuleAction::Accept || rule.count().is_none()
}

fn context<'a>(
    target: &Target,
    product: Option<&'a ProductFacts>,
    request: Option<&'a RequestHead<'a>>,
) -> BannerContext<'a> {
    BannerContext {
        destination: Some(target.address.ip()),
        port: Some(target.address.port()),
        product,
        request,
        ..BannerContext::default()
    }
}

fn alert(
    matched: &RuleMatch<'_>,
    product: Option<&ProductFacts>,
    (line, disclosure): (&[u8], &DisclosureLimits),
    application: ApplicationFacts,
) -> AlertFacts {
    matched.alert(AlertContext {
        from: Side::Server,
        line,
        disclosure,
        product,
        application,
        enforced: false,
    })
}

fn report(
    scene: &mut ProbeContext<'_>,
    protocol: Protocol,
    transaction: Option<u32>,
    facts: Arc<AlertFacts>,
) {
    *scene.matches += 1;
    emit(scene, protocol, transaction, EventKind::Alert(facts));
}

fn emit(scene: &mut ProbeContext<'_>, protocol: Protocol, transaction: Option<u32>, kind: EventKind) {
    let flow = FlowContext {
        id: scene.target.index,
        transport: TransportProtocol::Tcp,
        endpoints: endpoints(scene.target),
        from: Some(Side::Server),
        interface: None,
        vlan: Vec::new(),
        packet_number: None,
        transaction,
        protocol: Some(protocol),
        established: None,
        midstream: false,
    };
    scene.sink.emit(Event { timestamp: scene.now, source: EventSource::Scan, flow: Some(flow), kind });
}

/// Returns the endpoints of a target. The local end of a direct socket cannot be queried.
fn endpoints(target: &Target) -> FlowEndpoints {
    let here = match target.address.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    FlowEndpoints {
        client: Endpoint { address: here, port: 0 },
        server: Endpoint { address: target.address.ip(), port: target.address.port() },
    }
}
