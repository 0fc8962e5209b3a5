//! Limit of a file's size.
//!
//! SQLite itself refuses to grow the file beyond the limit. Before that, services that are gone, and then
//! those unseen for longest, are removed to make space. The log beside the file (`-wal`) is limited as
//! well.

use super::maintenance::{clear_up, release_space};
use crate::database::{DatabaseConnection, DatabaseTransaction, SqliteFile};
use crate::database::{DatabaseError, values};

/// Number of bytes of the log that are kept between writes.
const LOG: i64 = 4 << 20;

/// Hundredths of the limit at which space is made, and to which it is reduced.
const FULL: i64 = 95;
const FITTED: i64 = 85;

/// Number of bytes that a record may need, with its indexes.
const RECORD: i64 = 2_048;

/// Rows of each kind that are removed together: thousandths of all, and the minimum.
const STEP: (i64, i64) = (20, 100);

/// Limit of a file's size, in pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileSizeLimit {
    pages: i64,
    /// Size of a page in bytes.
    page: i64,
}

impl FileSizeLimit {
    /// Sets the limit of a file.
    pub(super) fn set(file: &SqliteFile, octets: u64) -> Result<Self, DatabaseError> {
        // 512 is SQLite's smallest page. A value of 0 from a damaged file would divide by zero below.
        let page = file.pragma("page_size")?.max(512);
        file.set_pragma("journal_size_limit", LOG)?;
        let bound = Self { pages: i64::try_from(octets).unwrap_or(i64::MAX) / page, page };
        bound.close(file)?;
        Ok(bound)
    }

    /// Makes SQLite refuse growth beyond the limit. For a file that is larger already, this takes effect
    /// once it is smaller.
    fn close(self, file: &SqliteFile) -> Result<(), DatabaseError> {
        file.set_pragma("max_page_count", self.pages.min(MOST))
    }

    /// Returns true if there is no space for `coming` records.
    pub(super) fn is_near(self, file: &SqliteFile, coming: usize) -> Result<bool, DatabaseError> {
        Ok(used(file)? > self.free_of(coming, FULL))
    }

    /// Makes space for `coming` records; returns the number of removed services, clients and changes.
    pub(super) fn fit(
        self,
        link: &DatabaseConnection,
        file: &SqliteFile,
        coming: usize,
    ) -> Result<u64, DatabaseError> {
        // Deleting needs space to write, too.
        file.set_pragma("max_page_count", MOST)?;
        let outcome = self.shrink(link, file, coming);
        self.close(file)?;
        outcome
    }

    fn shrink(
        self,
        link: &DatabaseConnection,
        file: &SqliteFile,
        coming: usize,
    ) -> Result<u64, DatabaseError> {
        let mut taken = 0;
        // Below the limit by a margin, so that not every batch deletes something.
        while used(file)? > self.free_of(coming, FITTED) {
            let transaction = link.transaction()?;
            let step = take_out(&transaction)?;
            clear_up(&transaction)?;
            transaction.commit()?;
            // The freed pages become usable only after the commit, so the loop measures behind it.
            release_space(link)?;
            if step == 0 {
                break;
            }
            taken += step;
        }
        // Otherwise the log would grow by all of it.
        file.count("PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(taken)
    }

    /// Returns hundredths of the limit, minus the space for `coming` records, which is at most half of
    /// it.
    fn free_of(self, coming: usize, hundredths: i64) -> i64 {
        let coming = i64::try_from(coming).unwrap_or(i64::MAX).saturating_mul(RECORD) / self.page;
        // Half of the file at most: a batch that is larger than the limit would otherwise empty the
        // inventory.
        self.pages / 100 * hundredths - coming.min(self.pages / 2)
    }
}

/// The largest number of pages in SQLite.
const MOST: i64 = 0xffff_fffe;

/// Returns the number of used pages.
fn used(file: &SqliteFile) -> Result<i64, DatabaseError> {
    Ok(file.pragma("page_count")? - file.pragma("freelist_count")?)
}

/// Removes a step of the oldest changes, of services that are gone, and of those unseen for longest.
fn take_out(link: &DatabaseTransaction<'_>) -> Result<u64, DatabaseError> {
    let count = |query: &str| link.sole(query, &[], |row| row.get::<i64>(0));
    // All tables shrink in proportion, so that a flood of one kind of record does not remove another kind.
    let step = |rows: i64| (rows * STEP.0 / 1_000).max(STEP.1);
    let services = step(count("SELECT count(*) FROM services")?);
    let changes = step(count("SELECT count(*) FROM changes")?);
    let contacts = step(count("SELECT count(*) FROM contacts")?);
    let peers = step(count("SELECT count(*) FROM banner_peers")?);
    let unanswered = step(count("SELECT count(*) FROM unanswered")?);
    let taken = link.execute(
        // 'gone' sorts before 'open': services that no longer exist go first.
        "DELETE FROM services WHERE id IN (SELECT id FROM services ORDER BY state, last_seen LIMIT ?1)",
        values![services],
    )? + link.execute(
        "DELETE FROM changes WHERE id IN (SELECT id FROM changes ORDER BY at LIMIT ?1)",
        values![changes],
    )?;
    link.execute(
        "DELETE FROM contacts WHERE (service, client, sensor) IN
           (SELECT service, client, sensor FROM contacts ORDER BY last_seen LIMIT ?1)",
        values![contacts],
    )?;
    link.execute(
        "DELETE FROM banner_peers WHERE (service, banner, rule, peer, port, sensor) IN
           (SELECT service, banner, rule, peer, port, sensor FROM banner_peers ORDER BY last_seen LIMIT ?1)",
        values![peers],
    )?;
    link.execute(
        "DELETE FROM unanswered WHERE (octets, port, protocol, client, sensor) IN
           (SELECT octets, port, protocol, client, sensor FROM unanswered ORDER BY last_seen LIMIT ?1)",
        values![unanswered],
    )?;
    Ok(taken as u64)
}
