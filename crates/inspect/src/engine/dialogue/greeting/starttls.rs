//! The client's commands after a greeting and the server's replies: enough to know where both switch to
//! another protocol.

use std::collections::VecDeque;

use crate::terms::{GreetingDialect, GreetingProtocol};

/// Commands that wait for their answer; with more, nobody means to upgrade.
const WAITING_LIMIT: usize = 16;

/// Digits of a reply code.
const CODE: usize = 3;

/// The commands of a client that wait for their answers, and how far an answer was read.
#[derive(Debug, Default)]
pub struct PendingCommands {
    waiting: VecDeque<PendingCommand>,
    /// Within an answer of several lines.
    answering: ReplyProgress,
}

#[derive(Debug)]
struct PendingCommand {
    /// The tag that a reply repeats, if the protocol has tags.
    tag: Vec<u8>,
    upgrades: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ReplyProgress {
    #[default]
    Nothing,
    /// Up to a line with this code and no hyphen, RFC 5321 section 4.2.1, RFC 959 section 4.2.
    Code([u8; CODE]),
    /// Up to a line with a dot, RFC 1939 section 3.
    List,
}

/// The kind of a server's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeReply {
    /// Part of an answer that changes nothing.
    More,
    /// The upgrade is granted: both speak another protocol from here on.
    Granted,
    /// It is not.
    Refused,
    /// Nobody asked for that.
    Unasked,
}

impl PendingCommands {
    /// Takes a line of the client: whether it asks for an upgrade, or nothing where it is none of those that
    /// come before one. `protocol` is absent as long as the greeting is not whole.
    pub(super) fn take(&mut self, line: &[u8], protocol: Option<GreetingProtocol>) -> Option<bool> {
        if self.waiting.len() >= WAITING_LIMIT {
            return None;
        }
        let mut rows = GreetingProtocol::all().filter(|row| protocol.is_none_or(|known| known == *row));
        let command = rows.find_map(|row| PendingCommand::read(line, row))?;
        let upgrades = command.upgrades;
        self.waiting.push_back(command);
        Some(upgrades)
    }

    /// Takes a line of the server.
    pub(super) fn answer(&mut self, line: &[u8], protocol: GreetingProtocol) -> UpgradeReply {
        match protocol.dialect() {
            GreetingDialect::Code => self.answer_by_code(line, protocol),
            GreetingDialect::Status => self.answer_by_status(line, protocol),
            GreetingDialect::Untagged => self.answer_by_tag(line, protocol),
        }
    }

    fn answer_by_code(&mut self, line: &[u8], protocol: GreetingProtocol) -> UpgradeReply {
        let Some((code, behind)) = line.split_first_chunk::<CODE>() else {
            return if self.answering == ReplyProgress::Nothing {
                UpgradeReply::Unasked
            } else {
                UpgradeReply::More
            };
        };
        let goes_on = behind.first() == Some(&b'-');
        match self.answering {
            ReplyProgress::Code(open) if open != *code || goes_on => return UpgradeReply::More,
            ReplyProgress::Code(_) => {}
            _ if !code.iter().all(u8::is_ascii_digit) => return UpgradeReply::Unasked,
            _ if goes_on => {
                self.answering = ReplyProgress::Code(*code);
                return UpgradeReply::More;
            }
            _ => {}
        }
        self.answering = ReplyProgress::Nothing;
        let agrees = code == protocol.agreement().as_bytes();
        self.waiting.pop_front().map_or(UpgradeReply::Unasked, |command| command.answered(agrees))
    }

    fn answer_by_status(&mut self, line: &[u8], protocol: GreetingProtocol) -> UpgradeReply {
        if self.answering == ReplyProgress::List {
            if line.trim_ascii_end() == b"." {
                self.answering = ReplyProgress::Nothing;
            }
            return UpgradeReply::More;
        }
        let Some(command) = self.waiting.pop_front() else { return UpgradeReply::Unasked };
        let agrees = line.starts_with(protocol.agreement().as_bytes());
        if agrees && !command.upgrades {
            self.answering = ReplyProgress::List;
        }
        command.answered(agrees)
    }

    fn answer_by_tag(&mut self, line: &[u8], protocol: GreetingProtocol) -> UpgradeReply {
        let mut words = words(line);
        let tag = words.next().unwrap_or_default();
        if tag == b"*" {
            return UpgradeReply::More;
        }
        let place = self.waiting.iter().position(|command| command.tag == tag);
        let Some(command) = place.and_then(|place| self.waiting.remove(place)) else {
            return UpgradeReply::Unasked;
        };
        let agrees =
            words.next().is_some_and(|word| word.eq_ignore_ascii_case(protocol.agreement().as_bytes()));
        command.answered(agrees)
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.waiting.capacity() * size_of::<PendingCommand>()
    }
}

impl PendingCommand {
    /// Returns the client's command if it precedes an upgrade or requests one.
    fn read(line: &[u8], protocol: GreetingProtocol) -> Option<Self> {
        let mut words = words(line);
        let tag = match protocol.dialect() {
            GreetingDialect::Untagged => words.next()?.to_vec(),
            GreetingDialect::Code | GreetingDialect::Status => Vec::new(),
        };
        let is = |command: &str, whole: bool| {
            let mut said = words.clone();
            let same = command
                .split(' ')
                .all(|word| said.next().is_some_and(|said| said.eq_ignore_ascii_case(word.as_bytes())));
            same && (!whole || said.next().is_none())
        };
        let upgrades = protocol.upgrades().iter().any(|command| is(command, true));
        let known = upgrades || protocol.commands().iter().any(|command| is(command, false));
        known.then_some(Self { tag, upgrades })
    }

    const fn answered(&self, agrees: bool) -> UpgradeReply {
        match (self.upgrades, agrees) {
            (false, _) => UpgradeReply::More,
            (true, true) => UpgradeReply::Granted,
            (true, false) => UpgradeReply::Refused,
        }
    }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(name: &str, lines: &[&str]) -> (GreetingProtocol, PendingCommands, Vec<Option<bool>>) {
        let protocol = GreetingProtocol::named(name).unwrap();
        let mut commands = PendingCommands::default();
        let taken = lines.iter().map(|line| commands.take(line.as_bytes(), Some(protocol))).collect();
        (protocol, commands, taken)
    }

    #[test]
    fn an_answer_belongs_to_its_command_in_each_dialect() {
        use UpgradeReply::{Granted, More, Refused, Unasked};
        for (name, said, answers, expected) in [
            (
                "smtp",
                &["EHLO x\r\n", "starttls\r\n"][..],
                &["250-x\r\n", "250-STARTTLS\r\n", "250 HELP\r\n", "220 go\r\n"][..],
                &[More, More, More, Granted][..],
            ),
            ("smtp", &["STARTTLS\r\n"], &["454 no\r\n", "220 x\r\n"], &[Refused, Unasked]),
            (
                "ftp",
                &["FEAT\r\n", "AUTH TLS\r\n"],
                &["211-x\r\n", " AUTH TLS\r\n", "211 End\r\n", "234 go\r\n"],
                &[More, More, More, Granted],
            ),
            ("ftp", &["AUTH SSL\r\n"], &["2"], &[Unasked]),
            (
                "pop3",
                &["CAPA\r\n", "STLS\r\n"],
                &["+OK\r\n", "STLS\r\n", ".\r\n", "+OK go\r\n"],
                &[More, More, More, Granted],
            ),
            ("pop3", &["STLS\r\n"], &["-ERR no\r\n"], &[Refused]),
            (
                "imap",
                &["a CAPABILITY\r\n", "b STARTTLS\r\n"],
                &["* CAPABILITY IMAP4rev1\r\n", "b ok go\r\n"],
                &[More, Granted],
            ),
            ("imap", &["b STARTTLS\r\n"], &["c OK\r\n"], &[Unasked]),
        ] {
            let (protocol, mut commands, taken) = commands(name, said);
            assert!(taken.iter().all(Option::is_some), "{name} {said:?}");
            let replies: Vec<UpgradeReply> =
                answers.iter().map(|line| commands.answer(line.as_bytes(), protocol)).collect();
            assert_eq!(replies, expected, "{name} {answers:?}");
        }
    }

    #[test]
    fn other_commands_end_it_and_so_do_too_many() {
        for (name, line) in [
            ("smtp", "MAIL FROM:<a@b>\r\n"),
            ("smtp", "STARTTLS now\r\n"),
            ("ftp", "USER x\r\n"),
            ("pop3", "USER x\r\n"),
            ("imap", "a LOGIN x y\r\n"),
            ("imap", "STARTTLS\r\n"),
        ] {
            assert_eq!(commands(name, &[line]).2, [None], "{line}");
        }
        let (.., taken) = commands("smtp", &["NOOP\r\n"; WAITING_LIMIT + 1]);
        assert_eq!(taken.last(), Some(&None));
    }
}
