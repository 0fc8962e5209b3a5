//! Findings of rules: of each service, and in sum.

use std::collections::BTreeSet;

use ahash::AHashMap;

use super::batch_writer::BatchWriter;
use super::row_cache::CountedRow;
use super::sighting_span::SightingSpan;
use crate::database::{DatabaseError, QueryRow, values};
use crate::inventory::sighting::RuleFinding;

impl BatchWriter<'_> {
    /// Records a match of a rule for a service's banner.
    pub(super) fn found(
        &mut self,
        service: i64,
        banner: i64,
        finding: &RuleFinding,
        span: SightingSpan,
    ) -> Result<(), DatabaseError> {
        let row = CountedRow::Finding { service, banner, rule: finding.rule.clone() };
        if self.was_counted(&row, span)? {
            return Ok(());
        }
        let before = self.state(service, &finding.rule)?;
        let blocked = if finding.blocked { span.count } else { 0 };
        self.link.queue(
            "INSERT INTO findings (service, rule, banner, sensor, title, severity, action, verdict, first_seen,
               last_seen, count, blocked) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
             ON CONFLICT (service, rule, banner, sensor) DO UPDATE SET title = excluded.title,
               severity = excluded.severity, action = excluded.action, verdict = excluded.verdict, state = 'open',
               first_seen = min(findings.first_seen, excluded.first_seen),
               last_seen = max(findings.last_seen, excluded.last_seen), count = findings.count + excluded.count,
               blocked = findings.blocked + excluded.blocked",
            values![
                service,
                &finding.rule,
                banner,
                self.sensor,
                &finding.title,
                finding.severity,
                finding.action,
                finding.verdict,
                span.first,
                span.last,
                span.count,
                blocked
            ],
        )?;
        self.memory.ahead.cache_finding(service, &finding.rule);
        let is_new = before != Some(true);
        let tally = self.totals.entry(finding.rule.clone()).or_default();
        (tally.title, tally.severity) = (finding.title.clone(), finding.severity);
        tally.services += i64::from(is_new);
        tally.gone -= i64::from(is_new && before.is_some());
        tally.count += span.count;
        tally.blocked += blocked;
        let (first, last) = tally.times.unwrap_or((span.first, span.last));
        tally.times = Some((first.min(span.first), last.max(span.last)));
        if is_new {
            self.change(span.last, "finding_new", service, (None, Some(banner)), Some(&finding.rule))?;
        }
        Ok(())
    }

    /// Closes the findings of services whose banner has changed, and writes the sums of rules.
    pub(super) fn settle(&mut self) -> Result<(), DatabaseError> {
        let changed = std::mem::take(&mut self.changed);
        let services: Vec<i64> = changed.iter().map(|(service, _)| *service).collect();
        let ended = "UPDATE findings SET state = 'gone'
             WHERE service = ANY(?1) AND state = 'open' AND banner <> (SELECT banner FROM services WHERE id = service)
             RETURNING service, rule";
        let read = |row: &QueryRow<'_>| Ok((row.get::<i64>(0)?, row.get::<String>(1)?));
        let mut gone: AHashMap<i64, BTreeSet<String>> = AHashMap::new();
        for (service, rule) in self.link.query_each(ended, &services, read)? {
            gone.entry(service).or_default().insert(rule);
        }
        let affected: Vec<i64> = gone.keys().copied().collect();
        let open = "SELECT service, rule FROM findings WHERE service = ANY(?1) AND state = 'open'";
        for (service, rule) in self.link.query_each(open, &affected, read)? {
            gone.entry(service).or_default().remove(&rule);
        }
        for (service, at) in changed {
            for rule in gone.remove(&service).unwrap_or_default() {
                self.change(at, "finding_gone", service, (None, None), Some(&rule))?;
                let tally = self.totals.entry(rule).or_default();
                (tally.services, tally.gone) = (tally.services - 1, tally.gone + 1);
            }
        }
        for (rule, tally) in std::mem::take(&mut self.totals) {
            tally.write(self.link, &rule)?;
        }
        Ok(())
    }

    /// Returns whether a service has an open finding of a rule, or had one.
    fn state(&self, service: i64, rule: &str) -> Result<Option<bool>, DatabaseError> {
        if let Some(known) = self.memory.ahead.cached_finding(service, rule) {
            return Ok(known);
        }
        // Of both words, the greater one is `open`.
        let query = "SELECT max(state) = 'open' FROM findings WHERE service = ?1 AND rule = ?2";
        self.link.sole(query, values![service, rule], |row| row.get(0))
    }
}
