//! Looking after the file: old things out, and whether it is whole.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use serde::Serialize;

use super::{Sqlite, Time, schema};
use crate::inventory::store::StoreError;

/// What was taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Pruned {
    /// Hosts.
    pub hosts: usize,
    /// Services and clients.
    pub services: usize,
    /// Sightings of banners, findings and contacts.
    pub sightings: usize,
    /// Changes.
    pub changes: usize,
}

impl Sqlite {
    /// Opens an inventory that is there to take things out of it.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open_to_prune(path: &Path) -> Result<Self, StoreError> {
        let mut database = Self::existing(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        schema::migrate(&mut database)?;
        Ok(database)
    }

    /// Takes everything out that was last seen before a time, and gives its room back.
    ///
    /// # Errors
    /// What the database says; nothing was taken out then.
    pub fn prune(&mut self, before: Time) -> Result<Pruned, StoreError> {
        prune(&mut self.connection, before).map_err(|error| self.fault(error))
    }

    /// What is wrong with the file, in the database's words; nothing where it is whole.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn faults(&self) -> Result<Vec<String>, StoreError> {
        let read = || {
            let mut faults = Vec::new();
            let mut statement = self.connection.prepare("PRAGMA integrity_check")?;
            for line in statement.query_map([], |row| row.get::<_, String>(0))? {
                faults.extend(Some(line?).filter(|line| line != "ok"));
            }
            let mut statement = self.connection.prepare("PRAGMA foreign_key_check")?;
            let broken = statement.query_map([], |row| {
                Ok(format!(
                    "a row of {} names one of {} that is not there",
                    row.get::<_, String>(0)?,
                    row.get::<_, String>(2)?
                ))
            })?;
            for line in broken {
                faults.push(line?);
            }
            Ok(faults)
        };
        read().map_err(|error| self.fault(error))
    }
}

/// See [`Sqlite::prune`].
pub(super) fn prune(connection: &mut Connection, before: Time) -> rusqlite::Result<Pruned> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let pruned = take_out(&transaction, before.millis())?;
    transaction.commit()?;
    // A step frees a page.
    let mut statement = connection.prepare("PRAGMA incremental_vacuum")?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(pruned)
}

fn take_out(transaction: &Transaction<'_>, before: i64) -> rusqlite::Result<Pruned> {
    let take = |query: &str| transaction.execute(query, [before]);
    let services = take("DELETE FROM services WHERE last_seen < ?1")?;
    let changes = take("DELETE FROM changes WHERE at < ?1")?;
    // What a service says now stays with it.
    let sightings = take(
        "DELETE FROM sightings WHERE last_seen < ?1
         AND banner NOT IN (SELECT banner FROM services WHERE id = service UNION SELECT hassh FROM services WHERE id = service AND hassh IS NOT NULL)",
    )? + take("DELETE FROM findings WHERE last_seen < ?1 AND state = 'gone'")?
        + take("DELETE FROM contacts WHERE last_seen < ?1")?;
    transaction.execute(
        "UPDATE services SET banners = (SELECT count(DISTINCT banner) FROM sightings WHERE service = id)",
        [],
    )?;
    // The first one says how old the inventory is.
    take("DELETE FROM runs WHERE ended < ?1 AND id > (SELECT min(id) FROM runs)")?;
    let hosts = transaction.execute(
        "DELETE FROM hosts WHERE id NOT IN (SELECT host FROM services) AND id NOT IN (SELECT client FROM contacts)",
        [],
    )?;
    transaction.execute(
        "DELETE FROM banners WHERE id NOT IN (SELECT banner FROM services) AND id NOT IN (SELECT banner FROM sightings)
         AND id NOT IN (SELECT banner FROM findings) AND id NOT IN (SELECT hassh FROM services WHERE hassh IS NOT NULL)
         AND id NOT IN (SELECT old FROM changes WHERE old IS NOT NULL)
         AND id NOT IN (SELECT new FROM changes WHERE new IS NOT NULL)",
        [],
    )?;
    Ok(Pruned { hosts, services, sightings, changes })
}
