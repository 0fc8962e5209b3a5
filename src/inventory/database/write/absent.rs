//! What a batch is about, looked up at once: to ask a server for each of a thousand takes a thousand journeys.

use std::net::IpAddr;

use ahash::{AHashMap, AHashSet};

use super::super::link::{Link, Value};
use super::super::read::address_of;
use super::{DatabaseError, Known, Memory, octets};
use crate::event::Side;
use crate::inventory::sighting::{Asset, What};
use crate::inventory::store::Record;

/// Where a service may be.
type Spot = (IpAddr, Side, u16);

/// Hosts and services of a batch that are not in the tables.
#[derive(Debug, Default)]
pub(super) struct Absent {
    hosts: AHashSet<IpAddr>,
    services: AHashSet<Spot>,
    /// Rows of services that were entered since, of which nothing was told before.
    entered: AHashSet<i64>,
}

impl Absent {
    pub(super) fn has_no_host(&self, address: IpAddr) -> bool {
        self.hosts.contains(&address)
    }

    pub(super) fn has_no_service(&self, asset: &Asset) -> bool {
        self.services.contains(&spot(asset))
    }

    /// Whether a service was entered by this batch.
    pub(super) fn is_new(&self, service: i64) -> bool {
        self.entered.contains(&service)
    }

    /// A service is there from now on.
    pub(super) fn enter(&mut self, asset: &Asset, service: i64) {
        self.services.remove(&spot(asset));
        self.entered.insert(service);
    }
}

impl Memory {
    /// Remembers what the tables have of a batch, and what they have not. To be called where nobody else writes.
    pub(super) fn look_up(&mut self, link: &Link, batch: &[Record]) -> Result<(), DatabaseError> {
        self.absent = Absent::default();
        let mut assets: AHashMap<Spot, Vec<&Asset>> = AHashMap::new();
        for record in batch {
            if !self.services.contains_key(&record.asset) {
                assets.entry(spot(&record.asset)).or_default().push(&record.asset);
            }
            let client = if let What::Met(client) = record.what { Some(client) } else { None };
            let hosts = [Some(record.asset.address), client].into_iter().flatten();
            self.absent.hosts.extend(hosts.filter(|host| !self.hosts.contains_key(host)));
        }
        let asked: AHashSet<IpAddr> =
            self.absent.hosts.iter().copied().chain(assets.keys().map(|(address, ..)| *address)).collect();
        if asked.is_empty() {
            return Ok(());
        }
        let asked = [Value::Many(asked.into_iter().map(octets).collect())];
        let hosts = "SELECT id, octets FROM hosts WHERE octets = ANY(?1)";
        for (id, address) in link.all(hosts, &asked, |row| Ok((row.get::<i64>(0)?, address_of(row, 1)?)))? {
            self.absent.hosts.remove(&address);
            self.hosts.insert(address, id);
        }
        self.absent.services.extend(assets.keys().copied());
        let services = "SELECT octets, side, port, protocol, s.id, banner, hassh, certificate, last_seen,
               state = 'gone', banners
             FROM services s JOIN hosts h ON h.id = s.host WHERE octets = ANY(?1)";
        let known = link.all(services, &asked, |row| {
            let side = if row.get::<String>(1)? == Side::Server.name() { Side::Server } else { Side::Client };
            let known = Known {
                id: row.get(4)?,
                banner: row.get(5)?,
                hassh: row.get(6)?,
                certificate: row.get(7)?,
                last: row.get(8)?,
                gone: row.get(9)?,
                banners: row.get(10)?,
            };
            Ok(((address_of(row, 0)?, side, row.get(2)?), row.get::<String>(3)?, known))
        })?;
        for (spot, protocol, known) in known {
            self.absent.services.remove(&spot);
            let of_it = assets.get(&spot).into_iter().flatten().find(|asset| asset.protocol == protocol);
            if let Some(asset) = of_it {
                self.services.insert((*asset).clone(), known);
            }
        }
        Ok(())
    }
}

fn spot(asset: &Asset) -> Spot {
    (asset.address, asset.side, asset.port)
}
