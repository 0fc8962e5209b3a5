//! Comma-separated values, RFC 4180: one record for each event, with the same columns for every kind of
//! event.
//!
//! Control characters from the network are escaped, so a record is always one line.

use std::borrow::Cow;
use std::io;

use crate::event::{
    AlertFacts, AnomalyFacts, ApplicationFacts, ChangeFacts, ConnectFacts, DropFacts, Endpoint, Event,
    EventKind, FlowRecord, ProductFacts, Protocol, RuleAction, Side,
};

use super::evidence::MatchedField;
use super::service_identity::ServiceIdentity;
use super::text::{BanLine, ChangeLine};
use super::time::EveTime;
use super::{OutputFormat, escape};

/// The columns in order; new ones are added only at the end.
pub const COLUMNS: [&str; 31] = [
    "timestamp",
    "source",
    "event_type",
    "src_ip",
    "src_port",
    "dest_ip",
    "dest_port",
    "app_proto",
    "state",
    "from",
    "banner",
    "status",
    "url",
    "rule",
    "title",
    "severity",
    "action",
    "blocked",
    "product",
    "version",
    "cpe",
    "reason",
    "rtt_ms",
    "detail",
    "waited_ms",
    "protocol_version",
    "verdict",
    "fixed",
    "marker",
    "host_key",
    "matched",
];

/// CSV records as a [`OutputFormat`].
#[derive(Debug, Clone, Copy, Default)]
pub struct CsvFormat;

impl OutputFormat for CsvFormat {
    fn begin(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        record(out, COLUMNS)
    }

    fn event(&mut self, event: &Event, out: &mut Vec<u8>) -> io::Result<()> {
        record(out, CsvRow::new(event).cells().iter().map(|cell| plain(cell)))
    }
}

fn record<I, C>(out: &mut Vec<u8>, cells: I) -> io::Result<()>
where
    I: IntoIterator<Item = C>,
    C: AsRef<[u8]>,
{
    let mut writer = ::csv::Writer::from_writer(out);
    writer.write_record(cells)?;
    writer.flush()
}

/// Returns network text as a cell: on one line, and not a formula.
pub fn plain(text: &str) -> String {
    inert(&escape(text)).into_owned()
}

/// Returns a cell that spreadsheets do not take for a formula: an apostrophe precedes a character that
/// may begin one.
fn inert(cell: &str) -> Cow<'_, str> {
    if cell.starts_with(['=', '+', '-', '@']) { format!("'{cell}").into() } else { cell.into() }
}

/// The values of an event for the columns; empty where it has none.
#[derive(Debug, Default)]
struct CsvRow<'a> {
    timestamp: String,
    source: &'static str,
    event_type: &'static str,
    ends: [Option<Endpoint>; 2],
    protocol: Option<Protocol>,
    state: &'static str,
    from: Option<Side>,
    banner: Cow<'a, str>,
    status: Option<u16>,
    url: &'a str,
    rule: &'a str,
    title: &'a str,
    severity: &'static str,
    action: &'static str,
    blocked: Option<bool>,
    product: Option<Cow<'a, ProductFacts>>,
    reason: &'a str,
    round_trip: Option<f64>,
    detail: Cow<'a, str>,
    waited_ms: Option<u32>,
    protocol_version: &'a str,
    verdict: &'static str,
    fixed: &'a str,
    marker: &'static str,
    host_key: String,
    matched: String,
}

impl<'a> CsvRow<'a> {
    fn new(event: &'a Event) -> Self {
        let mut row = Self {
            timestamp: EveTime(event.timestamp).to_string(),
            source: event.source.name(),
            ..Self::default()
        };
        if let Some(flow) = &event.flow {
            let known = |end: Endpoint| (!end.address.is_unspecified()).then_some(end);
            row.ends = [known(flow.endpoints.client), known(flow.endpoints.server)];
            row.protocol = flow.protocol;
            row.from = flow.from;
        }
        match &event.kind {
            EventKind::Application(said) => row.application(said),
            EventKind::Alert(facts) => row.alert(facts),
            EventKind::Drop(facts) => row.dropped(facts),
            EventKind::Anomaly(facts) => row.anomaly(facts),
            EventKind::Flow(facts) => row.flow(facts),
            EventKind::Connect(facts) => row.connect(facts),
            EventKind::Hook(facts) => {
                row.event_type = "hook";
                row.detail = format!("{} {}: {}", facts.families, facts.state, facts.detail).into();
            }
            EventKind::Ban(facts) => {
                row.event_type = "ban";
                row.detail = BanLine(facts).to_string().into();
            }
            EventKind::Change(facts) => row.change(facts),
            EventKind::Stats(facts) => {
                row.event_type = "stats";
                let counters = facts.counters.iter().map(|(path, value)| format!("{path}={value}"));
                row.detail = counters.collect::<Vec<_>>().join(" ").into();
            }
        }
        row
    }

    fn change(&mut self, facts: &'a ChangeFacts) {
        self.event_type = "change";
        self.protocol = Protocol::named(&facts.protocol);
        self.banner = facts.new.as_deref().or(facts.old.as_deref()).unwrap_or_default().into();
        self.rule = facts.rule.as_deref().unwrap_or_default();
        self.reason = &facts.kind;
        self.detail = ChangeLine(facts).to_string().into();
    }

    fn application(&mut self, said: &'a ApplicationFacts) {
        let summary = said.summary();
        self.event_type = said.name();
        self.protocol = Some(said.protocol());
        self.from = summary.from;
        self.banner = summary.banner.unwrap_or_default();
        let named = summary.product.filter(|facts| facts.product.is_some()).map(Cow::Borrowed);
        self.product = named.or_else(|| ServiceIdentity::of(said).map(|said| Cow::Owned(said.into())));
        self.status = summary.status;
        self.reason = summary.reason.unwrap_or_default();
        self.protocol_version = summary.protocol_version.unwrap_or_default();
        self.url = summary.url.unwrap_or_default();
        if let ApplicationFacts::Ssh(facts) = said {
            self.host_key = facts.host_key().map(ToString::to_string).unwrap_or_default();
        }
        self.detail = match (summary.client, said) {
            (Some((banner, _)), _) => format!("client={banner}").into(),
            (None, ApplicationFacts::Tls(facts)) => facts.certified().unwrap_or_default().into(),
            (None, _) => summary.title.unwrap_or_default().into(),
        };
    }

    fn alert(&mut self, facts: &'a AlertFacts) {
        self.event_type = "alert";
        self.from = Some(facts.from);
        self.banner = facts.banner.as_str().into();
        self.rule = &facts.rule;
        self.title = &facts.title;
        self.severity = facts.severity.name();
        self.action = facts.action.name();
        self.blocked = Some(facts.blocked);
        self.product = Some(Cow::Borrowed(&facts.product));
        self.detail = facts.references.join(" ").into();
        self.matched = MatchedField::of(facts).map(|field| field.to_string()).unwrap_or_default();
        if let Some(told) = &facts.verdict {
            self.verdict = told.verdict.name();
            self.reason = &told.reason;
            self.fixed = told.fixed.as_deref().unwrap_or_default();
            self.marker = told.marker.unwrap_or_default();
        }
    }

    fn dropped(&mut self, facts: &'a DropFacts) {
        self.event_type = "drop";
        self.rule = facts.rule.as_deref().unwrap_or_default();
        self.reason = facts.reason.name();
        if let Some(resets) = &facts.resets {
            self.action = RuleAction::Reject.name();
            self.detail = resets.unsent_reason().unwrap_or_default().into();
        }
        self.blocked = Some(true);
    }

    fn flow(&mut self, facts: &'a FlowRecord) {
        self.event_type = "flow";
        self.state = facts.state.name();
        self.rule = facts.rule.as_deref().unwrap_or_default();
        self.action = facts.verdict.name();
        self.reason = facts.end.name();
        self.detail = format!(
            "pkts_toserver={} bytes_toserver={} pkts_toclient={} bytes_toclient={} start={} end={} counted={}",
            facts.to_server.packets,
            facts.to_server.octets,
            facts.to_client.packets,
            facts.to_client.octets,
            EveTime(facts.start),
            EveTime(facts.last),
            facts.counted()
        )
        .into();
    }

    fn anomaly(&mut self, facts: &'a AnomalyFacts) {
        self.event_type = "anomaly";
        self.reason = facts.name;
        self.detail = facts.detail.as_str().into();
    }

    fn connect(&mut self, facts: &'a ConnectFacts) {
        self.event_type = "connect";
        self.state = facts.state.name();
        self.reason = &facts.reason;
        self.banner = facts.said.as_str().into();
        self.round_trip = facts.round_trip.map(|time| time.as_secs_f64() * 1000.0);
        self.waited_ms = facts.waited_ms;
    }

    /// Returns the cells in the order of [`COLUMNS`].
    fn cells(&self) -> [Cow<'_, str>; COLUMNS.len()] {
        let [client, server] = self.ends;
        let product = |field: fn(&ProductFacts) -> &Option<String>| -> Cow<'_, str> {
            self.product.as_ref().and_then(|facts| field(facts).as_deref()).unwrap_or_default().into()
        };
        [
            self.timestamp.as_str().into(),
            self.source.into(),
            self.event_type.into(),
            text(client.map(|end| end.address)),
            text(client.map(|end| end.port).filter(|port| *port != 0)),
            text(server.map(|end| end.address)),
            text(server.map(|end| end.port)),
            self.protocol.map_or("", Protocol::name).into(),
            self.state.into(),
            self.from.map_or("", Side::name).into(),
            self.banner.as_ref().into(),
            text(self.status),
            self.url.into(),
            self.rule.into(),
            self.title.into(),
            self.severity.into(),
            self.action.into(),
            text(self.blocked),
            product(|facts| &facts.product),
            product(|facts| &facts.version),
            product(|facts| &facts.cpe),
            self.reason.into(),
            self.round_trip.map_or_else(Cow::default, |millis| format!("{millis:.3}").into()),
            self.detail.as_ref().into(),
            text(self.waited_ms),
            self.protocol_version.into(),
            self.verdict.into(),
            self.fixed.into(),
            self.marker.into(),
            self.host_key.as_str().into(),
            self.matched.as_str().into(),
        ]
    }
}

fn text<'a, T: ToString>(value: Option<T>) -> Cow<'a, str> {
    value.map_or_else(Cow::default, |value| value.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::event::{EventSource, HttpFacts, HttpResponseFacts, PortState};
    use crate::event::{SshFacts, SshSide, Timestamp};

    fn read(events: &[Event]) -> Vec<Vec<String>> {
        let mut out = Vec::new();
        CsvFormat.begin(&mut out).unwrap();
        for event in events {
            CsvFormat.event(event, &mut out).unwrap();
        }
        assert_eq!(
            out.iter().filter(|octet| **octet == b'\n').count(),
            events.len() + 1,
            "one line a record"
        );
        let mut reader = ::csv::ReaderBuilder::new().has_headers(false).from_reader(out.as_slice());
        reader.records().map(|record| record.unwrap().iter().map(str::to_owned).collect()).collect()
    }

    fn event(kind: EventKind) -> Event {
        Event { timestamp: Timestamp::default(), source: EventSource::Scan, flow: None, kind }
    }

    #[test]
    fn no_cell_begins_a_formula() {
        let said = "=HYPERLINK(\"http://x\",\"y\")";
        let connect = ConnectFacts {
            state: PortState::Open,
            reason: "foreign".into(),
            said: said.to_owned(),
            round_trip: None,
            waited_ms: Some(2000),
        };
        let rows = read(&[event(EventKind::Connect(connect))]);
        assert!(rows[1].contains(&format!("'{said}")), "{rows:?}");
    }

    #[test]
    fn every_record_has_the_headers_columns() {
        let connect = ConnectFacts {
            state: PortState::Closed,
            reason: "a,\"b\"\n".into(),
            said: String::new(),
            round_trip: None,
            waited_ms: Some(2000),
        };
        let side = SshSide {
            banner: "SSH-2.0-x,\r\n\x1b y".to_owned(),
            software_version: "OpenSSH_9.2p1 Debian-2+deb12u3".to_owned(),
            ..SshSide::default()
        };
        let ssh = SshFacts { client: None, server: Some(side.into()) };
        let rows = read(&[
            event(EventKind::Connect(connect)),
            event(EventKind::Application(ApplicationFacts::Ssh(Arc::new(ssh)))),
        ]);
        assert_eq!(rows[0], COLUMNS);
        let cell = |row: usize, name| &rows[row][COLUMNS.iter().position(|column| *column == name).unwrap()];
        assert_eq!((cell(1, "state").as_str(), cell(1, "reason").as_str()), ("closed", "a,\"b\"\\n"));
        assert_eq!((cell(2, "event_type").as_str(), cell(2, "from").as_str()), ("ssh", "server"));
        assert_eq!(cell(2, "banner"), "SSH-2.0-x,\\r\\n\\x1b y");
        let product = ["product", "version", "cpe"].map(|name| cell(2, name).as_str());
        assert_eq!(product, ["OpenSSH", "9.2p1 Debian 2+deb12u3", "cpe:/a:openbsd:openssh:9.2p1"]);
        assert_eq!((cell(1, "waited_ms").as_str(), cell(2, "waited_ms").as_str()), ("2000", ""));
        let answer = HttpFacts {
            request: None,
            response: Some(HttpResponseFacts {
                version: "HTTP/1.0".into(),
                status: 404,
                reason: "Gone fishing".into(),
                ..HttpResponseFacts::default()
            }),
        };
        let rows = read(&[event(EventKind::Application(ApplicationFacts::Http(Arc::new(answer))))]);
        let cell = |name| rows[1][COLUMNS.iter().position(|column| *column == name).unwrap()].as_str();
        assert_eq!(
            (cell("protocol_version"), cell("status"), cell("reason")),
            ("HTTP/1.0", "404", "Gone fishing")
        );
    }
}
