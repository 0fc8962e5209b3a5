//! The bound of a file's size.
//!
//! SQLite itself refuses to grow the file beyond it; well before that, what is gone and what was not seen for
//! longest is taken out, so that there is room for what comes. The log beside the file (`-wal`) is bounded as
//! well.

use super::link::{File, Link, Transaction};
use super::tend::{clear_up, give_back};
use super::{DatabaseError, values};

/// Bytes of the log beside the file that are kept between writes.
const LOG: i64 = 4 << 20;

/// In hundredths of the bound: when room is made, and how much is left then.
const FULL: i64 = 95;
const FITTED: i64 = 85;

/// Bytes that a record may need, with its indexes.
const RECORD: i64 = 2_048;

/// Rows of each kind that are taken out together, in thousandths of those there are: at least so many.
const STEP: (i64, i64) = (20, 100);

/// How large a file may be, in pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pages: i64,
    /// Bytes of a page.
    page: i64,
}

impl Bound {
    /// Bounds a file.
    pub(super) fn set(file: &File, octets: u64) -> Result<Self, DatabaseError> {
        let page = file.pragma("page_size")?.max(512);
        file.set_pragma("journal_size_limit", LOG)?;
        let bound = Self { pages: i64::try_from(octets).unwrap_or(i64::MAX) / page, page };
        bound.close(file)?;
        Ok(bound)
    }

    /// Has SQLite refuse what goes beyond; of a file that is larger already it does once that is smaller.
    fn close(self, file: &File) -> Result<(), DatabaseError> {
        file.set_pragma("max_page_count", self.pages.min(MOST))
    }

    /// Whether there is no room for so many records.
    pub(super) fn is_near(self, file: &File, coming: usize) -> Result<bool, DatabaseError> {
        Ok(used(file)? > self.free_of(coming, FULL))
    }

    /// Makes room for so many records; how many services, clients and changes went.
    pub(super) fn fit(self, link: &Link, file: &File, coming: usize) -> Result<u64, DatabaseError> {
        // Taking out writes as well.
        file.set_pragma("max_page_count", MOST)?;
        let outcome = self.shrink(link, file, coming);
        self.close(file)?;
        outcome
    }

    fn shrink(self, link: &Link, file: &File, coming: usize) -> Result<u64, DatabaseError> {
        let mut taken = 0;
        while used(file)? > self.free_of(coming, FITTED) {
            let transaction = link.transaction()?;
            let step = take_out(&transaction)?;
            clear_up(&transaction)?;
            transaction.commit()?;
            give_back(link)?;
            if step == 0 {
                break;
            }
            taken += step;
        }
        // The log would grow by all of it.
        file.count("PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(taken)
    }

    /// So many hundredths of the bound, without what so many records may need: half of it at most.
    fn free_of(self, coming: usize, hundredths: i64) -> i64 {
        let coming = i64::try_from(coming).unwrap_or(i64::MAX).saturating_mul(RECORD) / self.page;
        self.pages / 100 * hundredths - coming.min(self.pages / 2)
    }
}

/// The most pages that SQLite knows.
const MOST: i64 = 0xffff_fffe;

/// Pages with something in them.
fn used(file: &File) -> Result<i64, DatabaseError> {
    Ok(file.pragma("page_count")? - file.pragma("freelist_count")?)
}

/// Takes out a step of the oldest changes, of services that are gone, and of those that were not seen for
/// longest.
fn take_out(link: &Transaction<'_>) -> Result<u64, DatabaseError> {
    let count = |query: &str| link.sole(query, &[], |row| row.get::<i64>(0));
    let step = |rows: i64| (rows * STEP.0 / 1_000).max(STEP.1);
    let services = step(count("SELECT count(*) FROM services")?);
    let changes = step(count("SELECT count(*) FROM changes")?);
    let contacts = step(count("SELECT count(*) FROM contacts")?);
    let peers = step(count("SELECT count(*) FROM banner_peers")?);
    let unanswered = step(count("SELECT count(*) FROM unanswered")?);
    let taken = link.execute(
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
