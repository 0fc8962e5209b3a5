//! The probe that asks HTTP requests: any number a host, each once, pipelined over one connection
//! that is kept, with every rule that needs an answer seeing it.
//!
//! | module | what it owns |
//! |---|---|
//! | `plan` | what is asked |
//! | `asker` | when, and on which connection |
//! | `reader` | where an answer ends |

mod asker;
mod plan;
mod reader;

use std::time::Duration;

use super::super::judge::{Answer, Judge};
use super::super::{Config, Conversation, HttpOptions, Target};
use super::{Closed, Probe, Scene, Step};
use crate::banner::Protocol;
use crate::event::{AnomalyFacts, AnomalyLayer, Timestamp};
use asker::{Asker, Line};
use plan::{Plan, write_host};
use reader::{Advanced, Delivered, Reader};

/// Octets of the first answer that are kept for the outcome.
const BANNER: usize = 1024;
/// A connection is stalled when it was silent this many times longer than ever before...
const PATIENCE: u32 = 8;
/// ...but not before this.
const SHORTEST_STALL: Duration = Duration::from_millis(200);

/// Asks requests and reads answers.
#[derive(Debug)]
pub(in super::super) struct Http {
    judge: Judge,
    plan: Plan,
    pipeline: bool,
    connections: usize,
    body_limit: usize,
    body_cap: u64,
}

/// One host.
#[derive(Debug, Default)]
pub(in super::super) struct Host {
    asker: Asker,
    /// The `Host` field's value.
    name: Vec<u8>,
    /// The beginning of the first answer.
    banner: Vec<u8>,
    transactions: u32,
    /// The longest silence that an answer ended.
    longest_gap: Duration,
    /// Stalls so far: each makes the next one be waited for twice as long.
    stalls: u32,
    /// A 408 was not taken for an answer, once.
    excused: bool,
    ended: Option<Conversation>,
}

/// One connection to it.
#[derive(Debug, Default)]
pub(in super::super) struct Talk {
    line: Line,
    reader: Option<Reader>,
    /// When something came last.
    progress: Timestamp,
    foreign: bool,
}

impl Http {
    pub(in super::super) fn new(judge: Judge, options: &HttpOptions, config: &Config) -> Self {
        let plan = Plan::new(&options.requests, &judge.rules().needs().requests, !options.pipeline);
        Self {
            plan,
            pipeline: options.pipeline,
            connections: options.host_connections,
            body_limit: options.body_limit,
            body_cap: u64::try_from(config.byte_limit).unwrap_or(u64::MAX),
            judge,
        }
    }

    /// Puts requests on a connection.
    fn fill(&self, host: &mut Host, talk: &mut Talk, out: &mut Vec<u8>) {
        let (asker, name) = (&mut host.asker, &host.name);
        asker.fill(&mut talk.line, &self.plan, |number| {
            if let Some(request) = self.plan.get(number) {
                request.write(name, out);
            }
        });
    }

    /// Reads every whole answer on a connection.
    fn read(&self, host: &mut Host, talk: &mut Talk, mut octets: &[u8], scene: &mut Scene<'_>) -> Step {
        let Some(reader) = &mut talk.reader else { return Step::Close };
        reader.take(&mut octets);
        loop {
            let Some(front) = talk.line.front() else {
                if !reader.pending().is_empty() {
                    let detail = "octets came that answer no request";
                    self.judge.anomaly(anomaly("http_unsolicited_response", detail), Protocol::Http, scene);
                    return Step::Close;
                }
                return Step::More;
            };
            let method = self.plan.get(front).map(plan::Planned::method);
            let mut excused = false;
            let advanced = reader.advance(&mut octets, method, self.body_cap, |delivered| {
                // The server had enough of waiting, before it read this request: no answer to it.
                excused = delivered.response.status == 408 && !host.excused;
                if !excused {
                    self.deliver(front, &host.name, &mut host.transactions, &delivered, scene);
                }
            });
            match advanced {
                Advanced::More => return Step::More,
                Advanced::Answered { .. } if excused => {
                    host.excused = true;
                    return Step::Close;
                }
                Advanced::Answered { persistent } => {
                    host.asker.answer(&mut talk.line, persistent);
                    if !persistent {
                        return Step::Close;
                    }
                }
                Advanced::Foreign => {
                    talk.foreign = true;
                    return Step::Close;
                }
            }
        }
    }

    /// Reports one answer.
    fn deliver(
        &self,
        number: u16,
        name: &[u8],
        transactions: &mut u32,
        delivered: &Delivered<'_>,
        scene: &mut Scene<'_>,
    ) {
        let Some(planned) = self.plan.get(number) else { return };
        let answer = Answer {
            request: &planned.request(name),
            response: &delivered.response,
            body_length: delivered.body_length,
            transaction: *transactions,
        };
        *transactions += 1;
        self.judge.anomalies(delivered.anomalies.iter(), Protocol::Http, scene);
        if let Some(hostile) = delivered.hostile {
            self.judge.anomaly(anomaly(hostile.name(), hostile.detail()), Protocol::Http, scene);
        }
        self.judge.http(&answer, scene);
    }
}

fn anomaly(name: &'static str, detail: &str) -> AnomalyFacts {
    AnomalyFacts { layer: AnomalyLayer::Application, name, detail: detail.to_owned() }
}

impl Probe for Http {
    type Session = Host;
    type Connection = Talk;

    const TALKS: bool = true;

    fn begin(&mut self, host: &mut Host, target: &Target) {
        host.asker.begin(self.plan.len(), self.pipeline, self.connections);
        host.name.clear();
        write_host(target, &mut host.name);
        host.banner.clear();
        host.transactions = 0;
        host.longest_gap = Duration::ZERO;
        host.stalls = 0;
        host.excused = false;
        host.ended = None;
    }

    fn open(
        &mut self,
        host: &mut Host,
        talk: &mut Talk,
        _target: &Target,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) {
        talk.reader.get_or_insert_with(|| Reader::new(self.body_limit)).clear();
        talk.line = Line::default();
        talk.progress = now;
        talk.foreign = false;
        self.fill(host, talk, out);
    }

    fn receive(
        &mut self,
        host: &mut Host,
        talk: &mut Talk,
        octets: &[u8],
        out: &mut Vec<u8>,
        scene: &mut Scene<'_>,
    ) -> Step {
        host.longest_gap = host.longest_gap.max(scene.now.since(talk.progress));
        talk.progress = scene.now;
        if host.asker.answered() == 0 {
            let room = BANNER.saturating_sub(host.banner.len());
            host.banner.extend_from_slice(octets.get(..room).unwrap_or(octets));
        }
        if self.read(host, talk, octets, scene) == Step::Close {
            return Step::Close;
        }
        self.fill(host, talk, out);
        if talk.line.is_idle() { Step::Close } else { Step::More }
    }

    fn is_watched(&self, host: &Host) -> bool {
        host.asker.is_plural()
    }

    fn watch(&mut self, host: &mut Host, talk: &mut Talk, now: Timestamp) -> Step {
        if host.asker.answered() == 0 || talk.line.is_idle() {
            return Step::More;
        }
        let patience = (host.longest_gap * PATIENCE).max(SHORTEST_STALL) * (1 << host.stalls.min(6));
        if now.since(talk.progress) < patience {
            return Step::More;
        }
        host.stalls += 1;
        Step::Close
    }

    fn closed(&mut self, host: &mut Host, talk: &mut Talk, how: Closed, scene: &mut Scene<'_>) {
        let front = talk.line.front();
        if let (Some(number), Some(reader), Closed::Finished) = (front, &mut talk.reader, how) {
            let whole = reader.end(false, |delivered| {
                self.deliver(number, &host.name, &mut host.transactions, &delivered, scene);
            });
            if whole {
                host.asker.answer(&mut talk.line, false);
            }
        }
        if talk.line.is_idle() {
            return;
        }
        host.ended = Some(match how {
            _ if talk.foreign => Conversation::Foreign,
            Closed::Here | Closed::Finished => Conversation::Ended,
            Closed::Reset => Conversation::Reset,
            Closed::Silent if host.banner.is_empty() => Conversation::Silent,
            Closed::Silent | Closed::Expired => Conversation::TimedOut,
            Closed::Failed(error) | Closed::Broke(error) => Conversation::Failed(error),
        });
        let first = host.asker.answered() == 0;
        if matches!(how, Closed::Failed(_)) {
            return host.asker.put_back(&mut talk.line);
        }
        host.asker.end(&mut talk.line, &self.plan);
        if how == Closed::Expired || (first && (talk.foreign || how == Closed::Silent)) {
            host.asker.give_up();
        }
        // What there is of an answer is better than nothing, when nothing better will come.
        if let (Some(number), Some(reader), true) = (front, &mut talk.reader, host.asker.is_over()) {
            reader.end(true, |delivered| {
                self.deliver(number, &host.name, &mut host.transactions, &delivered, scene);
            });
        }
    }

    fn wanted(&self, host: &Host) -> usize {
        host.asker.wanted()
    }

    fn result<'s>(&self, host: &'s Host) -> (Conversation, &'s [u8]) {
        let conversation = match host.ended {
            _ if host.asker.is_complete() => Conversation::Complete,
            ended => ended.unwrap_or(Conversation::Ended),
        };
        (conversation, &host.banner)
    }
}
