//! State of a list: its filter, its order, and the next part.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::ListQuery;

/// The severities, the most severe first.
pub(super) const SEVERITIES: [&str; 5] = ["critical", "high", "medium", "low", "info"];

/// State of a list, for its links.
#[derive(Debug, Clone, Default)]
pub(super) struct ListState {
    /// Filter.
    pub(super) q: String,
    /// Order; empty for the usual one.
    pub(super) sort: String,
    /// Severity of findings; empty for all.
    pub(super) severity: String,
    /// Position of the next part, if there is one.
    pub(super) next: Option<String>,
    /// True if only the first rows are sorted.
    pub(super) is_cut: bool,
    /// Name of the list as CSV, if it can be exported.
    pub(super) file: Option<&'static str>,
}

impl ListState {
    pub(super) fn new(asked: &ListQuery, file: Option<&'static str>) -> Self {
        let (q, sort, severity) = (asked.q.clone(), asked.sort.clone(), asked.severity.clone());
        Self { q, sort, severity, file, ..Self::default() }
    }

    /// Returns the query of a link to this list in another order.
    pub(super) fn link(&self, sort: &str) -> String {
        let fields = [("q", self.q.as_str()), ("severity", &self.severity), ("sort", sort)];
        let given = fields.iter().filter(|(_, value)| !value.is_empty());
        let pairs =
            given.map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
        pairs.collect::<Vec<_>>().join("&")
    }

    /// True if this is the order.
    pub(super) fn is_sorted(&self, sort: &str) -> bool {
        self.sort == sort
    }

    /// True if rows are left out by choice.
    pub(super) fn has_filter(&self) -> bool {
        !self.q.is_empty() || !self.severity.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_keeps_the_filter() {
        let list = ListState { q: "product:\"a b\"&c".to_owned(), ..ListState::default() };
        assert_eq!(list.link("seen"), "q=product%3A%22a%20b%22%26c&sort=seen");
        assert_eq!(ListState::default().link(""), "");
    }
}
