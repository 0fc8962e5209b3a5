//! One way for a flow to be what its policy allows: whether each side's first bytes are those of a
//! protocol, told at the earliest byte that they are not.

use crate::banner::unread_protocols::SignatureFit;
use crate::rules::PolicyProtocol;
use crate::terms::{GreetingDialect, GreetingProtocol, Side};

/// Start of an SSH identification, RFC 4253 section 4.2. A policy does not allow lines before it.
const IDENTIFICATION: &[u8] = b"SSH-";

/// Start of a response, RFC 9112 section 4.
const STATUS_LINE: &[u8] = b"HTTP/1.";

/// The longest method that is waited for.
const METHOD_LIMIT: u8 = 24;

/// One thing that is allowed, and how far each side is known to be it.
#[derive(Debug)]
pub(super) struct AllowedProtocol {
    /// None is anything that is not read, for a rule about that.
    pub(super) shape: Option<PolicyProtocol>,
    /// The position of the rule that must match besides, among those of the policy.
    pub(super) rule: Option<usize>,
    client: SignatureFit,
    server: SignatureFit,
    request: RequestLine,
}

impl AllowedProtocol {
    pub(super) fn new(shape: Option<PolicyProtocol>, rule: Option<usize>) -> Self {
        let (client, server) = (SignatureFit::More, SignatureFit::More);
        Self { shape, rule, client, server, request: RequestLine::default() }
    }

    /// Takes the next bytes of a side; `first` are its first bytes, these among them.
    pub(super) fn take_bytes(&mut self, from: Side, octets: &[u8], first: &[u8]) {
        if self.of(from) == SignatureFit::More {
            let fit = self.fit(from, octets, first);
            match from {
                Side::Client => self.client = fit,
                Side::Server => self.server = fit,
            }
        }
    }

    fn fit(&mut self, from: Side, octets: &[u8], first: &[u8]) -> SignatureFit {
        match (self.shape, from) {
            (None | Some(PolicyProtocol::Any), _) => SignatureFit::Yes,
            (Some(PolicyProtocol::Ssh), _) => begins(first, IDENTIFICATION),
            (Some(PolicyProtocol::Http), Side::Client) => self.request.read(octets),
            (Some(PolicyProtocol::Http), Side::Server) => begins(first, STATUS_LINE),
            (Some(PolicyProtocol::Greeting(greeting)), Side::Server) => greets(greeting, first),
            // RFC 5321 section 3.1 and its like: a client waits for the greeting.
            (Some(PolicyProtocol::Greeting(_)), Side::Client) if self.server == SignatureFit::Yes => {
                SignatureFit::Yes
            }
            (Some(PolicyProtocol::Greeting(_)), Side::Client) => SignatureFit::No,
            // Who speaks to what is known to be allowed, or answers it, may say what he likes.
            (Some(PolicyProtocol::Other(_)), side) if self.of(side.other()) == SignatureFit::Yes => {
                SignatureFit::Yes
            }
            (Some(PolicyProtocol::Other(name)), side) if name.is_told_by(side) => name.fit(side, first),
            (Some(PolicyProtocol::Other(_)), _) => SignatureFit::No,
        }
    }

    /// The server's greeting was read, and is of this protocol.
    pub(super) fn greeted(&mut self, greeting: GreetingProtocol) {
        if let Some(PolicyProtocol::Greeting(allowed)) = self.shape {
            self.server = if allowed == greeting { SignatureFit::Yes } else { SignatureFit::No };
        }
    }

    /// A side begins afresh.
    pub(super) fn rewind(&mut self, side: Side) {
        match side {
            Side::Client => (self.client, self.request) = (SignatureFit::More, RequestLine::default()),
            Side::Server => self.server = SignatureFit::More,
        }
    }

    /// True if a side is something else.
    pub(super) fn is_out(&self) -> bool {
        self.client == SignatureFit::No || self.server == SignatureFit::No
    }

    /// True if the flow is what is allowed, as far as bytes tell.
    pub(super) fn is_sure(&self) -> bool {
        match self.shape {
            None | Some(PolicyProtocol::Any) => true,
            Some(PolicyProtocol::Ssh | PolicyProtocol::Http) => {
                self.client == SignatureFit::Yes && self.server == SignatureFit::Yes
            }
            Some(PolicyProtocol::Greeting(_)) => self.server == SignatureFit::Yes,
            Some(PolicyProtocol::Other(_)) => {
                self.client == SignatureFit::Yes || self.server == SignatureFit::Yes
            }
        }
    }

    /// True if the client's request line of HTTP was read.
    pub(super) const fn is_requested(&self) -> bool {
        matches!((self.shape, self.client), (Some(PolicyProtocol::Http), SignatureFit::Yes))
    }

    const fn of(&self, side: Side) -> SignatureFit {
        match side {
            Side::Client => self.client,
            Side::Server => self.server,
        }
    }
}

/// Compares `octets` with `wanted`, as far as they go.
fn begins(octets: &[u8], wanted: &[u8]) -> SignatureFit {
    if octets.starts_with(wanted) {
        SignatureFit::Yes
    } else if wanted.starts_with(octets) {
        SignatureFit::More
    } else {
        SignatureFit::No
    }
}

/// Compares a server's first bytes with a greeting. The greeting itself and its protocol are known once it is
/// read.
fn greets(greeting: GreetingProtocol, first: &[u8]) -> SignatureFit {
    let possible = greeting.openings().iter().any(|opening| {
        let opening = opening.as_bytes();
        let length = first.len().min(opening.len());
        let same = first.get(..length).zip(opening.get(..length));
        let behind = match first.get(opening.len()) {
            None | Some(b' ' | b'\r' | b'\n') => true,
            Some(b'-') => greeting.dialect() == GreetingDialect::Code,
            Some(_) => false,
        };
        behind && same.is_some_and(|(first, opening)| first.eq_ignore_ascii_case(opening))
    });
    if possible { SignatureFit::More } else { SignatureFit::No }
}

/// The progress in a request line of HTTP/1.x, RFC 9112 section 3. It advances byte by byte, so the length
/// does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestLine {
    /// Number of letters of the method.
    Method(u8),
    /// The target, empty or not.
    Target { empty: bool },
    /// Number of bytes of `HTTP/1.`.
    Version(usize),
    /// The minor version.
    Minor,
    /// A line end, perhaps behind a CR.
    End { cr: bool },
}

impl Default for RequestLine {
    fn default() -> Self {
        Self::Method(0)
    }
}

impl RequestLine {
    fn read(&mut self, octets: &[u8]) -> SignatureFit {
        for octet in octets {
            match self.next(*octet) {
                Ok(Some(next)) => *self = next,
                Ok(None) => return SignatureFit::Yes,
                Err(()) => return SignatureFit::No,
            }
        }
        SignatureFit::More
    }

    /// Returns the state after one more byte, or none after the line's end.
    fn next(self, octet: u8) -> Result<Option<Self>, ()> {
        let next = match (self, octet) {
            (Self::Method(count), b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_') if count < METHOD_LIMIT => {
                Self::Method(count + 1)
            }
            (Self::Method(1..), b' ') => Self::Target { empty: true },
            (Self::Target { empty: false }, b' ') => Self::Version(0),
            (Self::Target { .. }, 0x21..=0x7e | 0x80..) => Self::Target { empty: false },
            (Self::Version(at), octet) if STATUS_LINE.get(at) == Some(&octet) => match at + 1 {
                behind if behind == STATUS_LINE.len() => Self::Minor,
                behind => Self::Version(behind),
            },
            (Self::Minor, b'0'..=b'9') => Self::End { cr: false },
            (Self::End { cr: false }, b'\r') => Self::End { cr: true },
            (Self::End { .. }, b'\n') => return Ok(None),
            _ => return Err(()),
        };
        Ok(Some(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::banner::unread_protocols::OtherProtocol;

    fn told(shape: PolicyProtocol, said: &[(Side, &[u8])]) -> (bool, bool) {
        let mut way = AllowedProtocol::new(Some(shape), None);
        let mut first = [Vec::new(), Vec::new()];
        for (from, octets) in said {
            for octet in *octets {
                let own = &mut first[usize::from(*from == Side::Server)];
                own.push(*octet);
                way.take_bytes(*from, &[*octet], own);
            }
        }
        (way.is_sure(), way.is_out())
    }

    #[test]
    fn what_is_allowed_is_sure_and_what_is_not_is_out_at_its_first_strange_octet() {
        use Side::{Client, Server};
        let tls = PolicyProtocol::Other(OtherProtocol::named("tls").unwrap());
        let smtp = PolicyProtocol::Greeting(GreetingProtocol::named("smtp").unwrap());
        for (shape, said, sure, out) in [
            (PolicyProtocol::Ssh, &[(Server, &b"SSH-2.0-x"[..]), (Client, b"SSH-2.0-y")][..], true, false),
            (PolicyProtocol::Ssh, &[(Server, b"SSH-2.0-x")], false, false),
            (PolicyProtocol::Ssh, &[(Server, b"SSH-2.0-x"), (Client, b"G")], false, true),
            (PolicyProtocol::Ssh, &[(Server, b"220 lines\r\nSSH-2.0-x")], false, true),
            (PolicyProtocol::Http, &[(Client, b"GET / HTTP/1.1\r\n")], false, false),
            (
                PolicyProtocol::Http,
                &[(Client, b"GET /a%20b HTTP/1.0\n"), (Server, b"HTTP/1.1 200")],
                true,
                false,
            ),
            (PolicyProtocol::Http, &[(Client, b"GET /\r")], false, true),
            (PolicyProtocol::Http, &[(Client, b"OPTIONS sip:x S")], false, true),
            (PolicyProtocol::Http, &[(Client, b"PRI * HTTP/2")], false, true),
            (PolicyProtocol::Http, &[(Client, b"GET / HTTP/1.1\n"), (Server, b"R")], false, true),
            (PolicyProtocol::Http, &[(Client, b"0")], false, true),
            (smtp, &[(Server, b"220 mail")], false, false),
            (smtp, &[(Server, b"2200")], false, true),
            (smtp, &[(Client, b"E")], false, true),
            (tls, &[(Client, b"\x16\x03\x01\x02\x00\x01")], true, false),
            (tls, &[(Client, b"\x16\x03\x01\x02\x00\x01"), (Server, b"anything")], true, false),
            (tls, &[(Client, b"S")], false, true),
        ] {
            assert_eq!(told(shape, said), (sure, out), "{shape:?} {said:?}");
        }
    }
}
