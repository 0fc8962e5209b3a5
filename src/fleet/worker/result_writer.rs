//! Writes results, the inventory and the finished targets of shards in one transaction, which succeeds only
//! while the shards belong to the worker. While the server is away the writer waits, and the scan with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::results::{TargetEvents, TargetResult, WriterMessage};
use crate::database::{OutageTracker, SqlParameter};
use crate::diagnostics::log_line;
use crate::event::{Event, EventKind};
use crate::fleet::database::{BatchWriteOutcome, ResultRow, ShardLease, write};
use crate::inventory::{BatchRecords, StoreError, TransactionalWriter};
use crate::output::OutputFormat as _;
use crate::output::csv::CsvFormat;
use crate::output::eve::{EveFormat, EveOptions};

/// Number of answers that are written at once without waiting for the clock.
const BATCH: usize = 4_096;

/// Time for which an answer waits for others.
const HELD: Duration = Duration::from_millis(250);

/// First pause after a failed write.
const PAUSE: Duration = Duration::from_millis(50);

/// The state that the writing thread shares with the leading one.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkerProgress {
    /// Number of answers that wait to be written.
    pub(super) waiting: Arc<AtomicUsize>,
    /// Number of shards that are not done.
    pub(super) held: Arc<AtomicUsize>,
    /// Numbers of targets written as finished, and of shards written as done.
    pub(super) over: Arc<AtomicUsize>,
    pub(super) done: Arc<AtomicUsize>,
    /// Set if unwritten answers are given up. Other workers probe those targets again.
    pub(super) give_up: Arc<AtomicBool>,
}

/// The writer of a scan.
pub(super) struct ResultWriter {
    keeper: TransactionalWriter,
    scan: i64,
    shards: u64,
    /// Limit of the time for which the server waits for the rest of a transaction.
    lease: Duration,
    eve: EveFormat,
    leases: BTreeMap<u64, (ShardLease, Arc<AtomicBool>)>,
    batch: BTreeMap<u64, Vec<TargetResult>>,
    count: usize,
    tally: WorkerProgress,
    absence: OutageTracker,
}

/// A batch, as the statements take it.
struct ResultBatch {
    leases: Vec<ShardLease>,
    rows: Vec<ResultRow>,
    findings: BatchRecords,
}

impl ResultWriter {
    pub(super) fn new(
        keeper: TransactionalWriter,
        (scan, shards): (i64, u64),
        lease: Duration,
        eve: EveOptions,
        tally: WorkerProgress,
    ) -> Self {
        Self {
            keeper,
            scan,
            shards,
            lease,
            eve: EveFormat(eve),
            leases: BTreeMap::new(),
            batch: BTreeMap::new(),
            count: 0,
            tally,
            absence: OutageTracker::new(PAUSE),
        }
    }

    /// Takes answers until the senders are gone.
    pub(super) fn run(mut self, messages: &Receiver<WriterMessage>) {
        let mut since = None;
        loop {
            let patience = since.map_or(HELD, |since: Instant| HELD.saturating_sub(since.elapsed()));
            match messages.recv_timeout(patience) {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.count == 0 {
                since = None;
                continue;
            }
            let begun = *since.get_or_insert_with(Instant::now);
            if self.count >= BATCH || begun.elapsed() >= HELD {
                self.write();
                since = None;
            }
        }
        self.write();
        if let Err(error) = self.keeper.end() {
            log_line(format_args!("bannerwall: cannot record the end of the run in the inventory: {error}"));
        }
    }

    fn take(&mut self, message: WriterMessage) {
        match message {
            WriterMessage::Taken(lease, is_lost) => {
                // The writer owns the lease from here on: only it knows which results are written.
                self.leases.insert(lease.number, (*lease, is_lost));
            }
            WriterMessage::Answers(answers) => {
                for answer in answers {
                    self.batch.entry(answer.finished.index % self.shards).or_default().push(answer);
                    self.count += 1;
                }
            }
        }
    }

    /// Writes everything that waits, however long it takes, unless it is to be given up.
    fn write(&mut self) {
        let mut sending = self.next_batch();
        while !sending.leases.is_empty() && !self.tally.give_up.load(Relaxed) {
            match self.attempt(&sending) {
                Ok(BatchWriteOutcome::Now | BatchWriteOutcome::Before) => {
                    self.settle(sending.leases);
                    break;
                }
                Ok(BatchWriteOutcome::Lost(numbers)) => {
                    self.drop_shards(&numbers);
                    sending = self.next_batch();
                }
                Err(error) if TransactionalWriter::is_data_error(&error) => {
                    log_line(format_args!(
                        "bannerwall: the inventory refuses the results of a batch, which \
                                           are lost: {error}"
                    ));
                    // The results of the scan are written without the findings, so that one bad record
                    // does not stop the scan for ever.
                    sending.findings = BatchRecords::default();
                }
                Err(error) => {
                    let pause = self.absence.record_failure(|| {
                        log_line(format_args!("bannerwall: cannot write results: {error}; the scan waits"));
                    });
                    // Results pile up in the channel meanwhile. The supply of targets stops at its
                    // limit of unwritten results.
                    std::thread::sleep(pause);
                }
            }
        }
        self.batch.clear();
        self.tally.waiting.fetch_sub(std::mem::take(&mut self.count), Relaxed);
        if !self.tally.give_up.load(Relaxed) && self.absence.record_success() {
            log_line("bannerwall: results are written again");
        }
    }

    fn attempt(&mut self, sending: &ResultBatch) -> Result<BatchWriteOutcome, StoreError> {
        let ResultBatch { leases, rows, findings } = sending;
        let (scan, leases) = (self.scan, leases.iter().collect::<Vec<_>>());
        let mut said = BatchWriteOutcome::Now;
        let lease = self.lease;
        self.keeper.write(findings, &mut |link| {
            link.limit_idle_time(lease)?;
            said = write(link, scan, &leases, rows)?;
            Ok(said == BatchWriteOutcome::Now)
        })?;
        Ok(said)
    }

    /// Returns what is to be written: the new results of each shard that still belongs to the worker.
    fn next_batch(&mut self) -> ResultBatch {
        let (mut leases, mut findings) = (Vec::new(), BatchRecords::default());
        let mut rows = Vec::new();
        for (number, answers) in &self.batch {
            let Some((lease, _)) = self.leases.get(number) else { continue };
            let mut lease = lease.clone();
            for answer in answers {
                let position = answer.finished.index / self.shards;
                // The target was reported twice, as after a retry. Only the first result counts.
                if !lease.over.add(position) {
                    continue;
                }
                lease.counts.count(&answer.finished);
                if let Some(told) = &answer.told {
                    findings.add(&told.events);
                    if told.is_shown {
                        rows.push(row(&mut self.eve, (self.scan, *number, position), answer, told));
                    }
                }
            }
            leases.push(lease);
        }
        ResultBatch { leases, rows, findings }
    }

    fn settle(&mut self, written: Vec<ShardLease>) {
        for mut lease in written {
            let Some((known, _)) = self.leases.get_mut(&lease.number) else { continue };
            // Progress is published only after the commit: `status` must never show results that are
            // not stored.
            let more = lease.over.count() - known.over.count();
            self.tally.over.fetch_add(usize::try_from(more).unwrap_or_default(), Relaxed);
            // The server checks this number, so a batch whose commit was not acknowledged is recognized
            // when it is sent again.
            lease.advance_step();
            if lease.is_done() {
                self.leases.remove(&lease.number);
                self.tally.held.fetch_sub(1, Relaxed);
                self.tally.done.fetch_add(1, Relaxed);
            } else {
                *known = lease;
            }
        }
    }

    /// Drops shards that now belong to other workers, which probe their targets again.
    fn drop_shards(&mut self, numbers: &[u64]) {
        for number in numbers {
            if let Some((_, is_lost)) = self.leases.remove(number) {
                // The supply stops to draw targets of this shard.
                is_lost.store(true, Relaxed);
                self.tally.held.fetch_sub(1, Relaxed);
                log_line(format_args!(
                    "bannerwall: scan #{}: shard {number} now belongs to another worker, which probes its \
                     unwritten targets again",
                    self.scan
                ));
            }
        }
    }
}

/// Returns a result as a row.
fn row(
    eve: &mut EveFormat,
    (scan, shard, position): (i64, u64, u64),
    answer: &TargetResult,
    told: &TargetEvents,
) -> ResultRow {
    let number = |count: u64| SqlParameter::Integer(i64::try_from(count).unwrap_or(i64::MAX));
    // The connection event is written only if there is no other one.
    let shown = match told.events.as_slice() {
        [_, behind @ ..] if !behind.is_empty() => behind,
        all => all,
    };
    let (mut json, mut csv) = (Vec::new(), Vec::new());
    // Writing to memory cannot fail.
    let _ = eve.group(shown, &mut json);
    let _ = CsvFormat.group(shown, &mut csv);
    let text =
        |octets: Vec<u8>| SqlParameter::Text(String::from_utf8_lossy(&octets).trim_end().to_owned().into());
    let end = told.events.first().and_then(server).unwrap_or_default();
    [
        scan.into(),
        number(shard),
        number(position),
        end.0.into(),
        end.1.into(),
        SqlParameter::Text(answer.state.name().into()),
        i64::from(answer.matched).into(),
        text(json),
        text(csv),
    ]
}

/// Returns the server that was probed.
fn server(event: &Event) -> Option<(String, u16)> {
    let flow = event.flow.as_ref().filter(|_| matches!(event.kind, EventKind::Connect(_)))?;
    let server = flow.endpoints.server;
    Some((server.address.to_canonical().to_string(), server.port))
}
