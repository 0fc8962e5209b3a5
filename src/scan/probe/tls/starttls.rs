//! Upgrade to TLS on a connection that starts with a greeting: `STARTTLS`, `STLS`, `AUTH TLS`.

use memchr::memchr;

use crate::banner::{GreetingBanner, ParseProgress, greeting};
use crate::terms::{GreetingDialect, GreetingProtocol};

/// Limit of bytes from a server before it agrees.
const LIMIT: usize = 64 << 10;

/// Tag of the probe's command, for protocols with tags.
const TAG: &str = "a";

/// Upgrade of one connection.
#[derive(Debug)]
pub(super) struct StarttlsUpgrade {
    protocol: GreetingProtocol,
    awaited: AwaitedReply,
    /// Received bytes that are not a complete reply yet.
    unread: Vec<u8>,
    /// Number of all received bytes.
    said: usize,
}

/// Next expected reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AwaitedReply {
    Greeting,
    /// Reply to the client's introduction.
    Welcome,
    Agreement,
}

/// Progress of the upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpgradeProgress {
    /// More bytes are needed.
    More,
    /// The server agrees: a hello is next.
    Granted,
    /// The server refuses.
    Refused,
    /// The greeting belongs to no known protocol.
    Foreign,
}

impl StarttlsUpgrade {
    pub(super) fn new(protocol: GreetingProtocol) -> Self {
        Self { protocol, awaited: AwaitedReply::Greeting, unread: Vec::new(), said: 0 }
    }

    /// Handles received bytes; bytes to send are appended to `out`, and the greeting goes to `tell`.
    pub(super) fn take(
        &mut self,
        octets: &[u8],
        out: &mut Vec<u8>,
        tell: &mut impl FnMut(&GreetingBanner<'_>),
    ) -> UpgradeProgress {
        self.said = self.said.saturating_add(octets.len());
        if self.said > LIMIT {
            return UpgradeProgress::Foreign;
        }
        self.unread.extend_from_slice(octets);
        loop {
            let (way, length) = match self.awaited {
                AwaitedReply::Greeting => self.greeted(tell),
                AwaitedReply::Welcome | AwaitedReply::Agreement => self.answered(),
            };
            self.unread.drain(..length.min(self.unread.len()));
            if way != UpgradeProgress::Granted {
                return way;
            }
            if self.awaited == AwaitedReply::Agreement {
                return UpgradeProgress::Granted;
            }
            self.ask(out);
        }
    }

    /// Parses the greeting, and returns its length.
    fn greeted(&self, tell: &mut impl FnMut(&GreetingBanner<'_>)) -> (UpgradeProgress, usize) {
        let port = self.protocol.ports().first().copied().unwrap_or_default();
        match greeting::parse(&self.unread, port) {
            ParseProgress::More => (UpgradeProgress::More, 0),
            ParseProgress::Never(_) => (UpgradeProgress::Foreign, 0),
            ParseProgress::Done { value, consumed } => {
                tell(&value);
                (
                    if value.is_welcome() { UpgradeProgress::Granted } else { UpgradeProgress::Refused },
                    consumed,
                )
            }
        }
    }

    /// Parses the reply to the last command.
    fn answered(&self) -> (UpgradeProgress, usize) {
        let Some((answer, length)) = self.answer() else { return (UpgradeProgress::More, 0) };
        let agrees = match (self.protocol.dialect(), self.awaited) {
            (GreetingDialect::Code, AwaitedReply::Welcome) => answer.starts_with(b"2"),
            (GreetingDialect::Code | GreetingDialect::Status, _) => {
                answer.starts_with(self.protocol.agreement().as_bytes())
            }
            (GreetingDialect::Untagged, _) => {
                let word = answer.split(u8::is_ascii_whitespace).nth(1).unwrap_or_default();
                word.eq_ignore_ascii_case(self.protocol.agreement().as_bytes())
            }
        };
        (if agrees { UpgradeProgress::Granted } else { UpgradeProgress::Refused }, length)
    }

    /// Returns the decisive line, and the number of bytes up to the end of the reply.
    fn answer(&self) -> Option<(&[u8], usize)> {
        let mut from = 0;
        loop {
            let rest = self.unread.get(from..)?;
            let end = memchr(b'\n', rest)?;
            let line = rest.get(..end)?;
            match self.protocol.dialect() {
                GreetingDialect::Code => return Some((line, greeting::end_of_reply(rest, line)?)),
                GreetingDialect::Untagged if line.starts_with(b"*") => from += end + 1,
                GreetingDialect::Status | GreetingDialect::Untagged => return Some((line, from + end + 1)),
            }
        }
    }

    /// Sends the next command.
    fn ask(&mut self, out: &mut Vec<u8>) {
        let introduction = self.protocol.introduction();
        let command = match self.awaited {
            AwaitedReply::Greeting if !introduction.is_empty() => {
                self.awaited = AwaitedReply::Welcome;
                introduction
            }
            _ => {
                self.awaited = AwaitedReply::Agreement;
                self.protocol.upgrades().first().copied().unwrap_or_default()
            }
        };
        if self.protocol.dialect() == GreetingDialect::Untagged {
            out.extend_from_slice(TAG.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(command.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes sent to a server with these `lines`, fed byte for byte, and the last progress.
    fn talk(name: &str, lines: &str) -> (String, UpgradeProgress) {
        let mut upgrade = StarttlsUpgrade::new(GreetingProtocol::named(name).unwrap());
        let (mut out, mut way) = (Vec::new(), UpgradeProgress::More);
        for octet in lines.as_bytes() {
            assert_eq!(way, UpgradeProgress::More, "{lines}");
            way = upgrade.take(&[*octet], &mut out, &mut |_| {});
        }
        (String::from_utf8(out).unwrap(), way)
    }

    #[test]
    fn each_protocol_is_asked_as_it_wants_to_be() {
        for (name, lines, said, way) in [
            (
                "smtp",
                "220-mail\r\n220 ESMTP\r\n250-mail\r\n250-STARTTLS\r\n250 HELP\r\n220 go\r\n",
                "EHLO bannerwall.invalid\r\nSTARTTLS\r\n",
                UpgradeProgress::Granted,
            ),
            (
                "smtp",
                "220 x\r\n250 x\r\n454 no\r\n",
                "EHLO bannerwall.invalid\r\nSTARTTLS\r\n",
                UpgradeProgress::Refused,
            ),
            ("smtp", "220 x\r\n502 no\r\n", "EHLO bannerwall.invalid\r\n", UpgradeProgress::Refused),
            ("smtp", "554 no\r\n", "", UpgradeProgress::Refused),
            ("smtp", "SSH-2.0-x\r\n", "", UpgradeProgress::Foreign),
            ("ftp", "220 x\r\n234 go\r\n", "AUTH TLS\r\n", UpgradeProgress::Granted),
            ("pop3", "+OK x\r\n+OK go\r\n", "STLS\r\n", UpgradeProgress::Granted),
            ("pop3", "+OK x\r\n-ERR no\r\n", "STLS\r\n", UpgradeProgress::Refused),
            ("imap", "* OK x\r\n* CAPABILITY y\r\na ok go\r\n", "a STARTTLS\r\n", UpgradeProgress::Granted),
            ("imap", "* OK x\r\na BAD\r\n", "a STARTTLS\r\n", UpgradeProgress::Refused),
            ("imap", "* OK x\r\n", "a STARTTLS\r\n", UpgradeProgress::More),
        ] {
            let lines = lines.to_owned();
            let end = if name == "smtp" && way == UpgradeProgress::Foreign { 1 } else { lines.len() };
            assert_eq!(talk(name, &lines[..end]), (said.to_owned(), way), "{lines}");
        }
    }

    #[test]
    fn a_server_that_never_comes_to_the_point_is_given_up() {
        let mut upgrade = StarttlsUpgrade::new(GreetingProtocol::named("imap").unwrap());
        let mut way = UpgradeProgress::More;
        let mut times = 0;
        let mut out = Vec::new();
        while way == UpgradeProgress::More {
            way = upgrade.take(b"* OK and so on\r\n", &mut out, &mut |_| {});
            times += 1;
        }
        assert_eq!((way, times), (UpgradeProgress::Foreign, LIMIT / 16 + 1));
    }
}
