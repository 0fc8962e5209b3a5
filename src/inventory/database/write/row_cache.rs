//! Cache of the rows that batches refer to.

use std::net::{IpAddr, SocketAddr};

use ahash::AHashMap;

use super::prefetched_rows::PrefetchedRows;
use crate::database::{DatabaseError, QueryRow};
use crate::inventory::sighting::{AssetBanner, AssetKey};

/// Number of hosts, services and banners whose rows are cached; beyond it, the cache is emptied.
const REMEMBERED: usize = 1 << 18;

/// Cache of rows.
#[derive(Debug, Default)]
pub(super) struct RowCache {
    pub(super) hosts: AHashMap<IpAddr, KnownHost>,
    pub(super) services: AHashMap<AssetKey, KnownService>,
    pub(super) banners: AHashMap<(&'static str, &'static str, AssetBanner), i64>,
    /// Prefetched rows, while no other process writes.
    pub(super) ahead: PrefetchedRows,
    /// True if sightings from before a time already recorded are not counted again.
    pub(super) counts_once: bool,
    /// First and last sighting of rows before this run.
    pub(super) counted: AHashMap<CountedRow, Option<(i64, i64)>>,
}

/// A row of a service.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownService {
    pub(super) id: i64,
    pub(super) banner: i64,
    pub(super) hassh: Option<i64>,
    pub(super) certificate: Option<i64>,
    pub(super) host_key: Option<i64>,
    pub(super) last: i64,
    pub(super) gone: bool,
    pub(super) banners: i64,
    /// True if its banner is empty.
    pub(super) says_nothing: bool,
}

/// A row of a host.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownHost {
    pub(super) id: i64,
    pub(super) first: i64,
}

/// A row with a count.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum CountedRow {
    Sighting { service: i64, banner: i64 },
    Finding { service: i64, banner: i64, rule: String },
    Contact { service: i64, client: i64 },
    Peer { service: i64, banner: i64, peer: SocketAddr, rule: String },
    Unanswered { server: SocketAddr, protocol: &'static str, client: IpAddr },
}

impl CountedRow {
    /// Returns the row of its service.
    pub(super) const fn service(&self) -> Option<i64> {
        match self {
            Self::Sighting { service, .. }
            | Self::Finding { service, .. }
            | Self::Contact { service, .. }
            | Self::Peer { service, .. } => Some(*service),
            Self::Unanswered { .. } => None,
        }
    }
}

impl KnownService {
    /// Reads the first columns of a row.
    pub(super) fn read(row: &QueryRow<'_>) -> Result<Self, DatabaseError> {
        Ok(Self {
            id: row.get(0)?,
            banner: row.get(1)?,
            hassh: row.get(2)?,
            certificate: row.get(3)?,
            host_key: row.get(4)?,
            last: row.get(5)?,
            gone: row.get(6)?,
            banners: row.get(7)?,
            says_nothing: row.get(8)?,
        })
    }
}

impl RowCache {
    pub(super) fn forget(&mut self) {
        *self = Self { counts_once: self.counts_once, ..Self::default() };
    }

    pub(super) fn bound(&mut self) {
        if self.hosts.len() > REMEMBERED || self.services.len() > REMEMBERED {
            self.hosts.clear();
            self.services.clear();
        }
        if self.banners.len() > REMEMBERED {
            self.banners.clear();
        }
        if self.counted.len() > REMEMBERED {
            self.counted.clear();
        }
    }
}
