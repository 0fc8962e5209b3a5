//! Hellos that are whole, and what rules and policies say of them.

use std::sync::Arc;

use super::association::QuicAssociation;
use super::quic_connection::{HelloState, QuicConnection};
use crate::banner::tls::{self, CLIENT_HELLO};
use crate::banner::{Banner, TlsBanner};
use crate::engine::banner_inspector::BannerInspector;
use crate::engine::dialogue::{DialogueFinding, FindingSink, FoundBanner};
use crate::event::{ApplicationFacts, OtherFacts, Protocol, TlsFacts};
use crate::rules::{BannerStage, Policy, PolicyProtocol, PolicyRuleResult};
use crate::terms::{Anomaly, Side, TransportProtocol};

impl QuicAssociation {
    /// Judges the hellos that are whole by now. Those that are to be stopped are suspects.
    pub(super) fn judge_hellos(&mut self, judge: &mut BannerInspector<'_>) {
        std::mem::swap(&mut self.reports, &mut judge.reports);
        for attempt in &mut self.attempts {
            if matches!(attempt.state, HelloState::Undecided | HelloState::Judged) {
                attempt.judge_hellos(judge);
            }
        }
        judge.emit_suppressed_rules();
        std::mem::swap(&mut self.reports, &mut judge.reports);
    }
}

impl QuicConnection {
    fn judge_hellos(&mut self, judge: &mut BannerInspector<'_>) {
        let stopped = judge.outcome.stop.is_some();
        loop {
            let hello = match self.hellos.next_message() {
                Ok(None) => break,
                Ok(Some((CLIENT_HELLO, body))) => {
                    judge.take(DialogueFinding::Bytes(body.len()));
                    tls::client(body, TransportProtocol::Udp).ok_or(Anomaly::TlsMalformed)
                }
                Ok(Some(_)) | Err(_) => Err(Anomaly::QuicMalformed),
            };
            self.state = HelloState::Judged;
            match hello {
                Ok(client) => {
                    let quic = Some(self.version);
                    self.judge(TlsFacts { client: Some(client), quic, ..TlsFacts::default() }, judge);
                }
                Err(anomaly) => {
                    judge.take(DialogueFinding::Odd(anomaly));
                    break;
                }
            }
        }
        if !stopped && judge.outcome.stop.is_some() {
            self.state = if judge.enforces() { HelloState::Suspect } else { HelloState::Judged };
        }
    }

    fn judge(&mut self, facts: TlsFacts, judge: &mut BannerInspector<'_>) {
        if self.before.take().is_some_and(|before| *before == facts) {
            self.facts = Some(Arc::new(facts));
            return;
        }
        let facts = Arc::new(facts);
        judge.take(DialogueFinding::Seen(Protocol::Tls, Side::Client));
        let policy = judge.settings.rules.policy(&judge.flow.endpoints());
        let policy = policy.filter(|policy| !policy.allows_any()).cloned();
        judge.asks.clone_from(&policy);
        let line = facts.line(Side::Client);
        let banner = Banner::Tls(TlsBanner { from: Side::Client, facts: &facts, line: &line });
        judge.take(DialogueFinding::Banner(FoundBanner {
            banner: &banner,
            stage: BannerStage::Whole,
            request: None,
            product: None,
            transaction: None,
            matched: &mut self.matched,
            facts: &|| ApplicationFacts::Tls(Arc::clone(&facts)),
        }));
        if let Some(policy) = policy {
            let opinions = std::mem::take(&mut judge.outcome.opinions);
            if !is_allowed(&policy, &opinions) {
                let facts = OtherFacts { name: "quic", from: Some(Side::Client), ..OtherFacts::default() };
                judge.refuse(&policy, facts);
            }
        }
        let said = ApplicationFacts::Tls(Arc::clone(&facts));
        judge.take(DialogueFinding::Exchange(said, None));
        self.facts.get_or_insert(facts);
    }
}

/// True if a policy lets a hello through: as TLS, or by a rule that it names.
fn is_allowed(policy: &Policy, opinions: &[(usize, PolicyRuleResult)]) -> bool {
    let tls = policy
        .allow()
        .iter()
        .any(|allowed| matches!(allowed, PolicyProtocol::Other(name) if name.name() == "tls"));
    tls || opinions.iter().any(|(_, opinion)| *opinion == PolicyRuleResult::Matches)
}
