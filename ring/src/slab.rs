//! The values in flight: one entry for each operation, which never moves while the kernel may read it.

use std::net::SocketAddr;
use std::ptr;

/// Identifies an operation in flight; a reused entry gets another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OperationKey {
    index: u32,
    generation: u32,
}

/// Number of generations: 31 bits, because the highest bit of user data is reserved.
const GENERATIONS: u32 = 1 << 31;

impl OperationKey {
    pub(super) fn user_data(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(super) fn of_user_data(user_data: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = user_data.to_le_bytes();
        Self { index: u32::from_le_bytes([a, b, c, d]), generation: u32::from_le_bytes([e, f, g, h]) }
    }
}

/// A socket address in the kernel's form.
#[derive(Debug)]
pub(super) enum RawSocketAddress {
    None,
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl From<SocketAddr> for RawSocketAddress {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(libc::sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(address) => Self::V6(libc::sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo().to_be(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            }),
        }
    }
}

fn family(family: i32) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).unwrap_or_default()
}

impl RawSocketAddress {
    /// Returns pointer and length of the address for the kernel.
    fn raw(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        let length = |octets: usize| libc::socklen_t::try_from(octets).unwrap_or_default();
        match self {
            Self::None => (ptr::null(), 0),
            Self::V4(address) => (ptr::from_ref(address).cast(), length(size_of_val(address))),
            Self::V6(address) => (ptr::from_ref(address).cast(), length(size_of_val(address))),
        }
    }
}

#[derive(Debug)]
struct SlabEntry<T> {
    state: Option<T>,
    octets: Vec<u8>,
    address: RawSocketAddress,
    generation: u32,
    /// Index of the next free entry, if this one is free.
    next: u32,
}

/// Marker for the end of the list.
const NONE: u32 = u32::MAX;

/// A table of at most `capacity` values. Entries are reused last-in first-out, so few operations in
/// flight touch little memory. Entries that were never used are never touched.
#[derive(Debug)]
pub(super) struct OperationSlab<T> {
    /// Allocated once: it never grows beyond its first capacity, so entries do not move.
    entries: Vec<SlabEntry<T>>,
    capacity: usize,
    free: u32,
    length: usize,
}

impl<T> OperationSlab<T> {
    pub(super) fn with_capacity(capacity: u32) -> Self {
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
        Self { entries: Vec::with_capacity(capacity), capacity, free: NONE, length: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Adds `state`; `None` if the table is full.
    pub(super) fn insert(&mut self, state: T) -> Option<OperationKey> {
        let index = match self.free {
            NONE => self.extend()?,
            index => index,
        };
        let entry = self.entries.get_mut(usize::try_from(index).ok()?)?;
        // An entry that `extend` made has no next, and `free` was empty then.
        self.free = entry.next;
        // A late cancellation or a stale key of the entry's previous operation does not match any more.
        entry.generation = (entry.generation + 1) % GENERATIONS;
        entry.state = Some(state);
        self.length += 1;
        Some(OperationKey { index, generation: entry.generation })
    }

    fn extend(&mut self) -> Option<u32> {
        if self.entries.len() >= self.capacity {
            return None;
        }
        let index = u32::try_from(self.entries.len()).ok()?;
        self.entries.push(SlabEntry {
            state: None,
            octets: Vec::new(),
            address: RawSocketAddress::None,
            generation: 0,
            next: NONE,
        });
        Some(index)
    }

    /// Removes a finished operation and returns its value and bytes; `None` if there is no such
    /// operation.
    pub(super) fn remove(&mut self, key: OperationKey) -> Option<(T, Vec<u8>)> {
        let entry = self.entries.get_mut(usize::try_from(key.index).ok()?)?;
        if entry.generation != key.generation {
            return None;
        }
        let state = entry.state.take()?;
        entry.next = self.free;
        self.free = key.index;
        self.length -= 1;
        Some((state, std::mem::take(&mut entry.octets)))
    }

    /// Stores an address with the operation and returns its position.
    pub(super) fn keep_address(
        &mut self,
        key: OperationKey,
        address: RawSocketAddress,
    ) -> (*const libc::sockaddr, libc::socklen_t) {
        match self.entry(key) {
            Some(entry) => {
                entry.address = address;
                entry.address.raw()
            }
            None => RawSocketAddress::None.raw(),
        }
    }

    /// Stores bytes with the operation and returns their position.
    pub(super) fn keep_octets(&mut self, key: OperationKey, octets: Vec<u8>) -> &[u8] {
        match self.entry(key) {
            Some(entry) => {
                entry.octets = octets;
                &entry.octets
            }
            None => &[],
        }
    }

    fn entry(&mut self, key: OperationKey) -> Option<&mut SlabEntry<T>> {
        self.entries.get_mut(usize::try_from(key.index).ok()?)
    }

    /// Leaks the entries, because the kernel still holds some.
    pub(super) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.entries));
        self.capacity = 0;
    }
}
