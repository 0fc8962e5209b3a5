//! Probe for SSH identifications.
//!
//! The server sends first (RFC 4253 section 4.2), perhaps some lines of text before its identification, in
//! pieces of any size. If rules need the KEXINIT, the probe sends its own identification with the connect,
//! since many servers wait for one. Otherwise only a silent server gets it: multiplexers (sslh) need it to
//! select the service. For the host key the probe continues with a key exchange, up to the server's reply.

mod host_key_signature;
mod key_agreement;
mod key_exchange;
#[cfg(test)]
mod tests;

use super::super::response_matcher::{CachedSshMatches, ResponseMatcher};
use super::super::{ExchangeOutcome, Target};
use super::{CloseReason, Probe, ProbeContext, ProbeStep};
use crate::banner::{KexInit, KnownLines, ParseProgress, Protocol, Side, SshBanner, kex_reply, kexinit, ssh};
use crate::event::{HostKey, Timestamp};
use crate::scan::config::SshOptions;
use key_exchange::{ExchangeHashInput, PendingKeyExchange};

/// Identification of the probe.
const IDENTIFICATION: &[u8] = concat!("SSH-2.0-bannerwall_", env!("CARGO_PKG_VERSION"), "\r\n").as_bytes();
/// Limit of a buffer, in bytes, to keep for the next target.
const KEPT: usize = 1024;

/// Reads identifications, and the KEXINIT if a rule needs it.
#[derive(Debug)]
pub(in super::super) struct SshProbe {
    judge: ResponseMatcher,
    known: KnownLines<CachedSshMatches>,
    byte_limit: usize,
    /// True if the KEXINIT is read.
    kex: bool,
    /// True if the host key is requested.
    host_key: bool,
}

/// Data of one target so far.
#[derive(Debug)]
pub(in super::super) struct SshSession {
    collected: Vec<u8>,
    result: ExchangeOutcome,
    over: bool,
    /// True once the probe's identification is sent.
    greeted: bool,
    exchange: KeyExchangeState,
}

/// Progress of the key exchange.
#[derive(Debug, Default)]
enum KeyExchangeState {
    #[default]
    NotBegun,
    Waits(Box<PendingKeyExchange>),
    Over(Option<HostKey>),
}

impl Default for SshSession {
    fn default() -> Self {
        Self {
            collected: Vec::new(),
            result: ExchangeOutcome::None,
            over: false,
            greeted: false,
            exchange: KeyExchangeState::NotBegun,
        }
    }
}

impl SshProbe {
    /// Returns the probe. It reads the KEXINIT if a rule or an option needs it.
    pub(in super::super) fn new(judge: ResponseMatcher, options: SshOptions) -> Self {
        let SshOptions { byte_limit, hassh, host_key } = options;
        let kex = hassh || host_key || judge.rules().needs().kex;
        Self { judge, known: KnownLines::default(), byte_limit, kex, host_key }
    }

    /// Parses the collected bytes; `last` is true if no more will arrive. Bytes to send are appended to
    /// `out`.
    fn look(
        &mut self,
        said: &mut SshSession,
        last: bool,
        out: &mut Vec<u8>,
        scene: &mut ProbeContext<'_>,
    ) -> ProbeStep {
        let (read, consumed) = match ssh::identify(Side::Server, &said.collected) {
            ParseProgress::Done { value, consumed } => (value, consumed),
            ParseProgress::Never(_) => return conclude(said, ExchangeOutcome::Foreign),
            ParseProgress::More if said.collected.len() >= self.byte_limit => {
                return conclude(said, ExchangeOutcome::TooLong);
            }
            ParseProgress::More => return ProbeStep::More,
        };
        if read.identification.line.starts_with(IDENTIFICATION.trim_ascii_end()) {
            // Servers of other protocols echo their input, as IMAP does with tags.
            return conclude(said, ExchangeOutcome::Foreign);
        }
        let waits = !last && said.collected.len() < self.byte_limit;
        let mut key_exchange = None;
        if self.kex {
            let behind = said.collected.get(consumed..).unwrap_or_default();
            match kexinit::parse(behind) {
                ParseProgress::Done { value, consumed } => {
                    let server =
                        ServerKexData { line: read.identification.line, kex: &value, behind, consumed };
                    if self.host_key && server.ask(&mut said.exchange, out) == ProbeStep::More && waits {
                        return ProbeStep::More;
                    }
                    key_exchange = Some(value);
                }
                ParseProgress::More if waits => return ProbeStep::More,
                ParseProgress::More | ParseProgress::Never(_) => {}
            }
        }
        let host_key = match std::mem::take(&mut said.exchange) {
            KeyExchangeState::Over(host_key) => host_key,
            KeyExchangeState::NotBegun | KeyExchangeState::Waits(_) => None,
        };
        let banner = SshBanner { from: Side::Server, identification: read.identification, kex: key_exchange };
        self.judge.anomalies(read.anomalies.iter(), Protocol::Ssh, scene);
        self.judge.ssh(&banner, host_key, &mut self.known, scene);
        conclude(said, ExchangeOutcome::Complete)
    }
}

/// Key exchange data from the server.
struct ServerKexData<'a> {
    line: &'a [u8],
    kex: &'a KexInit<'a>,
    /// Bytes after its identification; the KEXINIT ends after `consumed` of them.
    behind: &'a [u8],
    consumed: usize,
}

impl ServerKexData<'_> {
    /// Requests the host key, or reads the reply.
    fn ask(&self, asking: &mut KeyExchangeState, out: &mut Vec<u8>) -> ProbeStep {
        let next = match std::mem::take(asking) {
            KeyExchangeState::NotBegun => match PendingKeyExchange::begin(self.kex, out) {
                Some(exchange) => KeyExchangeState::Waits(Box::new(exchange)),
                None => KeyExchangeState::Over(None),
            },
            KeyExchangeState::Waits(exchange) => {
                match kex_reply::reply(self.behind.get(self.consumed..).unwrap_or_default()) {
                    ParseProgress::More => KeyExchangeState::Waits(exchange),
                    ParseProgress::Never(_) => KeyExchangeState::Over(None),
                    ParseProgress::Done { value, .. } => {
                        let hello = ExchangeHashInput {
                            client: IDENTIFICATION.trim_ascii_end(),
                            server: self.line,
                            kex_init: kexinit::payload(self.behind).unwrap_or_default(),
                        };
                        KeyExchangeState::Over(exchange.conclude(hello, value))
                    }
                }
            }
            over @ KeyExchangeState::Over(_) => over,
        };
        let step =
            if matches!(next, KeyExchangeState::Waits(_)) { ProbeStep::More } else { ProbeStep::Close };
        *asking = next;
        step
    }
}

fn conclude(said: &mut SshSession, result: ExchangeOutcome) -> ProbeStep {
    said.result = result;
    said.over = true;
    ProbeStep::Close
}

impl Probe for SshProbe {
    type Session = SshSession;
    type Connection = ();

    const TALKS: bool = true;

    fn begin(&mut self, said: &mut SshSession, _target: &Target) {
        said.collected.clear();
        said.collected.shrink_to(KEPT);
        said.result = ExchangeOutcome::None;
        said.over = false;
        said.greeted = false;
        said.exchange = KeyExchangeState::NotBegun;
    }

    fn open(
        &mut self,
        said: &mut SshSession,
        (): &mut (),
        _target: &Target,
        _now: Timestamp,
        out: &mut Vec<u8>,
    ) {
        if self.kex {
            said.greeted = true;
            out.extend_from_slice(IDENTIFICATION);
        }
    }

    fn is_nudged(&self) -> bool {
        true
    }

    fn on_idle(&mut self, said: &mut SshSession, (): &mut (), out: &mut Vec<u8>) {
        if !std::mem::replace(&mut said.greeted, true) {
            out.extend_from_slice(IDENTIFICATION);
        }
    }

    fn receive(
        &mut self,
        said: &mut SshSession,
        (): &mut (),
        octets: &[u8],
        out: &mut Vec<u8>,
        scene: &mut ProbeContext<'_>,
    ) -> ProbeStep {
        let room = self.byte_limit.saturating_sub(said.collected.len());
        said.collected.extend_from_slice(octets.get(..room).unwrap_or(octets));
        self.look(said, false, out, scene)
    }

    fn closed(&mut self, said: &mut SshSession, (): &mut (), how: CloseReason, scene: &mut ProbeContext<'_>) {
        if said.over {
            return;
        }
        // Perhaps only the KEXINIT or the reply is missing after the identification.
        if self.look(said, true, &mut Vec::new(), scene) == ProbeStep::Close {
            return;
        }
        let text = !said.collected.is_empty() && !is_beginning(&said.collected);
        conclude(
            said,
            match how {
                _ if text => ExchangeOutcome::Foreign,
                CloseReason::Here | CloseReason::Finished => ExchangeOutcome::Ended,
                CloseReason::Reset => ExchangeOutcome::Reset,
                CloseReason::Silent | CloseReason::Expired if said.collected.is_empty() => {
                    ExchangeOutcome::Silent
                }
                CloseReason::Silent | CloseReason::Expired => ExchangeOutcome::TimedOut,
                CloseReason::Failed(error) | CloseReason::Broke(error) => ExchangeOutcome::Failed(error),
            },
        );
    }

    fn wanted(&self, said: &SshSession) -> usize {
        usize::from(!said.over)
    }

    fn result<'s>(&self, said: &'s SshSession) -> (ExchangeOutcome, &'s [u8]) {
        (said.result, &said.collected)
    }
}

/// True if the bytes are the start of an identification, perhaps after whole lines.
fn is_beginning(collected: &[u8]) -> bool {
    let line = collected.get(ssh::settled(collected)..).unwrap_or_default();
    line.starts_with(ssh::PREFIX) || (!line.is_empty() && ssh::PREFIX.starts_with(line))
}
