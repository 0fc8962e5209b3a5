//! The bounded table of flows: finds them by key, and evicts them in the order of their last packets.

use std::time::Duration;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::entry::NONE;
use super::{Flow, FlowClass, FlowKey, KeyEnd};
use crate::event::Timestamp;

/// Number of flows in a chunk of the slab. Chunks never move, so growing causes no pause.
const CHUNK: usize = 1 << 12;

/// Time after a packet during which a flow keeps its position in the order of eviction: most packets then
/// touch no neighbour's entry.
const ORDER_GRAIN: Duration = Duration::from_secs(1);

/// Identifies a flow while it is in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(u32);

impl FlowId {
    /// Its position in the table, counted from 0; another flow may get it later.
    pub const fn place(self) -> usize {
        self.0 as usize
    }
}

/// Error: the table is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the flow table is full")]
pub struct FullTable;

#[derive(Debug, Clone, Copy)]
struct EvictionList {
    oldest: u32,
    newest: u32,
    length: usize,
}

/// All flows.
#[derive(Debug)]
pub struct FlowTable<C> {
    index: HashTable<u32>,
    seed: ahash::RandomState,
    chunks: Vec<Vec<Flow<C>>>,
    free: u32,
    lists: [EvictionList; 6],
    limit: usize,
}

impl<C> FlowTable<C> {
    /// Creates a table for at most `limit` flows. Only the index is allocated at once.
    pub fn new(limit: usize) -> Self {
        let limit = limit.clamp(1, NONE as usize - 1);
        Self {
            index: HashTable::with_capacity(limit),
            seed: ahash::RandomState::new(),
            chunks: Vec::new(),
            free: NONE,
            lists: [EvictionList { oldest: NONE, newest: NONE, length: 0 }; 6],
            limit,
        }
    }

    /// Number of flows in the table.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// True if no flow is in the table.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// True if the table is full.
    pub fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// Number of flows of one class.
    pub const fn count(&self, class: FlowClass) -> usize {
        self.lists[class as usize].length
    }

    /// The flow with this key.
    pub fn find(&self, key: &FlowKey) -> Option<FlowId> {
        let hash = key.hash(&self.seed);
        let chunks = &self.chunks;
        self.index.find(hash, |slot| entry(chunks, *slot).key == *key).map(|slot| FlowId(*slot))
    }

    /// Adds a flow of class [`FlowClass::Opening`], or returns the one with this key.
    ///
    /// # Errors
    ///
    /// Returns [`FullTable`] if the limit is reached.
    pub fn insert(&mut self, key: FlowKey, client: KeyEnd, now: Timestamp) -> Result<FlowId, FullTable> {
        if self.is_full() {
            return Err(FullTable);
        }
        let hash = key.hash(&self.seed);
        let slot = self.allocate(Flow::new(key, client, now));
        let (chunks, seed) = (&self.chunks, &self.seed);
        let place = self.index.entry(
            hash,
            |slot| entry(chunks, *slot).key == key,
            |slot| entry(chunks, *slot).key.hash(seed),
        );
        if let Entry::Occupied(occupied) = place {
            let existing = *occupied.get();
            self.release(slot);
            return Ok(FlowId(existing));
        }
        place.or_insert(slot);
        self.link(slot, FlowClass::Opening);
        Ok(FlowId(slot))
    }

    /// A flow.
    pub fn get(&self, id: FlowId) -> &Flow<C> {
        entry(&self.chunks, id.0)
    }

    /// A flow.
    pub fn get_mut(&mut self, id: FlowId) -> &mut Flow<C> {
        entry_mut(&mut self.chunks, id.0)
    }

    /// Returns a flow after recording a packet of it.
    pub fn touch(&mut self, id: FlowId, now: Timestamp) -> &mut Flow<C> {
        let flow = self.get_mut(id);
        // Moving the flow writes to two neighbours' entries, which are cold. Within the grain the order
        // hardly changes.
        if now.since(flow.last_seen) >= ORDER_GRAIN {
            flow.last_seen = now;
            let class = flow.class;
            self.unlink(id.0);
            self.link(id.0, class);
        }
        self.get_mut(id)
    }

    /// Moves the flow to another class.
    pub fn set_class(&mut self, id: FlowId, class: FlowClass, now: Timestamp) {
        if self.get(id).class != class {
            self.unlink(id.0);
            self.get_mut(id).last_seen = now;
            self.link(id.0, class);
        }
    }

    /// Moves the flow to the end of its class, as if it had been seen just now; its last time stays.
    pub fn put_off(&mut self, id: FlowId) {
        let class = self.get(id).class;
        self.unlink(id.0);
        self.link(id.0, class);
    }

    /// The flow of a class with the oldest last packet.
    pub const fn oldest(&self, class: FlowClass) -> Option<FlowId> {
        match self.lists[class as usize].oldest {
            NONE => None,
            slot => Some(FlowId(slot)),
        }
    }

    /// Flows of a class, the oldest last packet first.
    pub fn by_age(&self, class: FlowClass) -> impl Iterator<Item = FlowId> {
        let mut slot = self.lists[class as usize].oldest;
        std::iter::from_fn(move || {
            let id = (slot != NONE).then_some(FlowId(slot))?;
            slot = self.get(id).next;
            Some(id)
        })
    }

    /// Capacity of the table.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Returns a flow of the class that was silent for `timeout`, if there is one.
    pub fn expired(&self, class: FlowClass, timeout: Duration, now: Timestamp) -> Option<FlowId> {
        let oldest = self.oldest(class)?;
        (now.since(self.get(oldest).last_seen) >= timeout).then_some(oldest)
    }

    /// Removes a flow and returns its state of the dialogue.
    pub fn remove(&mut self, id: FlowId) -> Option<Box<C>> {
        let hash = self.get(id).key.hash(&self.seed);
        // Found by slot instead of key: no other entry has to be read.
        if let Ok(occupied) = self.index.find_entry(hash, |slot| *slot == id.0) {
            occupied.remove();
        }
        self.unlink(id.0);
        self.release(id.0)
    }

    fn allocate(&mut self, flow: Flow<C>) -> u32 {
        if self.free != NONE {
            let slot = self.free;
            let place = entry_mut(&mut self.chunks, slot);
            let next = place.next;
            *place = flow;
            self.free = next;
            return slot;
        }
        // A full chunk stays where it is, so that growth copies no flow and no packet waits for that.
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK.min(self.limit)));
        }
        let before = (self.chunks.len() - 1) * CHUNK;
        let Some(chunk) = self.chunks.last_mut() else {
            unreachable!("a chunk was pushed above");
        };
        chunk.push(flow);
        u32::try_from(before + chunk.len() - 1).unwrap_or(NONE)
    }

    fn release(&mut self, slot: u32) -> Option<Box<C>> {
        let free = self.free;
        let flow = entry_mut(&mut self.chunks, slot);
        // Free slots are linked by the same field as the flows of a class.
        flow.next = free;
        self.free = slot;
        flow.conversation.take()
    }

    /// Links a flow at the newest end of a class.
    fn link(&mut self, slot: u32, class: FlowClass) {
        let newest = self.lists[class as usize].newest;
        let flow = entry_mut(&mut self.chunks, slot);
        flow.class = class;
        flow.previous = newest;
        flow.next = NONE;
        let list = &mut self.lists[class as usize];
        list.newest = slot;
        list.length += 1;
        if newest == NONE {
            list.oldest = slot;
        } else {
            entry_mut(&mut self.chunks, newest).next = slot;
        }
    }

    fn unlink(&mut self, slot: u32) {
        let flow = entry(&self.chunks, slot);
        let (previous, next, class) = (flow.previous, flow.next, flow.class);
        let list = &mut self.lists[class as usize];
        list.length -= 1;
        if previous == NONE {
            list.oldest = next;
        } else {
            entry_mut(&mut self.chunks, previous).next = next;
        }
        let list = &mut self.lists[class as usize];
        if next == NONE {
            list.newest = previous;
        } else {
            entry_mut(&mut self.chunks, next).previous = previous;
        }
    }
}

/// The entry in a slot; slots come from the table itself and always exist.
fn entry<C>(chunks: &[Vec<Flow<C>>], slot: u32) -> &Flow<C> {
    let slot = slot as usize;
    &chunks[slot / CHUNK][slot % CHUNK]
}

/// The entry in a slot; slots come from the table itself and always exist.
fn entry_mut<C>(chunks: &mut [Vec<Flow<C>>], slot: u32) -> &mut Flow<C> {
    let slot = slot as usize;
    &mut chunks[slot / CHUNK][slot % CHUNK]
}
