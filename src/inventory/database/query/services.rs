//! Services as in listings.

use std::net::IpAddr;
use std::ops::ControlFlow;

use serde::Serialize;

use super::condition::{condition, resolve_versions};
use crate::database::{DatabaseConnection, DatabaseError, QueryRow, values};
use crate::inventory::database::connection::InventoryDatabase;
use crate::inventory::error::StoreError;
use crate::inventory::filter::ServiceFilter;
use crate::inventory::inventory_time::InventoryTime;
use crate::terms::place;

/// A service as in listings.
#[derive(Debug, Clone, Serialize)]
pub struct ServiceRecord {
    #[serde(skip)]
    pub(super) id: i64,
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

impl ServiceFinding {
    /// True if the finding is open.
    pub fn is_open(&self) -> bool {
        self.state == "open"
    }
}

impl ServiceRecord {
    /// Returns `192.0.2.1:22`; for a client, the address.
    pub fn place(&self) -> String {
        place(&self.address, self.port)
    }
}

/// Columns and tables of a service, in any order that is fastest.
pub(super) const SERVICES: &str =
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
pub(super) const FOUND: &str =
    "SELECT rule, max(title), max(severity), max(verdict), max(state), min(first_seen), max(last_seen),
  CAST(sum(count) AS INTEGER), CAST(sum(blocked) AS INTEGER) FROM findings";

/// Passes every service that a filter selects, in the order of addresses and ports.
///
/// # Errors
/// Errors of the database or of `show`.
pub fn services<E: From<StoreError>>(
    database: &InventoryDatabase,
    filter: &ServiceFilter,
    mut show: impl FnMut(ServiceRecord) -> Result<(), E>,
) -> Result<(), E> {
    let filter = &database.read(resolve_versions(&database.link, filter))?;
    let (condition, values) = condition(filter, InventoryTime::now());
    let text = format!(
        "{SERVICES} WHERE {condition} ORDER BY length(h.octets), h.octets, s.port, s.side, s.protocol"
    );
    database.each(&text, &values, |row| {
        let mut service = database.read(service(row))?;
        if filter.admits(service.version.as_deref()) {
            service.findings = database.read(findings(&database.link, service.id))?;
            service.sensors = database.read(sensors(&database.link, service.id))?;
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
    database: &InventoryDatabase,
    filter: &ServiceFilter,
    mut show: impl FnMut(ServiceRecord, IpAddr, i64) -> Result<(), E>,
) -> Result<(), E> {
    let filter = &database.read(resolve_versions(&database.link, filter))?;
    let (condition, values) = condition(filter, InventoryTime::now());
    let text =
        format!("{UNANSWERED} WHERE {condition} ORDER BY length(s.octets), s.octets, s.port, s.protocol");
    database.each(&text, &values, |row| {
        let mut service = database.read(service(row))?;
        service.sensors.push(database.read(row.get(21))?);
        show(service, database.read(row.get(19))?, database.read(row.get(20))?)?;
        Ok(ControlFlow::Continue(()))
    })
}

/// Returns the open findings of a service, the most severe first.
pub(super) fn findings(
    link: &DatabaseConnection,
    service: i64,
) -> Result<Vec<ServiceFinding>, DatabaseError> {
    let query = format!("{FOUND} WHERE service = ?1 AND state = 'open' GROUP BY rule");
    let mut found = link.all(&query, values![service], found)?;
    found.sort_by_key(|found| std::cmp::Reverse(rank(&found.severity)));
    Ok(found)
}

pub(super) fn sensors(link: &DatabaseConnection, service: i64) -> Result<Vec<String>, DatabaseError> {
    let query = "SELECT DISTINCT source || '/' || name FROM sightings JOIN sensors ON sensors.id = sensor
                 WHERE service = ?1 ORDER BY 1";
    link.all(query, values![service], |row| row.get(0))
}

pub(super) fn found(row: &QueryRow<'_>) -> Result<ServiceFinding, DatabaseError> {
    Ok(ServiceFinding {
        rule: row.get(0)?,
        title: row.get(1)?,
        severity: row.get(2)?,
        verdict: row.get(3)?,
        state: row.get(4)?,
        first_seen: row.get(5)?,
        last_seen: row.get(6)?,
        count: row.get(7)?,
        blocked: row.get(8)?,
    })
}

/// The names of severities, the most severe last.
pub(super) const SEVERITIES: [&str; 5] = ["info", "low", "medium", "high", "critical"];

/// Returns the rank of a severity's name.
pub(super) fn rank(severity: &str) -> usize {
    SEVERITIES.iter().position(|name| *name == severity).unwrap_or(0)
}

pub(super) fn service(row: &QueryRow<'_>) -> Result<ServiceRecord, DatabaseError> {
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
        first_seen: row.get(17)?,
        last_seen: row.get(18)?,
        sensors: Vec::new(),
        findings: Vec::new(),
    })
}
