//! Statements that are put, and not sent yet: what is put by the same one goes to the server as one, whose
//! parameters are arrays.
//!
//! So they come in another order than they were put in. Rows that others name come first. Of one row that the
//! same statement writes more than once each is sent after the one before; what different statements write of
//! one row must come to the same in whatever order.

use std::borrow::Cow;

use ahash::AHashMap;

use super::cell::Value;
use super::dialect::key;

/// A table whose rows have numbers that others name, in the order in which they may be entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::inventory::database) enum Numbered {
    Hosts,
    Banners,
    Services,
}

impl Numbered {
    pub(super) const COUNT: usize = 3;

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Banners => "banners",
            Self::Services => "services",
        }
    }
}

/// What is put.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    statements: Vec<Alike>,
    /// The place of each in the list.
    known: AHashMap<&'static str, usize>,
    count: usize,
}

/// Everything that is put by one statement.
#[derive(Debug)]
struct Alike {
    text: &'static str,
    /// The table whose rows it enters, where others may name them.
    enters: Option<Numbered>,
    /// Which values tell rows apart.
    key: Vec<usize>,
    /// How often each row is written.
    times: AHashMap<Vec<Value<'static>>, usize>,
    /// What is sent together: by parameter the value for each row.
    sendings: Vec<Vec<Vec<Value<'static>>>>,
}

/// A statement and the arrays that are its parameters.
pub(super) type Sending<'a> = (Cow<'a, str>, Vec<Value<'a>>);

impl Waiting {
    /// Puts a row; how many there are.
    pub(super) fn put<'v>(
        &mut self,
        enters: Option<Numbered>,
        text: &'static str,
        values: impl Iterator<Item = &'v Value<'v>>,
    ) -> usize {
        let at = *self.known.entry(text).or_insert_with(|| {
            let (times, sendings) = (AHashMap::new(), Vec::new());
            self.statements.push(Alike { text, enters, key: key(text), times, sendings });
            self.statements.len() - 1
        });
        self.statements[at].add(values.map(Value::to_owned).collect());
        self.count += 1;
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All of it, in the order in which it is to be sent.
    pub(super) fn into_sendings(mut self) -> Vec<Sending<'static>> {
        // Statements that enter come first; each kind in the order in which they were first put.
        self.statements.sort_by_key(|it| it.enters.map_or(Numbered::COUNT, |table| table as usize));
        let mut sendings: Vec<_> =
            self.statements.into_iter().map(|it| (it.text, it.sendings.into_iter())).collect();
        let mut all = Vec::with_capacity(sendings.len());
        loop {
            let before = all.len();
            for (text, sendings) in &mut sendings {
                let arrays = sendings.next();
                all.extend(
                    arrays
                        .map(|arrays| (Cow::Borrowed(*text), arrays.into_iter().map(Value::Many).collect())),
                );
            }
            if all.len() == before {
                return all;
            }
        }
    }
}

impl Alike {
    fn add(&mut self, row: Vec<Value<'static>>) {
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
    use super::super::values;
    use super::*;

    #[test]
    fn what_is_put_by_one_statement_is_sent_as_one() {
        let (seen, change) = ("UPDATE t SET n = ?2 WHERE id = ?1", "INSERT INTO changes (a) VALUES (?1)");
        let enter = "INSERT INTO hosts (id, a) VALUES (?1, ?2)";
        let mut waiting = Waiting::default();
        waiting.put(None, seen, values![1, 10].iter());
        waiting.put(None, change, values![7].iter());
        waiting.put(None, seen, values![2, 20].iter());
        waiting.put(Some(Numbered::Hosts), enter, values![5, "x"].iter());
        waiting.put(None, seen, values![1, 11].iter());
        assert_eq!(waiting.put(None, change, values![7].iter()), 6);
        let array = |values: &[Value<'static>]| values.iter().collect::<Value<'static>>();
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
