//! Maintenance of the file: removes old data and checks consistency.

use std::ops::ControlFlow;

use serde::Serialize;

use super::connection::InventoryDatabase;
use super::schema;
use crate::database::{DatabaseConnection, DatabaseError, DatabaseTransaction, values};
use crate::inventory::error::StoreError;
use crate::inventory::inventory_time::InventoryTime;

/// Numbers of removed rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PruneCounts {
    /// Hosts.
    pub hosts: usize,
    /// Services and clients.
    pub services: usize,
    /// Sightings of banners, findings and contacts.
    pub sightings: usize,
    /// Changes.
    pub changes: usize,
}

/// Removes everything that was last seen before a time, and frees its space.
///
/// # Errors
/// Errors of the database; then nothing was removed.
pub fn prune(database: &InventoryDatabase, before: InventoryTime) -> Result<PruneCounts, StoreError> {
    prune_rows(&database.link, before).map_err(|error| database.fault(error))
}

/// Returns the file's faults as the database reports them; none if it is consistent.
///
/// # Errors
/// It cannot be read, or it is a server, which manages its own files.
pub fn faults(database: &InventoryDatabase) -> Result<Vec<String>, StoreError> {
    let DatabaseConnection::Sqlite(_) = &database.link else {
        let why = "the server manages its own files; check them with `pg_amcheck`";
        return Err(StoreError::NoFile(database.place.clone(), why));
    };
    let whole = database.link.all("PRAGMA integrity_check", &[], |row| row.get::<String>(0));
    let mut faults = whole.map_err(|error| database.fault(error))?;
    faults.retain(|line| line != "ok");
    let broken = database.link.all("PRAGMA foreign_key_check", &[], |row| {
        let (from, to) = (row.get::<String>(0)?, row.get::<String>(2)?);
        Ok(format!("a row of {from} refers to a row of {to} that does not exist"))
    });
    faults.extend(broken.map_err(|error| database.fault(error))?);
    Ok(faults)
}

/// See [`prune`].
pub(super) fn prune_rows(
    link: &DatabaseConnection,
    before: InventoryTime,
) -> Result<PruneCounts, DatabaseError> {
    let transaction = link.transaction()?;
    let pruned = take_out(&transaction, before.millis())?;
    transaction.commit()?;
    release_space(link)?;
    Ok(pruned)
}

/// Removes unreferenced texts, and returns free space to the file system. A server does the latter
/// itself.
pub(super) fn release_space(link: &DatabaseConnection) -> Result<(), DatabaseError> {
    match link {
        DatabaseConnection::Sqlite(file) => {
            // Otherwise it would check each removed row in tables without an index for it.
            file.batch("PRAGMA foreign_keys = OFF")?;
            let cleared = link.execute(UNNAMED, &[]);
            file.batch("PRAGMA foreign_keys = ON")?;
            cleared?;
            // Each step frees one page.
            link.each("PRAGMA incremental_vacuum", &[], |_| Ok(ControlFlow::Continue(())))
        }
        DatabaseConnection::Postgres(_) => {
            let transaction = link.transaction()?;
            transaction.execute(UNNAMED, &[])?;
            transaction.commit()
        }
    }
}

/// Removes unreferenced texts.
const UNNAMED: &str = "DELETE FROM banners WHERE id IN (SELECT id FROM banners EXCEPT SELECT banner FROM services
  EXCEPT SELECT hassh FROM services EXCEPT SELECT certificate FROM services EXCEPT SELECT host_key FROM services
  EXCEPT SELECT banner FROM sightings
  EXCEPT SELECT banner FROM findings EXCEPT SELECT banner FROM banner_peers EXCEPT SELECT old FROM changes EXCEPT SELECT new FROM changes)";

fn take_out(link: &DatabaseTransaction<'_>, before: i64) -> Result<PruneCounts, DatabaseError> {
    let take = |query: &str| link.execute(query, values![before]);
    // Foreign keys delete the rows that refer to these services.
    let services = take("DELETE FROM services WHERE last_seen < ?1")?;
    let changes = take("DELETE FROM changes WHERE at < ?1")?;
    // The current banner of a service stays.
    let sightings = take(
        "DELETE FROM sightings WHERE last_seen < ?1
         AND banner NOT IN (SELECT banner FROM services WHERE id = service
           UNION SELECT hassh FROM services WHERE id = service AND hassh IS NOT NULL
           UNION SELECT certificate FROM services WHERE id = service AND certificate IS NOT NULL
           UNION SELECT host_key FROM services WHERE id = service AND host_key IS NOT NULL)",
    )? + take("DELETE FROM findings WHERE last_seen < ?1 AND state = 'gone'")?
        + take("DELETE FROM contacts WHERE last_seen < ?1")?
        + take("DELETE FROM banner_peers WHERE last_seen < ?1")?
        + take("DELETE FROM unanswered WHERE last_seen < ?1")?;
    // The first run stays: it shows the age of the inventory.
    take("DELETE FROM runs WHERE ended < ?1 AND id > (SELECT min(id) FROM runs)")?;
    let hosts = clear_up(link)?;
    Ok(PruneCounts { hosts, services, sightings, changes })
}

/// Removes unreferenced rows, and sums up again; returns the number of removed hosts.
pub(super) fn clear_up(link: &DatabaseTransaction<'_>) -> Result<usize, DatabaseError> {
    link.execute(
        "UPDATE services SET banners = (SELECT count(DISTINCT banner) FROM sightings WHERE service = id)
         WHERE banners > 1",
        &[],
    )?;
    let hosts = link.execute(
        "DELETE FROM hosts WHERE id IN
           (SELECT id FROM hosts EXCEPT SELECT host FROM services EXCEPT SELECT client FROM contacts)",
        &[],
    )?;
    // The sums are computed again: the deleted rows could have been part of any of them.
    link.execute("DELETE FROM rules", &[])?;
    link.execute(schema::SUM_UP, &[])?;
    Ok(hosts)
}
