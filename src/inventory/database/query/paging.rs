//! Listings in pages, each of which continues after the previous one.

use std::fmt;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::str::FromStr;

use serde::Serialize;

use super::condition::{WITH_FINDING, condition, resolve_versions};
use super::history::{CHANGES, VERSION, change, latest_number};
use super::services::{SERVICES, ServiceRecord, findings, rank, sensors, service};
use crate::database::{DatabaseConnection, DatabaseError, SqlParameter, values};
use crate::inventory::change::InventoryChange;
use crate::inventory::database::connection::InventoryDatabase;
use crate::inventory::error::StoreError;
use crate::inventory::filter::{ServiceFilter, TermTest};
use crate::inventory::inventory_time::InventoryTime;

/// A host as in listings.
#[derive(Debug, Clone, Serialize)]
pub struct HostRow {
    /// Its address.
    pub address: String,
    /// Time of the first sighting.
    pub first_seen: InventoryTime,
    /// Time of the last sighting of any of its services.
    pub last_seen: InventoryTime,
    /// Its services and its client side, the lowest ports first; limited to a few.
    pub services: Vec<ServiceRecord>,
    /// Number of its services.
    pub count: i64,
    /// The highest severity of its open findings.
    pub severity: Option<String>,
}

/// Number of services in a line of a listing.
const NAMED: i64 = 6;

/// [`SERVICES`] host by host, in the order of their index: the first of a million are found at once.
const BY_ADDRESS: &str =
    "SELECT s.id, h.address, s.port, s.transport, s.protocol, s.side, s.state, b.text, b.vendor,
  b.product, b.version, b.patch, b.cpe, b.os, x.text, y.text, z.text, s.first_seen, s.last_seen
  FROM hosts h CROSS JOIN services s ON s.host = h.id CROSS JOIN banners b ON b.id = s.banner
  LEFT JOIN banners x ON x.id = s.hassh LEFT JOIN banners y ON y.id = s.certificate
  LEFT JOIN banners z ON z.id = s.host_key";

/// Number of services with banners that a filter selects up to which they are found by banner and sorted;
/// more are read host by host.
const SORTED: i64 = 10_000;

/// IPv4 comes before IPv6.
const LENGTHS: [i64; 2] = [4, 16];

/// Position in a listing of services: after this service, whether it still exists or not. As text:
/// `198.51.100.7,22,server,ssh`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceCursor {
    address: IpAddr,
    port: i64,
    side: String,
    protocol: String,
}

impl ServiceCursor {
    /// Returns the position after all services of a host.
    fn behind_host(address: IpAddr) -> Self {
        Self { address: address.to_canonical(), port: i64::MAX, side: String::new(), protocol: String::new() }
    }
}

impl fmt::Display for ServiceCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{},{}", self.address, self.port, self.side, self.protocol)
    }
}

impl FromStr for ServiceCursor {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.splitn(4, ',');
        let mut next = || parts.next().ok_or("not a position in this list");
        let address: IpAddr = next()?.parse().map_err(|_| "not a position in this list")?;
        let port = next()?.parse().map_err(|_| "not a position in this list")?;
        Ok(Self { address, port, side: next()?.to_owned(), protocol: next()?.to_owned() })
    }
}

impl ServiceRecord {
    /// Returns the position after it.
    pub fn cursor(&self) -> Option<ServiceCursor> {
        let (side, protocol) = (self.side.clone(), self.protocol.clone());
        Some(ServiceCursor { address: self.address.parse().ok()?, port: self.port.into(), side, protocol })
    }
}

/// Returns at most `most` of the services that a filter selects, by address and port, after a
/// [cursor](ServiceRecord::cursor).
///
/// # Errors
/// The database returns an error.
pub fn services_behind(
    database: &InventoryDatabase,
    filter: &ServiceFilter,
    cursor: Option<&ServiceCursor>,
    most: usize,
) -> Result<Vec<ServiceRecord>, StoreError> {
    database.read(some_services(&database.link, filter, cursor, most))
}

/// Returns at most `most` of the hosts with services that a filter selects, in the order of
/// addresses, after one.
///
/// # Errors
/// The database returns an error.
pub fn hosts_behind(
    database: &InventoryDatabase,
    filter: &ServiceFilter,
    behind: Option<IpAddr>,
    most: usize,
) -> Result<Vec<HostRow>, StoreError> {
    let behind = behind.map(|address| address.to_canonical());
    let addresses = database.read(if filter.is_empty() {
        all_hosts(&database.link, behind, most)
    } else {
        hosts_of(&database.link, filter, behind, most)
    })?;
    addresses.into_iter().map(|address| database.read(host_row(&database.link, address))).collect()
}

/// Returns at most `most` changes of the services that a filter selects, the latest first, before the
/// change with this number.
///
/// # Errors
/// The database returns an error.
pub fn changes_before(
    database: &InventoryDatabase,
    filter: &ServiceFilter,
    before: Option<i64>,
    most: usize,
) -> Result<Vec<InventoryChange>, StoreError> {
    let filter = &database.read(resolve_versions(&database.link, filter))?;
    let (condition, values) = condition(filter, InventoryTime::now());
    let before = before.unwrap_or(i64::MAX);
    let query = format!("{CHANGES} WHERE c.id < {before} AND {condition} ORDER BY c.id DESC");
    some_changes(database, &query, &values, filter, most)
}

/// Returns at most `most` changes of the services that a filter selects, after the change with this
/// number, and the number for the next call.
///
/// # Errors
/// The database returns an error.
pub fn changes_behind(
    database: &InventoryDatabase,
    filter: &ServiceFilter,
    behind: i64,
    most: usize,
) -> Result<(Vec<InventoryChange>, i64), StoreError> {
    let filter = &database.read(resolve_versions(&database.link, filter))?;
    let (condition, values) = condition(filter, InventoryTime::now());
    let query = format!("{CHANGES} WHERE c.id > {behind} AND {condition} ORDER BY c.id");
    let latest = latest_change(database)?;
    let changes = some_changes(database, &query, &values, filter, most)?;
    let last = changes.last().map_or(latest, |change| change.id);
    // If there are more, the next call returns them; a change may have come in between.
    let reached = if changes.len() < most { last.max(latest) } else { last };
    Ok((changes, reached))
}

/// Returns the number of the latest change, 0 if there is none.
///
/// # Errors
/// The database returns an error.
pub fn latest_change(database: &InventoryDatabase) -> Result<i64, StoreError> {
    database.read(latest_number(&database.link))
}

fn some_services(
    link: &DatabaseConnection,
    filter: &ServiceFilter,
    cursor: Option<&ServiceCursor>,
    most: usize,
) -> Result<Vec<ServiceRecord>, DatabaseError> {
    let mut services = Vec::new();
    visit(link, filter, cursor, |service| {
        services.push(service);
        services.len() < most
    })?;
    complete(link, &mut services)?;
    Ok(services)
}

/// Adds findings and sensors to services.
pub(super) fn complete(
    link: &DatabaseConnection,
    services: &mut [ServiceRecord],
) -> Result<(), DatabaseError> {
    for service in services {
        service.findings = findings(link, service.id)?;
        service.sensors = sensors(link, service.id)?;
    }
    Ok(())
}

fn some_changes(
    database: &InventoryDatabase,
    query: &str,
    values: &[SqlParameter<'_>],
    filter: &ServiceFilter,
    most: usize,
) -> Result<Vec<InventoryChange>, StoreError> {
    let mut changes = Vec::new();
    let read = database.link.each(query, values, |row| -> Result<_, DatabaseError> {
        if changes.len() == most {
            return Ok(ControlFlow::Break(()));
        }
        let version: Option<String> = row.get(VERSION)?;
        if filter.admits(version.as_deref()) {
            changes.push(change(row)?);
        }
        Ok(ControlFlow::Continue(()))
    });
    database.read(read.map(|()| changes))
}

/// Passes services in their order until the callback stops.
pub(super) fn visit(
    link: &DatabaseConnection,
    filter: &ServiceFilter,
    behind: Option<&ServiceCursor>,
    mut show: impl FnMut(ServiceRecord) -> bool,
) -> Result<(), DatabaseError> {
    let (filter, is_rare) = mark_rare_findings(link, resolve_versions(link, filter)?)?;
    let filter = &filter;
    let tables = if is_rare || is_of_few(link, filter)? { SERVICES } else { BY_ADDRESS };
    let behind = behind.map(|cursor| (cursor, octets(cursor.address)));
    let mut is_enough = false;
    for length in LENGTHS {
        let own = |octets: &[u8]| octets.len() as i64;
        if is_enough || behind.as_ref().is_some_and(|(_, octets)| length < own(octets)) {
            continue;
        }
        let (condition, mut values) = condition(filter, InventoryTime::now());
        let mut text = format!("{tables} WHERE length(h.octets) = {length} AND {condition}");
        if let Some((cursor, octets)) = behind.as_ref().filter(|(_, octets)| own(octets) == length) {
            text.push_str(
                " AND h.octets >= ? AND (h.octets > ? OR (s.port, s.side, s.protocol) > (?, ?, ?))",
            );
            values.extend([octets.clone().into(), octets.clone().into(), cursor.port.into()]);
            values.extend([cursor.side.clone().into(), cursor.protocol.clone().into()]);
        }
        text.push_str(" ORDER BY h.octets, s.port, s.side, s.protocol");
        link.each(&text, &values, |row| -> Result<_, DatabaseError> {
            let service = service(row)?;
            is_enough = filter.admits(service.version.as_deref()) && !show(service);
            Ok(if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
    }
    Ok(())
}

/// Returns true if banners alone make the filter select few services.
fn is_of_few(link: &DatabaseConnection, filter: &ServiceFilter) -> Result<bool, DatabaseError> {
    let banners = filter.banner_terms();
    if banners.is_empty() {
        return Ok(false);
    }
    let (condition, values) = condition(&banners, InventoryTime::now());
    let query =
        format!("SELECT count(*) FROM (SELECT 1 FROM services s WHERE {condition} LIMIT {SORTED}) few");
    let count: i64 = link.sole(&query, &values, |row| row.get(0))?;
    Ok(count < SORTED)
}

/// Marks the terms about findings that hold for few services; these are found by finding and sorted.
/// Returns true if there is one.
fn mark_rare_findings(
    link: &DatabaseConnection,
    mut filter: ServiceFilter,
) -> Result<(ServiceFilter, bool), DatabaseError> {
    let mut is_rare = false;
    for term in filter.terms.iter_mut().filter(|term| term.holds) {
        let TermTest::Finding(text) = &term.test else { continue };
        let query = format!("SELECT count(*) FROM ({WITH_FINDING} LIMIT {SORTED}) few");
        let count = link.sole(&query, values![text.to_lowercase(), text.clone()], |row| row.get(0))?;
        if SORTED > count {
            term.test = TermTest::RareFinding(text.clone());
            is_rare = true;
        }
    }
    Ok((filter, is_rare))
}

/// Returns addresses of hosts, in order.
fn all_hosts(
    link: &DatabaseConnection,
    behind: Option<IpAddr>,
    most: usize,
) -> Result<Vec<String>, DatabaseError> {
    let mut addresses: Vec<String> = Vec::new();
    let behind = behind.map(octets);
    let own = |octets: &Vec<u8>| octets.len() as i64;
    for length in LENGTHS {
        if behind.as_ref().is_some_and(|behind| length < own(behind)) {
            continue;
        }
        let from = behind.clone().filter(|behind| own(behind) == length).unwrap_or_default();
        let query =
            "SELECT address FROM hosts WHERE length(octets) = ?1 AND octets > ?2 ORDER BY octets LIMIT ?3";
        let rest = i64::try_from(most.saturating_sub(addresses.len())).unwrap_or(i64::MAX);
        addresses.extend(link.all(query, values![length, from, rest], |row| row.get(0))?);
    }
    Ok(addresses)
}

/// Returns addresses of hosts with services that a filter selects, in order.
fn hosts_of(
    link: &DatabaseConnection,
    filter: &ServiceFilter,
    behind: Option<IpAddr>,
    most: usize,
) -> Result<Vec<String>, DatabaseError> {
    let behind = behind.map(ServiceCursor::behind_host);
    let mut addresses: Vec<String> = Vec::new();
    visit(link, filter, behind.as_ref(), |service| {
        if addresses.last() == Some(&service.address) {
            return true;
        }
        if addresses.len() == most {
            return false;
        }
        addresses.push(service.address);
        true
    })?;
    Ok(addresses)
}

pub(super) fn host_row(link: &DatabaseConnection, address: String) -> Result<HostRow, DatabaseError> {
    let own = address.parse::<IpAddr>().ok();
    let query = "SELECT h.id, h.first_seen, count(s.id), max(s.last_seen)
         FROM hosts h LEFT JOIN services s ON s.host = h.id WHERE h.octets = ?1 GROUP BY h.id";
    let (id, first_seen, count, last_seen): (i64, i64, i64, Option<i64>) =
        link.sole(query, values![own], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    let query =
        format!("{SERVICES} WHERE s.host = ?1 ORDER BY s.side DESC, s.port, s.protocol LIMIT {NAMED}");
    let services = link.all(&query, values![id], service)?;
    let query = "SELECT DISTINCT f.severity FROM services s JOIN findings f ON f.service = s.id
         WHERE s.host = ?1 AND f.state = 'open'";
    let severities: Vec<String> = link.all(query, values![id], |row| row.get(0))?;
    Ok(HostRow {
        address,
        first_seen: InventoryTime::from_millis(first_seen),
        last_seen: InventoryTime::from_millis(last_seen.unwrap_or(first_seen)),
        services,
        count,
        severity: severities.into_iter().max_by_key(|severity| rank(severity)),
    })
}

/// Returns an address as the table of hosts stores it.
fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
