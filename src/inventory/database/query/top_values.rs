//! The most frequent values of a field.

use std::collections::HashMap;
use std::ops::ControlFlow;

use serde::Serialize;

use super::condition::{condition, resolve_versions};
use crate::database::{DatabaseConnection, DatabaseError};
use crate::inventory::database::connection::InventoryDatabase;
use crate::inventory::error::StoreError;
use crate::inventory::filter::ServiceFilter;
use crate::inventory::inventory_time::InventoryTime;

/// A value, and the number of services with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ValueCount {
    /// The value; empty if unknown.
    pub value: String,
    /// Number of services, or clients.
    pub services: i64,
}

/// Product and version in one word.
const PRODUCT_AND_VERSION: &str = "b.product || ' ' || b.version";

/// Banners, with the number of services that send each.
const BY_BANNER: &str =
    "(SELECT banner, count(*) AS number FROM services GROUP BY banner) s JOIN banners b ON b.id = s.banner";

/// Fields that can be counted, with their columns.
const FIELDS: [(&str, &str); 16] = [
    ("product", "b.product"),
    ("version", PRODUCT_AND_VERSION),
    ("vendor", "b.vendor"),
    ("banner", "b.text"),
    ("cpe", "b.cpe"),
    ("os", "b.os"),
    ("patch", "b.patch"),
    ("protocol", "s.protocol"),
    ("port", "s.port"),
    ("state", "s.state"),
    ("address", "h.address"),
    ("hassh", "(SELECT text FROM banners x WHERE x.id = s.hassh)"),
    ("certificate", "(SELECT text FROM banners x WHERE x.id = s.certificate)"),
    ("hostkey", "(SELECT text FROM banners x WHERE x.id = s.host_key)"),
    ("finding", "f.rule"),
    ("severity", "f.severity"),
];

/// Returns the names of the fields that [`top`] counts.
pub fn fields() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|(name, _)| *name)
}

/// Returns the `most` frequent values of a field among the services that a filter selects, the most
/// frequent first.
///
/// # Errors
/// The database returns an error.
pub fn top(
    database: &InventoryDatabase,
    field: &str,
    filter: &ServiceFilter,
    most: usize,
) -> Result<Vec<ValueCount>, StoreError> {
    let column = FIELDS.iter().find(|(name, _)| *name == field).map_or("b.product", |(_, column)| column);
    database.read(count(&database.link, column, filter, most))
}

/// Returns the `most` frequent products, and products with versions, of all services. One pass counts
/// both.
///
/// # Errors
/// The database returns an error.
pub fn products(
    database: &InventoryDatabase,
    most: usize,
) -> Result<(Vec<ValueCount>, Vec<ValueCount>), StoreError> {
    database.read(count_all(&database.link, most))
}

fn count(
    link: &DatabaseConnection,
    column: &str,
    filter: &ServiceFilter,
    most: usize,
) -> Result<Vec<ValueCount>, DatabaseError> {
    let filter = &resolve_versions(link, filter)?;
    let (condition, values) = condition(filter, InventoryTime::now());
    let asks = |table: &str| column.contains(table) || condition.contains(table) || filter.asks_versions();
    let (count, tables) = match column {
        // Each banner is one row, for any number of services.
        _ if column.starts_with("b.") && filter.only_tests_banners() => (
            "CAST(sum(s.number) AS INTEGER)",
            BY_BANNER,
        ),
        _ if column.starts_with("f.") => (
            "count(DISTINCT s.id)",
            "findings f JOIN services s ON s.id = f.service AND f.state = 'open' JOIN hosts h ON h.id = s.host
             JOIN banners b ON b.id = s.banner",
        ),
        // Tables that the filter does not use are not joined.
        _ if !asks("h.") && !asks("b.") => ("count(*)", "services s"),
        _ => (
            "count(*)",
            "services s JOIN hosts h ON h.id = s.host JOIN banners b ON b.id = s.banner",
        ),
    };
    let version = if filter.asks_versions() { "b.version" } else { "NULL" };
    let text = format!("SELECT {column}, {version}, {count} FROM {tables} WHERE {condition} GROUP BY 1, 2");
    let mut counts: HashMap<String, i64> = HashMap::new();
    link.each(&text, &values, |row| -> Result<_, DatabaseError> {
        let version: Option<String> = row.get(1)?;
        if filter.admits(version.as_deref()) {
            let value: Option<String> = row.get(0)?;
            *counts.entry(value.unwrap_or_default()).or_default() += row.get::<i64>(2)?;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(first(counts, most))
}

fn count_all(
    link: &DatabaseConnection,
    most: usize,
) -> Result<(Vec<ValueCount>, Vec<ValueCount>), DatabaseError> {
    let query = format!(
        "SELECT b.product, {PRODUCT_AND_VERSION}, CAST(sum(s.number) AS INTEGER) FROM {BY_BANNER} GROUP BY 1, 2"
    );
    let (mut products, mut versions) = (HashMap::<String, i64>::new(), HashMap::<String, i64>::new());
    link.each(&query, &[], |row| -> Result<_, DatabaseError> {
        let count: i64 = row.get(2)?;
        for (at, counts) in [&mut products, &mut versions].into_iter().enumerate() {
            let value: Option<String> = row.get(at)?;
            *counts.entry(value.unwrap_or_default()).or_default() += count;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((first(products, most), first(versions, most)))
}

/// Returns the most frequent values, in that order.
fn first(counts: HashMap<String, i64>, most: usize) -> Vec<ValueCount> {
    let mut counts: Vec<ValueCount> =
        counts.into_iter().map(|(value, services)| ValueCount { value, services }).collect();
    counts.sort_by(|one, other| other.services.cmp(&one.services).then_with(|| one.value.cmp(&other.value)));
    counts.truncate(most);
    counts
}
