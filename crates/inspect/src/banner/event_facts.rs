//! Conversion of borrowed banners into owned event facts, the same for engine and scan.
//!
//! Text becomes UTF-8; invalid bytes become replacement characters. Control characters stay, and the
//! output formats escape them.

use super::greeting::GreetingBanner;
use super::ssh_banner::{SshBanner, SshIdentification};
use crate::event::{GreetingFacts, SshSide};

impl From<&SshIdentification<'_>> for SshSide {
    fn from(identification: &SshIdentification<'_>) -> Self {
        let SshIdentification { line, protocol_version, software, comments } = identification;
        let mut software_version = text(software);
        if let Some(comments) = comments {
            software_version.reserve(1 + comments.len());
            software_version.push(' ');
            software_version.push_str(&String::from_utf8_lossy(comments));
        }
        Self {
            protocol_version: text(protocol_version),
            software_version,
            banner: text(line),
            hassh: None,
            host_key: None,
            fingerprint: None,
        }
    }
}

impl From<&SshBanner<'_>> for SshSide {
    fn from(banner: &SshBanner<'_>) -> Self {
        let hassh = banner.kex.as_ref().map(|kex| kex.hassh_of(banner.from));
        Self { hassh, ..Self::from(&banner.identification) }
    }
}

impl From<&GreetingBanner<'_>> for GreetingFacts {
    fn from(banner: &GreetingBanner<'_>) -> Self {
        Self {
            greeting: banner.greeting,
            code: text(banner.code()),
            lines: banner.lines().map(text).collect(),
            texts: banner.lines().map(|line| text(banner.text(line))).collect(),
            welcome: banner.is_welcome(),
            fingerprint: None,
        }
    }
}

fn text(octets: &[u8]) -> String {
    // Nearly all text is UTF-8: then one check and one copy are enough.
    std::str::from_utf8(octets).map_or_else(|_| String::from_utf8_lossy(octets).into_owned(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::banner::disclosure::DisclosureLimits;
    use crate::banner::{Side, http, ssh};

    #[test]
    fn software_and_comments_stay_together() {
        let (identification, _) = ssh::parse_line(b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3");
        let side = SshSide::from(&SshBanner { from: Side::Server, identification, kex: None });
        assert_eq!(side.software_version, "OpenSSH_9.2p1 Debian-2+deb12u3");
        assert_eq!(side.protocol_version, "2.0");
        assert_eq!(side.banner, "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3");
    }

    #[test]
    fn folds_become_spaces_and_broken_utf8_is_replaced() {
        let head = b"HTTP/1.1 200 \xff\r\nServer: a\r\n\t b\r\n\r\n";
        let mut read = http::parse_response(head).done().unwrap();
        read.message.body = b"<title>t</title>";
        let facts = DisclosureLimits::default().response(&read.message);
        assert_eq!(facts.headers[0].value, "a b");
        assert_eq!(facts.reason, "\u{fffd}");
        assert_eq!((facts.body_length, facts.title.as_deref()), (16, Some("t")));
    }
}
