//! Writes batches into the tables, and detects changes.

mod batch_writer;
mod findings;
mod merge;
mod prefetch;
mod prefetched_rows;
mod row_cache;
mod rows;
mod rule_totals;
mod run_writer;
mod runs;
mod sighting_span;
mod transactional_writer;

pub use self::merge::{BatchMerger, ReceivedBatch};
pub(in crate::inventory) use self::run_writer::RunWriter;
pub use self::transactional_writer::{BatchRecords, TransactionalWriter};
