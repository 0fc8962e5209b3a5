//! Queue of statements: all rows of one statement are sent as one, whose parameters are arrays.
//!
//! So rows are sent in another order than they were queued. Rows that others reference come first. If one
//! statement writes a row several times, the writes keep their order. Different statements that write the
//! same row must give the same result in any order.

use std::borrow::Cow;

use ahash::AHashMap;

use super::dialect::key;
use super::values::SqlParameter;

/// A table whose rows have numbers that others reference, in the order of inserting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NumberedTable {
    /// The table of hosts.
    Hosts,
    /// The table of banners.
    Banners,
    /// The table of services.
    Services,
}

impl NumberedTable {
    pub(super) const COUNT: usize = 3;

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Banners => "banners",
            Self::Services => "services",
        }
    }
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct StatementQueue {
    statements: Vec<StatementBatch>,
    /// Index of each statement in the list.
    known: AHashMap<&'static str, usize>,
    count: usize,
}

/// All rows of one statement.
#[derive(Debug)]
struct StatementBatch {
    text: &'static str,
    /// The table into which it inserts, if others may reference its rows.
    enters: Option<NumberedTable>,
    /// Indices of the values that identify a row.
    key: Vec<usize>,
    /// Number of writes of each row.
    times: AHashMap<Vec<SqlParameter<'static>>, usize>,
    /// Rows that are sent together: for each parameter, the value of each row.
    sendings: Vec<Vec<Vec<SqlParameter<'static>>>>,
}

/// A statement and the arrays that are its parameters.
pub(super) type QueuedStatement<'a> = (Cow<'a, str>, Vec<SqlParameter<'a>>);

impl StatementQueue {
    /// Queues a row; returns the number of queued rows.
    pub(super) fn put<'v>(
        &mut self,
        enters: Option<NumberedTable>,
        text: &'static str,
        values: impl Iterator<Item = &'v SqlParameter<'v>>,
    ) -> usize {
        let at = *self.known.entry(text).or_insert_with(|| {
            let (times, sendings) = (AHashMap::new(), Vec::new());
            self.statements.push(StatementBatch { text, enters, key: key(text), times, sendings });
            self.statements.len() - 1
        });
        self.statements[at].add(values.map(SqlParameter::to_owned).collect());
        self.count += 1;
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns all statements in the order of sending.
    pub(super) fn into_sendings(mut self) -> Vec<QueuedStatement<'static>> {
        // Inserts come first; each kind keeps the order of queueing.
        self.statements.sort_by_key(|it| it.enters.map_or(NumberedTable::COUNT, |table| table as usize));
        let mut sendings: Vec<_> =
            self.statements.into_iter().map(|it| (it.text, it.sendings.into_iter())).collect();
        let mut all = Vec::with_capacity(sendings.len());
        loop {
            let before = all.len();
            for (text, sendings) in &mut sendings {
                let arrays = sendings.next();
                all.extend(arrays.map(|arrays| {
                    (Cow::Borrowed(*text), arrays.into_iter().map(SqlParameter::Many).collect())
                }));
            }
            if all.len() == before {
                return all;
            }
        }
    }
}

impl StatementBatch {
    fn add(&mut self, row: Vec<SqlParameter<'static>>) {
        let mut sending = 0;
        if !self.key.is_empty() {
            let key = self.key.iter().filter_map(|at| row.get(*at).cloned()).collect();
            let times = self.times.entry(key).or_default();
            sending = *times;
            *times += 1;
        }
        if self.sendings.len() == sending {
            self.sendings.push(vec![Vec::new(); row.len()]);
        }
        for (array, value) in self.sendings[sending].iter_mut().zip(row) {
            array.push(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::values;

    #[test]
    fn what_is_put_by_one_statement_is_sent_as_one() {
        let (seen, change) = ("UPDATE t SET n = ?2 WHERE id = ?1", "INSERT INTO changes (a) VALUES (?1)");
        let enter = "INSERT INTO hosts (id, a) VALUES (?1, ?2)";
        let mut waiting = StatementQueue::default();
        waiting.put(None, seen, values![1, 10].iter());
        waiting.put(None, change, values![7].iter());
        waiting.put(None, seen, values![2, 20].iter());
        waiting.put(Some(NumberedTable::Hosts), enter, values![5, "x"].iter());
        waiting.put(None, seen, values![1, 11].iter());
        assert_eq!(waiting.put(None, change, values![7].iter()), 6);
        let array = |values: &[SqlParameter<'static>]| values.iter().collect::<SqlParameter<'static>>();
        assert_eq!(
            waiting.into_sendings(),
            [
                (enter.into(), vec![array(values![5]), array(values!["x"])]),
                (seen.into(), vec![array(values![1, 2]), array(values![10, 20])]),
                (change.into(), vec![array(values![7, 7])]),
                (seen.into(), vec![array(values![1]), array(values![11])]),
            ]
        );
    }
}
