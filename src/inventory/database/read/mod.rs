//! Queries of the tables.

mod history;
mod overview;
mod paging;
mod rules;
mod top_values;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use serde::{Serialize, Serializer};

pub(in crate::inventory) use self::history::PeerBanner;
pub use self::history::{ClientContact, HostRecord, InventoryChange, PastRun, ServiceBanner, ServiceHistory};
pub(super) use self::history::{changes_since, latest_change};
pub use self::overview::InventoryOverview;
pub use self::paging::{HostRow, ServiceCursor};
pub use self::rules::RuleSummary;
pub use self::top_values::ValueCount;
use super::{InventoryDatabase, millis, octets};
use crate::database::{DatabaseError, values};
use crate::database::{QueryRow, SqlParameter};
use crate::event::Timestamp;
use crate::inventory::filter::{FilterTerm, ServiceFilter, TermTest};
use crate::inventory::store::StoreError;

/// A time in the inventory: milliseconds since the Unix epoch, shown in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct InventoryTime(i64);

/// A service as in listings.
#[derive(Debug, Clone, Serialize)]
pub struct ServiceRecord {
    #[serde(skip)]
    id: i64,
    /// Its host.
    pub address: String,
    /// Its TCP port, 0 for a client.
    pub port: u16,
    /// `tcp`.
    pub transport: String,
    /// Its protocol.
    pub protocol: String,
    /// `server` or `client`.
    pub side: String,
    /// `open`, or `gone`: a connection was refused, or it was unseen for too long.
    pub state: String,
    /// Its banner; may be empty.
    pub banner: String,
    /// Vendor, product and version, if known.
    pub vendor: Option<String>,
    /// See `vendor`.
    pub product: Option<String>,
    /// See `vendor`.
    pub version: Option<String>,
    /// The package's revision.
    pub patch: Option<String>,
    /// CPE name.
    pub cpe: Option<String>,
    /// Operating system.
    pub os: Option<String>,
    /// Fingerprint of its SSH key exchange.
    pub hassh: Option<String>,
    /// SHA-256 (hexadecimal digits) and subject of its last certificate.
    pub certificate: Option<String>,
    /// Fingerprint and type of its last host key.
    pub host_key: Option<String>,
    /// Time of the first sighting.
    pub first_seen: InventoryTime,
    /// Time of the last sighting.
    pub last_seen: InventoryTime,
    /// The sensors, `guard/edge`.
    pub sensors: Vec<String>,
    /// Its open findings.
    pub findings: Vec<ServiceFinding>,
}

/// A finding about a service.
#[derive(Debug, Clone, Serialize)]
pub struct ServiceFinding {
    /// The rule's id.
    pub rule: String,
    /// Its title.
    pub title: String,
    /// Its severity.
    pub severity: String,
    /// The verdict of an advisory about the package: `affected`, `fixed`, `unknown`.
    pub verdict: Option<String>,
    /// `open`, or `gone`: the banner has changed.
    pub state: String,
    /// Time of the first match.
    pub first_seen: InventoryTime,
    /// Time of the last match.
    pub last_seen: InventoryTime,
    /// Number of matches.
    pub count: i64,
    /// Number of connections that were blocked for it.
    pub blocked: i64,
}

impl ServiceRecord {
    /// Returns `192.0.2.1:22`; for a client, the address.
    pub fn place(&self) -> String {
        crate::inventory::place(&self.address, self.port)
    }
}

/// Columns and tables of a service, in any order that is fastest.
const SERVICES: &str =
    "SELECT s.id, h.address, s.port, s.transport, s.protocol, s.side, s.state, b.text, b.vendor,
  b.product, b.version, b.patch, b.cpe, b.os, x.text, y.text, z.text, s.first_seen, s.last_seen
  FROM services s JOIN hosts h ON h.id = s.host JOIN banners b ON b.id = s.banner
  LEFT JOIN banners x ON x.id = s.hassh LEFT JOIN banners y ON y.id = s.certificate
  LEFT JOIN banners z ON z.id = s.host_key";

/// Like [`SERVICES`], with client, connections and sensor.
const UNANSWERED: &str =
    "SELECT s.id, s.address, s.port, s.transport, s.protocol, s.side, s.state, '', b.vendor,
  b.product, b.version, b.patch, b.cpe, b.os, b.text, b.text, b.text, s.first_seen, s.last_seen,
  s.client, s.count, e.source || '/' || e.name
  FROM (SELECT CAST(0 AS BIGINT) AS id, 'tcp' AS transport, 'server' AS side, 'open' AS state,
      CAST(NULL AS BIGINT) AS banner, CAST(NULL AS BIGINT) AS host_key, u.* FROM unanswered u) s
  JOIN (SELECT DISTINCT octets, address FROM unanswered) h ON h.octets = s.octets
  JOIN sensors e ON e.id = s.sensor LEFT JOIN banners b ON b.id = s.banner";

/// Findings of several sensors become one. It is open (the greater word) if it is open for one of them.
const FOUND: &str =
    "SELECT rule, max(title), max(severity), max(verdict), max(state), min(first_seen), max(last_seen),
  CAST(sum(count) AS INTEGER), CAST(sum(blocked) AS INTEGER) FROM findings";

impl InventoryDatabase {
    /// Passes every service that a filter selects, in the order of addresses and ports.
    ///
    /// # Errors
    /// Errors of the database or of `show`.
    pub fn services<E: From<StoreError>>(
        &self,
        filter: &ServiceFilter,
        mut show: impl FnMut(ServiceRecord) -> Result<(), E>,
    ) -> Result<(), E> {
        let filter = &self.read(self.resolve_versions(filter))?;
        let (condition, values) = condition(filter, InventoryTime::now());
        let text = format!(
            "{SERVICES} WHERE {condition} ORDER BY length(h.octets), h.octets, s.port, s.side, s.protocol"
        );
        self.each(&text, &values, |row| {
            let mut service = self.read(service(row))?;
            if filter.admits(service.version.as_deref()) {
                service.findings = self.read(self.findings(service.id))?;
                service.sensors = self.read(self.sensors(service.id))?;
                show(service)?;
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Passes the protocols that clients spoke to servers without an answer, as a service without a
    /// banner, with the client and the number of connections.
    ///
    /// Errors of the database or of `show`.
    pub(in crate::inventory) fn unanswered<E: From<StoreError>>(
        &self,
        filter: &ServiceFilter,
        mut show: impl FnMut(ServiceRecord, IpAddr, i64) -> Result<(), E>,
    ) -> Result<(), E> {
        let filter = &self.read(self.resolve_versions(filter))?;
        let (condition, values) = condition(filter, InventoryTime::now());
        let text =
            format!("{UNANSWERED} WHERE {condition} ORDER BY length(s.octets), s.octets, s.port, s.protocol");
        self.each(&text, &values, |row| {
            let mut service = self.read(service(row))?;
            service.sensors.push(self.read(row.get(21))?);
            show(service, self.read(address_of(row, 19))?, self.read(row.get(20))?)?;
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Passes rows until the callback stops.
    fn each<E: From<StoreError>>(
        &self,
        text: &str,
        values: &[SqlParameter<'_>],
        mut show: impl FnMut(&QueryRow<'_>) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        // Errors of the database get the place added.
        enum VisitError<E> {
            Database(DatabaseError),
            Own(E),
        }
        impl<E> From<DatabaseError> for VisitError<E> {
            fn from(error: DatabaseError) -> Self {
                Self::Database(error)
            }
        }
        let shown = self.link.each(text, values, |row| show(row).map_err(VisitError::Own));
        shown.map_err(|ending| match ending {
            VisitError::Database(error) => self.fault(error).into(),
            VisitError::Own(error) => error,
        })
    }

    /// Prepares a filter for SQL: each distinct version is compared once, instead of each service's.
    fn resolve_versions(&self, filter: &ServiceFilter) -> Result<ServiceFilter, DatabaseError> {
        if !filter.asks_versions() {
            return Ok(filter.clone());
        }
        let query = "SELECT DISTINCT version FROM banners WHERE version IS NOT NULL";
        Ok(filter.naming(&self.link.all(query, &[], |row| row.get(0))?))
    }

    /// Adds the place to an error.
    fn read<T>(&self, asked: Result<T, DatabaseError>) -> Result<T, StoreError> {
        asked.map_err(|error| self.fault(error))
    }

    /// Returns the open findings of a service, the most severe first.
    fn findings(&self, service: i64) -> Result<Vec<ServiceFinding>, DatabaseError> {
        let query = format!("{FOUND} WHERE service = ?1 AND state = 'open' GROUP BY rule");
        let mut found = self.link.all(&query, values![service], found)?;
        found.sort_by_key(|found| std::cmp::Reverse(rank(&found.severity)));
        Ok(found)
    }

    fn sensors(&self, service: i64) -> Result<Vec<String>, DatabaseError> {
        let query = "SELECT DISTINCT source || '/' || name FROM sightings JOIN sensors ON sensors.id = sensor
                     WHERE service = ?1 ORDER BY 1";
        self.link.all(query, values![service], |row| row.get(0))
    }
}

fn found(row: &QueryRow<'_>) -> Result<ServiceFinding, DatabaseError> {
    Ok(ServiceFinding {
        rule: row.get(0)?,
        title: row.get(1)?,
        severity: row.get(2)?,
        verdict: row.get(3)?,
        state: row.get(4)?,
        first_seen: InventoryTime(row.get(5)?),
        last_seen: InventoryTime(row.get(6)?),
        count: row.get(7)?,
        blocked: row.get(8)?,
    })
}

/// The names of severities, the most severe last.
const SEVERITIES: [&str; 5] = ["info", "low", "medium", "high", "critical"];

/// Returns the rank of a severity's name.
fn rank(severity: &str) -> usize {
    SEVERITIES.iter().position(|name| *name == severity).unwrap_or(0)
}

fn service(row: &QueryRow<'_>) -> Result<ServiceRecord, DatabaseError> {
    Ok(ServiceRecord {
        id: row.get(0)?,
        address: row.get(1)?,
        port: row.get(2)?,
        transport: row.get(3)?,
        protocol: row.get(4)?,
        side: row.get(5)?,
        state: row.get(6)?,
        banner: row.get(7)?,
        vendor: row.get(8)?,
        product: row.get(9)?,
        version: row.get(10)?,
        patch: row.get(11)?,
        cpe: row.get(12)?,
        os: row.get(13)?,
        hassh: row.get(14)?,
        certificate: row.get(15)?,
        host_key: row.get(16)?,
        first_seen: InventoryTime(row.get(17)?),
        last_seen: InventoryTime(row.get(18)?),
        sensors: Vec::new(),
        findings: Vec::new(),
    })
}

/// Returns a filter as a condition of SQL, except for versions that are not named.
fn condition(filter: &ServiceFilter, now: InventoryTime) -> (String, Vec<SqlParameter<'static>>) {
    let mut values = Vec::new();
    let mut asked = |FilterTerm { holds, test }: &FilterTerm| {
        let condition = one(test, now.0, &mut values)?;
        // An unknown value does not fit.
        Some(if *holds { condition } else { format!("NOT coalesce({condition}, FALSE)") })
    };
    // Among a million services, those with a few banners are found by the index. So all conditions about
    // banners are combined, unless all of them are negated.
    let is_of_some = filter.names_banners();
    let (banners, others): (Vec<&FilterTerm>, Vec<&FilterTerm>) =
        filter.terms.iter().partition(|term| is_of_some && term.test.is_of_banners());
    let banners: Vec<String> = banners.into_iter().filter_map(&mut asked).collect();
    let mut text = match banners.as_slice() {
        [] => String::from("TRUE"),
        banners => format!("s.banner IN (SELECT b.id FROM banners b WHERE {})", banners.join(" AND ")),
    };
    for condition in others.into_iter().filter_map(asked) {
        text.push_str(" AND ");
        text.push_str(&condition);
    }
    (text, values)
}

fn one(test: &TermTest, now: i64, values: &mut Vec<SqlParameter<'static>>) -> Option<String> {
    Some(match test {
        TermTest::Is(column, text) => {
            values.push(text.to_ascii_lowercase().into());
            format!("lower({column}) = ?")
        }
        TermTest::Says(text) => {
            values.push(text.to_lowercase().into());
            "instr(lower(b.text), ?) > 0".to_owned()
        }
        TermTest::Version(_) => return None,
        TermTest::OneOf(versions) if versions.is_empty() => "FALSE".to_owned(),
        TermTest::OneOf(versions) => {
            values.extend(versions.iter().map(|version| version.clone().into()));
            format!("b.version IN ({})", vec!["?"; versions.len()].join(", "))
        }
        TermTest::HostKey(text) => {
            // The text is a whole word prefix: `!` is the character after the space.
            values.extend([text.clone().into(), format!("{text} ").into(), format!("{text}!").into()]);
            "s.host_key IN (SELECT k.id FROM banners k WHERE k.protocol = 'ssh' AND k.side = 'server' AND k.kind = 'host_key'
               AND (k.text = ? OR (k.text > ? AND k.text < ?)))"
                .to_owned()
        }
        TermTest::Net(network) => {
            let (first, last) = range(network);
            values.extend([first.clone().into(), last.into(), (first.len() as i64).into()]);
            "(h.octets BETWEEN ? AND ? AND length(h.octets) = ?)".to_owned()
        }
        TermTest::Port(port) => {
            values.push(i64::from(*port).into());
            "s.port = ?".to_owned()
        }
        TermTest::Within(column, age) => {
            let since = now.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
            values.push(since.into());
            format!("{column} >= ?")
        }
        TermTest::Finding(text) => {
            values.extend([text.to_lowercase().into(), text.clone().into()]);
            "EXISTS (SELECT 1 FROM findings f WHERE f.service = s.id AND f.state = 'open' AND (f.severity = ? OR f.rule = ?))"
                .to_owned()
        }
        TermTest::Sensor(text) => {
            values.extend([text.clone().into(), text.clone().into()]);
            "EXISTS (SELECT 1 FROM sightings g JOIN sensors n ON n.id = g.sensor
               WHERE g.service = s.id AND (n.name = ? OR n.source || '/' || n.name = ?))"
                .to_owned()
        }
    })
}

/// Returns the first and last address of a network, as the table of hosts stores them.
fn range(network: &IpNet) -> (Vec<u8>, Vec<u8>) {
    match network {
        IpNet::V4(network) => (network.network().octets().to_vec(), network.broadcast().octets().to_vec()),
        IpNet::V6(network) => (network.network().octets().to_vec(), network.broadcast().octets().to_vec()),
    }
}

/// Returns the address in a column of bytes.
pub(super) fn address_of(row: &QueryRow<'_>, column: usize) -> Result<IpAddr, DatabaseError> {
    let octets: Vec<u8> = row.get(column)?;
    let four = <[u8; 4]>::try_from(octets.as_slice()).map(|octets| Ipv4Addr::from(octets).into());
    let six = || <[u8; 16]>::try_from(octets.as_slice()).map(|octets| Ipv6Addr::from(octets).into());
    four.or_else(|_| six()).map_err(|_| DatabaseError::Column(column))
}

impl InventoryTime {
    /// Returns the current time.
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// From milliseconds since the Unix epoch.
    pub(crate) const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub(crate) const fn millis(self) -> i64 {
        self.0
    }

    /// Returns the time `age` earlier.
    #[must_use]
    pub fn before(self, age: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Returns the time `age` later.
    #[must_use]
    pub fn after(self, age: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)))
    }

    fn text(self, format: &str) -> String {
        let time = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        time.strftime(format).to_string()
    }
}

/// `2026-01-31 12:00:00`, UTC.
impl fmt::Display for InventoryTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text("%Y-%m-%d %H:%M:%S"))
    }
}

/// RFC 3339 with milliseconds.
impl Serialize for InventoryTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text("%Y-%m-%dT%H:%M:%S%.3fZ"))
    }
}

impl From<SystemTime> for InventoryTime {
    fn from(time: SystemTime) -> Self {
        Timestamp::from(time).into()
    }
}

impl From<Timestamp> for InventoryTime {
    fn from(time: Timestamp) -> Self {
        Self(millis(time))
    }
}
