//! All targets of a scan, as a numbered sequence.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use sha1::{Digest as _, Sha1};

use super::intervals::IndexedRanges;
use super::{MOST, NamedEndpoint, SkippedReserved, SkippedTargets, word};

/// All targets of a scan, by number.
#[derive(Debug)]
pub struct TargetSet {
    pub(super) v4: IndexedRanges<u32>,
    pub(super) v6: IndexedRanges<u128>,
    pub(super) named: Vec<(IpAddr, Arc<str>)>,
    pub(super) ports: Vec<u16>,
    /// Targets with their own ports, after all others.
    pub(super) endpoints: Vec<NamedEndpoint>,
    pub(super) input: u128,
    pub(super) unresolved: u128,
    pub(super) left_out: Vec<SkippedReserved>,
}

impl TargetSet {
    /// Returns the number of targets to probe.
    pub fn len(&self) -> u64 {
        self.checked_len().unwrap_or(MOST)
    }

    /// Returns the number of named targets: those to probe and the [skipped](Self::skipped) ones.
    pub fn input(&self) -> u128 {
        self.input
    }

    /// Returns the numbers of skipped targets, by reason.
    pub fn skipped(&self) -> SkippedTargets {
        let reserved: u128 = self.left_out.iter().map(|out| out.addresses).sum();
        let reserved = reserved.saturating_mul(self.ports.len() as u128);
        let all = self.input.saturating_sub(self.len().into());
        let excluded = all.saturating_sub(reserved).saturating_sub(self.unresolved);
        SkippedTargets { excluded, reserved, unresolved: self.unresolved }
    }

    /// Returns the reserved addresses that are skipped.
    pub fn left_out(&self) -> &[SkippedReserved] {
        &self.left_out
    }

    /// Returns target `number`; none after the last.
    pub fn at(&self, number: u64) -> Option<(SocketAddr, Option<Arc<str>>)> {
        let addresses = self.addresses()?;
        if let Some(number) = number.checked_sub(self.grid()?) {
            return self.endpoints.get(usize::try_from(number).ok()?).cloned();
        }
        let (address, port) = (number % addresses.max(1), number / addresses.max(1));
        let port = *self.ports.get(usize::try_from(port).ok()?)?;
        let behind_v4 = address.checked_sub(self.v4.count());
        let behind_v6 = behind_v4.and_then(|number| number.checked_sub(self.v6.count()));
        let (address, host) = match (behind_v4, behind_v6) {
            (None, _) => (Ipv4Addr::from_bits(self.v4.at(address)?).into(), None),
            (Some(number), None) => (Ipv6Addr::from_bits(self.v6.at(number)?).into(), None),
            (_, Some(number)) => {
                let (address, name) = self.named.get(usize::try_from(number).ok()?)?;
                (*address, Some(Arc::clone(name)))
            }
        };
        Some((SocketAddr::new(address, port), host))
    }

    /// Returns the ranges of addresses to probe, as words for the parser.
    pub fn ranges(&self) -> Vec<String> {
        let v4 =
            self.v4.ranges().iter().map(|(first, last)| {
                word(Ipv4Addr::from_bits(*first).into(), Ipv4Addr::from_bits(*last).into())
            });
        let v6 =
            self.v6.ranges().iter().map(|(first, last)| {
                word(Ipv6Addr::from_bits(*first).into(), Ipv6Addr::from_bits(*last).into())
            });
        v4.chain(v6).collect()
    }

    /// Returns the addresses with names.
    pub fn named(&self) -> &[(IpAddr, Arc<str>)] {
        &self.named
    }

    /// Returns the targets with their own ports.
    pub fn endpoints(&self) -> &[NamedEndpoint] {
        &self.endpoints
    }

    /// Returns a hash of exactly these targets, to detect other checkpoints.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha1::new();
        for (first, last) in self.v4.ranges() {
            hash.update(format!("{first}-{last};"));
        }
        for (first, last) in self.v6.ranges() {
            hash.update(format!("{first}-{last}:"));
        }
        for (address, name) in &self.named {
            hash.update(format!("{address}={name};"));
        }
        for port in &self.ports {
            hash.update(format!(",{port}"));
        }
        for (address, name) in &self.endpoints {
            hash.update(format!("{address}={};", name.as_deref().unwrap_or_default()));
        }
        crate::terms::hexadecimal(&hash.finalize())
    }

    fn addresses(&self) -> Option<u64> {
        self.v4.count().checked_add(self.v6.count())?.checked_add(self.named.len() as u64)
    }

    /// Returns the number of targets that are addresses times ports.
    fn grid(&self) -> Option<u64> {
        self.addresses()?.checked_mul(self.ports.len() as u64)
    }

    pub(super) fn checked_len(&self) -> Option<u64> {
        self.grid()?.checked_add(self.endpoints.len() as u64)
    }

    /// Returns the endpoints that are not targets yet, sorted and without duplicates. An address with a name
    /// is not probed once more without it.
    pub(super) fn further(
        &self,
        mut endpoints: Vec<NamedEndpoint>,
        ask_each_name: bool,
    ) -> Vec<NamedEndpoint> {
        // Endpoints with names sort first, so that `dedup_by` keeps them.
        endpoints.sort_by(|(one, name), (other, others)| {
            one.cmp(other).then_with(|| name.is_none().cmp(&others.is_none())).then_with(|| name.cmp(others))
        });
        endpoints.dedup_by(|(address, name), (before, named)| {
            address == before && (name == named || name.is_none() || !ask_each_name)
        });
        let by_name: HashSet<(IpAddr, Option<&str>)> = self
            .named
            .iter()
            .flat_map(|(address, name)| [(*address, Some(name.as_ref())), (*address, None)])
            .collect();
        endpoints.retain(|(address, name)| {
            let name = name.as_deref().filter(|_| ask_each_name);
            let is_plain = name.is_none()
                && match address.ip() {
                    IpAddr::V4(address) => self.v4.contains(address.to_bits()),
                    IpAddr::V6(address) => self.v6.contains(address.to_bits()),
                };
            let is_asked = is_plain || by_name.contains(&(address.ip(), name));
            !(is_asked && self.ports.binary_search(&address.port()).is_ok())
        });
        endpoints
    }
}
