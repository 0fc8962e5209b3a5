//! Prefetches the rows of a batch: asking a server for each of a thousand rows would take a thousand
//! round trips.

use std::net::IpAddr;

use ahash::{AHashMap, AHashSet};

use super::prefetched_rows::{BannerText, PrefetchedRows, ServicePort, spot};
use super::row_cache::{CountedRow, KnownHost, KnownService, RowCache};
use crate::database::{DatabaseConnection, DatabaseError, QueryRow, SqlParameter};
use crate::event::Side;
use crate::inventory::sighting::{AssetBanner, AssetKey, BannerKind, SightingContent};
use crate::inventory::store::SightingRecord;

impl RowCache {
    /// Prefetches the rows of a batch. No other process may write meanwhile.
    pub(super) fn look_up(
        &mut self,
        link: &DatabaseConnection,
        batch: &[SightingRecord],
        sensor: i64,
    ) -> Result<(), DatabaseError> {
        if !self.holds(link, batch)? {
            let counted = std::mem::take(&mut self.counted);
            self.forget();
            self.counted = counted;
        }
        self.ahead = PrefetchedRows { is_known: true, ..PrefetchedRows::default() };
        self.look_up_hosts_and_services(link, batch)?;
        self.look_up_texts(link, batch)?;
        self.look_up_sightings(link, batch, sensor)?;
        self.look_up_findings(link, batch)
    }

    /// Returns true if all cached rows that a batch may reference still exist: other processes prune,
    /// too.
    fn holds(&self, link: &DatabaseConnection, batch: &[SightingRecord]) -> Result<bool, DatabaseError> {
        let [mut texts, mut services, mut hosts] = [(); 3].map(|()| AHashSet::<i64>::new());
        for record in batch {
            texts.extend(text(link, record).and_then(|text| self.banners.get(&text)));
            if let Some(known) = self.services.get(&record.asset) {
                texts.extend(
                    [Some(known.banner), known.hassh, known.certificate, known.host_key]
                        .into_iter()
                        .flatten(),
                );
                services.insert(known.id);
            }
            hosts
                .extend(addresses(record).filter_map(|address| self.hosts.get(&address)).map(|host| host.id));
        }
        let named = [texts, services, hosts];
        let count: usize = named.iter().map(|ids| ids.len()).sum();
        if count == 0 {
            return Ok(true);
        }
        let query = "SELECT (SELECT count(*) FROM banners WHERE id = ANY(?1))
               + (SELECT count(*) FROM services WHERE id = ANY(?2)) + (SELECT count(*) FROM hosts WHERE id = ANY(?3))";
        let named = named.map(|ids| ids.into_iter().collect());
        let there: i64 = link.sole(query, &named, |row| row.get(0))?;
        Ok(usize::try_from(there) == Ok(count))
    }

    fn look_up_hosts_and_services(
        &mut self,
        link: &DatabaseConnection,
        batch: &[SightingRecord],
    ) -> Result<(), DatabaseError> {
        let mut assets: AHashMap<ServicePort, Vec<&AssetKey>> = AHashMap::new();
        for record in batch {
            if !self.services.contains_key(&record.asset) {
                assets.entry(spot(&record.asset)).or_default().push(&record.asset);
            }
            self.ahead.hosts.extend(addresses(record).filter(|host| !self.hosts.contains_key(host)));
        }
        let asked: AHashSet<IpAddr> =
            self.ahead.hosts.iter().copied().chain(assets.keys().map(|(address, ..)| *address)).collect();
        if asked.is_empty() {
            return Ok(());
        }
        let asked = [asked.into_iter().collect()];
        let hosts = "SELECT id, octets, first_seen FROM hosts WHERE octets = ANY(?1)";
        let read = |row: &QueryRow<'_>| Ok((row.get(1)?, KnownHost { id: row.get(0)?, first: row.get(2)? }));
        for (address, host) in link.all(hosts, &asked, read)? {
            self.ahead.hosts.remove(&address);
            self.hosts.insert(address, host);
        }
        self.look_up_services(link, &assets)
    }

    fn look_up_services(
        &mut self,
        link: &DatabaseConnection,
        assets: &AHashMap<ServicePort, Vec<&AssetKey>>,
    ) -> Result<(), DatabaseError> {
        if assets.is_empty() {
            return Ok(());
        }
        self.ahead.services.extend(assets.keys().copied());
        let asked = [
            assets.keys().map(|(address, ..)| *address).collect::<SqlParameter<'_>>(),
            assets.keys().map(|(_, side, _)| side.name()).collect(),
            assets.keys().map(|(.., port)| *port).collect(),
        ];
        // No other services of a host with many ports are read. Hosts come first in the query: for a
        // network that was scanned at one port, a plan that starts with ports would scan the network for
        // each one. The server has no statistics of these rows yet.
        let services = "WITH asked AS MATERIALIZED (
               SELECT h.id, octets, it.side, it.port
               FROM unnest(?1::bytea[], ?2::text[], ?3::bigint[]) AS it (octets, side, port)
               JOIN hosts h USING (octets))
             SELECT s.id, banner, hassh, certificate, host_key, last_seen, state = 'gone', banners,
               coalesce(text = '', true), asked.octets, s.side, s.port, s.protocol
             FROM asked
             JOIN services s ON s.host = asked.id AND s.side = asked.side AND s.port = asked.port
             LEFT JOIN banners b ON b.id = s.banner";
        let known = link.all(services, &asked, |row| {
            let side =
                if row.get::<String>(10)? == Side::Server.name() { Side::Server } else { Side::Client };
            Ok(((row.get(9)?, side, row.get(11)?), row.get::<String>(12)?, KnownService::read(row)?))
        })?;
        for (spot, protocol, known) in known {
            self.ahead.services.remove(&spot);
            let of_it = assets.get(&spot).into_iter().flatten().find(|asset| asset.protocol == protocol);
            if let Some(asset) = of_it {
                self.services.insert((*asset).clone(), known);
            }
        }
        Ok(())
    }

    fn look_up_texts(
        &mut self,
        link: &DatabaseConnection,
        batch: &[SightingRecord],
    ) -> Result<(), DatabaseError> {
        let texts = batch.iter().filter_map(|record| text(link, record));
        let texts: AHashSet<BannerText> = texts.filter(|text| !self.banners.contains_key(text)).collect();
        if texts.is_empty() {
            return Ok(());
        }
        let texts: Vec<_> = texts.into_iter().collect();
        let by = |part: &dyn Fn(&BannerText) -> String| texts.iter().map(part).collect::<SqlParameter<'_>>();
        let asked = [
            by(&|text| text.0.to_owned()),
            by(&|text| text.1.to_owned()),
            by(&|text| text.2.kind.name().to_owned()),
            by(&|text| text.2.text.clone()),
        ];
        let query = "SELECT number, b.id
             FROM unnest(?1::text[], ?2::text[], ?3::text[], ?4::text[])
               WITH ORDINALITY AS asked (protocol, side, kind, text, number)
             JOIN banners b ON b.protocol = asked.protocol AND b.side = asked.side AND b.kind = asked.kind
               AND b.text = asked.text";
        let found = link.all(query, &asked, |row| Ok((row.get::<i64>(0)?, row.get::<i64>(1)?)))?;
        let mut rows = vec![None; texts.len()];
        for (number, id) in found {
            let row = usize::try_from(number - 1).ok().and_then(|at| rows.get_mut(at));
            *row.ok_or(DatabaseError::Column(0))? = Some(id);
        }
        self.ahead.texts = texts.into_iter().zip(rows).collect();
        Ok(())
    }

    /// Prefetches the sightings of banners that replace another one, and of the replaced ones.
    fn look_up_sightings(
        &mut self,
        link: &DatabaseConnection,
        batch: &[SightingRecord],
        sensor: i64,
    ) -> Result<(), DatabaseError> {
        let mut asked = AHashSet::new();
        for record in batch {
            let Some(text) = text(link, record) else { continue };
            let Some(known) = self.services.get(&record.asset) else { continue };
            let row = self.banners.get(&text).copied().or(self.ahead.text(&text).flatten());
            let before = match text.2.kind {
                BannerKind::Banner => Some(known.banner),
                BannerKind::Hassh => known.hassh,
                BannerKind::Certificate => known.certificate,
                BannerKind::HostKey => known.host_key,
            };
            if row != before || self.counts_once {
                asked.extend([row, before].into_iter().flatten().map(|row| (known.id, row)));
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        let pairs: [SqlParameter<'_>; 2] = [
            asked.iter().map(|(service, _)| *service).collect(),
            asked.iter().map(|(_, text)| *text).collect(),
        ];
        let query = "SELECT service, banner, min(first_seen), max(last_seen),
               min(first_seen) FILTER (WHERE sensor = ?3), max(last_seen) FILTER (WHERE sensor = ?3)
             FROM unnest(?1::bigint[], ?2::bigint[]) AS asked (service, banner) JOIN sightings USING (service, banner)
             GROUP BY service, banner";
        let [services, banners] = pairs;
        let found = link.all(query, &[services, banners, sensor.into()], |row| {
            let own = row.get::<Option<i64>>(4)?.zip(row.get(5)?);
            Ok(((row.get(0)?, row.get(1)?), (row.get(2)?, row.get(3)?), own))
        })?;
        let mut own_times = AHashMap::new();
        self.ahead.heard = asked.iter().map(|pair| (*pair, None)).collect();
        for (pair, times, own) in found {
            self.ahead.heard.insert(pair, Some(times));
            own_times.insert(pair, own);
        }
        if self.counts_once {
            for (service, banner) in asked {
                let own = own_times.get(&(service, banner)).copied().flatten();
                self.counted.entry(CountedRow::Sighting { service, banner }).or_insert(own);
            }
        }
        Ok(())
    }

    fn look_up_findings(
        &mut self,
        link: &DatabaseConnection,
        batch: &[SightingRecord],
    ) -> Result<(), DatabaseError> {
        let found = batch.iter().filter_map(|record| match &record.what {
            SightingContent::Found(_, finding) => {
                Some((self.services.get(&record.asset)?.id, finding.rule.clone()))
            }
            _ => None,
        });
        self.ahead.found = found.map(|of_it| (of_it, None)).collect();
        if self.ahead.found.is_empty() {
            return Ok(());
        }
        let asked = &self.ahead.found;
        let pairs = [
            asked.keys().map(|(service, _)| *service).collect(),
            asked.keys().map(|(_, rule)| rule).collect(),
        ];
        let query = "SELECT service, rule, max(state) = 'open'
             FROM unnest(?1::bigint[], ?2::text[]) AS asked (service, rule) JOIN findings USING (service, rule)
             GROUP BY service, rule";
        let found = link.all(query, &pairs, |row| Ok(((row.get(0)?, row.get(1)?), row.get::<bool>(2)?)))?;
        self.ahead.found.extend(found.into_iter().map(|(of_it, is_open)| (of_it, Some(is_open))));
        Ok(())
    }
}

/// Returns the addresses of a record.
fn addresses(record: &SightingRecord) -> impl Iterator<Item = IpAddr> {
    let client = if let SightingContent::Met(client) = record.what { Some(client) } else { None };
    std::iter::once(record.asset.address).chain(client)
}

/// Returns the text of a record, as the tables store it.
fn text(link: &DatabaseConnection, record: &SightingRecord) -> Option<BannerText> {
    let (SightingContent::Said(banner)
    | SightingContent::Found(banner, _)
    | SightingContent::SaidTo(banner, ..)) = &record.what
    else {
        return None;
    };
    let banner = AssetBanner { text: link.kept(&banner.text).into_owned(), ..banner.clone() };
    Some((record.asset.protocol, record.asset.side.name(), banner))
}
