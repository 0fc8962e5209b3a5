//! Writes the records of one batch into the tables.

use std::net::{IpAddr, SocketAddr};

use ahash::AHashMap;

use super::row_cache::{CountedRow, KnownService, RowCache};
use super::rule_totals::RuleTotals;
use super::sighting_span::SightingSpan;
use crate::database::{DatabaseConnection, DatabaseError, values};
use crate::event::Side;
use crate::inventory::inventory_time::millis;
use crate::inventory::sighting::{AssetBanner, AssetKey, BannerKind, NamedSoftware, SightingContent};
use crate::inventory::store::SightingRecord;

/// Largest number of different banners of one service that are kept.
const BANNERS: i64 = 256;

/// Time after which an unseen banner is no longer the service's current one, in milliseconds.
const OUTDATED: i64 = 3_600_000;

/// Inserts a change. One statement serves all, so that numbers keep their order.
pub(super) const CHANGE: &str = "INSERT INTO changes (at, kind, service, old, new, rule, why, sensor)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// Writes records in a transaction.
pub(super) struct BatchWriter<'a> {
    pub(super) link: &'a DatabaseConnection,
    pub(super) memory: &'a mut RowCache,
    pub(super) sensor: i64,
    /// Services whose banner has changed.
    pub(super) changed: Vec<(i64, i64)>,
    /// Numbers that this batch adds to rules.
    pub(super) totals: AHashMap<String, RuleTotals>,
}

impl RowCache {
    /// Writes a batch in an open transaction, in which no other process writes.
    pub(super) fn write(
        &mut self,
        link: &DatabaseConnection,
        batch: &[SightingRecord],
        sensor: i64,
    ) -> Result<(), DatabaseError> {
        if let DatabaseConnection::Postgres(_) = link {
            link.look_up_by_keys()?;
            self.look_up(link, batch, sensor)?;
        }
        let mut pen = BatchWriter::new(link, self, sensor);
        batch.iter().try_for_each(|record| pen.record(record))?;
        pen.settle()
    }
}

impl<'a> BatchWriter<'a> {
    pub(super) fn new(link: &'a DatabaseConnection, memory: &'a mut RowCache, sensor: i64) -> Self {
        Self { link, memory, sensor, changed: Vec::new(), totals: AHashMap::new() }
    }

    pub(super) fn record(&mut self, record: &SightingRecord) -> Result<(), DatabaseError> {
        let count = i64::try_from(record.count).unwrap_or(i64::MAX);
        let span = SightingSpan { first: millis(record.first), last: millis(record.last), count };
        match &record.what {
            SightingContent::Said(banner) => {
                self.said(&record.asset, banner, &record.software, span).map(drop)
            }
            SightingContent::Found(banner, finding) => {
                let silent = SightingSpan { count: 0, ..span };
                match self.said(&record.asset, banner, &record.software, silent)? {
                    Some((service, banner)) => self.found(service, banner, finding, span),
                    None => Ok(()),
                }
            }
            SightingContent::Met(client) => self.record_contact(&record.asset, *client, span),
            SightingContent::SaidTo(banner, peer, rule) => {
                self.record_peer(&record.asset, banner, (*peer, rule), span)
            }
            SightingContent::Gone => self.mark_port_gone(&record.asset, span),
        }
    }

    /// Records a banner of an asset; returns the rows of service and banner. Returns none if there is no
    /// space for them, or if it was recorded before.
    fn said(
        &mut self,
        asset: &AssetKey,
        banner: &AssetBanner,
        software: &NamedSoftware,
        span: SightingSpan,
    ) -> Result<Option<(i64, i64)>, DatabaseError> {
        let known = self.service(asset)?;
        let full = known.is_some_and(|known| known.banners >= BANNERS);
        let Some(text) = self.banner(asset, banner, software, !full)? else {
            self.leave_out(known, span)?;
            return Ok(None);
        };
        let is_new = known.is_none();
        let known = match known {
            Some(known) => {
                self.host(asset.address, span)?;
                known
            }
            None => self.enter(asset, (text, banner.text.is_empty()), span)?,
        };
        let row = CountedRow::Sighting { service: known.id, banner: text };
        if self.was_counted(&row, span)? {
            return Ok(Some((known.id, text)));
        }
        match banner.kind {
            // It was inserted together with the service.
            BannerKind::Banner if is_new => {}
            BannerKind::Banner => self.set_banner(asset, known, text, banner.text.is_empty(), span)?,
            BannerKind::Hassh => self.set_hassh(asset, known, text, span)?,
            BannerKind::Certificate => self.set_certificate(asset, known, (text, &banner.text), span)?,
            BannerKind::HostKey => self.set_host_key(asset, known, (text, &banner.text), span)?,
        }
        let query = "INSERT INTO sightings (service, banner, sensor, first_seen, last_seen, count)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (service, banner, sensor) DO UPDATE SET
               first_seen = min(sightings.first_seen, excluded.first_seen),
               last_seen = max(sightings.last_seen, excluded.last_seen), count = sightings.count + excluded.count";
        self.link.queue(query, values![known.id, text, self.sensor, span.first, span.last, span.count])?;
        self.memory.ahead.cache_sighting(known.id, text, span);
        Ok(Some((known.id, text)))
    }

    fn leave_out(&mut self, known: Option<KnownService>, span: SightingSpan) -> Result<(), DatabaseError> {
        let Some(known) = known else { return Ok(()) };
        let query =
            "UPDATE services SET left_out = left_out + ?2, last_seen = max(last_seen, ?3) WHERE id = ?1";
        self.link.queue(query, values![known.id, span.count, span.last])
    }

    /// Sets the current banner of a service, and decides whether that is a change.
    fn set_banner(
        &mut self,
        asset: &AssetKey,
        known: KnownService,
        banner: i64,
        says_nothing: bool,
        span: SightingSpan,
    ) -> Result<(), DatabaseError> {
        let mut next = known;
        if banner != known.banner {
            let before = self.said_before(known.id, banner)?;
            next.banners += i64::from(before.is_none());
            let is_newer = span.last >= known.last && !says_nothing;
            if is_newer && self.replaces(known, before, span)? {
                (next.banner, next.says_nothing) = (banner, says_nothing);
            }
        }
        if next.banner != known.banner && asset.side == Side::Server {
            self.changed.push((known.id, span.last));
            if !known.says_nothing {
                self.change(span.last, "banner_changed", known.id, (Some(known.banner), Some(banner)), None)?;
            }
        }
        if known.gone && span.last >= known.last {
            self.change(span.last, "service_back", known.id, (None, Some(next.banner)), None)?;
            next.gone = false;
        }
        next.last = next.last.max(span.last);
        let query =
            "UPDATE services SET banner = ?2, banners = banners + ?3, state = ?4, first_seen = min(first_seen, ?5),
               last_seen = max(last_seen, ?6) WHERE id = ?1";
        let state = if next.gone { "gone" } else { "open" };
        let more = next.banners - known.banners;
        self.link.queue(query, values![known.id, next.banner, more, state, span.first, span.last])?;
        self.remember(asset, next);
        Ok(())
    }

    /// Returns true if a banner replaces the current one: if it was never seen; if it was last seen
    /// before the current one; or if the current one is outdated. Servers behind one address that
    /// alternate between two banners do not cause changes.
    fn replaces(
        &self,
        known: KnownService,
        before: Option<i64>,
        span: SightingSpan,
    ) -> Result<bool, DatabaseError> {
        let Some(before) = before else { return Ok(true) };
        let (first, last) = self.heard(known.id, known.banner)?.unzip();
        Ok(first.is_none_or(|first| before < first)
            || last.is_none_or(|last| last.saturating_add(OUTDATED) < span.last))
    }

    /// Returns the last sighting of a service's banner.
    fn said_before(&self, service: i64, banner: i64) -> Result<Option<i64>, DatabaseError> {
        Ok(self.heard(service, banner)?.map(|(_, last)| last))
    }

    /// Returns first and last sighting of a service's banner.
    fn heard(&self, service: i64, banner: i64) -> Result<Option<(i64, i64)>, DatabaseError> {
        if let Some(heard) = self.memory.ahead.cached_sighting(service, banner) {
            return Ok(heard);
        }
        let query =
            "SELECT min(first_seen), max(last_seen) FROM sightings WHERE service = ?1 AND banner = ?2";
        self.link.sole(query, values![service, banner], |row| Ok(row.get::<Option<i64>>(0)?.zip(row.get(1)?)))
    }

    fn set_hassh(
        &mut self,
        asset: &AssetKey,
        known: KnownService,
        hassh: i64,
        span: SightingSpan,
    ) -> Result<(), DatabaseError> {
        if known.hassh == Some(hassh) || span.last < known.last {
            return Ok(());
        }
        if known.hassh.is_some() && asset.side == Side::Server {
            self.change(span.last, "hassh_changed", known.id, (known.hassh, Some(hassh)), None)?;
        }
        let more = i64::from(self.said_before(known.id, hassh)?.is_none());
        let query = "UPDATE services SET hassh = ?2, banners = banners + ?3 WHERE id = ?1";
        self.link.queue(query, values![known.id, hassh, more])?;
        self.remember(asset, KnownService { hassh: Some(hassh), banners: known.banners + more, ..known });
        Ok(())
    }

    /// Sets the current host key of a server. A server may have one of each type and shows only one: a
    /// key of a new type is new; a key of another type than the last one is compared with the earlier key
    /// of its own type.
    fn set_host_key(
        &mut self,
        asset: &AssetKey,
        known: KnownService,
        (key, text): (i64, &str),
        span: SightingSpan,
    ) -> Result<(), DatabaseError> {
        if known.host_key == Some(key) || span.last < known.last {
            return Ok(());
        }
        if let Some(last) = known.host_key {
            let (kind, old) = match self.key_before(known.id, text)? {
                Some(old) => ("host_key_changed", old),
                None => ("new_host_key", last),
            };
            if old != key {
                self.change(span.last, kind, known.id, (Some(old), Some(key)), None)?;
            }
        }
        let more = i64::from(self.said_before(known.id, key)?.is_none());
        let query = "UPDATE services SET host_key = ?2, banners = banners + ?3 WHERE id = ?1";
        self.link.queue(query, values![known.id, key, more])?;
        self.remember(asset, KnownService { host_key: Some(key), banners: known.banners + more, ..known });
        Ok(())
    }

    /// Returns the last key of a service with the type of a text.
    fn key_before(&self, service: i64, text: &str) -> Result<Option<i64>, DatabaseError> {
        let kind = |text: &str| text.split_once(' ').map(|(_, kind)| kind.to_owned());
        let query = "SELECT b.id, b.text FROM sightings s JOIN banners b ON b.id = s.banner
             WHERE s.service = ?1 AND b.kind = 'host_key' ORDER BY s.last_seen DESC, b.id DESC";
        let keys = self.link.all(query, values![service], |row| Ok((row.get(0)?, row.get::<String>(1)?)))?;
        Ok(keys.into_iter().find(|(_, known)| kind(known) == kind(text)).map(|(id, _)| id))
    }

    /// Sets the current certificate of a server. One address may show another one for each requested
    /// name. So it is a change only if the new one has the same subject, or if the old one is outdated.
    fn set_certificate(
        &mut self,
        asset: &AssetKey,
        known: KnownService,
        (certificate, text): (i64, &str),
        span: SightingSpan,
    ) -> Result<(), DatabaseError> {
        if known.certificate == Some(certificate) || span.last < known.last {
            return Ok(());
        }
        let before = self.said_before(known.id, certificate)?;
        let more = i64::from(before.is_none());
        let mut next = KnownService { banners: known.banners + more, ..known };
        let changes =
            known.certificate.map(|old| self.is_renewed((old, text), before, known, span)).transpose()?;
        if changes != Some(false) {
            next.certificate = Some(certificate);
        }
        if changes == Some(true) {
            let change = (known.certificate, Some(certificate));
            self.change(span.last, "certificate_changed", known.id, change, None)?;
        }
        let query = "UPDATE services SET certificate = ?2, banners = banners + ?3 WHERE id = ?1";
        self.link.queue(query, values![known.id, next.certificate, more])?;
        self.remember(asset, next);
        Ok(())
    }

    /// Returns true if a certificate replaces the one before.
    fn is_renewed(
        &self,
        (old, text): (i64, &str),
        before: Option<i64>,
        known: KnownService,
        span: SightingSpan,
    ) -> Result<bool, DatabaseError> {
        let subject = |text: &str| text.split_once(' ').map(|(_, subject)| subject.to_owned());
        let query = "SELECT text FROM banners WHERE id = ?1";
        let old_text: Option<String> = self.link.one(query, values![old], |row| row.get(0))?;
        let is_same = old_text.is_some_and(|old_text| subject(&old_text) == subject(text));
        if before.is_none() && is_same {
            return Ok(true);
        }
        let last = self.said_before(known.id, old)?;
        Ok(last.is_none_or(|last| last.saturating_add(OUTDATED) < span.last))
    }

    /// Records that a client spoke to a port that has not answered yet, and may be no service.
    fn record_unanswered(
        &mut self,
        asset: &AssetKey,
        client: IpAddr,
        span: SightingSpan,
    ) -> Result<(), DatabaseError> {
        let server = SocketAddr::new(asset.address, asset.port);
        if self.was_counted(&CountedRow::Unanswered { server, protocol: asset.protocol, client }, span)? {
            return Ok(());
        }
        let query =
            "INSERT INTO unanswered (octets, address, port, protocol, client, sensor, first_seen, last_seen, count)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT (octets, port, protocol, client, sensor) DO UPDATE SET
               first_seen = min(unanswered.first_seen, excluded.first_seen),
               last_seen = max(unanswered.last_seen, excluded.last_seen),
               count = unanswered.count + excluded.count";
        let (address, text, port) = (asset.address, asset.address.to_string(), asset.port);
        let SightingSpan { first, last, count } = span;
        let values = values![address, text, port, asset.protocol, client, self.sensor, first, last, count];
        self.link.queue(query, values)
    }

    /// Records a connection of a client to a service.
    fn record_contact(
        &mut self,
        asset: &AssetKey,
        client: IpAddr,
        span: SightingSpan,
    ) -> Result<(), DatabaseError> {
        let Some(known) = self.service(asset)? else { return self.record_unanswered(asset, client, span) };
        let (client, _) = self.host(client, span)?;
        if self.was_counted(&CountedRow::Contact { service: known.id, client }, span)? {
            return Ok(());
        }
        let query = "INSERT INTO contacts (service, client, sensor, first_seen, last_seen, count)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (service, client, sensor) DO UPDATE SET
               first_seen = min(contacts.first_seen, excluded.first_seen),
               last_seen = max(contacts.last_seen, excluded.last_seen), count = contacts.count + excluded.count";
        self.link.queue(query, values![known.id, client, self.sensor, span.first, span.last, span.count])
    }

    /// Records connections in which an asset sent a banner to a peer, and the rule that matched, if there
    /// is one.
    fn record_peer(
        &mut self,
        asset: &AssetKey,
        banner: &AssetBanner,
        (peer, rule): (SocketAddr, &str),
        span: SightingSpan,
    ) -> Result<(), DatabaseError> {
        let Some(known) = self.service(asset)? else { return Ok(()) };
        let has_room = known.banners < BANNERS;
        let Some(banner) = self.banner(asset, banner, &NamedSoftware::default(), has_room)? else {
            return Ok(());
        };
        let row = CountedRow::Peer { service: known.id, banner, peer, rule: rule.to_owned() };
        if self.was_counted(&row, span)? {
            return Ok(());
        }
        let query =
            "INSERT INTO banner_peers (service, banner, rule, peer, port, sensor, first_seen, last_seen, count)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT (service, banner, rule, peer, port, sensor) DO UPDATE SET
               first_seen = min(banner_peers.first_seen, excluded.first_seen),
               last_seen = max(banner_peers.last_seen, excluded.last_seen),
               count = banner_peers.count + excluded.count";
        let (address, port) = (peer.ip(), peer.port());
        let SightingSpan { first, last, count } = span;
        self.link
            .queue(query, values![known.id, banner, rule, address, port, self.sensor, first, last, count])
    }

    /// Records a refused connection: all services at the port are gone.
    fn mark_port_gone(&mut self, asset: &AssetKey, span: SightingSpan) -> Result<(), DatabaseError> {
        let query = "UPDATE services SET state = 'gone'
             WHERE host = (SELECT id FROM hosts WHERE octets = ?1) AND side = 'server' AND port = ?2
               AND state = 'open' AND last_seen < ?3
             RETURNING id, banner";
        let gone = self.link.all(query, values![asset.address, asset.port, span.last], |row| {
            Ok((row.get::<i64>(0)?, row.get::<i64>(1)?))
        })?;
        for (service, banner) in gone {
            let (old, none) = (Some(banner), None::<i64>);
            self.link.queue(
                CHANGE,
                values![span.last, "service_gone", service, old, none, none, "refused", self.sensor],
            )?;
        }
        let at_port = |known: &AssetKey| known.address == asset.address && known.port == asset.port;
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
    ) -> Result<(), DatabaseError> {
        self.link.queue(CHANGE, values![at, kind, service, old, new, rule, None::<&str>, self.sensor])
    }
}
