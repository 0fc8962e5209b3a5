//! Protocols whose server speaks first, in lines of text: one row of a table for each.
//!
//! A new protocol needs only a row (with its tests and rules). Recognition, the engine's dialogue, rule
//! fields, events, outputs, metrics and `scan greeting` use this table.

use std::fmt;

/// A protocol of the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GreetingProtocol(u8);

/// Form of a protocol's replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GreetingDialect {
    /// Three digits, then a space, or `-` if more lines follow: RFC 5321 section 4.2.1, RFC 959 section
    /// 4.2.
    Code,
    /// `+OK` or `-ERR`, RFC 1939 section 3.
    Status,
    /// `* OK`, `* PREAUTH` or `* BYE`, RFC 9051 section 7.1.
    Untagged,
}

/// Facts about one protocol.
#[derive(Debug)]
struct GreetingRow {
    /// Name in rules, events and metrics; also nmap's name of the service.
    name: &'static str,
    dialect: GreetingDialect,
    /// Possible starts of the first reply.
    openings: &'static [&'static str],
    /// Usual ports: the first is a scan's default.
    ports: &'static [u16],
    /// Words in a greeting that distinguish it from others of its dialect.
    words: &'static [&'static str],
    /// Commands that a client may send before it requests another protocol on the same connection. If
    /// replies have a status, the answer to these is a list.
    commands: &'static [&'static str],
    /// The command that must come before that; empty if there is none.
    introduction: &'static str,
    /// The commands that request TLS.
    upgrades: &'static [&'static str],
    /// Start of the server's agreement, after its tag if it has one.
    agreement: &'static str,
    /// Recog's name for fingerprints of its greeting.
    fingerprints: &'static str,
}

const TABLE: &[GreetingRow] = &[
    // RFC 5321; STARTTLS is RFC 3207.
    GreetingRow {
        name: "smtp",
        dialect: GreetingDialect::Code,
        openings: &["220", "421", "521", "554"],
        ports: &[25, 587, 2525],
        words: &["SMTP", "LMTP", "Postfix", "Exim", "Sendmail"],
        commands: &["EHLO", "HELO", "LHLO", "NOOP"],
        introduction: "EHLO bannerwall.invalid",
        upgrades: &["STARTTLS"],
        agreement: "220",
        fingerprints: "smtp.banner",
    },
    // RFC 959; AUTH TLS is RFC 4217.
    GreetingRow {
        name: "ftp",
        dialect: GreetingDialect::Code,
        openings: &["220", "120", "421", "530"],
        ports: &[21, 2121],
        words: &["FTP"],
        commands: &["FEAT", "SYST", "HOST", "CLNT", "OPTS"],
        introduction: "",
        upgrades: &["AUTH TLS", "AUTH SSL", "AUTH TLS-C"],
        agreement: "234",
        fingerprints: "ftp.banner",
    },
    // RFC 1939; STLS is RFC 2595.
    GreetingRow {
        name: "pop3",
        dialect: GreetingDialect::Status,
        openings: &["+OK", "-ERR"],
        ports: &[110],
        words: &[],
        commands: &["CAPA"],
        introduction: "",
        upgrades: &["STLS"],
        agreement: "+OK",
        fingerprints: "pop3.banner",
    },
    // RFC 9051.
    GreetingRow {
        name: "imap",
        dialect: GreetingDialect::Untagged,
        openings: &["* OK", "* PREAUTH", "* BYE"],
        ports: &[143],
        words: &[],
        commands: &["CAPABILITY", "ID", "NOOP"],
        introduction: "",
        upgrades: &["STARTTLS"],
        agreement: "OK",
        fingerprints: "imap4.banner",
    },
];

impl GreetingProtocol {
    /// Number of protocols.
    pub const COUNT: usize = TABLE.len();

    /// All protocols, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..).take(Self::COUNT).map(Self)
    }

    /// The protocol of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|greeting| greeting.name() == name)
    }

    /// Position in the table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The name in rules, events and metrics.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Form of its replies.
    pub const fn dialect(self) -> GreetingDialect {
        self.row().dialect
    }

    /// Possible starts of a first reply: `220`, `* OK`.
    pub const fn openings(self) -> &'static [&'static str] {
        self.row().openings
    }

    /// Usual ports, at least one; the first is a scan's default.
    pub const fn ports(self) -> &'static [u16] {
        self.row().ports
    }

    /// Words in a greeting that distinguish it from others of its dialect.
    pub const fn words(self) -> &'static [&'static str] {
        self.row().words
    }

    /// Commands that a client may send before it requests another protocol on the same connection.
    pub const fn commands(self) -> &'static [&'static str] {
        self.row().commands
    }

    /// The command that a client has to send before it requests TLS; empty if there is none.
    pub const fn introduction(self) -> &'static str {
        self.row().introduction
    }

    /// The commands that request TLS: `STARTTLS`.
    pub const fn upgrades(self) -> &'static [&'static str] {
        self.row().upgrades
    }

    /// Start of the server's agreement, after its tag if it has one.
    pub const fn agreement(self) -> &'static str {
        self.row().agreement
    }

    /// Recog's name for fingerprints of its greeting: `smtp.banner`.
    pub const fn fingerprints(self) -> &'static str {
        self.row().fingerprints
    }

    const fn row(self) -> &'static GreetingRow {
        &TABLE[self.index()]
    }
}

impl fmt::Debug for GreetingProtocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_a_name_and_ports_of_its_own() {
        for greeting in GreetingProtocol::all() {
            assert_eq!(GreetingProtocol::named(greeting.name()), Some(greeting));
            assert!(!greeting.ports().is_empty() && !greeting.openings().is_empty());
            for other in GreetingProtocol::all().filter(|other| *other != greeting) {
                assert!(greeting.ports().iter().all(|port| !other.ports().contains(port)));
            }
        }
    }

    #[test]
    fn those_of_one_dialect_can_be_told_apart() {
        for greeting in GreetingProtocol::all() {
            let siblings =
                GreetingProtocol::all().filter(|other| other.dialect() == greeting.dialect()).count();
            assert!(siblings == 1 || !greeting.words().is_empty(), "{greeting:?}");
        }
    }
}
