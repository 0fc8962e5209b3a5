//! SVG plots: converts numbers to coordinates.

use crate::inventory::InventoryTime;

/// Bar of a column plot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlotColumn {
    /// Distance from the left.
    pub(super) x: usize,
    /// Distance from the top.
    pub(super) y: i64,
    /// Height.
    pub(super) height: i64,
    /// Value.
    pub(super) value: i64,
    /// Number of columns to the last one.
    pub(super) ago: usize,
}

/// Distance between columns.
pub(super) const STEP: usize = 10;

/// Height of the highest column.
pub(super) const HEIGHT: i64 = 60;

/// Returns columns for values. The highest fills the plot, and every positive value is visible.
pub(super) fn columns(values: &[i64]) -> Vec<PlotColumn> {
    let most = values.iter().copied().max().unwrap_or_default().max(1);
    let column = |(at, value): (usize, &i64)| {
        let height = if *value > 0 { (value.saturating_mul(HEIGHT) / most).max(1) } else { 0 };
        PlotColumn { x: at * STEP, y: HEIGHT - height, height, value: *value, ago: values.len() - 1 - at }
    };
    values.iter().enumerate().map(column).collect()
}

/// Returns a part of a whole in percent; a positive part has at least 1.
pub(super) fn percent(part: i64, whole: i64) -> i64 {
    if part <= 0 { 0 } else { (part.saturating_mul(100) / whole.max(1)).clamp(1, 100) }
}

/// Width of a trend.
const TREND: usize = 120;

/// Height of a trend, without the space at its top.
const RISE: i64 = 27;

/// Trend as paths of SVG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TrendPath {
    /// The line.
    pub(super) line: String,
    /// The area below it.
    pub(super) area: String,
}

/// Returns the trend of values, from 0 to the highest of them; none for fewer than two.
pub(super) fn trend(values: &[i64]) -> Option<TrendPath> {
    let steps = values.len().checked_sub(1).filter(|steps| *steps > 0)?;
    let most = values.iter().copied().max().unwrap_or_default().max(1);
    let point = |(at, value): (usize, &i64)| {
        let y = RISE + 2 - value.clamp(&0, &most).saturating_mul(RISE) / most;
        format!("{} {y}", at * TREND / steps)
    };
    let points: Vec<String> = values.iter().enumerate().map(point).collect();
    let line = format!("M{}", points.join("L"));
    let area = format!("{line}L{TREND} 30L0 30Z");
    Some(TrendPath { line, area })
}

/// Width of a timeline.
pub(super) const LINE: i64 = 1_000;

/// Time span as offset and width on a timeline of [`LINE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimelineSpan {
    /// Distance from the left.
    pub(super) x: i64,
    /// Width, at least a visible one.
    pub(super) width: i64,
}

/// Timeline.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlotTimeline {
    from: i64,
    length: i64,
}

impl PlotTimeline {
    /// Returns the timeline between two times.
    pub(super) fn new(from: InventoryTime, to: InventoryTime) -> Self {
        Self { from: from.millis(), length: to.millis().saturating_sub(from.millis()).max(1) }
    }

    /// Returns the position of a time span.
    pub(super) fn span(self, from: InventoryTime, to: InventoryTime) -> TimelineSpan {
        let place = |time: InventoryTime| {
            let passed = i128::from(time.millis()) - i128::from(self.from);
            let place = passed * i128::from(LINE) / i128::from(self.length);
            i64::try_from(place.clamp(0, i128::from(LINE))).unwrap_or(LINE)
        };
        let x = place(from).min(LINE - 8);
        TimelineSpan { x, width: (place(to) - x).max(8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_column_fills_the_plot_and_little_is_still_seen() {
        let columns = columns(&[0, 1, 1_000]);
        let heights: Vec<i64> = columns.iter().map(|column| column.height).collect();
        assert_eq!(heights, [0, 1, HEIGHT]);
        assert_eq!((columns[1].x, columns[1].y, columns[1].ago), (STEP, HEIGHT - 1, 1));
        assert!(super::columns(&[]).is_empty());
        assert_eq!(super::columns(&[0, 0])[1].height, 0);
        assert_eq!((percent(0, 9), percent(1, 1_000), percent(9, 9), percent(1, 0)), (0, 1, 100, 100));
    }

    #[test]
    fn a_trend_fills_its_plot() {
        assert_eq!((trend(&[]), trend(&[7])), (None, None));
        let path = trend(&[0, 5, 10]).unwrap();
        assert_eq!(path.line, "M0 29L60 16L120 2");
        assert_eq!(trend(&[0, 0]).unwrap().line, "M0 29L120 29");
    }

    #[test]
    fn spans_stay_on_the_line() {
        let time = InventoryTime::from_millis;
        let line = PlotTimeline::new(time(1_000), time(2_000));
        assert_eq!(line.span(time(1_000), time(2_000)), TimelineSpan { x: 0, width: LINE });
        assert_eq!(line.span(time(1_500), time(1_500)), TimelineSpan { x: 500, width: 8 });
        assert_eq!(line.span(time(0), time(i64::MAX)), TimelineSpan { x: 0, width: LINE });
        assert_eq!(
            PlotTimeline::new(time(5), time(5)).span(time(9), time(9)),
            TimelineSpan { x: LINE - 8, width: 8 }
        );
    }
}
