//! Failures of single requests.

/// Records of requests with failures; most requests have none.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<Record>);

/// Failures of one request.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Record {
    number: u16,
    /// Number of connections that ended at it.
    pub(super) troubles: u8,
    /// True if a wait for it was cut short once.
    pub(super) hurried: bool,
    /// True if an ambiguous error seemed to answer it.
    pub(super) doubted: bool,
}

impl Records {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn get(&self, number: u16) -> Record {
        let found = self.0.iter().find(|record| record.number == number);
        found.copied().unwrap_or(Record { number, ..Record::default() })
    }

    pub(super) fn change(&mut self, number: u16, change: impl FnOnce(&mut Record)) -> Record {
        let place = self.0.iter().position(|record| record.number == number).unwrap_or_else(|| {
            self.0.push(Record { number, ..Record::default() });
            self.0.len() - 1
        });
        let Some(record) = self.0.get_mut(place) else { return Record::default() };
        change(record);
        *record
    }
}

impl Record {
    /// True if it failed before: new requests come first.
    pub(super) fn is_marked(self) -> bool {
        self.troubles > 0 || self.hurried
    }
}
