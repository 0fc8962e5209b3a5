//! Rows of hosts, services and banners: finds or inserts them.

use std::net::IpAddr;

use super::batch_writer::BatchWriter;
use super::row_cache::{CountedRow, KnownHost, KnownService};
use super::sighting_span::SightingSpan;
use crate::database::{DatabaseError, NumberedTable, SqlParameter, values};
use crate::event::Side;
use crate::inventory::sighting::{AssetBanner, AssetKey, NamedSoftware, UNKNOWN};

impl BatchWriter<'_> {
    /// Returns the row of an asset, if there is one. An open port without a banner counts as any service
    /// that is known there.
    pub(super) fn service(&mut self, asset: &AssetKey) -> Result<Option<KnownService>, DatabaseError> {
        if let Some(known) = self.memory.services.get(asset) {
            return Ok(Some(*known));
        }
        if self.memory.ahead.has_no_service(asset) {
            return Ok(None);
        }
        let query =
            "SELECT services.id, banner, hassh, certificate, host_key, last_seen, state = 'gone', banners,
               coalesce((SELECT text = '' FROM banners WHERE id = banner), true), protocol
             FROM services JOIN hosts ON hosts.id = host
             WHERE octets = ?1 AND side = ?2 AND port = ?3 AND (protocol IN (?4, ?5) OR ?4 = ?5)
             ORDER BY protocol = ?4 DESC, last_seen DESC LIMIT 1";
        let values = values![asset.address, asset.side.name(), asset.port, asset.protocol, UNKNOWN];
        let found =
            self.link.one(query, values, |row| Ok((KnownService::read(row)?, row.get::<String>(9)?)))?;
        let Some((known, protocol)) = found else { return Ok(None) };
        if protocol == UNKNOWN && asset.protocol != UNKNOWN {
            self.link.queue(
                "UPDATE services SET protocol = ?2 WHERE id = ?1",
                values![known.id, asset.protocol],
            )?;
            self.memory.services.remove(&AssetKey { protocol: UNKNOWN, ..asset.clone() });
        }
        // A service with another protocol is cached under its own protocol only.
        if protocol == asset.protocol || protocol == UNKNOWN {
            self.memory.services.insert(asset.clone(), known);
        }
        Ok(Some(known))
    }

    /// Caches the row of an asset, if it is the asset's own.
    pub(super) fn remember(&mut self, asset: &AssetKey, now: KnownService) {
        if let Some(known) = self.memory.services.get_mut(asset) {
            *known = now;
        }
    }

    /// Inserts a new asset with a banner, which may be empty.
    pub(super) fn enter(
        &mut self,
        asset: &AssetKey,
        (banner, says_nothing): (i64, bool),
        span: SightingSpan,
    ) -> Result<KnownService, DatabaseError> {
        let (host, is_new_host) = self.host(asset.address, span)?;
        let id = self.link.queue_insert(
            NumberedTable::Services,
            "INSERT INTO services (id, host, side, port, protocol, banner, first_seen, last_seen)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            values![host, asset.side.name(), asset.port, asset.protocol, banner, span.first, span.last],
        )?;
        if is_new_host {
            self.change(span.first, "new_host", id, (None, None), None)?;
        }
        let kind = if asset.side == Side::Server { "new_service" } else { "new_client" };
        self.change(span.first, kind, id, (None, Some(banner)), None)?;
        let (last, gone) = (span.last, false);
        let (hassh, certificate, host_key) = (None, None, None);
        let known =
            KnownService { id, banner, hassh, certificate, host_key, last, gone, banners: 1, says_nothing };
        self.memory.ahead.enter(asset, id);
        self.memory.services.insert(asset.clone(), known);
        Ok(known)
    }

    /// Returns the row of a host, and whether it is new. An earlier sighting moves its first one.
    pub(super) fn host(&mut self, address: IpAddr, span: SightingSpan) -> Result<(i64, bool), DatabaseError> {
        let query = "SELECT id, first_seen FROM hosts WHERE octets = ?1";
        let found = match self.memory.hosts.get(&address) {
            Some(known) => Some(*known),
            None if self.memory.ahead.has_no_host(address) => None,
            None => self
                .link
                .one(query, values![address], |row| Ok(KnownHost { id: row.get(0)?, first: row.get(1)? }))?,
        };
        let host = match found {
            Some(known) => KnownHost { first: known.first.min(span.first), ..known },
            None => {
                let enter = "INSERT INTO hosts (id, octets, address, first_seen) VALUES (?1, ?2, ?3, ?4)";
                let values = values![address, address.to_string(), span.first];
                KnownHost {
                    id: self.link.queue_insert(NumberedTable::Hosts, enter, values)?,
                    first: span.first,
                }
            }
        };
        if found.is_some_and(|known| host.first < known.first) {
            self.link
                .queue("UPDATE hosts SET first_seen = ?2 WHERE id = ?1", values![host.id, host.first])?;
        }
        self.memory.hosts.insert(address, host);
        Ok((host.id, found.is_none()))
    }

    /// Returns the row of a banner; inserts a new one only if there is `room`.
    pub(super) fn banner(
        &mut self,
        asset: &AssetKey,
        banner: &AssetBanner,
        software: &NamedSoftware,
        room: bool,
    ) -> Result<Option<i64>, DatabaseError> {
        let text = self.link.kept(&banner.text).into_owned();
        let key = (asset.protocol, asset.side.name(), AssetBanner { kind: banner.kind, text });
        if let Some(id) = self.memory.banners.get(&key) {
            return Ok(Some(*id));
        }
        let found = match self.memory.ahead.text(&key) {
            Some(found) => found,
            None => {
                let query =
                    "SELECT id FROM banners WHERE protocol = ?1 AND side = ?2 AND kind = ?3 AND text = ?4";
                let values = values![key.0, key.1, banner.kind.name(), &key.2.text];
                self.link.one(query, values, |row| row.get::<i64>(0))?
            }
        };
        if found.is_none() && !room {
            return Ok(None);
        }
        let product = &software.product;
        let enter = "INSERT INTO banners (id, protocol, side, kind, text, vendor, product, version, cpe, os, patch)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
             ON CONFLICT (protocol, side, kind, text) DO UPDATE SET vendor = coalesce(excluded.vendor, banners.vendor),
               product = CASE WHEN excluded.cpe IS NULL THEN coalesce(banners.product, excluded.product) ELSE excluded.product END,
               version = CASE WHEN excluded.cpe IS NULL THEN coalesce(banners.version, excluded.version) ELSE excluded.version END,
               cpe = coalesce(excluded.cpe, banners.cpe), os = coalesce(excluded.os, banners.os)";
        let id = self.link.queue_insert(
            NumberedTable::Banners,
            enter,
            values![
                key.0,
                key.1,
                banner.kind.name(),
                &key.2.text,
                product.vendor.as_deref(),
                product.product.as_deref(),
                product.version.as_deref(),
                product.cpe.as_deref(),
                product.os.as_deref(),
                software.patch.as_deref(),
            ],
        )?;
        // An existing row keeps its number.
        let id = found.unwrap_or(id);
        if found.is_none() {
            self.memory.ahead.enter_text(id);
        }
        self.memory.banners.insert(key, id);
        Ok(Some(id))
    }

    /// Returns true if exactly this was recorded before this run, so that it is not counted again.
    pub(super) fn was_counted(
        &mut self,
        row: &CountedRow,
        span: SightingSpan,
    ) -> Result<bool, DatabaseError> {
        if !self.memory.counts_once {
            return Ok(false);
        }
        let known = match self.memory.counted.get(row) {
            Some(known) => *known,
            None => {
                let is_new = row.service().is_some_and(|service| self.memory.ahead.is_new(service));
                let known = if is_new { None } else { self.times(row)? };
                self.memory.counted.insert(row.clone(), known);
                known
            }
        };
        Ok(known.is_some_and(|(first, last)| first <= span.first && span.last <= last))
    }

    fn times(&self, row: &CountedRow) -> Result<Option<(i64, i64)>, DatabaseError> {
        let (query, other, rule) = match row {
            CountedRow::Sighting { banner, .. } => (
                "SELECT first_seen, last_seen FROM sightings WHERE service = ?1 AND banner = ?2 AND sensor = ?3",
                banner,
                None,
            ),
            CountedRow::Finding { banner, rule, .. } => (
                "SELECT first_seen, last_seen FROM findings
                 WHERE service = ?1 AND banner = ?2 AND sensor = ?3 AND rule = ?4",
                banner,
                Some(rule),
            ),
            CountedRow::Contact { client, .. } => (
                "SELECT first_seen, last_seen FROM contacts WHERE service = ?1 AND client = ?2 AND sensor = ?3",
                client,
                None,
            ),
            CountedRow::Peer { banner, rule, .. } => (
                "SELECT first_seen, last_seen FROM banner_peers
                 WHERE service = ?1 AND banner = ?2 AND sensor = ?3 AND rule = ?4 AND peer = ?5 AND port = ?6",
                banner,
                Some(rule),
            ),
            CountedRow::Unanswered { server, protocol, client } => {
                let query = "SELECT first_seen, last_seen FROM unanswered
                     WHERE octets = ?1 AND port = ?2 AND protocol = ?3 AND client = ?4 AND sensor = ?5";
                let (server, port) = (server.ip(), server.port());
                let values = values![server, port, *protocol, *client, self.sensor];
                return self.link.one(query, values, |row| Ok((row.get(0)?, row.get(1)?)));
            }
        };
        let mut values = values![row.service(), *other, self.sensor].to_vec();
        values.extend(rule.map(SqlParameter::from));
        if let CountedRow::Peer { peer, .. } = row {
            values.extend([peer.ip().into(), peer.port().into()]);
        }
        self.link.one(query, &values, |row| Ok((row.get(0)?, row.get(1)?)))
    }
}
