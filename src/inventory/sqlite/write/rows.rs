//! Rows of hosts, services and banners: found, or entered.

use std::net::IpAddr;

use rusqlite::{OptionalExtension as _, params};

use super::pen::{Pen, Span};
use super::{Known, Row, octets};
use crate::event::Side;
use crate::inventory::sighting::{Asset, Banner, Software, UNKNOWN};

impl Pen<'_> {
    /// The row of an asset, where there is one. An open port that says nothing is whatever is known to be there.
    pub(super) fn service(&mut self, asset: &Asset) -> rusqlite::Result<Option<Known>> {
        if let Some(known) = self.memory.services.get(asset) {
            return Ok(Some(*known));
        }
        let mut statement = self.transaction.prepare_cached(
            "SELECT services.id, banner, hassh, last_seen, state = 'gone', banners, protocol
             FROM services JOIN hosts ON hosts.id = host
             WHERE octets = ?1 AND side = ?2 AND port = ?3 AND (protocol IN (?4, ?5) OR ?4 = ?5)
             ORDER BY protocol = ?4 DESC, last_seen DESC LIMIT 1",
        )?;
        let values = params![octets(asset.address), asset.side.name(), asset.port, asset.protocol, UNKNOWN];
        let found = statement
            .query_row(values, |row| {
                let known = Known {
                    id: row.get(0)?,
                    banner: row.get(1)?,
                    hassh: row.get(2)?,
                    last: row.get(3)?,
                    gone: row.get(4)?,
                    banners: row.get(5)?,
                };
                Ok((known, row.get::<_, String>(6)?))
            })
            .optional()?;
        let Some((known, protocol)) = found else { return Ok(None) };
        if protocol == UNKNOWN && asset.protocol != UNKNOWN {
            let mut statement =
                self.transaction.prepare_cached("UPDATE services SET protocol = ?2 WHERE id = ?1")?;
            statement.execute(params![known.id, asset.protocol])?;
            self.memory.services.remove(&Asset { protocol: UNKNOWN, ..asset.clone() });
        }
        // What speaks something else is remembered by that alone.
        if protocol == asset.protocol || protocol == UNKNOWN {
            self.memory.services.insert(asset.clone(), known);
        }
        Ok(Some(known))
    }

    /// Keeps in mind how the row of an asset stands now, where it is the asset's own.
    pub(super) fn remember(&mut self, asset: &Asset, now: Known) {
        if let Some(known) = self.memory.services.get_mut(asset) {
            *known = now;
        }
    }

    /// Enters a new asset that said `banner`.
    pub(super) fn enter(&mut self, asset: &Asset, banner: i64, span: Span) -> rusqlite::Result<Known> {
        let (host, is_new_host) = self.host(asset.address, span)?;
        let mut statement = self.transaction.prepare_cached(
            "INSERT INTO services (host, side, port, protocol, banner, first_seen, last_seen)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        let id = statement.insert(params![
            host,
            asset.side.name(),
            asset.port,
            asset.protocol,
            banner,
            span.first,
            span.last
        ])?;
        if is_new_host {
            self.change(span.first, "new_host", id, (None, None), None)?;
        }
        let kind = if asset.side == Side::Server { "new_service" } else { "new_client" };
        self.change(span.first, kind, id, (None, Some(banner)), None)?;
        let known = Known { id, banner, hassh: None, last: span.last, gone: false, banners: 1 };
        self.memory.services.insert(asset.clone(), known);
        Ok(known)
    }

    /// The row of a host, and whether it is new.
    pub(super) fn host(&mut self, address: IpAddr, span: Span) -> rusqlite::Result<(i64, bool)> {
        if let Some(id) = self.memory.hosts.get(&address) {
            return Ok((*id, false));
        }
        let octets = octets(address);
        let mut statement = self.transaction.prepare_cached("SELECT id FROM hosts WHERE octets = ?1")?;
        let found = statement.query_row([&octets], |row| row.get(0)).optional()?;
        let (id, is_new) = match found {
            Some(id) => (id, false),
            None => {
                let mut statement = self
                    .transaction
                    .prepare_cached("INSERT INTO hosts (octets, address, first_seen) VALUES (?1, ?2, ?3)")?;
                (statement.insert(params![octets, address.to_string(), span.first])?, true)
            }
        };
        self.memory.hosts.insert(address, id);
        Ok((id, is_new))
    }

    /// The row of a banner; a new one is entered only where there is `room`.
    pub(super) fn banner(
        &mut self,
        asset: &Asset,
        banner: &Banner,
        software: &Software,
        room: bool,
    ) -> rusqlite::Result<Option<i64>> {
        let key = (asset.protocol, asset.side.name(), banner.clone());
        if let Some(id) = self.memory.banners.get(&key) {
            return Ok(Some(*id));
        }
        let mut statement = self.transaction.prepare_cached(
            "SELECT id FROM banners WHERE protocol = ?1 AND side = ?2 AND kind = ?3 AND text = ?4",
        )?;
        let found: Option<i64> = statement
            .query_row(params![key.0, key.1, banner.kind.name(), banner.text], |row| row.get(0))
            .optional()?;
        if found.is_none() && !room {
            return Ok(None);
        }
        let product = &software.product;
        let mut statement = self.transaction.prepare_cached(
            "INSERT INTO banners (protocol, side, kind, text, vendor, product, version, cpe, os, patch)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
             ON CONFLICT DO UPDATE SET vendor = coalesce(excluded.vendor, vendor),
               product = CASE WHEN excluded.cpe IS NULL THEN coalesce(product, excluded.product) ELSE excluded.product END,
               version = CASE WHEN excluded.cpe IS NULL THEN coalesce(version, excluded.version) ELSE excluded.version END,
               cpe = coalesce(excluded.cpe, cpe), os = coalesce(excluded.os, os)
             RETURNING id",
        )?;
        let id = statement.query_row(
            params![
                key.0,
                key.1,
                banner.kind.name(),
                banner.text,
                product.vendor,
                product.product,
                product.version,
                product.cpe,
                product.os,
                software.patch
            ],
            |row| row.get(0),
        )?;
        self.memory.banners.insert(key, id);
        Ok(Some(id))
    }

    /// Whether this very thing was told before this run, which then is not to be counted again.
    pub(super) fn is_told(&mut self, row: &Row, span: Span) -> rusqlite::Result<bool> {
        if !self.once {
            return Ok(false);
        }
        let known = match self.memory.told.get(row) {
            Some(known) => *known,
            None => {
                let known = self.times(row)?;
                self.memory.told.insert(row.clone(), known);
                known
            }
        };
        Ok(known.is_some_and(|(first, last)| first <= span.first && span.last <= last))
    }

    fn times(&self, row: &Row) -> rusqlite::Result<Option<(i64, i64)>> {
        let times = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let prepare = |text| self.transaction.prepare_cached(text);
        match row {
            Row::Sighting { service, banner } => prepare(
                "SELECT first_seen, last_seen FROM sightings WHERE service = ?1 AND banner = ?2 AND sensor = ?3",
            )?
            .query_row(params![service, banner, self.sensor], times),
            Row::Finding { service, banner, rule } => prepare(
                "SELECT first_seen, last_seen FROM findings
                 WHERE service = ?1 AND banner = ?2 AND sensor = ?3 AND rule = ?4",
            )?
            .query_row(params![service, banner, self.sensor, rule], times),
            Row::Contact { service, client } => prepare(
                "SELECT first_seen, last_seen FROM contacts WHERE service = ?1 AND client = ?2 AND sensor = ?3",
            )?
            .query_row(params![service, client, self.sensor], times),
        }
        .optional()
    }
}
