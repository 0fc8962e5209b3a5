//! Listings in pieces, each of which goes on where the one before ended.

use std::net::IpAddr;

use rusqlite::types::Value;
use rusqlite::{OptionalExtension as _, params, params_from_iter};
use serde::Serialize;

use super::history::{CHANGES, change, latest_change};
use super::{Change, Found, SERVICES, Service, Sqlite, Time, condition, octets, rank, service};
use crate::inventory::filter::Filter;
use crate::inventory::store::StoreError;

/// A host as it is listed.
#[derive(Debug, Clone, Serialize)]
pub struct HostRow {
    /// Its address.
    pub address: String,
    /// When it was first seen.
    pub first_seen: Time,
    /// When anything of it was last seen.
    pub last_seen: Time,
    /// Its services and what it is as a client, the lowest ports first; not all where there are many.
    pub services: Vec<Service>,
    /// How many there are.
    pub count: i64,
    /// The gravest severity that rules tell of it now.
    pub severity: Option<String>,
}

/// What a rule tells of all that is in the inventory.
#[derive(Debug, Clone, Serialize)]
pub struct Rule {
    /// Its id.
    pub rule: String,
    /// Its title.
    pub title: String,
    /// Its severity.
    pub severity: String,
    /// Services and clients of which it tells now.
    pub services: i64,
    /// Those of which it told before.
    pub gone: i64,
    /// How often it told.
    pub count: i64,
    /// How often it stopped a connection.
    pub blocked: i64,
    /// When it first told.
    pub first_seen: Time,
    /// When it last told.
    pub last_seen: Time,
}

/// Services that a line of a listing names.
const NAMED: i64 = 6;

/// [`SERVICES`], host by host, as their index has them: the first of a million are there at once.
const BY_ADDRESS: &str =
    "SELECT s.id, h.address, s.port, s.transport, s.protocol, s.side, s.state, b.text, b.vendor,
  b.product, b.version, b.patch, b.cpe, b.os, x.text, s.first_seen, s.last_seen
  FROM hosts h CROSS JOIN services s ON s.host = h.id CROSS JOIN banners b ON b.id = s.banner
  LEFT JOIN banners x ON x.id = s.hassh";

/// Services with banners that a filter is about: so many are found by these and sorted, more host by host.
const SORTED: i64 = 10_000;

/// IPv4 comes before IPv6.
const LENGTHS: [i64; 2] = [4, 16];

/// Where a listing goes on: behind this row.
#[derive(Debug, Clone)]
struct Behind {
    octets: Vec<u8>,
    port: i64,
    side: String,
    protocol: String,
}

impl Sqlite {
    /// At most so many of the services that a filter is about, by address and port, behind the one of a
    /// [cursor](Service::cursor).
    ///
    /// # Errors
    /// What the database says.
    pub fn services_behind(
        &self,
        filter: &Filter,
        cursor: Option<i64>,
        most: usize,
    ) -> Result<Vec<Service>, StoreError> {
        let read = || {
            let behind = cursor.map(|cursor| self.behind(cursor)).transpose()?.flatten();
            let mut services = Vec::new();
            self.visit(filter, behind.as_ref(), |service| {
                services.push(service);
                services.len() < most
            })?;
            for service in &mut services {
                service.findings = self.findings(service.id)?;
                service.sensors = self.sensors(service.id)?;
            }
            Ok(services)
        };
        read().map_err(|error| self.fault(error))
    }

    /// At most so many of the hosts with services that a filter is about, in the order of addresses, behind one.
    ///
    /// # Errors
    /// What the database says.
    pub fn hosts_behind(
        &self,
        filter: &Filter,
        behind: Option<IpAddr>,
        most: usize,
    ) -> Result<Vec<HostRow>, StoreError> {
        let read = || {
            let behind = behind.map(|address| octets(address.to_canonical()));
            let addresses = if filter.is_empty() {
                self.all_hosts(behind.as_deref(), most)?
            } else {
                self.hosts_of(filter, behind, most)?
            };
            addresses.into_iter().map(|address| self.host_row(address)).collect::<rusqlite::Result<_>>()
        };
        read().map_err(|error| self.fault(error))
    }

    /// At most so many changes of the services that a filter is about, the latest first, before the one of this
    /// number.
    ///
    /// # Errors
    /// What the database says.
    pub fn changes_before(
        &self,
        filter: &Filter,
        before: Option<i64>,
        most: usize,
    ) -> Result<Vec<Change>, StoreError> {
        let (condition, values) = condition(filter, Time::now());
        let before = before.unwrap_or(i64::MAX);
        let query = format!("{CHANGES} WHERE c.id < {before} AND {condition} ORDER BY c.id DESC");
        self.some_changes(&query, values, filter, most)
    }

    /// At most so many changes of the services that a filter is about, written behind the one of this number; and
    /// the number to ask for behind next.
    ///
    /// # Errors
    /// What the database says.
    pub fn changes_behind(
        &self,
        filter: &Filter,
        behind: i64,
        most: usize,
    ) -> Result<(Vec<Change>, i64), StoreError> {
        let (condition, values) = condition(filter, Time::now());
        let query = format!("{CHANGES} WHERE c.id > {behind} AND {condition} ORDER BY c.id");
        let latest = self.latest_change()?;
        let changes = self.some_changes(&query, values, filter, most)?;
        let last = changes.last().map_or(latest, |change| change.id);
        // Where there are more the rest comes next; a change may have come in between.
        let reached = if changes.len() < most { last.max(latest) } else { last };
        Ok((changes, reached))
    }

    /// The number of the latest change, 0 where there is none.
    ///
    /// # Errors
    /// What the database says.
    pub fn latest_change(&self) -> Result<i64, StoreError> {
        latest_change(&self.connection).map_err(|error| self.fault(error))
    }

    /// What rules tell of the services that a filter is about, the gravest first.
    ///
    /// # Errors
    /// What the database says.
    pub fn rules(&self, filter: &Filter) -> Result<Vec<Rule>, StoreError> {
        let read = || {
            let (condition, values) = condition(filter, Time::now());
            let of = if filter.is_empty() {
                ""
            } else {
                "JOIN services s ON s.id = f.service JOIN hosts h ON h.id = s.host JOIN banners b ON b.id = s.banner"
            };
            let query = format!(
                "SELECT f.rule, f.title, f.severity, count(DISTINCT CASE WHEN f.state = 'open' THEN f.service END),
                   count(DISTINCT f.service), sum(f.count), sum(f.blocked), min(f.first_seen), max(f.last_seen)
                 FROM findings f {of} WHERE {condition} GROUP BY f.rule"
            );
            let mut statement = self.connection.prepare(&query)?;
            let rules = statement.query_map(params_from_iter(values), |row| {
                let (services, all): (i64, i64) = (row.get(3)?, row.get(4)?);
                Ok(Rule {
                    rule: row.get(0)?,
                    title: row.get(1)?,
                    severity: row.get(2)?,
                    services,
                    gone: all - services,
                    count: row.get(5)?,
                    blocked: row.get(6)?,
                    first_seen: Time(row.get(7)?),
                    last_seen: Time(row.get(8)?),
                })
            })?;
            let mut rules: Vec<Rule> = rules.collect::<Result<_, _>>()?;
            rules.sort_by_key(|rule| {
                (
                    std::cmp::Reverse((rule.services > 0, rank(&rule.severity), rule.services)),
                    rule.rule.clone(),
                )
            });
            Ok(rules)
        };
        read().map_err(|error| self.fault(error))
    }

    fn some_changes(
        &self,
        query: &str,
        values: Vec<Value>,
        filter: &Filter,
        most: usize,
    ) -> Result<Vec<Change>, StoreError> {
        let read = || {
            let mut changes = Vec::new();
            let mut statement = self.connection.prepare(query)?;
            let mut rows = statement.query(params_from_iter(values))?;
            while changes.len() < most {
                let Some(row) = rows.next()? else { break };
                let version: Option<String> = row.get("version")?;
                if filter.admits(version.as_deref()) {
                    changes.push(change(row)?);
                }
            }
            Ok(changes)
        };
        read().map_err(|error| self.fault(error))
    }

    /// Shows services in their order until there are enough.
    fn visit(
        &self,
        filter: &Filter,
        behind: Option<&Behind>,
        mut show: impl FnMut(Service) -> bool,
    ) -> rusqlite::Result<()> {
        let tables = if self.is_of_few(filter)? { SERVICES } else { BY_ADDRESS };
        for length in LENGTHS {
            if behind.is_some_and(|behind| length < behind.octets.len() as i64) {
                continue;
            }
            let behind = behind.filter(|behind| behind.octets.len() as i64 == length);
            let (condition, mut values) = condition(filter, Time::now());
            let mut text = format!("{tables} WHERE length(h.octets) = {length} AND {condition}");
            if let Some(behind) = behind {
                text.push_str(
                    " AND h.octets >= ? AND (h.octets > ? OR (s.port, s.side, s.protocol) > (?, ?, ?))",
                );
                values.extend([behind.octets.clone().into(), behind.octets.clone().into()]);
                values.extend([
                    behind.port.into(),
                    behind.side.clone().into(),
                    behind.protocol.clone().into(),
                ]);
            }
            text.push_str(" ORDER BY h.octets, s.port, s.side, s.protocol");
            let mut statement = self.connection.prepare(&text)?;
            let mut rows = statement.query(params_from_iter(values))?;
            while let Some(row) = rows.next()? {
                let service = service(row)?;
                if filter.admits(service.version.as_deref()) && !show(service) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Whether banners alone make a filter one of few services.
    fn is_of_few(&self, filter: &Filter) -> rusqlite::Result<bool> {
        let banners = filter.of_banners();
        if banners.is_empty() {
            return Ok(false);
        }
        let (condition, values) = condition(&banners, Time::now());
        let query =
            format!("SELECT count(*) FROM (SELECT 1 FROM services s WHERE {condition} LIMIT {SORTED})");
        let count: i64 = self.connection.query_row(&query, params_from_iter(values), |row| row.get(0))?;
        Ok(count < SORTED)
    }

    fn behind(&self, cursor: i64) -> rusqlite::Result<Option<Behind>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT octets, port, side, protocol FROM services s JOIN hosts h ON h.id = s.host WHERE s.id = ?1",
        )?;
        let behind = statement.query_row([cursor], |row| {
            Ok(Behind { octets: row.get(0)?, port: row.get(1)?, side: row.get(2)?, protocol: row.get(3)? })
        });
        behind.optional()
    }

    /// Addresses of hosts, in their order.
    fn all_hosts(&self, behind: Option<&[u8]>, most: usize) -> rusqlite::Result<Vec<String>> {
        let mut addresses = Vec::new();
        for length in LENGTHS {
            if behind.is_some_and(|behind| length < behind.len() as i64) {
                continue;
            }
            let from = behind.filter(|behind| behind.len() as i64 == length).unwrap_or_default();
            let mut statement = self.connection.prepare_cached(
                "SELECT address FROM hosts WHERE length(octets) = ?1 AND octets > ?2 ORDER BY octets LIMIT ?3",
            )?;
            let rest = i64::try_from(most.saturating_sub(addresses.len())).unwrap_or(i64::MAX);
            let rows = statement.query_map(params![length, from, rest], |row| row.get(0))?;
            addresses.extend(rows.collect::<Result<Vec<String>, _>>()?);
        }
        Ok(addresses)
    }

    /// Addresses of hosts with services that a filter is about, in their order.
    fn hosts_of(
        &self,
        filter: &Filter,
        behind: Option<Vec<u8>>,
        most: usize,
    ) -> rusqlite::Result<Vec<String>> {
        // Behind all of its services.
        let behind = behind.map(|octets| Behind {
            octets,
            port: i64::MAX,
            side: String::new(),
            protocol: String::new(),
        });
        let mut addresses: Vec<String> = Vec::new();
        self.visit(filter, behind.as_ref(), |service| {
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

    fn host_row(&self, address: String) -> rusqlite::Result<HostRow> {
        let mut statement = self.connection.prepare_cached(
            "SELECT h.id, h.first_seen, count(s.id), max(s.last_seen) FROM hosts h LEFT JOIN services s ON s.host = h.id
             WHERE h.address = ?1 AND h.octets = ?2 GROUP BY h.id",
        )?;
        let own = address.parse().map(octets).unwrap_or_default();
        let (id, first_seen, count, last_seen): (i64, i64, i64, Option<i64>) = statement
            .query_row(params![address, own], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?;
        let mut statement = self.connection.prepare_cached(&format!(
            "{SERVICES} WHERE s.host = ?1 ORDER BY s.side DESC, s.port, s.protocol LIMIT {NAMED}"
        ))?;
        let services = statement.query_map([id], service)?.collect::<Result<Vec<_>, _>>()?;
        let mut statement = self.connection.prepare_cached(
            "SELECT DISTINCT f.severity FROM services s JOIN findings f ON f.service = s.id
             WHERE s.host = ?1 AND f.state = 'open'",
        )?;
        let severities = statement.query_map([id], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
        Ok(HostRow {
            address,
            first_seen: Time(first_seen),
            last_seen: Time(last_seen.unwrap_or(first_seen)),
            services,
            count,
            severity: severities.into_iter().max_by_key(|severity| rank(severity)),
        })
    }
}

impl Found {
    /// Whether the rule tells of it now.
    pub fn is_open(&self) -> bool {
        self.state == "open"
    }
}
