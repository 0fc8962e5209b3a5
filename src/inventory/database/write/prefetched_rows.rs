//! Rows known before a batch is written.

use std::net::IpAddr;

use ahash::{AHashMap, AHashSet};

use super::sighting_span::SightingSpan;
use crate::event::Side;
use crate::inventory::sighting::{AssetBanner, AssetKey};

/// Address, side and port of a service.
pub(super) type ServicePort = (IpAddr, Side, u16);

/// A text with the properties that distinguish banners.
pub(super) type BannerText = (&'static str, &'static str, AssetBanner);

/// Rows known before a batch is written, and rows that it has written itself.
#[derive(Debug, Default)]
pub(super) struct PrefetchedRows {
    /// True if anything was prefetched, so that it is worth tracking what is written.
    pub(super) is_known: bool,
    /// Hosts and services that are not in the tables.
    pub(super) hosts: AHashSet<IpAddr>,
    pub(super) services: AHashSet<ServicePort>,
    /// Prefetched texts, with the rows of those that exist.
    pub(super) texts: AHashMap<BannerText, Option<i64>>,
    /// Rows of services and texts that were inserted since.
    pub(super) entered: AHashSet<i64>,
    pub(super) written: AHashSet<i64>,
    /// First and last sighting of a service's texts, by row.
    pub(super) heard: AHashMap<(i64, i64), Option<(i64, i64)>>,
    /// Findings of services: true if open, false if gone.
    pub(super) found: AHashMap<(i64, String), Option<bool>>,
}

impl PrefetchedRows {
    pub(super) fn has_no_host(&self, address: IpAddr) -> bool {
        self.hosts.contains(&address)
    }

    pub(super) fn has_no_service(&self, asset: &AssetKey) -> bool {
        self.services.contains(&spot(asset))
    }

    /// Returns the row of a text, if it was prefetched.
    pub(super) fn text(&self, text: &BannerText) -> Option<Option<i64>> {
        self.texts.get(text).copied()
    }

    /// True if this batch has inserted the service.
    pub(super) fn is_new(&self, service: i64) -> bool {
        self.entered.contains(&service)
    }

    /// Records that a service exists from now on.
    pub(super) fn enter(&mut self, asset: &AssetKey, service: i64) {
        self.services.remove(&spot(asset));
        self.entered.insert(service);
    }

    /// Records that a text exists from now on.
    pub(super) fn enter_text(&mut self, text: i64) {
        self.written.insert(text);
    }

    /// Returns first and last sighting of a service's text, if that is known.
    pub(super) fn cached_sighting(&self, service: i64, text: i64) -> Option<Option<(i64, i64)>> {
        let is_first = || self.is_new(service) || self.written.contains(&text);
        let known = self.heard.get(&(service, text)).copied();
        known.or_else(|| (self.is_known && is_first()).then_some(None))
    }

    /// Records a sighting of a service's text.
    pub(super) fn cache_sighting(&mut self, service: i64, text: i64, span: SightingSpan) {
        if let Some(before) = self.cached_sighting(service, text).filter(|_| self.is_known) {
            let (first, last) = before.unwrap_or((span.first, span.last));
            self.heard.insert((service, text), Some((first.min(span.first), last.max(span.last))));
        }
    }

    /// Returns whether a service has an open finding of a rule, or had one, if that is known.
    pub(super) fn cached_finding(&self, service: i64, rule: &str) -> Option<Option<bool>> {
        let known = self.found.get(&(service, rule.to_owned())).copied();
        known.or_else(|| (self.is_known && self.is_new(service)).then_some(None))
    }

    /// Records an open finding.
    pub(super) fn cache_finding(&mut self, service: i64, rule: &str) {
        if self.is_known {
            self.found.insert((service, rule.to_owned()), Some(true));
        }
    }
}

/// Returns the port of an asset.
pub(super) fn spot(asset: &AssetKey) -> ServicePort {
    (asset.address, asset.side, asset.port)
}
