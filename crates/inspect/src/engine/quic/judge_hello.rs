//! Hellos that are whole, and what rules and policies say of them.

use std::sync::Arc;

use super::association::Association;
use super::attempt::{Attempt, State};
use crate::banner::tls::{self, CLIENT_HELLO};
use crate::banner::{Banner, TlsBanner};
use crate::engine::dialogue::{Finding, FindingSink, FoundBanner};
use crate::engine::judge::Judge;
use crate::event::{Application, OtherFacts, Protocol, TlsFacts};
use crate::rules::{Allowed, Opinion, Policy, Stage};
use crate::terms::{Anomaly, Side, Transport};

impl Association {
    /// Judges the hellos that are whole by now. Those that are to be stopped are suspects.
    pub(super) fn judge_hellos(&mut self, judge: &mut Judge<'_>) {
        std::mem::swap(&mut self.reports, &mut judge.reports);
        for attempt in &mut self.attempts {
            if matches!(attempt.state, State::Undecided | State::Judged) {
                attempt.judge_hellos(judge);
            }
        }
        judge.tell_cut_alerts();
        std::mem::swap(&mut self.reports, &mut judge.reports);
    }
}

impl Attempt {
    fn judge_hellos(&mut self, judge: &mut Judge<'_>) {
        let stopped = judge.outcome.stop.is_some();
        loop {
            let hello = match self.hellos.next_message() {
                Ok(None) => break,
                Ok(Some((CLIENT_HELLO, body))) => {
                    judge.take(Finding::Bytes(body.len()));
                    tls::client(body, Transport::Udp).ok_or(Anomaly::TlsMalformed)
                }
                Ok(Some(_)) | Err(_) => Err(Anomaly::QuicMalformed),
            };
            self.state = State::Judged;
            match hello {
                Ok(client) => {
                    let quic = Some(self.version);
                    self.judge(TlsFacts { client: Some(client), quic, ..TlsFacts::default() }, judge);
                }
                Err(anomaly) => {
                    judge.take(Finding::Odd(anomaly));
                    break;
                }
            }
        }
        if !stopped && judge.outcome.stop.is_some() {
            self.state = if judge.enforces() { State::Suspect } else { State::Judged };
        }
    }

    fn judge(&mut self, facts: TlsFacts, judge: &mut Judge<'_>) {
        if self.before.take().is_some_and(|before| *before == facts) {
            self.facts = Some(Arc::new(facts));
            return;
        }
        let facts = Arc::new(facts);
        judge.take(Finding::Seen(Protocol::Tls, Side::Client));
        let policy = judge.settings.rules.policy(&judge.flow.endpoints());
        let policy = policy.filter(|policy| !policy.allows_any()).cloned();
        judge.asks.clone_from(&policy);
        let line = facts.line(Side::Client);
        let banner = Banner::Tls(TlsBanner { from: Side::Client, facts: &facts, line: &line });
        judge.take(Finding::Banner(FoundBanner {
            banner: &banner,
            stage: Stage::Whole,
            request: None,
            product: None,
            transaction: None,
            matched: &mut self.matched,
            facts: &|| Application::Tls(Arc::clone(&facts)),
        }));
        if let Some(policy) = policy {
            let opinions = std::mem::take(&mut judge.outcome.opinions);
            if !is_allowed(&policy, &opinions) {
                let facts = OtherFacts { name: "quic", from: Some(Side::Client), ..OtherFacts::default() };
                judge.refuse(&policy, facts);
            }
        }
        let said = Application::Tls(Arc::clone(&facts));
        judge.take(Finding::Exchange(said, None));
        self.facts.get_or_insert(facts);
    }
}

/// True if a policy lets a hello through: as TLS, or by a rule that it names.
fn is_allowed(policy: &Policy, opinions: &[(usize, Opinion)]) -> bool {
    let tls =
        policy.allow().iter().any(|allowed| matches!(allowed, Allowed::Other(name) if name.name() == "tls"));
    tls || opinions.iter().any(|(_, opinion)| *opinion == Opinion::Matches)
}
