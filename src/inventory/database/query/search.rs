//! Search for a word, in products and banners.

use super::paging::services_behind;
use super::services::ServiceRecord;
use super::top_values::ValueCount;
use crate::database::{DatabaseConnection, DatabaseError, values};
use crate::inventory::database::connection::InventoryDatabase;
use crate::inventory::error::StoreError;
use crate::inventory::filter::{FilterTerm, ServiceFilter, TermTest};

/// Results of a search, each list limited.
#[derive(Debug, Clone, Default)]
pub struct SearchHits {
    /// Products whose name contains the word, with the number of their services.
    pub products: Vec<ValueCount>,
    /// Services whose banner contains the word.
    pub services: Vec<ServiceRecord>,
}

/// Searches for a word, ignoring case. Each list of the result has at most `most` entries.
///
/// # Errors
/// The database returns an error.
pub fn search(database: &InventoryDatabase, word: &str, most: usize) -> Result<SearchHits, StoreError> {
    let lower = word.to_lowercase();
    let products = database.read(products_named(&database.link, &lower, most))?;
    // Without such a banner, the services are not searched.
    let query = "SELECT id FROM banners WHERE instr(lower(text), ?1) > 0 LIMIT 1";
    let known = database.read(database.link.one(query, values![lower.as_str()], |row| row.get::<i64>(0)))?;
    let says = FilterTerm { holds: true, test: TermTest::Says(lower) };
    let filter = known.map(|_| ServiceFilter { terms: vec![says] });
    let services = filter.map(|filter| services_behind(database, &filter, None, most)).transpose()?;
    Ok(SearchHits { products, services: services.unwrap_or_default() })
}

fn products_named(
    link: &DatabaseConnection,
    word: &str,
    most: usize,
) -> Result<Vec<ValueCount>, DatabaseError> {
    let query = "SELECT b.product, count(s.id) FROM banners b JOIN services s ON s.banner = b.id
         WHERE instr(lower(b.product), ?1) > 0 GROUP BY b.product ORDER BY 2 DESC, 1 LIMIT ?2";
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    link.all(query, values![word, most], |row| Ok(ValueCount { value: row.get(0)?, services: row.get(1)? }))
}
