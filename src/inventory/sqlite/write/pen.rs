//! One batch on its way into the tables.

use std::net::IpAddr;

use rusqlite::{Transaction, params};

use super::{Known, Memory, Row, millis, octets};
use crate::event::Side;
use crate::inventory::sighting::{Asset, Banner, Finding, Kind, Software, What};
use crate::inventory::store::Record;

/// Different banners of one service that are kept.
const BANNERS: i64 = 256;

/// A banner that was not said for so long is no longer what the service says, in milliseconds.
const OUTDATED: i64 = 3_600_000;

/// Writes records in a transaction.
pub(super) struct Pen<'a> {
    pub(super) transaction: &'a Transaction<'a>,
    pub(super) memory: &'a mut Memory,
    pub(super) sensor: i64,
    pub(super) once: bool,
    /// Services that say something else than before.
    changed: Vec<(i64, i64)>,
}

/// When, in milliseconds since the epoch, and how often.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) count: i64,
}

impl<'a> Pen<'a> {
    pub(super) fn new(
        transaction: &'a Transaction<'a>,
        memory: &'a mut Memory,
        sensor: i64,
        once: bool,
    ) -> Self {
        Self { transaction, memory, sensor, once, changed: Vec::new() }
    }

    pub(super) fn record(&mut self, record: &Record) -> rusqlite::Result<()> {
        let count = i64::try_from(record.count).unwrap_or(i64::MAX);
        let span = Span { first: millis(record.first), last: millis(record.last), count };
        match &record.what {
            What::Said(banner) => self.said(&record.asset, banner, &record.software, span).map(drop),
            What::Found(banner, finding) => {
                let silent = Span { count: 0, ..span };
                match self.said(&record.asset, banner, &record.software, silent)? {
                    Some((service, banner)) => self.found(service, banner, finding, span),
                    None => Ok(()),
                }
            }
            What::Met(client) => self.met(&record.asset, *client, span),
            What::Gone => self.gone(&record.asset, span),
        }
    }

    /// What services that say something else than before are no longer told of.
    pub(super) fn settle(&mut self) -> rusqlite::Result<()> {
        for (service, at) in std::mem::take(&mut self.changed) {
            let mut statement = self.transaction.prepare_cached(
                "UPDATE findings SET state = 'gone'
                 WHERE service = ?1 AND state = 'open' AND banner <> (SELECT banner FROM services WHERE id = ?1)
                 RETURNING rule",
            )?;
            let mut rules =
                statement.query_map([service], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
            rules.sort();
            rules.dedup();
            for rule in rules {
                if !self.is_open(service, &rule)? {
                    self.change(at, "finding_gone", service, (None, None), Some(&rule))?;
                }
            }
        }
        Ok(())
    }

    /// Enters what an asset said; gives the rows of service and banner, none where there is no room for them
    /// or where it was told before.
    fn said(
        &mut self,
        asset: &Asset,
        banner: &Banner,
        software: &Software,
        span: Span,
    ) -> rusqlite::Result<Option<(i64, i64)>> {
        let known = self.service(asset)?;
        let full = known.is_some_and(|known| known.banners >= BANNERS);
        let Some(text) = self.banner(asset, banner, software, !full)? else {
            self.leave_out(known, span)?;
            return Ok(None);
        };
        let known = match known {
            Some(known) => known,
            None => self.enter(asset, text, span)?,
        };
        let row = Row::Sighting { service: known.id, banner: text };
        if self.is_told(&row, span)? {
            return Ok(Some((known.id, text)));
        }
        match banner.kind {
            Kind::Banner => self.now_says(asset, known, text, banner.text.is_empty(), span)?,
            Kind::Hassh => self.now_exchanges(asset, known, text, span)?,
        }
        let mut statement = self.transaction.prepare_cached(
            "INSERT INTO sightings (service, banner, sensor, first_seen, last_seen, count)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT DO UPDATE SET first_seen = min(first_seen, excluded.first_seen),
               last_seen = max(last_seen, excluded.last_seen), count = count + excluded.count",
        )?;
        statement.execute(params![known.id, text, self.sensor, span.first, span.last, span.count])?;
        Ok(Some((known.id, text)))
    }

    fn leave_out(&mut self, known: Option<Known>, span: Span) -> rusqlite::Result<()> {
        let Some(known) = known else { return Ok(()) };
        let mut statement = self.transaction.prepare_cached(
            "UPDATE services SET left_out = left_out + ?2, last_seen = max(last_seen, ?3) WHERE id = ?1",
        )?;
        statement.execute(params![known.id, span.count, span.last]).map(drop)
    }

    /// A service says a banner now; whether that is a change is decided here.
    fn now_says(
        &mut self,
        asset: &Asset,
        known: Known,
        banner: i64,
        says_nothing: bool,
        span: Span,
    ) -> rusqlite::Result<()> {
        let mut next = known;
        if banner != known.banner {
            let before = self.said_before(known.id, banner)?;
            next.banners += i64::from(before.is_none());
            let is_newer = span.last >= known.last && !says_nothing;
            if is_newer && self.replaces(known, before, span)? {
                next.banner = banner;
            }
        }
        if next.banner != known.banner && asset.side == Side::Server {
            self.changed.push((known.id, span.last));
            if !self.says_nothing(known.banner)? {
                self.change(span.last, "banner_changed", known.id, (Some(known.banner), Some(banner)), None)?;
            }
        }
        if known.gone && span.last >= known.last {
            self.change(span.last, "service_back", known.id, (None, Some(next.banner)), None)?;
            next.gone = false;
        }
        next.last = next.last.max(span.last);
        let mut statement = self.transaction.prepare_cached(
            "UPDATE services SET banner = ?2, banners = ?3, state = ?4, first_seen = min(first_seen, ?5),
               last_seen = max(last_seen, ?6) WHERE id = ?1",
        )?;
        let state = if next.gone { "gone" } else { "open" };
        statement.execute(params![known.id, next.banner, next.banners, state, span.first, span.last])?;
        self.remember(asset, next);
        Ok(())
    }

    /// Whether a banner stands for another one from now on: one that was never said; one that was said before
    /// the other one, and no more since; one that is said while the other one is no longer. Servers behind one
    /// address that say this and that by turns do not change.
    fn replaces(&self, known: Known, before: Option<i64>, span: Span) -> rusqlite::Result<bool> {
        let Some(before) = before else { return Ok(true) };
        let mut statement = self.transaction.prepare_cached(
            "SELECT min(first_seen), max(last_seen) FROM sightings WHERE service = ?1 AND banner = ?2",
        )?;
        let (first, last): (Option<i64>, Option<i64>) =
            statement.query_row(params![known.id, known.banner], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(first.is_none_or(|first| before < first)
            || last.is_none_or(|last| last.saturating_add(OUTDATED) < span.last))
    }

    /// When a service was last heard to say a banner.
    fn said_before(&self, service: i64, banner: i64) -> rusqlite::Result<Option<i64>> {
        let mut statement = self
            .transaction
            .prepare_cached("SELECT max(last_seen) FROM sightings WHERE service = ?1 AND banner = ?2")?;
        statement.query_row(params![service, banner], |row| row.get(0))
    }

    fn says_nothing(&self, banner: i64) -> rusqlite::Result<bool> {
        let mut statement = self.transaction.prepare_cached("SELECT text = '' FROM banners WHERE id = ?1")?;
        statement.query_row([banner], |row| row.get(0))
    }

    fn now_exchanges(&mut self, asset: &Asset, known: Known, hassh: i64, span: Span) -> rusqlite::Result<()> {
        if known.hassh == Some(hassh) || span.last < known.last {
            return Ok(());
        }
        if known.hassh.is_some() && asset.side == Side::Server {
            self.change(span.last, "hassh_changed", known.id, (known.hassh, Some(hassh)), None)?;
        }
        let banners = known.banners + i64::from(self.said_before(known.id, hassh)?.is_none());
        let mut statement =
            self.transaction.prepare_cached("UPDATE services SET hassh = ?2, banners = ?3 WHERE id = ?1")?;
        statement.execute(params![known.id, hassh, banners])?;
        self.remember(asset, Known { hassh: Some(hassh), banners, ..known });
        Ok(())
    }

    fn found(&mut self, service: i64, banner: i64, finding: &Finding, span: Span) -> rusqlite::Result<()> {
        let row = Row::Finding { service, banner, rule: finding.rule.clone() };
        if self.is_told(&row, span)? {
            return Ok(());
        }
        let was_open = self.is_open(service, &finding.rule)?;
        let blocked = if finding.blocked { span.count } else { 0 };
        let mut statement = self.transaction.prepare_cached(
            "INSERT INTO findings (service, rule, banner, sensor, title, severity, action, verdict, first_seen,
               last_seen, count, blocked) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
             ON CONFLICT DO UPDATE SET title = excluded.title, severity = excluded.severity,
               action = excluded.action, verdict = excluded.verdict, state = 'open', first_seen = min(first_seen, excluded.first_seen),
               last_seen = max(last_seen, excluded.last_seen), count = count + excluded.count,
               blocked = blocked + excluded.blocked",
        )?;
        statement.execute(params![
            service,
            finding.rule,
            banner,
            self.sensor,
            finding.title,
            finding.severity,
            finding.action,
            finding.verdict,
            span.first,
            span.last,
            span.count,
            blocked
        ])?;
        if was_open {
            return Ok(());
        }
        self.change(span.last, "finding_new", service, (None, Some(banner)), Some(&finding.rule))
    }

    fn is_open(&self, service: i64, rule: &str) -> rusqlite::Result<bool> {
        let mut statement = self
            .transaction
            .prepare_cached("SELECT 1 FROM findings WHERE service = ?1 AND rule = ?2 AND state = 'open'")?;
        statement.exists(params![service, rule])
    }

    /// A client came to a service; of one that never answered nothing is kept.
    fn met(&mut self, asset: &Asset, client: IpAddr, span: Span) -> rusqlite::Result<()> {
        let Some(known) = self.service(asset)? else { return Ok(()) };
        let (client, _) = self.host(client, span)?;
        if self.is_told(&Row::Contact { service: known.id, client }, span)? {
            return Ok(());
        }
        let mut statement = self.transaction.prepare_cached(
            "INSERT INTO contacts (service, client, sensor, first_seen, last_seen, count)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT DO UPDATE SET first_seen = min(first_seen, excluded.first_seen),
               last_seen = max(last_seen, excluded.last_seen), count = count + excluded.count",
        )?;
        statement.execute(params![known.id, client, self.sensor, span.first, span.last, span.count]).map(drop)
    }

    /// Whatever was at a port was asked and did not accept.
    fn gone(&mut self, asset: &Asset, span: Span) -> rusqlite::Result<()> {
        let mut statement = self.transaction.prepare_cached(
            "UPDATE services SET state = 'gone'
             WHERE host = (SELECT id FROM hosts WHERE octets = ?1) AND side = 'server' AND port = ?2
               AND state = 'open' AND last_seen < ?3
             RETURNING id, banner",
        )?;
        let gone = statement
            .query_map(params![octets(asset.address), asset.port, span.last], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
            })?
            .collect::<Result<Vec<_>, _>>()?;
        for (service, banner) in gone {
            self.change(span.last, "service_gone", service, (Some(banner), None), None)?;
        }
        let at_port = |known: &Asset| known.address == asset.address && known.port == asset.port;
        self.memory.services.retain(|known, _| !at_port(known));
        Ok(())
    }

    pub(super) fn change(
        &self,
        at: i64,
        kind: &str,
        service: i64,
        (old, new): (Option<i64>, Option<i64>),
        rule: Option<&str>,
    ) -> rusqlite::Result<()> {
        let mut statement = self.transaction.prepare_cached(
            "INSERT INTO changes (at, kind, service, old, new, rule, sensor) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        statement.execute(params![at, kind, service, old, new, rule, self.sensor]).map(drop)
    }
}
