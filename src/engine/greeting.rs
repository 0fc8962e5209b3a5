//! What a server says first in a protocol of greetings, listened to beside whatever else its first
//! octets may be: lines before an SSH identification look the same.

use std::sync::Arc;

use crate::banner::{Banner, GreetingBanner, Progress, greeting};
use crate::event::{Application, EventKind, GreetingFacts};
use crate::rules::Stage;
use crate::terms::Side;

use super::judge::{Judge, Matched, Question};

/// So few octets are looked at as they come; behind them only whole lines are.
const FEW: usize = 16;

/// How much of a greeting was heard.
#[derive(Debug, Default)]
pub(super) enum Hearing {
    /// Nothing yet.
    #[default]
    Open,
    /// The beginning of one.
    Amid(Vec<u8>),
    /// A whole one, or none.
    Over,
}

impl Hearing {
    /// Takes the next octets of the server.
    pub(super) fn hear(&mut self, octets: &[u8], judge: &mut Judge<'_>) {
        let port = judge.flow.server_port();
        let mut heard = match std::mem::replace(self, Self::Over) {
            Self::Open => Vec::new(),
            Self::Amid(heard) => heard,
            Self::Over => return,
        };
        let worth_a_look = heard.len() < FEW || memchr::memchr(b'\n', octets).is_some();
        heard.extend_from_slice(octets);
        if !worth_a_look && heard.len() < greeting::LINE_LIMIT {
            *self = Self::Amid(heard);
            return;
        }
        match greeting::parse(&heard, port) {
            Progress::More => *self = Self::Amid(heard),
            Progress::Never(_) => {}
            Progress::Done { value, .. } => tell(&value, judge),
        }
    }

    /// The server says no more: what there is of a greeting is all of it.
    pub(super) fn end(&mut self, judge: &mut Judge<'_>) {
        let port = judge.flow.server_port();
        if let Self::Amid(heard) = std::mem::replace(self, Self::Over)
            && let Some(banner) = greeting::unfinished(&heard, port)
        {
            tell(&banner, judge);
        }
    }

    /// Whether a greeting has begun and is not whole.
    pub(super) const fn is_amid(&self) -> bool {
        matches!(self, Self::Amid(_))
    }

    /// Whether nothing more is to be heard.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }

    /// Octets of memory held.
    pub(super) const fn memory(&self) -> usize {
        match self {
            Self::Amid(heard) => heard.capacity(),
            _ => 0,
        }
    }
}

/// Tells a greeting, and asks the rules about it.
fn tell(banner: &GreetingBanner<'_>, judge: &mut Judge<'_>) {
    let fingerprint = judge.law.fingerprints().and_then(|fingerprints| fingerprints.greeting(banner));
    let facts = Arc::new(GreetingFacts { fingerprint, ..GreetingFacts::from(banner) });
    let said = Application::Greeting(Arc::clone(&facts));
    judge.desk.counters.count_banner(said.protocol(), Side::Server);
    judge.emit(EventKind::Application(said.clone()), None, Some(said.protocol()), None);
    let question = Question {
        banner: &Banner::Greeting(*banner),
        stage: Stage::Whole,
        request: None,
        product: facts.fingerprint.as_ref(),
        transaction: None,
    };
    judge.ask(&question, &mut Matched::default(), || said.clone());
}

#[cfg(test)]
mod tests {
    use crate::engine::Decision;
    use crate::engine::testing::Setup;
    use crate::event::{Event, EventKind};

    const RULE: &str = r#"
[[rule]]
id = "old"
title = "t"
protocol = "smtp"
match.text = 'Exim 4\.8'
action = "drop"
"#;

    fn kinds(events: &[Event]) -> Vec<&'static str> {
        let name = |event: &Event| match &event.kind {
            EventKind::Application(said) => said.protocol().name(),
            EventKind::Alert(_) => "alert",
            EventKind::Drop(_) => "drop",
            _ => "other",
        };
        events.iter().map(name).collect()
    }

    #[test]
    fn the_segment_that_completes_a_forbidden_greeting_is_stopped_however_it_is_cut() {
        let greeting = b"220-mail.example\r\n220-ESMTP Exim 4.89\r\n220 ready\r\n";
        for size in [1, 2, 7, greeting.len()] {
            for early in [&b""[..], b"EHLO x\r\n", b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n\r\n"] {
                let mut talk = Setup::enforcing(RULE).open();
                if !early.is_empty() {
                    talk.client(early);
                }
                let mut pieces = greeting.chunks(size).peekable();
                while let Some(piece) = pieces.next() {
                    let decision = talk.server(piece);
                    let last = pieces.peek().is_none();
                    assert_eq!(decision == Decision::Block, last, "{size} {}", early.escape_ascii());
                }
                let told = kinds(&talk.events);
                assert!(["smtp", "alert", "drop"].iter().all(|kind| told.contains(kind)), "{told:?}");
            }
        }
    }

    #[test]
    fn other_greetings_are_told_once_and_pass() {
        let mut talk = Setup::enforcing(RULE).open();
        assert_eq!(talk.server(b"220 mail.example ESMTP Exim 4.96\r\n"), Decision::Undecided);
        talk.client(b"EHLO x\r\n");
        assert_eq!(talk.acknowledge(false), Decision::Pass);
        assert_eq!(kinds(&talk.events), ["smtp"]);
    }

    #[test]
    fn an_ssh_server_may_say_a_greeting_first() {
        let mut talk = Setup::enforcing(RULE).open();
        talk.server(b"220 hello\r\nSSH-2.0-OpenSSH_9.8\r\n");
        talk.client(b"SSH-2.0-x\r\n");
        talk.engine.finish(talk.now, &mut talk.events);
        assert_eq!(kinds(&talk.events), ["smtp", "ssh"]);
    }

    #[test]
    fn a_greeting_that_the_end_cuts_short_is_judged() {
        let mut talk = Setup::enforcing(RULE).open();
        talk.server(b"220-ESMTP Exim 4.89\r\n220-and");
        talk.engine.finish(talk.now, &mut talk.events);
        assert_eq!(kinds(&talk.events).iter().filter(|kind| **kind == "alert").count(), 1);
    }

    #[test]
    fn lines_without_end_are_gone_over_within_bounds() {
        let mut talk = Setup::enforcing(RULE).open();
        talk.server(b"220-x\r\n");
        for _ in 0..200 {
            talk.server(b"\n");
        }
        assert_eq!(kinds(&talk.events), ["smtp"]);
    }
}
