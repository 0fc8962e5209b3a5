//! The past: changes, runs, and everything about one host.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::time::SystemTime;

use serde::Serialize;

use super::condition::{condition, resolve_versions};
use super::services::{FOUND, SERVICES, ServiceFinding, ServiceRecord, found, sensors, service};
use crate::database::{DatabaseConnection, DatabaseError, QueryRow, values};
use crate::inventory::change::InventoryChange;
use crate::inventory::database::connection::InventoryDatabase;
use crate::inventory::error::StoreError;
use crate::inventory::filter::ServiceFilter;
use crate::inventory::inventory_time::InventoryTime;
use crate::inventory::time_reference::TimeReference;

/// A run that wrote into the inventory.
#[derive(Debug, Clone, Serialize)]
pub struct PastRun {
    /// Its number.
    pub run: i64,
    /// The sensor, `scan/edge`.
    pub sensor: String,
    /// Description of its targets or files.
    pub about: String,
    /// Time of its start.
    pub started: InventoryTime,
    /// Time of its end, if it has ended.
    pub ended: Option<InventoryTime>,
    /// `running`, `done`, `killed`.
    pub state: String,
    /// Number of sightings that could not be kept.
    pub lost: i64,
}

/// Everything about a host.
#[derive(Debug, Clone, Serialize)]
pub struct HostRecord {
    /// Its address.
    pub address: String,
    /// Time of its first sighting.
    pub first_seen: InventoryTime,
    /// Its services, and its client side.
    pub services: Vec<ServiceHistory>,
    /// The services to which it connected.
    pub visited: Vec<ClientContact>,
}

/// Everything about a service.
#[derive(Debug, Clone, Serialize)]
pub struct ServiceHistory {
    /// The service as in listings, including findings that are gone.
    #[serde(flatten)]
    pub service: ServiceRecord,
    /// All its banners, the latest first.
    pub said: Vec<ServiceBanner>,
    /// The clients that connected.
    pub clients: Vec<ClientContact>,
    /// Its changes, the latest first.
    pub changes: Vec<InventoryChange>,
}

/// A banner of a service.
#[derive(Debug, Clone, Serialize)]
pub struct ServiceBanner {
    /// `banner`, `hassh`, `certificate` or `host_key`.
    pub kind: String,
    /// The text; may be empty.
    pub text: String,
    /// The sensor, `guard/edge`.
    pub sensor: String,
    /// Time of the first sighting.
    pub first_seen: InventoryTime,
    /// Time of the last sighting.
    pub last_seen: InventoryTime,
    /// Number of sightings.
    pub count: i64,
}

/// A banner that was sent to one peer.
#[derive(Debug, Clone)]
pub(in crate::inventory) struct PeerBanner {
    /// The text; may be empty.
    pub(in crate::inventory) banner: String,
    /// The rule that matched it; empty if none did.
    pub(in crate::inventory) rule: String,
    /// A client, whose port is 0, or a server.
    pub(in crate::inventory) peer: SocketAddr,
    /// Number of connections, summed over all sensors.
    pub(in crate::inventory) connections: i64,
    /// Time of the last one.
    pub(in crate::inventory) last_seen: InventoryTime,
}

/// A client and a service, one of which is known from the context.
#[derive(Debug, Clone, Serialize)]
pub struct ClientContact {
    /// The address of the other one.
    pub address: String,
    /// The service's port.
    pub port: u16,
    /// The protocol of the service.
    pub protocol: String,
    /// Time of the first connection.
    pub first_seen: InventoryTime,
    /// Time of the last connection.
    pub last_seen: InventoryTime,
    /// Number of connections.
    pub count: i64,
}

impl ClientContact {
    /// Returns `192.0.2.1:22`, the service.
    pub fn place(&self) -> String {
        crate::terms::place(&self.address, self.port)
    }
}

pub(super) const CHANGES: &str =
    "SELECT c.id, c.at, c.kind, h.address, s.port, s.protocol, o.text, n.text, c.rule, c.why,
  e.source || '/' || e.name, b.version
  FROM changes c JOIN services s ON s.id = c.service JOIN hosts h ON h.id = s.host
  JOIN banners b ON b.id = s.banner LEFT JOIN banners o ON o.id = c.old LEFT JOIN banners n ON n.id = c.new
  JOIN sensors e ON e.id = c.sensor";

/// The column of [`CHANGES`] with the service's version.
pub(super) const VERSION: usize = 11;

/// No limit of rows.
const ALL: i64 = i64::MAX;

/// The clients of a service.
const CLIENTS: &str =
    "SELECT h.address, s.port, s.protocol, min(c.first_seen), max(c.last_seen), CAST(sum(c.count) AS INTEGER)
  FROM contacts c JOIN services s ON s.id = c.service JOIN hosts h ON h.id = c.client
  WHERE s.id = ?1 GROUP BY h.id, s.id ORDER BY 5 DESC LIMIT ?2";

/// The services to which a host connects.
const GOES_TO: &str =
    "SELECT h.address, s.port, s.protocol, min(c.first_seen), max(c.last_seen), CAST(sum(c.count) AS INTEGER)
  FROM contacts c JOIN services s ON s.id = c.service JOIN hosts h ON h.id = s.host
  WHERE c.client = ?1 GROUP BY h.id, s.id ORDER BY 5 DESC LIMIT ?2";

/// Banners of a service or client by peer, with the rule that matched.
const SAID_TO: &str = "SELECT b.text, p.rule, p.peer, p.port, CAST(sum(p.count) AS INTEGER), max(p.last_seen)
  FROM banner_peers p JOIN banners b ON b.id = p.banner
  WHERE p.service = ?1 GROUP BY b.text, p.rule, p.peer, p.port ORDER BY 6 DESC, b.text, p.peer, p.port";

/// Passes the changes after `since` and until `until`, of services that a filter selects, in the
/// order of time.
///
/// Errors of the database or of `show`.
pub fn changes<E: From<StoreError>>(
    database: &InventoryDatabase,
    (since, until): (InventoryTime, InventoryTime),
    filter: &ServiceFilter,
    mut show: impl FnMut(InventoryChange) -> Result<(), E>,
) -> Result<(), E> {
    let filter = &database.read(resolve_versions(&database.link, filter))?;
    let (condition, values) = condition(filter, InventoryTime::now());
    let text = format!(
        "{CHANGES} WHERE c.at > {} AND c.at <= {} AND {condition} ORDER BY c.at, c.id",
        since.millis(),
        until.millis()
    );
    database.each(&text, &values, |row| {
        let version: Option<String> = database.read(row.get(VERSION))?;
        if filter.admits(version.as_deref()) {
            show(database.read(change(row))?)?;
        }
        Ok(ControlFlow::Continue(()))
    })
}

/// Returns the difference between two times: for each service, the changes that do not cancel out, in
/// the order of time.
///
/// # Errors
/// The database returns an error.
pub fn difference(
    database: &InventoryDatabase,
    times: (InventoryTime, InventoryTime),
    filter: &ServiceFilter,
) -> Result<Vec<InventoryChange>, StoreError> {
    let mut places: BTreeMap<(IpAddr, u16, String), Vec<InventoryChange>> = BTreeMap::new();
    changes(database, times, filter, |change| -> Result<(), StoreError> {
        let address = change.address.parse().unwrap_or(IpAddr::from([0, 0, 0, 0]));
        let place = places.entry((address, change.port, change.protocol.clone())).or_default();
        net(place, change);
        Ok(())
    })?;
    let mut changes: Vec<_> = places.into_values().flatten().collect();
    // Stable: changes of the same time stay sorted by address and port.
    changes.sort_by_key(|change| change.at);
    Ok(changes)
}

/// Returns the time of a moment.
///
/// # Errors
/// There is no such run, or it has not ended.
pub fn time_of(database: &InventoryDatabase, moment: TimeReference) -> Result<InventoryTime, StoreError> {
    let run = match moment {
        TimeReference::Run(run) => run,
        other => return Ok(other.time(SystemTime::now().into()).unwrap_or(InventoryTime::now())),
    };
    let ended = "SELECT ended FROM runs WHERE id = ?1";
    let ended = database.read(database.link.one(ended, values![run], |row| row.get::<Option<i64>>(0)))?;
    ended.flatten().map(InventoryTime::from_millis).ok_or(StoreError::Run(run))
}

/// Returns every run, in the order of starts.
///
/// # Errors
/// The database returns an error.
pub fn runs(database: &InventoryDatabase) -> Result<Vec<PastRun>, StoreError> {
    let mut runs = latest_runs(database, ALL)?;
    runs.reverse();
    Ok(runs)
}

/// Returns at most `most` runs, those that started last first.
///
/// # Errors
/// The database returns an error.
pub fn latest_runs(database: &InventoryDatabase, most: i64) -> Result<Vec<PastRun>, StoreError> {
    let query = "SELECT runs.id, source || '/' || name, about, started, ended, state, lost
                 FROM runs JOIN sensors ON sensors.id = sensor ORDER BY started DESC, runs.id DESC LIMIT ?1";
    database.read(database.link.all(query, values![most], |row| {
        Ok(PastRun {
            run: row.get(0)?,
            sensor: row.get(1)?,
            about: row.get(2)?,
            started: row.get(3)?,
            ended: row.get(4)?,
            state: row.get(5)?,
            lost: row.get(6)?,
        })
    }))
}

/// Returns everything about a host, if it is known.
///
/// # Errors
/// The database returns an error.
pub fn host(database: &InventoryDatabase, address: IpAddr) -> Result<Option<HostRecord>, StoreError> {
    database.read(read_host(&database.link, address, (ALL, ALL)))
}

/// Returns a host, if it is known, with its first `services` services, and at most `rows` rows in each
/// list.
///
/// # Errors
/// The database returns an error.
pub fn host_within(
    database: &InventoryDatabase,
    address: IpAddr,
    (services, rows): (usize, usize),
) -> Result<Option<HostRecord>, StoreError> {
    let limit = |count: usize| i64::try_from(count).unwrap_or(ALL);
    database.read(read_host(&database.link, address, (limit(services), limit(rows))))
}

/// Returns the clients of a service, the latest first.
///
/// # Errors
/// The database returns an error.
pub(in crate::inventory) fn clients(
    database: &InventoryDatabase,
    service: &ServiceRecord,
) -> Result<Vec<ClientContact>, StoreError> {
    database.read(contacts(&database.link, CLIENTS, service.id, ALL))
}

/// Returns the banners of a service or client by peer, the latest first.
///
/// # Errors
/// The database returns an error.
pub(in crate::inventory) fn said_to(
    database: &InventoryDatabase,
    service: &ServiceRecord,
) -> Result<Vec<PeerBanner>, StoreError> {
    database.read(database.link.all(SAID_TO, values![service.id], |row| {
        Ok(PeerBanner {
            banner: row.get(0)?,
            rule: row.get(1)?,
            peer: SocketAddr::new(row.get(2)?, row.get(3)?),
            connections: row.get(4)?,
            last_seen: row.get(5)?,
        })
    }))
}

fn read_host(
    link: &DatabaseConnection,
    address: IpAddr,
    (services, rows): (i64, i64),
) -> Result<Option<HostRecord>, DatabaseError> {
    let found = link.one(
        "SELECT id, address, first_seen FROM hosts WHERE octets = ?1",
        values![address.to_canonical()],
        |row| Ok((row.get::<i64>(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let Some((id, address, first_seen)) = found else { return Ok(None) };
    let query = format!("{SERVICES} WHERE s.host = ?1 ORDER BY s.port, s.protocol LIMIT ?2");
    let services = link.all(&query, values![id, services], service)?;
    let histories = services.into_iter().map(|service| history(link, service, rows));
    let services = histories.collect::<Result<_, _>>()?;
    let visited = contacts(link, GOES_TO, id, rows)?;
    Ok(Some(HostRecord { address, first_seen, services, visited }))
}

fn history(
    link: &DatabaseConnection,
    mut service: ServiceRecord,
    rows: i64,
) -> Result<ServiceHistory, DatabaseError> {
    let id = service.id;
    service.findings = all_findings(link, id)?;
    service.sensors = sensors(link, id)?;
    let query = "SELECT kind, text, source || '/' || name, first_seen, last_seen, count FROM sightings
         JOIN banners ON banners.id = banner JOIN sensors ON sensors.id = sensor
         WHERE service = ?1 ORDER BY last_seen DESC, kind LIMIT ?2";
    let said = link.all(query, values![id, rows], |row| {
        Ok(ServiceBanner {
            kind: row.get(0)?,
            text: row.get(1)?,
            sensor: row.get(2)?,
            first_seen: row.get(3)?,
            last_seen: row.get(4)?,
            count: row.get(5)?,
        })
    })?;
    let clients = contacts(link, CLIENTS, id, rows)?;
    let query = format!("{CHANGES} WHERE c.service = ?1 ORDER BY c.at DESC, c.id DESC LIMIT ?2");
    let changes = link.all(&query, values![id, rows], change)?;
    Ok(ServiceHistory { service, said, clients, changes })
}

fn all_findings(link: &DatabaseConnection, service: i64) -> Result<Vec<ServiceFinding>, DatabaseError> {
    link.all(&format!("{FOUND} WHERE service = ?1 GROUP BY rule"), values![service], found)
}

fn contacts(
    link: &DatabaseConnection,
    query: &str,
    id: i64,
    rows: i64,
) -> Result<Vec<ClientContact>, DatabaseError> {
    link.all(query, values![id, rows], |row| {
        Ok(ClientContact {
            address: row.get(0)?,
            port: row.get(1)?,
            protocol: row.get(2)?,
            first_seen: row.get(3)?,
            last_seen: row.get(4)?,
            count: row.get(5)?,
        })
    })
}

/// Returns the number of the latest change, 0 if there is none.
pub fn latest_number(link: &DatabaseConnection) -> Result<i64, DatabaseError> {
    link.sole("SELECT coalesce(max(id), 0) FROM changes", &[], |row| row.get(0))
}

/// Returns the changes after the change with this number.
pub fn changes_since(link: &DatabaseConnection, id: i64) -> Result<Vec<InventoryChange>, DatabaseError> {
    link.all(&format!("{CHANGES} WHERE c.id > ?1 ORDER BY c.id"), values![id], change)
}

pub(super) fn change(row: &QueryRow<'_>) -> Result<InventoryChange, DatabaseError> {
    Ok(InventoryChange {
        id: row.get(0)?,
        at: row.get(1)?,
        kind: row.get(2)?,
        address: row.get(3)?,
        port: row.get(4)?,
        protocol: row.get(5)?,
        old: row.get(6)?,
        new: row.get(7)?,
        rule: row.get(8)?,
        why: row.get(9)?,
        sensor: row.get(10)?,
    })
}

/// Adds a change to those of its service; it may cancel or extend one of them.
fn net(changes: &mut Vec<InventoryChange>, change: InventoryChange) {
    let undone = match change.kind.as_str() {
        "service_back" => Some("service_gone"),
        "service_gone" => Some("service_back"),
        "finding_gone" => Some("finding_new"),
        "finding_new" => Some("finding_gone"),
        _ => None,
    };
    let earlier = |kind: &str| changes.iter().position(|it| it.kind == kind && it.rule == change.rule);
    if let Some(at) = undone.and_then(earlier) {
        changes.remove(at);
        return;
    }
    let goes_on = change.kind.ends_with("_changed").then(|| earlier(&change.kind)).flatten();
    if let Some(known) = goes_on.and_then(|at| changes.get_mut(at)) {
        (known.at, known.new, known.sensor) = (change.at, change.new, change.sensor);
        changes.retain(|it| it.old.is_none() || it.old != it.new);
        return;
    }
    // If the service is new, its other changes are part of that.
    let is_new = changes.iter_mut().find(|it| matches!(it.kind.as_str(), "new_service" | "new_client"));
    match (is_new, change.kind.as_str()) {
        (Some(known), "banner_changed") => known.new = change.new,
        _ => changes.push(change),
    }
}
