//! Report: the inventory's findings in one HTML file, for reading and printing.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use askama::Template;

use super::page_frame::PageFrame;
use super::pages::STYLE;
use super::plot::{TrendPath, trend};
use super::rule_advice::{RuleAdvice, advice};
use super::rule_catalog::{RuleCatalog, RuleDetails, RuleText};
use crate::diagnostics::several;
use crate::inventory::export::ExportError;
use crate::inventory::{
    FindingTrends, HostRow, InventoryDatabase, InventoryTime, InventoryTotals, RecentChanges, RuleSummary,
    ServiceFilter, ServiceRecord, SeverityTrend, StoreError, query,
};
use crate::serve::html_escape::term;

/// Style of the report beside that of the pages.
const REPORT_STYLE: &str = include_str!("assets/report.css");

/// Limits of lists: tasks, places of a task, new findings, hosts, and rules.
const TASKS: usize = 5;
const PLACES: usize = 12;
const NEW: usize = 12;
const HOSTS: usize = 25;
const RULES: usize = 100;

/// Contents of a report.
#[derive(Debug, Clone, Copy)]
pub struct ReportConfig {
    /// Time of the report.
    pub now: InventoryTime,
    /// Number of days that it compares, at most 30.
    pub days: usize,
}

#[derive(Template)]
#[template(path = "report.html")]
struct ReportPage {
    frame: PageFrame,
    days: usize,
    style: [&'static str; 2],
    totals: InventoryTotals,
    trends: FindingTrends,
    recent: RecentChanges,
    tasks: Vec<ReportTask>,
    hosts: Vec<HostRow>,
    /// Rules with open findings, the most severe first.
    rules: Vec<RuleSummary>,
    /// Number of those that are not listed.
    more_rules: usize,
}

/// A finding to fix.
struct ReportTask {
    rule: RuleSummary,
    advice: Option<RuleAdvice>,
    text: RuleText,
    services: Vec<ServiceRecord>,
}

/// Writes the report of an inventory.
///
/// # Errors
/// Errors of the database or of `out`.
pub fn write_report(
    inventory: &InventoryDatabase,
    catalog: &RuleCatalog,
    config: ReportConfig,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let ReportConfig { now, days } = config;
    let age = Duration::from_secs(24 * 3_600 * days as u64);
    let mut rules = query::rules(inventory, &ServiceFilter::default())?;
    rules.retain(|rule| rule.services > 0);
    let first = rules.iter().take(TASKS);
    let tasks = first.map(|rule| task(inventory, catalog, rule)).collect::<Result<_, _>>()?;
    let more_rules = rules.len().saturating_sub(RULES);
    rules.truncate(RULES);
    let report = ReportPage {
        frame: PageFrame { here: "", now },
        days,
        style: [STYLE, REPORT_STYLE],
        totals: query::totals(inventory)?,
        trends: query::finding_trends(inventory, now, days, NEW)?,
        recent: query::recent_changes(inventory, now.before(age))?,
        tasks,
        hosts: query::hosts_by_severity(inventory, &ServiceFilter::default(), 0, HOSTS)?.rows,
        rules,
        more_rules,
    };
    // This would need a failing `Display`, and the template uses none.
    let text = report.render().map_err(std::io::Error::other)?;
    Ok(out.write_all(text.as_bytes())?)
}

fn task(
    inventory: &InventoryDatabase,
    catalog: &RuleCatalog,
    rule: &RuleSummary,
) -> Result<ReportTask, StoreError> {
    let filter = term("finding", &rule.rule).and_then(|term| ServiceFilter::from_text(&term).ok());
    let services =
        filter.map(|filter| query::services_behind(inventory, &filter, None, PLACES)).transpose()?;
    let known = catalog.rule(&rule.rule);
    Ok(ReportTask {
        rule: rule.clone(),
        advice: known.and_then(|rule| advice(&rule.category)),
        text: known.and_then(RuleDetails::read_text).unwrap_or_default(),
        services: services.unwrap_or_default(),
    })
}

impl ReportTask {
    /// Returns the number of affected services that are not listed.
    fn hidden(&self) -> i64 {
        self.rule.services.saturating_sub(i64::try_from(self.services.len()).unwrap_or(i64::MAX))
    }
}

impl ReportPage {
    /// Says the most important in a few sentences.
    fn summary(&self) -> String {
        let open: i64 = self.trends.severities.iter().map(|it| it.open).sum();
        let (new, gone) = self.sums();
        let days = several(self.days, "day");
        match self.trends.severities.iter().find(|it| it.open > 0) {
            Some(worst) => format!(
                "{} are open, {} of them {}. In the last {days}, {new} appeared and {gone} were closed.",
                several(open, "finding"),
                worst.open,
                worst.severity
            ),
            None => format!("No findings are open. In the last {days}, {gone} were closed."),
        }
    }

    /// Returns the numbers of new and of closed findings.
    fn sums(&self) -> (i64, i64) {
        let all = &self.trends.severities;
        (all.iter().map(|it| it.new).sum(), all.iter().map(|it| it.gone).sum())
    }

    fn trend(&self, it: &SeverityTrend) -> Option<TrendPath> {
        trend(&it.days)
    }

    /// Returns the kinds of changes of hosts and services, with their numbers.
    fn changes(&self) -> Vec<(&'static str, i64)> {
        let known: HashMap<&str, i64> =
            self.recent.kinds.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
        let names = [
            ("new_host", "new hosts"),
            ("new_service", "new services"),
            ("new_client", "new clients"),
            ("banner_changed", "other software"),
            ("service_gone", "services gone"),
            ("service_back", "services back"),
        ];
        names.iter().filter_map(|(kind, words)| Some((*words, *known.get(kind)?))).collect()
    }
}
