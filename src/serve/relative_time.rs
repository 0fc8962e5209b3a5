//! Times as the pages show them: relative to now. The full time is in the element's title.

use std::borrow::Borrow;

use crate::inventory::InventoryTime;

/// Units of a relative time: length in seconds, name, and the number of seconds up to which it is used.
const UNITS: [(i64, &str, i64); 3] = [(60, "min", 5_400), (3_600, "h", 172_800), (86_400, "d", 60 * 86_400)];

impl InventoryTime {
    /// Returns the time relative to `now`: `3 h ago`; a date if it is long ago.
    pub(super) fn ago(&self, now: impl Borrow<Self>) -> String {
        let seconds = now.borrow().millis().saturating_sub(self.millis()) / 1_000;
        if (-59..60).contains(&seconds) {
            return "just now".to_owned();
        }
        let (length, when) = if seconds < 0 { (-seconds, ["in ", ""]) } else { (seconds, ["", " ago"]) };
        let unit = UNITS.iter().find(|(_, _, most)| length < *most);
        match unit {
            Some((unit, name, _)) => format!("{}{} {name}{}", when[0], length / unit, when[1]),
            None => self.to_string().chars().take(10).collect(),
        }
    }

    /// Returns the time for the attribute `datetime`.
    pub(super) fn rfc3339(&self) -> String {
        format!("{}Z", self.to_string().replace(' ', "T"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_relative_while_it_is_recent() {
        let now = InventoryTime::from_millis(1_767_225_600_000);
        let shown = |seconds: i64| InventoryTime::from_millis(now.millis() - seconds * 1_000).ago(now);
        let times = [0, 59, 60, 5_399, 5_400, 172_799, 172_800, 59 * 86_400, 60 * 86_400, -120];
        let expected = [
            "just now",
            "just now",
            "1 min ago",
            "89 min ago",
            "1 h ago",
            "47 h ago",
            "2 d ago",
            "59 d ago",
            "2025-11-02",
            "in 2 min",
        ];
        assert_eq!(times.map(shown), expected);
        assert_eq!(now.rfc3339(), "2026-01-01T00:00:00Z");
    }
}
