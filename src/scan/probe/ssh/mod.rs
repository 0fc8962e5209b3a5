//! The probe that reads SSH identifications.
//!
//! A server speaks first (RFC 4253 section 4.2), perhaps some lines of text before its identification, and in
//! pieces of any size. Where rules ask for the KEXINIT the probe sends an identification of its own with the
//! connect, since many servers wait for one before their KEXINIT; else only to who is silent for a while:
//! multiplexers (sslh) don't know what they are asked for before. For the host key it goes on with a key
//! exchange, as far as the server's reply.

mod agreement;
mod exchange;
mod proof;
#[cfg(test)]
mod tests;

use super::super::judge::{Judge, Known};
use super::super::{Conversation, Target};
use super::{Closed, Probe, Scene, Step};
use crate::banner::{KexInit, KnownLines, Progress, Protocol, Side, SshBanner, host_key, kex, ssh};
use crate::event::{HostKey, Timestamp};
use crate::scan::config::SshOptions;
use exchange::{Exchange, Hello};

/// What the probe says it is.
const IDENTIFICATION: &[u8] = concat!("SSH-2.0-bannerwall_", env!("CARGO_PKG_VERSION"), "\r\n").as_bytes();
/// A banner's memory is kept for the next target up to this size.
const KEPT: usize = 1024;

/// Reads identifications, and the KEXINIT where a rule needs it.
#[derive(Debug)]
pub(in super::super) struct Ssh {
    judge: Judge,
    known: KnownLines<Known>,
    byte_limit: usize,
    /// The KEXINIT is read.
    kex: bool,
    /// The server is asked for its key.
    host_key: bool,
}

/// What one target has said so far.
#[derive(Debug)]
pub(in super::super) struct Said {
    collected: Vec<u8>,
    result: Conversation,
    over: bool,
    /// Our own identification is sent.
    greeted: bool,
    exchange: Asking,
}

/// How far the question for a host key is.
#[derive(Debug, Default)]
enum Asking {
    #[default]
    NotBegun,
    Waits(Box<Exchange>),
    Over(Option<HostKey>),
}

impl Default for Said {
    fn default() -> Self {
        Self {
            collected: Vec::new(),
            result: Conversation::None,
            over: false,
            greeted: false,
            exchange: Asking::NotBegun,
        }
    }
}

impl Ssh {
    /// Reads the KEXINIT where a rule asks for it, or an option does.
    pub(in super::super) fn new(judge: Judge, options: SshOptions) -> Self {
        let SshOptions { byte_limit, hassh, host_key } = options;
        let kex = hassh || host_key || judge.rules().needs().kex;
        Self { judge, known: KnownLines::default(), byte_limit, kex, host_key }
    }

    /// Looks at what was collected; `last` when no more will come. What is to be sent is appended to `out`.
    fn look(&mut self, said: &mut Said, last: bool, out: &mut Vec<u8>, scene: &mut Scene<'_>) -> Step {
        let (read, consumed) = match ssh::identify(Side::Server, &said.collected) {
            Progress::Done { value, consumed } => (value, consumed),
            Progress::Never(_) => return conclude(said, Conversation::Foreign),
            Progress::More if said.collected.len() >= self.byte_limit => {
                return conclude(said, Conversation::TooLong);
            }
            Progress::More => return Step::More,
        };
        if read.identification.line.starts_with(IDENTIFICATION.trim_ascii_end()) {
            // Servers of other protocols answer with what they were sent, as IMAP does with its tags.
            return conclude(said, Conversation::Foreign);
        }
        let waits = !last && said.collected.len() < self.byte_limit;
        let mut key_exchange = None;
        if self.kex {
            let behind = said.collected.get(consumed..).unwrap_or_default();
            match kex::parse(behind) {
                Progress::Done { value, consumed } => {
                    let server = Server { line: read.identification.line, kex: &value, behind, consumed };
                    if self.host_key && server.ask(&mut said.exchange, out) == Step::More && waits {
                        return Step::More;
                    }
                    key_exchange = Some(value);
                }
                Progress::More if waits => return Step::More,
                Progress::More | Progress::Never(_) => {}
            }
        }
        let host_key = match std::mem::take(&mut said.exchange) {
            Asking::Over(host_key) => host_key,
            Asking::NotBegun | Asking::Waits(_) => None,
        };
        let banner = SshBanner { from: Side::Server, identification: read.identification, kex: key_exchange };
        self.judge.anomalies(read.anomalies.iter(), Protocol::Ssh, scene);
        self.judge.ssh(&banner, host_key, &mut self.known, scene);
        conclude(said, Conversation::Complete)
    }
}

/// What a server has said of a key exchange.
struct Server<'a> {
    line: &'a [u8],
    kex: &'a KexInit<'a>,
    /// What stands behind its identification, of which the KEXINIT ends behind so many octets.
    behind: &'a [u8],
    consumed: usize,
}

impl Server<'_> {
    /// Asks for the host key, or reads the reply.
    fn ask(&self, asking: &mut Asking, out: &mut Vec<u8>) -> Step {
        let next = match std::mem::take(asking) {
            Asking::NotBegun => match Exchange::begin(self.kex, out) {
                Some(exchange) => Asking::Waits(Box::new(exchange)),
                None => Asking::Over(None),
            },
            Asking::Waits(exchange) => {
                match host_key::reply(self.behind.get(self.consumed..).unwrap_or_default()) {
                    Progress::More => Asking::Waits(exchange),
                    Progress::Never(_) => Asking::Over(None),
                    Progress::Done { value, .. } => {
                        let hello = Hello {
                            client: IDENTIFICATION.trim_ascii_end(),
                            server: self.line,
                            kex_init: kex::payload(self.behind).unwrap_or_default(),
                        };
                        Asking::Over(exchange.conclude(hello, value))
                    }
                }
            }
            over @ Asking::Over(_) => over,
        };
        let step = if matches!(next, Asking::Waits(_)) { Step::More } else { Step::Close };
        *asking = next;
        step
    }
}

fn conclude(said: &mut Said, result: Conversation) -> Step {
    said.result = result;
    said.over = true;
    Step::Close
}

impl Probe for Ssh {
    type Session = Said;
    type Connection = ();

    const TALKS: bool = true;

    fn begin(&mut self, said: &mut Said, _target: &Target) {
        said.collected.clear();
        said.collected.shrink_to(KEPT);
        said.result = Conversation::None;
        said.over = false;
        said.greeted = false;
        said.exchange = Asking::NotBegun;
    }

    fn open(&mut self, said: &mut Said, (): &mut (), _target: &Target, _now: Timestamp, out: &mut Vec<u8>) {
        if self.kex {
            said.greeted = true;
            out.extend_from_slice(IDENTIFICATION);
        }
    }

    fn is_nudged(&self) -> bool {
        true
    }

    fn nudge(&mut self, said: &mut Said, (): &mut (), out: &mut Vec<u8>) {
        if !std::mem::replace(&mut said.greeted, true) {
            out.extend_from_slice(IDENTIFICATION);
        }
    }

    fn receive(
        &mut self,
        said: &mut Said,
        (): &mut (),
        octets: &[u8],
        out: &mut Vec<u8>,
        scene: &mut Scene<'_>,
    ) -> Step {
        let room = self.byte_limit.saturating_sub(said.collected.len());
        said.collected.extend_from_slice(octets.get(..room).unwrap_or(octets));
        self.look(said, false, out, scene)
    }

    fn closed(&mut self, said: &mut Said, (): &mut (), how: Closed, scene: &mut Scene<'_>) {
        if said.over {
            return;
        }
        // The identification may be there, and only the KEXINIT missing, or the reply.
        if self.look(said, true, &mut Vec::new(), scene) == Step::Close {
            return;
        }
        let text = !said.collected.is_empty() && !is_beginning(&said.collected);
        conclude(
            said,
            match how {
                _ if text => Conversation::Foreign,
                Closed::Here | Closed::Finished => Conversation::Ended,
                Closed::Reset => Conversation::Reset,
                Closed::Silent | Closed::Expired if said.collected.is_empty() => Conversation::Silent,
                Closed::Silent | Closed::Expired => Conversation::TimedOut,
                Closed::Failed(error) | Closed::Broke(error) => Conversation::Failed(error),
            },
        );
    }

    fn wanted(&self, said: &Said) -> usize {
        usize::from(!said.over)
    }

    fn result<'s>(&self, said: &'s Said) -> (Conversation, &'s [u8]) {
        (said.result, &said.collected)
    }
}

/// True if octets are the beginning of an identification, behind whole lines or not.
fn is_beginning(collected: &[u8]) -> bool {
    let line = collected.get(ssh::settled(collected)..).unwrap_or_default();
    line.starts_with(ssh::PREFIX) || (!line.is_empty() && ssh::PREFIX.starts_with(line))
}
