//! Listings in another order than that of addresses. They sort a bounded number of rows.

use std::cmp::Ordering;
use std::collections::HashSet;

use super::condition::{condition, resolve_versions};
use super::paging::{HostRow, complete, host_row, visit};
use super::services::{SEVERITIES, ServiceRecord};
use crate::database::{DatabaseConnection, DatabaseError, values};
use crate::inventory::database::connection::InventoryDatabase;
use crate::inventory::error::StoreError;
use crate::inventory::filter::ServiceFilter;
use crate::inventory::inventory_time::InventoryTime;

/// Largest number of rows that are sorted.
const SORTED: usize = 10_000;

/// Order of services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceOrder {
    /// By product and version.
    Product,
    /// The latest first sighting first.
    FirstSeen,
    /// The latest last sighting first.
    LastSeen,
}

/// A part of sorted rows.
#[derive(Debug, Clone)]
pub struct SortedRows<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// True if further rows follow.
    pub more: bool,
    /// True if there were too many rows, so that only the first 10,000 are sorted.
    pub cut: bool,
}

/// Returns at most `most` of the services that a filter selects, in an order, without the first `skip`.
///
/// # Errors
/// The database returns an error.
pub fn services_sorted(
    database: &InventoryDatabase,
    filter: &ServiceFilter,
    order: ServiceOrder,
    skip: usize,
    most: usize,
) -> Result<SortedRows<ServiceRecord>, StoreError> {
    database.read(sort_services(&database.link, filter, order, skip, most))
}

/// Returns at most `most` of the hosts with open findings that a filter selects, those with the most
/// severe ones first, without the first `skip`.
///
/// # Errors
/// The database returns an error.
pub fn hosts_by_severity(
    database: &InventoryDatabase,
    filter: &ServiceFilter,
    skip: usize,
    most: usize,
) -> Result<SortedRows<HostRow>, StoreError> {
    let link = &database.link;
    database.read(worst_hosts(link, filter).and_then(|addresses| part(link, addresses, skip, most)))
}

/// Returns at most `most` of the hosts that a filter selects, the newest first, without the first `skip`.
///
/// # Errors
/// The database returns an error.
pub fn newest_hosts(
    database: &InventoryDatabase,
    filter: &ServiceFilter,
    skip: usize,
    most: usize,
) -> Result<SortedRows<HostRow>, StoreError> {
    let skip = skip.min(SORTED);
    let link = &database.link;
    database.read(new_hosts(link, filter, skip + most + 1).and_then(|hosts| part(link, hosts, skip, most)))
}

fn sort_services(
    link: &DatabaseConnection,
    filter: &ServiceFilter,
    order: ServiceOrder,
    skip: usize,
    most: usize,
) -> Result<SortedRows<ServiceRecord>, DatabaseError> {
    let (mut services, mut cut) = (Vec::new(), false);
    visit(link, filter, None, |service| {
        cut = services.len() == SORTED;
        if !cut {
            services.push(service);
        }
        !cut
    })?;
    // Stable: equal ones stay in the order of addresses.
    services.sort_by(|one, other| order.compare(one, other));
    let more = services.len() > skip.saturating_add(most);
    let mut rows: Vec<ServiceRecord> = services.into_iter().skip(skip).take(most).collect();
    complete(link, &mut rows)?;
    Ok(SortedRows { rows, more, cut })
}

fn part(
    link: &DatabaseConnection,
    addresses: Vec<String>,
    skip: usize,
    most: usize,
) -> Result<SortedRows<HostRow>, DatabaseError> {
    let (more, cut) = (addresses.len() > skip.saturating_add(most), addresses.len() == SORTED);
    let shown = addresses.into_iter().skip(skip).take(most);
    Ok(SortedRows { rows: shown.map(|it| host_row(link, it)).collect::<Result<_, _>>()?, more, cut })
}

/// Returns addresses of hosts by their worst open finding, at most [`SORTED`].
fn worst_hosts(link: &DatabaseConnection, filter: &ServiceFilter) -> Result<Vec<String>, DatabaseError> {
    let filter = resolve_versions(link, filter)?;
    let (mut known, mut addresses) = (HashSet::new(), Vec::new());
    for severity in SEVERITIES.iter().rev() {
        if addresses.len() == SORTED {
            break;
        }
        let (condition, own) = condition(&filter, InventoryTime::now());
        let query = format!(
            "SELECT DISTINCT h.address, h.octets FROM findings w JOIN services s ON s.id = w.service
             JOIN hosts h ON h.id = s.host JOIN banners b ON b.id = s.banner
             WHERE w.state = 'open' AND w.severity = '{severity}' AND {condition} LIMIT {SORTED}"
        );
        let mut found: Vec<(Vec<u8>, String)> =
            link.all(&query, &own, |row| Ok((row.get(1)?, row.get(0)?)))?;
        found.sort_by(|(one, _), (other, _)| (one.len(), one).cmp(&(other.len(), other)));
        for (_, address) in found {
            if addresses.len() < SORTED && known.insert(address.clone()) {
                addresses.push(address);
            }
        }
    }
    Ok(addresses)
}

/// Returns addresses of hosts, the newest first.
fn new_hosts(
    link: &DatabaseConnection,
    filter: &ServiceFilter,
    most: usize,
) -> Result<Vec<String>, DatabaseError> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    if filter.is_empty() {
        let query = "SELECT address FROM hosts ORDER BY first_seen DESC, octets LIMIT ?1";
        return link.all(query, values![most], |row| row.get(0));
    }
    let (condition, own) = condition(&resolve_versions(link, filter)?, InventoryTime::now());
    let query = format!(
        "SELECT DISTINCT h.first_seen, h.octets, h.address FROM services s JOIN hosts h ON h.id = s.host
         JOIN banners b ON b.id = s.banner WHERE {condition} ORDER BY h.first_seen DESC, h.octets LIMIT {most}"
    );
    link.all(&query, &own, |row| row.get(2))
}

impl ServiceOrder {
    fn compare(self, one: &ServiceRecord, other: &ServiceRecord) -> Ordering {
        match self {
            // Services without a product come last.
            Self::Product => {
                let key = |it: &ServiceRecord| (it.product.is_none(), it.product.clone(), it.version.clone());
                key(one).cmp(&key(other))
            }
            Self::FirstSeen => other.first_seen.cmp(&one.first_seen),
            Self::LastSeen => other.last_seen.cmp(&one.last_seen),
        }
    }
}
