//! Failures of single requests.

/// Records of requests with failures; most requests have none.
#[derive(Debug, Default)]
pub(super) struct FailedRequests(Vec<RequestFailures>);

/// Failures of one request.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct RequestFailures {
    number: u16,
    /// Number of connections that ended at it.
    pub(super) troubles: u8,
    /// True if a wait for it was cut short once.
    pub(super) hurried: bool,
    /// True if an ambiguous error seemed to answer it.
    pub(super) doubted: bool,
}

impl FailedRequests {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn get(&self, number: u16) -> RequestFailures {
        let found = self.0.iter().find(|record| record.number == number);
        found.copied().unwrap_or(RequestFailures { number, ..RequestFailures::default() })
    }

    pub(super) fn change(
        &mut self,
        number: u16,
        change: impl FnOnce(&mut RequestFailures),
    ) -> RequestFailures {
        let place = self.0.iter().position(|record| record.number == number).unwrap_or_else(|| {
            self.0.push(RequestFailures { number, ..RequestFailures::default() });
            self.0.len() - 1
        });
        let Some(record) = self.0.get_mut(place) else { return RequestFailures::default() };
        change(record);
        *record
    }
}

impl RequestFailures {
    /// True if it failed before: new requests come first.
    pub(super) fn is_marked(self) -> bool {
        self.troubles > 0 || self.hurried
    }
}
