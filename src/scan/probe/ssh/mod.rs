//! Probe for SSH identifications.
//!
//! The server sends first (RFC 4253 section 4.2), perhaps some lines of text before its identification, in
//! pieces of any size. If rules need the KEXINIT, the probe sends its own identification with the connect,
//! since many servers wait for one. Otherwise only a silent server gets it: multiplexers (sslh) need it to
//! select the service. For the host key the probe continues with a key exchange, up to the server's reply.

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

/// Identification of the probe.
const IDENTIFICATION: &[u8] = concat!("SSH-2.0-bannerwall_", env!("CARGO_PKG_VERSION"), "\r\n").as_bytes();
/// Limit of a buffer, in bytes, to keep for the next target.
const KEPT: usize = 1024;

/// Reads identifications, and the KEXINIT if a rule needs it.
#[derive(Debug)]
pub(in super::super) struct Ssh {
    judge: Judge,
    known: KnownLines<Known>,
    byte_limit: usize,
    /// True if the KEXINIT is read.
    kex: bool,
    /// True if the host key is requested.
    host_key: bool,
}

/// Data of one target so far.
#[derive(Debug)]
pub(in super::super) struct Said {
    collected: Vec<u8>,
    result: Conversation,
    over: bool,
    /// True once the probe's identification is sent.
    greeted: bool,
    exchange: Asking,
}

/// Progress of the key exchange.
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
    /// Returns the probe. It reads the KEXINIT if a rule or an option needs it.
    pub(in super::super) fn new(judge: Judge, options: SshOptions) -> Self {
        let SshOptions { byte_limit, hassh, host_key } = options;
        let kex = hassh || host_key || judge.rules().needs().kex;
        Self { judge, known: KnownLines::default(), byte_limit, kex, host_key }
    }

    /// Parses the collected bytes; `last` is true if no more will arrive. Bytes to send are appended to
    /// `out`.
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
            // Servers of other protocols echo their input, as IMAP does with tags.
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

/// Key exchange data from the server.
struct Server<'a> {
    line: &'a [u8],
    kex: &'a KexInit<'a>,
    /// Bytes after its identification; the KEXINIT ends after `consumed` of them.
    behind: &'a [u8],
    consumed: usize,
}

impl Server<'_> {
    /// Requests the host key, or reads the reply.
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
        // Perhaps only the KEXINIT or the reply is missing after the identification.
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

/// True if the bytes are the start of an identification, perhaps after whole lines.
fn is_beginning(collected: &[u8]) -> bool {
    let line = collected.get(ssh::settled(collected)..).unwrap_or_default();
    line.starts_with(ssh::PREFIX) || (!line.is_empty() && ssh::PREFIX.starts_with(line))
}
