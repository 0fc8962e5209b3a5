//! Batches of a sensor as text. The reader may have another version than the writer.
//!
//! The first line of JSON names the run; each further line is a record. Any role that may write for a
//! sensor can write it, so a reader checks it like network input.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::sighting::{
    AssetBanner, AssetKey, BannerKind, NamedSoftware, RuleFinding, SightingContent, UNKNOWN,
};
use super::store::{RunDescription, SightingRecord};
use crate::banner::unread_protocols::OtherProtocol;
use crate::event::{
    AdvisoryVerdict, EventSource, ProductFacts, Protocol, RuleAction, Severity, Side, Timestamp,
};
use crate::terms::cut;

/// The version of the format that is written.
pub const FORMAT: i64 = 1;

/// Largest size of a batch in bytes; the table accepts four times as many.
pub(super) const OCTETS: usize = 1 << 20;

/// Largest size of a text in a record in bytes: an index of PostgreSQL accepts no row of more than 2,704.
const TEXT: usize = 2_048;

/// Largest size of a run's description in bytes.
const ABOUT: usize = 4_096;

/// Error of reading a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// A newer version of the program has written it.
    #[error("its format is version {0}, and this bannerwall knows up to {FORMAT}")]
    Newer(i64),
    /// It is malformed.
    #[error("line {line}: {fault}")]
    Fault {
        /// Line of the fault, from 1.
        line: usize,
        /// Description of the fault.
        fault: String,
    },
}

/// A parsed batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SensorBatch {
    /// Guard, scan or replay.
    pub(super) source: &'static str,
    /// Description of the run's targets or files, for a person.
    pub(super) about: String,
    /// True if sightings from before a time already recorded are not counted again.
    pub(super) once: bool,
    /// Start of the run, and its end if this is its last batch: milliseconds by the sensor's clock.
    pub(super) started: i64,
    pub(super) ended: Option<i64>,
    pub(super) records: Vec<SightingRecord>,
}

/// The first line.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchHeader {
    source: String,
    about: String,
    once: bool,
    started: i64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    ended: Option<i64>,
}

/// A record's line. Times are nanoseconds since the epoch.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordLine {
    address: IpAddr,
    port: u16,
    side: String,
    protocol: String,
    what: RecordContent,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    software: Vec<Option<String>>,
    first: u64,
    last: u64,
    count: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum RecordContent {
    Said { kind: String, text: String },
    Found { kind: String, text: String, finding: BatchFinding },
    Met(IpAddr),
    SaidTo { kind: String, text: String, peer: SocketAddr, rule: String },
    Gone,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchFinding {
    rule: String,
    title: String,
    severity: String,
    action: String,
    verdict: Option<String>,
    blocked: bool,
}

/// Writes the batches of a run.
#[derive(Debug, Clone)]
pub(super) struct BatchEncoder(BatchHeader);

impl BatchEncoder {
    pub(super) fn new(run: &RunDescription, started: i64) -> Self {
        let about = cut(&run.about, ABOUT).to_owned();
        Self(BatchHeader { source: run.source.to_owned(), about, once: run.once, started, ended: None })
    }

    /// Writes as many of the first records as fit into a batch, at least one. Returns their number and
    /// the batch.
    pub(super) fn write(&self, records: &[SightingRecord]) -> (usize, String) {
        let (mut text, mut count) = (line(&self.0), 0);
        for record in records {
            let more = line(&RecordLine::from(record));
            if count > 0 && text.len() + more.len() > OCTETS {
                break;
            }
            text.push_str(&more);
            count += 1;
        }
        (count, text)
    }

    /// Returns the first line of each batch.
    pub(super) fn head(&self) -> String {
        line(&self.0)
    }

    /// Returns the author of a batch, to continue its run; none if its first line is malformed.
    pub(super) fn of(text: &str) -> Option<Self> {
        serde_json::from_str(text.lines().next()?).ok().map(Self)
    }

    /// Start of the run: milliseconds since the epoch.
    pub(super) fn started(&self) -> i64 {
        self.0.started
    }

    /// Returns the last batch, which ends the run.
    pub(super) fn end(&self, ended: i64) -> String {
        line(&BatchHeader { ended: Some(ended), ..self.0.clone() })
    }
}

/// Returns JSON with a line end. Texts and numbers always are valid JSON.
fn line(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}

/// A batch as text, split into the run's line and those of its records.
#[derive(Debug)]
pub(super) struct BatchText<'a> {
    head: &'a str,
    records: Vec<&'a str>,
}

impl<'a> BatchText<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let mut lines = text.split_inclusive('\n');
        Self { head: lines.next().unwrap_or_default(), records: lines.collect() }
    }

    /// The lines of the records.
    pub(super) fn records(&self) -> &[&'a str] {
        &self.records
    }

    /// Returns the batch with only these records.
    pub(super) fn with(&self, records: &[&str]) -> String {
        format!("{}{}", self.head, records.concat())
    }
}

/// Returns the number of sightings in a line; none if it cannot be read.
pub(super) fn sightings(line: &str) -> u64 {
    #[derive(Deserialize)]
    struct RecordCount {
        count: u32,
    }
    serde_json::from_str::<RecordCount>(line).map_or(0, |line| line.count.into())
}

/// The unreadable part of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableRecords {
    /// Number of unreadable records.
    pub records: usize,
    /// A batch of only these, for a newer version of the program.
    pub text: String,
    /// Fault of the first.
    pub error: BatchError,
}

impl SensorBatch {
    /// Reads the readable part of a batch of a version, and returns the rest.
    ///
    /// # Errors
    /// Nothing of it is readable.
    pub fn read_most(version: i64, text: &str) -> Result<(Self, Option<UnreadableRecords>), BatchError> {
        let (mut records, mut lines, mut first) = (Vec::new(), Vec::new(), None);
        let head = Self::begin(version, text)?;
        for (number, line) in text.lines().enumerate().skip(1) {
            let read = serde_json::from_str::<RecordLine>(line).map_err(|error| error.to_string());
            match read.and_then(RecordLine::record) {
                Ok(record) => records.push(record),
                Err(fault) => {
                    lines.push(line);
                    first.get_or_insert(BatchError::Fault { line: number + 1, fault });
                }
            }
        }
        let batch = Self { records, ..head };
        let unread = match first {
            None => None,
            // Only the unreadable part matters then.
            Some(error) if batch.records.is_empty() && batch.ended.is_none() => return Err(error),
            Some(error) => {
                // The run must end only once.
                let author = BatchEncoder::of(text)
                    .map(|BatchEncoder(head)| line(&BatchHeader { ended: None, ..head }));
                let text = format!("{}{}\n", author.unwrap_or_default(), lines.join("\n"));
                Some(UnreadableRecords { records: lines.len(), text, error })
            }
        };
        Ok((batch, unread))
    }

    /// Reads a whole batch of a version.
    ///
    /// # Errors
    /// See [`BatchError`].
    #[cfg(test)]
    pub(super) fn read(version: i64, text: &str) -> Result<Self, BatchError> {
        match Self::read_most(version, text)? {
            (batch, None) => Ok(batch),
            (_, Some(unread)) => Err(unread.error),
        }
    }

    /// Reads the first line: a batch without records.
    fn begin(version: i64, text: &str) -> Result<Self, BatchError> {
        if version != FORMAT {
            return Err(BatchError::Newer(version));
        }
        let fault = |fault: String| BatchError::Fault { line: 1, fault };
        let head = text.lines().next().unwrap_or_default();
        let head: BatchHeader = serde_json::from_str(head).map_err(|error| fault(error.to_string()))?;
        let sources = [EventSource::Guard, EventSource::Replay, EventSource::Scan].map(EventSource::name);
        let source = one_of(sources, &head.source, "source").map_err(fault)?;
        let moments = [Some(head.started), head.ended].into_iter().flatten();
        if moments.into_iter().any(|moment| !(0..LATEST).contains(&moment)) {
            return Err(fault("no time".to_owned()));
        }
        Ok(Self {
            source,
            about: cut(&head.about, ABOUT).to_owned(),
            once: head.once,
            started: head.started,
            ended: head.ended,
            records: Vec::new(),
        })
    }

    /// Limits all times to `latest`, in milliseconds; returns the number of changed records.
    pub fn bound_times(&mut self, latest: i64) -> usize {
        let bound = Timestamp::from_nanos(u64::try_from(latest).unwrap_or(0).saturating_mul(1_000_000));
        let late = |record: &&mut SightingRecord| record.last > bound;
        let mut count = 0;
        for record in self.records.iter_mut().filter(late) {
            (record.first, record.last) = (record.first.min(bound), bound);
            count += 1;
        }
        self.started = self.started.min(latest);
        self.ended = self.ended.map(|ended| ended.min(latest));
        count
    }

    /// Number of sightings in it.
    pub fn sightings(&self) -> u64 {
        self.records.iter().map(|record| record.count).sum()
    }
}

/// The year 9999, in milliseconds since the epoch.
const LATEST: i64 = 253_402_300_800_000;

impl From<&SightingRecord> for RecordLine {
    fn from(record: &SightingRecord) -> Self {
        let AssetKey { address, port, side, protocol } = &record.asset;
        let said = |banner: &AssetBanner| (banner.kind.name().to_owned(), banner.text.clone());
        let what = match &record.what {
            SightingContent::Said(banner) => {
                let (kind, text) = said(banner);
                RecordContent::Said { kind, text }
            }
            SightingContent::Found(banner, finding) => {
                let (kind, text) = said(banner);
                let finding = BatchFinding {
                    rule: cut(&finding.rule, TEXT).to_owned(),
                    title: cut(&finding.title, TEXT).to_owned(),
                    severity: finding.severity.to_owned(),
                    action: finding.action.to_owned(),
                    verdict: finding.verdict.map(str::to_owned),
                    blocked: finding.blocked,
                };
                RecordContent::Found { kind, text, finding }
            }
            SightingContent::Met(client) => RecordContent::Met(*client),
            SightingContent::SaidTo(banner, peer, rule) => {
                let ((kind, text), rule) = (said(banner), cut(rule, TEXT).to_owned());
                RecordContent::SaidTo { kind, text, peer: *peer, rule }
            }
            SightingContent::Gone => RecordContent::Gone,
        };
        let ProductFacts { vendor, product, version, cpe, os } = &record.software.product;
        let named = [vendor, product, version, cpe, os, &record.software.patch];
        let software = named.map(|text| text.as_ref().map(|text| cut(text, TEXT).to_owned()));
        Self {
            address: *address,
            port: *port,
            side: side.name().to_owned(),
            protocol: (*protocol).to_owned(),
            what,
            software: if software.iter().all(Option::is_none) { Vec::new() } else { software.into() },
            first: record.first.as_nanos(),
            last: record.last.as_nanos(),
            count: u32::try_from(record.count).unwrap_or(u32::MAX),
        }
    }
}

impl RecordLine {
    fn record(self) -> Result<SightingRecord, String> {
        let side = [Side::Server, Side::Client].into_iter().find(|side| side.name() == self.side);
        let side = side.ok_or_else(|| format!("unknown side {:?}", self.side))?;
        if (side == Side::Client) != (self.port == 0) {
            return Err("a server needs a port, and a client has none".to_owned());
        }
        let last = i64::try_from(self.last / 1_000_000).unwrap_or(i64::MAX);
        if self.first > self.last || last >= LATEST {
            return Err("its last time is before its first".to_owned());
        }
        let what = match self.what {
            RecordContent::Said { kind, text } => SightingContent::Said(banner(&kind, &text)?),
            RecordContent::Found { kind, text, finding } => {
                SightingContent::Found(banner(&kind, &text)?, finding.read()?)
            }
            RecordContent::Met(client) => SightingContent::Met(client.to_canonical()),
            RecordContent::SaidTo { kind, text, peer, rule } => {
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                SightingContent::SaidTo(banner(&kind, &text)?, peer, bounded(Some(rule))?.unwrap_or_default())
            }
            RecordContent::Gone => SightingContent::Gone,
        };
        let mut software = self.software.into_iter();
        let mut next = || bounded(software.next().flatten());
        let product =
            ProductFacts { vendor: next()?, product: next()?, version: next()?, cpe: next()?, os: next()? };
        let software = NamedSoftware { product, patch: next()? };
        let protocol = protocol(&self.protocol)?;
        Ok(SightingRecord {
            asset: AssetKey { address: self.address.to_canonical(), port: self.port, side, protocol },
            what,
            software,
            first: Timestamp::from_nanos(self.first),
            last: Timestamp::from_nanos(self.last),
            count: self.count.into(),
        })
    }
}

impl BatchFinding {
    fn read(self) -> Result<RuleFinding, String> {
        const ACTIONS: [RuleAction; 7] = [
            RuleAction::Accept,
            RuleAction::Alert,
            RuleAction::Drop,
            RuleAction::Reject,
            RuleAction::Ban,
            RuleAction::Mark,
            RuleAction::Allow,
        ];
        let verdicts = AdvisoryVerdict::NAMES.map(|(name, _)| name);
        let verdict = self.verdict.map(|name| one_of(verdicts, &name, "verdict"));
        Ok(RuleFinding {
            rule: bounded(Some(self.rule))?.unwrap_or_default(),
            title: bounded(Some(self.title))?.unwrap_or_default(),
            severity: one_of(Severity::ALL.map(Severity::name), &self.severity, "severity")?,
            action: one_of(ACTIONS.map(RuleAction::name), &self.action, "action")?,
            verdict: verdict.transpose()?,
            blocked: self.blocked,
        })
    }
}

fn banner(kind: &str, text: &str) -> Result<AssetBanner, String> {
    let kinds = [BannerKind::Banner, BannerKind::Hassh, BannerKind::Certificate, BannerKind::HostKey];
    let kind = kinds.into_iter().find(|known| known.name() == kind);
    Ok(AssetBanner::new(kind.ok_or("unknown kind of banner")?, text))
}

fn protocol(name: &str) -> Result<&'static str, String> {
    let read = Protocol::named(name)
        .map(Protocol::name)
        .or_else(|| OtherProtocol::named(name).map(OtherProtocol::name));
    read.or((name == UNKNOWN).then_some(UNKNOWN)).ok_or_else(|| format!("unknown protocol {name:?}"))
}

fn one_of<const N: usize>(known: [&'static str; N], name: &str, what: &str) -> Result<&'static str, String> {
    known.into_iter().find(|known| *known == name).ok_or_else(|| format!("unknown {what} {name:?}"))
}

/// Returns a text that the table accepts.
fn bounded(text: Option<String>) -> Result<Option<String>, String> {
    match text {
        Some(text) if text.len() > TEXT => Err(format!("a text of {} bytes", text.len())),
        text => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> RunDescription {
        RunDescription {
            source: "guard",
            once: false,
            reports_changes: false,
            sensor: "east".into(),
            about: "queue 0".into(),
        }
    }

    fn records() -> Vec<SightingRecord> {
        let asset =
            |port, side| AssetKey { address: "192.0.2.1".parse().unwrap(), port, side, protocol: "ssh" };
        let server = || asset(22, Side::Server);
        let product = ProductFacts { product: Some("OpenSSH".into()), ..ProductFacts::default() };
        let finding = RuleFinding {
            rule: "T-1".into(),
            title: "old\n\"one\"".into(),
            severity: "high",
            action: "drop",
            verdict: Some("affected"),
            blocked: true,
        };
        let said = || AssetBanner::new(BannerKind::Banner, "SSH-2.0-OpenSSH_9.2p1\u{0}ü");
        let whats = [
            (server(), SightingContent::Said(said())),
            (server(), SightingContent::Said(AssetBanner::new(BannerKind::HostKey, "SHA256:x ssh-ed25519"))),
            (server(), SightingContent::Found(said(), finding)),
            (server(), SightingContent::Met("2001:db8::1".parse().unwrap())),
            (server(), SightingContent::Gone),
            (
                asset(0, Side::Client),
                SightingContent::SaidTo(said(), "[2001:db8::2]:22".parse().unwrap(), "T-1".into()),
            ),
        ];
        whats
            .into_iter()
            .map(|(asset, what)| SightingRecord {
                asset,
                what,
                software: NamedSoftware { product: product.clone(), patch: Some("Debian-2".into()) },
                first: Timestamp::from_nanos(1_700_000_000_000_000_001),
                last: Timestamp::from_nanos(1_700_000_000_500_000_002),
                count: 7,
            })
            .collect()
    }

    #[test]
    fn what_was_written_is_read() {
        let (author, records) = (BatchEncoder::new(&run(), 1_000), records());
        let (count, text) = author.write(&records);
        assert_eq!(count, records.len());
        let batch = SensorBatch::read(FORMAT, &text).unwrap();
        assert_eq!((batch.sightings(), &batch.records, batch.ended), (42, &records, None));
        assert_eq!((batch.source, batch.about.as_str(), batch.started), ("guard", "queue 0", 1_000));
        assert_eq!(SensorBatch::read(FORMAT, &author.end(2_000)).unwrap().ended, Some(2_000));
    }

    #[test]
    fn no_record_is_later_than_it_may_be() {
        let (_, text) = BatchEncoder::new(&run(), 1_800_000_000_000).write(&records());
        let mut batch = SensorBatch::read(FORMAT, &text).unwrap();
        assert_eq!(batch.bound_times(1_700_000_000_501), 0);
        assert_eq!(batch.records, records());
        assert_eq!(batch.bound_times(1_600_000_000_000), records().len());
        assert_eq!(batch.started, 1_600_000_000_000);
        assert!(batch.records.iter().all(|it| it.last.as_nanos() == 1_600_000_000_000_000_000));
        assert!(batch.records.iter().all(|it| it.first <= it.last));
    }

    #[test]
    fn many_records_are_several_batches() {
        let records: Vec<SightingRecord> = records().into_iter().cycle().take(20_000).collect();
        let (mut rest, mut batches) = (&records[..], 0);
        while !rest.is_empty() {
            let (count, text) = BatchEncoder::new(&run(), 0).write(rest);
            assert!(count > 0 && text.len() <= OCTETS);
            assert_eq!(SensorBatch::read(FORMAT, &text).unwrap().records, rest[..count]);
            rest = &rest[count..];
            batches += 1;
        }
        assert!(batches > 1);
    }

    #[test]
    fn what_cannot_be_read_of_a_batch_is_given_back_without_the_rest() {
        let author = BatchEncoder::new(&run(), 1_000);
        let (_, whole) = author.write(&records());
        assert_eq!(
            SensorBatch::read_most(FORMAT, &whole).unwrap(),
            (SensorBatch::read(FORMAT, &whole).unwrap(), None)
        );
        let newer = whole.replace("\"met\"", "\"newer\"");
        let (batch, unread) = SensorBatch::read_most(FORMAT, &newer).unwrap();
        let (rest, unread) = ([&records()[..3], &records()[4..]].concat(), unread.unwrap());
        assert_eq!((batch.records, unread.records), (rest, 1));
        assert!(unread.error.to_string().starts_with("line 5: unknown variant `newer`"), "{unread:?}");
        // A newer program reads that.
        let again = SensorBatch::read(FORMAT, &unread.text.replace("\"newer\"", "\"met\"")).unwrap();
        assert_eq!((again.records, again.ended), (records()[3..4].to_vec(), None));
        // One end of a run is enough.
        let ended = author.end(2_000) + "no record\n";
        let (batch, unread) = SensorBatch::read_most(FORMAT, &ended).unwrap();
        assert_eq!((batch.ended, unread.unwrap().text), (Some(2_000), author.head() + "no record\n"));
        assert!(SensorBatch::read_most(FORMAT, &(author.head() + "no record\n")).is_err());
        assert!(SensorBatch::read_most(FORMAT, "no head\n").is_err());
    }

    #[test]
    fn a_batch_is_taken_apart_by_records() {
        let (_, whole) = BatchEncoder::new(&run(), 0).write(&records());
        let lines = BatchText::of(&whole);
        assert_eq!((lines.records().len(), lines.with(lines.records())), (records().len(), whole.clone()));
        assert_eq!(lines.records().iter().map(|line| sightings(line)).sum::<u64>(), 42);
        assert_eq!(
            SensorBatch::read(FORMAT, &lines.with(&lines.records()[1..3])).unwrap().records,
            records()[1..3]
        );
        assert_eq!((BatchText::of("").with(&[]), sightings("x")), (String::new(), 0));
    }

    #[test]
    fn what_is_no_batch_is_refused_with_its_line() {
        let (_, whole) = BatchEncoder::new(&run(), 0).write(&records());
        assert!(SensorBatch::read(FORMAT, &whole).is_ok());
        for (old, new, said) in [
            ("guard", "gu4rd", "line 1: unknown source"),
            ("\"started\":0", "\"started\":-1", "line 1: "),
            ("\"ssh\"", "\"sssh\"", "line 2: unknown protocol"),
            ("\"high\"", "\"hi\"", "line 4: unknown severity"),
            ("\"port\":22", "\"port\":0", "line 2: a server needs a port"),
            ("\"count\":7", "\"count\":-7", "line 2: "),
            ("\"first\":17", "\"first\":18", "line 2: its last time is before"),
            ("\"met\"", "\"mat\"", "line 5: unknown variant"),
            ("192.0.2.1", "192.0.2", "line 2: "),
            ("OpenSSH\"", &format!("{}\"", "x".repeat(3_000)), "line 2: a text of 3000 bytes"),
            ("\n", "\n\n", "line 2: "),
        ] {
            let error = SensorBatch::read(FORMAT, &whole.replacen(old, new, 1)).unwrap_err().to_string();
            assert!(error.starts_with(said), "{old}: {error}");
        }
        assert!(SensorBatch::read(2, &whole).unwrap_err().to_string().contains("version 2"));
        for text in ["", "\n", "{}", "[]", "\u{0}"] {
            assert!(SensorBatch::read(FORMAT, text).is_err(), "{text:?}");
        }
    }
}
