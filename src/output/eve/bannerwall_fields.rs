//! The `bannerwall` object: fields of an event that EVE lacks.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::Serialize;
use serde_json::{Map, Value};

use super::tls_extra::EveHandshake;
use crate::event::{
    AlertFacts, AnomalyFacts, ApplicationFacts, BanFacts, ChangeFacts, ConnectFacts, DropFacts, DropReason,
    Event, EventKind, FlowRecord, HookFacts, HostKey, HttpFacts, LetPass, MatchedText, OtherFacts,
    OverrideFacts, ProductFacts, Protocol, ResetFacts, Severity, VerdictFacts,
};
use crate::terms::hexadecimal;

/// All fields of `bannerwall`; a field without a value is omitted.
///
/// `banner`, `vendor`, `product`, `version`, `cpe` and `os` are about the server if it was seen, else
/// about the client. If both were seen, the client's are in `client`.
#[derive(Debug, Default, Serialize)]
pub(super) struct BannerwallFields<'a> {
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    established: Option<bool>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    midstream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    banner: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    severity: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'static str>,
    #[serde(flatten)]
    product: EveProduct<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<EveClient<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers_left_out: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    greeting: Option<EveGreeting<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<EveHandshake<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_key: Option<EveHostKey<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<EveFirstBytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enforced: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    matched: Option<&'a MatchedText>,
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    let_pass: Option<EveOverride<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advisory: Option<EveAdvisory<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round_trip_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hook: Option<EveHook<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ban: Option<EveBan>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<EveChange<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resets: Option<EveResets>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flow: Option<EveFlowVerdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<Map<String, Value>>,
}

#[derive(Debug, Default, Serialize)]
struct EveProduct<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    vendor: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    product: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpe: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    os: Option<&'a str>,
}

/// The verdict of a distribution's data about the package behind a banner.
#[derive(Debug, Serialize)]
struct EveAdvisory<'a> {
    verdict: &'static str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fixed: Option<&'a str>,
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    date: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    marker: Option<&'static str>,
}

impl<'a> EveAdvisory<'a> {
    fn new(facts: &'a VerdictFacts) -> Self {
        Self {
            verdict: facts.verdict.name(),
            reason: &facts.reason,
            fixed: facts.fixed.as_deref(),
            source: &facts.source,
            date: facts.date.as_deref(),
            marker: facts.marker,
        }
    }
}

/// An override that allowed a flow.
#[derive(Debug, Serialize)]
struct EveOverride<'a> {
    kind: &'static str,
    #[serde(flatten)]
    facts: &'a OverrideFacts,
}

impl<'a> EveOverride<'a> {
    fn new(let_pass: &'a LetPass) -> Self {
        let kind = match let_pass {
            LetPass::Exemption(_) => "exemption",
            LetPass::Action(_) => "action",
        };
        Self { kind, facts: let_pass.facts() }
    }
}

/// State of the guard's iptables rules.
#[derive(Debug, Serialize)]
struct EveHook<'a> {
    families: &'a str,
    state: &'static str,
}

/// A ban that began or ended.
#[derive(Debug, Serialize)]
struct EveBan {
    address: IpAddr,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<u64>,
}

/// A change of the inventory.
#[derive(Debug, Serialize)]
struct EveChange<'a> {
    kind: &'a str,
    address: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    protocol: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    old: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    sensor: &'a str,
}

impl<'a> EveChange<'a> {
    fn new(facts: &'a ChangeFacts) -> Self {
        Self {
            kind: &facts.kind,
            address: &facts.address,
            port: Some(facts.port).filter(|port| *port > 0),
            protocol: &facts.protocol,
            old: facts.old.as_deref(),
            new: facts.new.as_deref(),
            rule: facts.rule.as_deref(),
            why: facts.why.as_deref(),
            sensor: &facts.sensor,
        }
    }
}

/// Fields of a flow's record that EVE lacks.
#[derive(Debug, Serialize)]
struct EveFlowVerdict {
    verdict: &'static str,
    counted: &'static str,
}

/// Results of the resets for the ends of a rejected flow.
#[derive(Debug, Serialize)]
struct EveResets {
    to_client: &'static str,
    to_server: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl EveResets {
    fn new(facts: &ResetFacts) -> Self {
        let (to_client, to_server) = (facts.to_client.name(), facts.to_server.name());
        Self { to_client, to_server, reason: facts.unsent_reason() }
    }
}

/// The key that an SSH server has presented.
#[derive(Debug, Serialize)]
struct EveHostKey<'a> {
    algorithm: &'static str,
    fingerprint: &'a str,
    signature: &'static str,
}

impl<'a> EveHostKey<'a> {
    fn new(facts: &'a HostKey) -> Self {
        let HostKey { algorithm, fingerprint, signature } = facts;
        Self { algorithm, fingerprint, signature: signature.name() }
    }
}

#[derive(Debug, Serialize)]
struct EveClient<'a> {
    banner: &'a str,
    #[serde(flatten)]
    product: EveProduct<'a>,
}

/// A server's greeting, for which EVE has no field.
#[derive(Debug, Serialize)]
struct EveGreeting<'a> {
    code: &'a str,
    lines: &'a [String],
}

/// The first bytes of a protocol that is not read.
#[derive(Debug, Serialize)]
struct EveFirstBytes {
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<EveBytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<EveBytes>,
}

#[derive(Debug, Serialize)]
struct EveBytes {
    hex: String,
    text: String,
}

impl EveFirstBytes {
    fn new(facts: &OtherFacts) -> Self {
        let octets = |first: &[u8]| {
            let (hex, text) = (hexadecimal(first), OtherFacts::text(first));
            (!first.is_empty()).then_some(EveBytes { hex, text })
        };
        Self { client: octets(&facts.client), server: octets(&facts.server) }
    }
}

impl<'a> BannerwallFields<'a> {
    /// Returns the fields of `event` that EVE lacks; `stats` are the counters that EVE lacks.
    pub(super) fn new(event: &'a Event, stats: Option<Map<String, Value>>) -> Self {
        let mut own = match &event.kind {
            EventKind::Application(said) => Self::application(said),
            EventKind::Alert(facts) => Self::alert(facts),
            EventKind::Drop(facts) => Self::dropped(facts),
            EventKind::Anomaly(facts) => Self::anomaly(facts),
            EventKind::Flow(facts) => Self::flow(facts),
            EventKind::Connect(facts) => Self::connect(facts),
            EventKind::Stats(_) => Self::default(),
            EventKind::Hook(facts) => Self::hook(facts),
            EventKind::Ban(facts) => Self::ban(facts),
            EventKind::Change(facts) => Self { change: Some(EveChange::new(facts)), ..Self::default() },
        };
        own.source = event.source.name();
        own.midstream = event.flow.as_ref().is_some_and(|flow| flow.midstream);
        own.established = event.flow.as_ref().and_then(|flow| flow.established);
        own.stats = stats.filter(|stats| !stats.is_empty());
        own
    }

    fn application(said: &'a ApplicationFacts) -> Self {
        let summary = said.summary();
        let other = other(said);
        let product =
            |facts: Option<&'a ProductFacts>| facts.map_or_else(EveProduct::default, EveProduct::new);
        Self {
            banner: summary.banner,
            product: product(summary.product),
            client: summary.client.map(|(banner, facts)| EveClient { banner, product: product(facts) }),
            title: summary.title,
            reason: summary.reason.filter(|reason| !reason.is_empty()),
            headers_left_out: match said {
                ApplicationFacts::Http(facts) => Some(left_out(facts)).filter(|count| *count > 0),
                _ => None,
            },
            protocol: other.map(|_| Protocol::Other.name()),
            name: other.map(|facts| facts.name),
            first: other.map(EveFirstBytes::new),
            tls: match said {
                ApplicationFacts::Tls(facts) => Some(EveHandshake::new(facts)),
                _ => None,
            },
            host_key: match said {
                ApplicationFacts::Ssh(facts) => facts.host_key().map(EveHostKey::new),
                _ => None,
            },
            greeting: match said {
                ApplicationFacts::Greeting(facts) => {
                    Some(EveGreeting { code: &facts.code, lines: &facts.lines })
                }
                _ => None,
            },
            ..Self::default()
        }
    }

    fn alert(facts: &'a AlertFacts) -> Self {
        Self {
            banner: Some(facts.banner.as_str().into()),
            rule: Some(&facts.rule),
            action: Some(facts.action.name()),
            severity: Some(Severity::name(facts.severity)),
            from: Some(facts.from.name()),
            name: other(&facts.application).map(|facts| facts.name),
            // In monitor mode it shows that `action` was not applied.
            enforced: facts.action.blocks().then_some(facts.blocked),
            matched: facts.matched.as_deref(),
            let_pass: facts.let_pass.as_ref().map(EveOverride::new),
            advisory: facts.verdict.as_deref().map(EveAdvisory::new),
            product: EveProduct::new(&facts.product),
            ..Self::default()
        }
    }

    fn dropped(facts: &'a DropFacts) -> Self {
        let resets = facts.resets.as_deref().map(EveResets::new);
        Self { rule: facts.rule.as_deref(), enforced: Some(true), resets, ..Self::default() }
    }

    fn anomaly(facts: &'a AnomalyFacts) -> Self {
        Self { detail: Some(&facts.detail), ..Self::default() }
    }

    fn flow(facts: &'a FlowRecord) -> Self {
        Self {
            rule: facts.rule.as_deref(),
            reason: facts.reason.map(DropReason::name),
            flow: Some(EveFlowVerdict { verdict: facts.verdict.name(), counted: facts.counted() }),
            ..Self::default()
        }
    }

    fn hook(facts: &'a HookFacts) -> Self {
        let hook = EveHook { families: &facts.families, state: facts.state };
        Self { hook: Some(hook), detail: Some(&facts.detail), ..Self::default() }
    }

    fn ban(facts: &'a BanFacts) -> Self {
        let seconds = facts.time.map(|time| time.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX));
        Self {
            ban: Some(EveBan { address: facts.address, state: facts.state, seconds }),
            rule: facts.rule.as_deref(),
            banner: (!facts.banner.is_empty()).then(|| facts.banner.as_str().into()),
            detail: facts.detail.as_deref(),
            ..Self::default()
        }
    }

    fn connect(facts: &'a ConnectFacts) -> Self {
        Self {
            banner: (!facts.said.is_empty()).then(|| facts.said.as_str().into()),
            reason: Some(facts.reason.as_ref()).filter(|reason| !reason.is_empty()),
            round_trip_us: facts.round_trip.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
            waited_ms: facts.waited_ms,
            ..Self::default()
        }
    }
}

fn left_out(facts: &HttpFacts) -> u32 {
    let request = facts.request.as_ref().map_or(0, |request| request.left_out);
    request.saturating_add(facts.response.as_ref().map_or(0, |response| response.left_out))
}

/// Returns the facts of a protocol that is not read.
fn other(said: &ApplicationFacts) -> Option<&OtherFacts> {
    match said {
        ApplicationFacts::Other(facts) => Some(facts),
        _ => None,
    }
}

impl<'a> EveProduct<'a> {
    fn new(facts: &'a ProductFacts) -> Self {
        Self {
            vendor: facts.vendor.as_deref(),
            product: facts.product.as_deref(),
            version: facts.version.as_deref(),
            cpe: facts.cpe.as_deref(),
            os: facts.os.as_deref(),
        }
    }
}
