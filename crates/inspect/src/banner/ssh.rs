//! The SSH identification exchange, RFC 4253 section 4.2.
//!
//! Reads the first line that begins with `SSH-` from the bytes that a side has sent so far. It is as
//! lenient as implementations are: LF alone ends a line, a line may be longer than 255 bytes, a client
//! may send lines before its own. It records an anomaly for each deviation.

use super::parse_progress::{ParseProgress, ParseRejection};
use super::ssh_banner::SshIdentification;
use crate::terms::AnomalySet as Anomalies;
use crate::terms::{Anomaly, Side};

/// Length of the longest identification that the RFC allows, with its line end, in bytes.
pub const LINE_LIMIT: usize = 255;

/// Length of the longest identification that implementations read (OpenSSH's `SSH_MAX_BANNER_LEN`), in
/// bytes.
pub const READ_LIMIT: usize = 8192;

/// Length of the longest line before the identification that is read to its end, in bytes.
pub const PREAMBLE_LINE_LIMIT: usize = 64 * 1024;

/// Number of bytes before the identification above which there is an anomaly.
pub const PREAMBLE_LIMIT: usize = 64 * 1024;

/// Start of every identification.
pub const PREFIX: &[u8] = b"SSH-";

/// One side's parsed identification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SshRead<'a> {
    /// The identification line.
    pub identification: SshIdentification<'a>,
    /// The lines before it, with their line ends.
    pub preamble: &'a [u8],
    /// The anomalies of the identification.
    pub anomalies: Anomalies,
}

/// Finds and parses the identification in the bytes that `from` has sent from the start of its stream.
pub fn identify(from: Side, collected: &[u8]) -> ParseProgress<SshRead<'_>> {
    let mut rest = collected;
    let mut lines = 0;
    while !rest.starts_with(PREFIX) || is_bare(rest) == Some(true) {
        let Some(end) = memchr::memchr(b'\n', rest) else { return unfinished_line(rest) };
        rest = rest.get(end + 1..).unwrap_or_default();
        lines += 1;
    }
    let preamble = collected.get(..collected.len() - rest.len()).unwrap_or_default();
    let Some((line, length)) = identification_line(rest) else { return ParseProgress::More };
    let (identification, mut anomalies) = parse_line(line);
    anomalies.insert_if(length > LINE_LIMIT, Anomaly::SshLineTooLong);
    anomalies.insert_if(from == Side::Client && lines > 0, Anomaly::SshClientPreamble);
    anomalies.insert_if(preamble.len() > PREAMBLE_LIMIT || lines > PREAMBLE_LINES, Anomaly::SshLongPreamble);
    let value = SshRead { identification, preamble, anomalies };
    ParseProgress::Done { value, consumed: preamble.len() + length }
}

/// Returns the number of bytes at the start of `collected` that are complete lines before the
/// identification.
///
/// A caller that is short of memory may drop them: [`identify`] gives the same result for the rest,
/// except for the preamble.
pub fn settled(collected: &[u8]) -> usize {
    let mut settled = 0;
    loop {
        let rest = collected.get(settled..).unwrap_or_default();
        if rest.starts_with(PREFIX) && is_bare(rest) != Some(true) {
            return settled;
        }
        let Some(end) = memchr::memchr(b'\n', rest) else { return settled };
        settled += end + 1;
    }
}

/// Returns whether the line at the start of `rest` is only `SSH-`, after which OpenSSH reads on. `None`
/// if more bytes have to decide.
pub fn is_bare(rest: &[u8]) -> Option<bool> {
    let Some(behind) = rest.strip_prefix(PREFIX) else { return Some(false) };
    let next = behind.iter().take(CUT_LIMIT).find(|octet| **octet != b'\r');
    next.map(|octet| *octet == b'\n').or((behind.len() >= CUT_LIMIT).then_some(false))
}

/// Anomalies of a line that only some implementations take for an identification.
pub const fn disputed() -> Anomalies {
    let mut anomalies = Anomalies::NONE;
    anomalies.insert(Anomaly::SshDisputed);
    anomalies
}

/// Lengths at which some clients cut lines (Dropbear's, ssh-keyscan), so that the rest begins another
/// line.
const CUTS: [usize; 2] = [255, 256];

/// True if some client takes the byte at offset `place` of a line for the start of a line.
pub fn begins_line(place: usize) -> bool {
    CUTS.iter().any(|cut| place.is_multiple_of(*cut))
}

/// Returns the next such start after `place`.
pub fn next_start(place: usize) -> usize {
    CUTS.iter().map(|cut| (place / cut + 1) * cut).min().unwrap_or(usize::MAX)
}

/// Returns the line at the start of `rest` for a client that cuts lines, up to its end or the next cut.
/// `None` while neither has come.
pub fn cut_line(rest: &[u8]) -> Option<&[u8]> {
    let [_, longest] = CUTS;
    let readable = rest.get(..longest).unwrap_or(rest);
    match memchr::memchr(b'\n', readable) {
        Some(end) => readable.get(..end).map(|line| line.strip_suffix(b"\r").unwrap_or(line)),
        None => (rest.len() >= longest).then_some(readable),
    }
}

/// Returns whether `rest` begins an identification once CRs are removed, as Dropbear removes them from a
/// line. `None` if it does not, false if more bytes have to decide.
pub fn begins_among_returns(rest: &[u8]) -> Option<bool> {
    let readable = rest.get(..CUT_LIMIT).unwrap_or(rest);
    let mut expected = PREFIX.iter();
    for octet in readable.iter().filter(|octet| **octet != b'\r') {
        match expected.next() {
            Some(next) if next == octet => {}
            Some(_) => return None,
            None => return Some(true),
        }
    }
    let is_whole = expected.len() == 0;
    (is_whole || readable.len() < CUT_LIMIT).then_some(is_whole)
}

/// Returns a line as Dropbear reads it.
pub fn without_returns(line: &[u8]) -> Vec<u8> {
    line.iter().copied().filter(|octet| *octet != b'\r').collect()
}

/// Length of the longest line for which [`cut_line`] waits, in bytes.
pub const CUT_LIMIT: usize = 256;

/// Number of lines before the identification above which there is an anomaly (OpenSSH's
/// `SSH_MAX_PRE_BANNER_LINES`).
pub const PREAMBLE_LINES: usize = 1024;

/// Parses one identification line without its line end, as in rules' examples and fingerprints.
pub fn parse_line(line: &[u8]) -> (SshIdentification<'_>, Anomalies) {
    let mut anomalies = Anomalies::NONE;
    let text = line.strip_prefix(PREFIX).unwrap_or(line);
    let (protocol_version, behind) = split(text, b'-');
    let (software, comments) = split(behind.unwrap_or_default(), b' ');
    anomalies.insert_if(
        !line.starts_with(PREFIX) || protocol_version.is_empty() || software.is_empty(),
        Anomaly::SshMalformed,
    );
    // Without an early exit, so that the loop is vectorized: most lines have none.
    let has_control = line.iter().fold(false, |found, octet| found | octet.is_ascii_control());
    anomalies.insert_if(has_control, Anomaly::SshControlOctet);
    (SshIdentification { line, protocol_version, software, comments }, anomalies)
}

/// Returns the line at the start of `rest` without its line end, and its length with it. `None` while it
/// has no end and is not too long.
fn identification_line(rest: &[u8]) -> Option<(&[u8], usize)> {
    let readable = rest.get(..READ_LIMIT).unwrap_or(rest);
    match memchr::memchr(b'\n', readable) {
        Some(end) => {
            let line = readable.get(..end)?;
            Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
        }
        None if rest.len() >= READ_LIMIT => Some((readable, READ_LIMIT)),
        None => None,
    }
}

fn unfinished_line<T>(line: &[u8]) -> ParseProgress<T> {
    if line.len() > PREAMBLE_LINE_LIMIT {
        return ParseProgress::Never(ParseRejection::LineTooLong);
    }
    ParseProgress::More
}

fn split(text: &[u8], at: u8) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(at, text) {
        Some(index) => (text.get(..index).unwrap_or_default(), text.get(index + 1..)),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(collected: &[u8]) -> (SshRead<'_>, usize) {
        match identify(Side::Server, collected) {
            ParseProgress::Done { value, consumed } => (value, consumed),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_identification_is_split_into_its_parts_with_comments_whole() {
        let (read, consumed) = read(b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3 a b\r\nrest");
        assert_eq!(consumed, 44);
        assert_eq!(read.identification.line, b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3 a b");
        assert_eq!(read.identification.protocol_version, b"2.0");
        assert_eq!(read.identification.software, b"OpenSSH_9.2p1");
        assert_eq!(read.identification.comments, Some(&b"Debian-2+deb12u3 a b"[..]));
        assert!(read.anomalies.is_empty());
    }

    #[test]
    fn a_line_of_the_prefix_alone_is_no_identification() {
        for before in ["SSH-\n", "SSH-\r\n", "x\r\nSSH-\r\r\nSSH-\n"] {
            let text = format!("{before}SSH-2.0-a\r\n");
            let (read, _) = read(text.as_bytes());
            assert_eq!((read.identification.software, read.preamble), (&b"a"[..], before.as_bytes()));
            assert_eq!(settled(text.as_bytes()), before.len());
        }
        assert_eq!(is_bare(b"SSH-\r"), None);
        assert_eq!(is_bare(&[PREFIX, &[b'\r'; 300]].concat()), Some(false));
    }

    #[test]
    fn bare_lf_and_old_versions_are_read() {
        for (line, version) in [("SSH-1.99-Cisco-1.25\n", "1.99"), ("SSH-1.5-1.2.27\n", "1.5")] {
            let (read, consumed) = read(line.as_bytes());
            assert_eq!(read.identification.protocol_version, version.as_bytes());
            assert_eq!(consumed, line.len());
            assert!(read.anomalies.is_empty(), "{:?}", read.anomalies);
        }
        let (cisco, _) = read(b"SSH-1.99-Cisco-1.25\n");
        assert_eq!(cisco.identification.software, b"Cisco-1.25");
    }

    #[test]
    fn lines_before_the_banner_are_skipped_and_kept() {
        let collected = b"welcome\r\nto SSH-2.0-not here\nSSH-2.0-x\r\n";
        let (read, consumed) = read(collected);
        assert_eq!(read.preamble, b"welcome\r\nto SSH-2.0-not here\n");
        assert_eq!(read.identification.software, b"x");
        assert_eq!(consumed, collected.len());
        assert_eq!(settled(collected), read.preamble.len());
        let ParseProgress::Done { value, .. } = identify(Side::Client, collected) else { panic!() };
        assert!(value.anomalies.contains(Anomaly::SshClientPreamble));
    }

    #[test]
    fn too_long_lines_are_read_up_to_what_implementations_read() {
        let line = [b"SSH-2.0-".as_slice(), &[b'a'; 400], b"\r\n"].concat();
        let (long, _) = read(&line);
        assert_eq!(long.identification.software.len(), 400);
        assert!(long.anomalies.contains(Anomaly::SshLineTooLong));
        let endless = [b"SSH-2.0-".as_slice(), &[b'a'; 9000]].concat();
        let (endless, consumed) = read(&endless);
        assert_eq!((endless.identification.line.len(), consumed), (READ_LIMIT, READ_LIMIT));
    }

    #[test]
    fn the_limit_of_255_octets_counts_the_line_end() {
        let line = |octets: usize| [b"SSH-2.0-".as_slice(), &vec![b'a'; octets - 10], b"\r\n"].concat();
        assert!(read(&line(255)).0.anomalies.is_empty());
        assert!(read(&line(256)).0.anomalies.contains(Anomaly::SshLineTooLong));
    }

    #[test]
    fn control_octets_and_missing_software_are_noted() {
        assert!(read(b"SSH-2.0-a\0b\r\n").0.anomalies.contains(Anomaly::SshControlOctet));
        assert!(read(b"SSH-2.0-a\rb\r\n").0.anomalies.contains(Anomaly::SshControlOctet));
        assert!(read(b"SSH-2.0\r\n").0.anomalies.contains(Anomaly::SshMalformed));
        assert!(read(b"SSH-2.0- only\r\n").0.anomalies.contains(Anomaly::SshMalformed));
    }

    #[test]
    fn an_identification_may_begin_among_returns() {
        assert_eq!(begins_among_returns(b"\rS\r\rSH-2"), Some(true));
        assert_eq!(begins_among_returns(b"\rSSH-"), Some(true));
        assert_eq!(begins_among_returns(b"\rSS"), Some(false));
        assert_eq!(begins_among_returns(b"\rSS "), None);
        assert_eq!(begins_among_returns(&[b'\r'; CUT_LIMIT]), None);
        assert_eq!(without_returns(b"\rS\rSH-"), b"SSH-");
    }

    #[test]
    fn an_endless_first_line_is_not_ssh() {
        let noise = vec![b'x'; PREAMBLE_LINE_LIMIT + 1];
        assert_eq!(identify(Side::Server, &noise), ParseProgress::Never(ParseRejection::LineTooLong));
    }

    proptest! {
        #[test]
        fn random_octets_never_panic(octets in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = identify(Side::Server, &octets);
            let _ = settled(&octets);
        }

        #[test]
        fn every_prefix_says_more_or_the_same(
            preamble in "([a-zA-Z ]{0,20}\r?\n){0,4}",
            line in "SSH-[0-9.]{0,5}-[ -~]{0,40}\r?\n",
            tail in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let whole = [preamble.as_bytes(), line.as_bytes(), &tail].concat();
            let expected = identify(Side::Server, &whole);
            let ParseProgress::Done { value, consumed } = expected else { panic!("{expected:?}") };
            for end in 0..whole.len() {
                let part = identify(Side::Server, &whole[..end]);
                if end < consumed {
                    prop_assert_eq!(part, ParseProgress::More);
                } else {
                    prop_assert_eq!(part, expected);
                }
                let forgotten = identify(Side::Server, &whole[settled(&whole[..end])..]);
                prop_assert_eq!(forgotten.done().map(|read| read.identification), Some(value.identification));
            }
        }
    }
}
