//! The bounded table of flows: found by their key, forgotten in the order of their last packets.

use std::time::Duration;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::{AnomalySet, End, Key, Stream};
use crate::event::{Side, Timestamp};

/// Flows a slab chunk; chunks are never moved, so that growth costs no pause.
const CHUNK: usize = 1 << 12;

/// A flow that was seen less than this ago keeps its place in the order of forgetting: most packets
/// then touch no neighbour's entry.
const ORDER_GRAIN: Duration = Duration::from_secs(1);

/// No flow.
const NONE: u32 = u32::MAX;

/// Where a flow stands; flows of one class are forgotten in the order of their last packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// Only a SYN was seen.
    Opening,
    /// Begun in its middle, and neither end has confirmed what was seen of the other.
    Unconfirmed,
    /// Open and undecided.
    Undecided,
    /// Let pass.
    Passed,
    /// Blocked.
    Blocked,
    /// Closed by both ends or reset.
    Closed,
}

impl Class {
    /// All classes, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Opening, Self::Unconfirmed, Self::Undecided, Self::Passed, Self::Blocked, Self::Closed];
}

/// What was decided about a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// Nothing yet.
    Undecided,
    /// Everything more may pass.
    Passed,
    /// Nothing more may pass.
    Blocked,
    /// Nothing more may pass, and both ends were reset.
    Rejected,
}

/// Names a flow while it is in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowId(u32);

/// The table has no room for another flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the flow table is full")]
pub struct FullTable;

/// One flow. `C` is what its owner knows about the conversation while it is undecided.
#[derive(Debug)]
pub struct Flow<C> {
    /// What was collected and understood so far; absent before the first data and once decided.
    pub conversation: Option<Box<C>>,
    started: Timestamp,
    last_seen: Timestamp,
    pub(super) ends: Ends,
    key: Key,
    previous: u32,
    next: u32,
    /// A number that the owner may note; 0 at the start.
    pub label: u16,
    /// Anomalies that were reported already.
    pub reported: AnomalySet,
    /// What was decided.
    pub verdict: Verdict,
    class: Class,
}

/// What is known of a flow's two ends by their headers: small enough to be put back when a segment is
/// refused.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    pub(super) streams: [Stream; 2],
    /// Initial sequence number of a SYN that may begin the flow anew.
    pub(super) reopening: Option<(u32, End)>,
    pub(super) client: End,
    /// Whether it is certain who the client is.
    pub(super) client_known: bool,
}

/// What of a flow changes while a segment of it is read, each for itself.
pub struct Parts<'f, C> {
    /// What was collected and understood so far.
    pub conversation: &'f mut Option<Box<C>>,
    /// What the segment's sender sends.
    pub own: &'f mut Stream,
    /// What its peer sends.
    pub peer: &'f mut Stream,
    /// Anomalies that were reported already.
    pub reported: &'f mut AnomalySet,
}

impl Ends {
    pub(super) const fn new(client: End) -> Self {
        let streams = [Stream::NEW, Stream::NEW];
        Self { streams, reopening: None, client, client_known: false }
    }

    pub(super) const fn stream(&self, end: End) -> &Stream {
        let [low, high] = &self.streams;
        match end {
            End::Low => low,
            End::High => high,
        }
    }

    pub(super) const fn stream_mut(&mut self, end: End) -> &mut Stream {
        let [low, high] = &mut self.streams;
        match end {
            End::Low => low,
            End::High => high,
        }
    }
}

const _: () = assert!(size_of::<Flow<()>>() <= 152, "a million flows fit into 256 MiB");

impl<C> Flow<C> {
    fn new(key: Key, client: End, now: Timestamp) -> Self {
        Self {
            conversation: None,
            started: now,
            last_seen: now,
            ends: Ends::new(client),
            key,
            previous: NONE,
            next: NONE,
            label: 0,
            reported: AnomalySet::default(),
            verdict: Verdict::Undecided,
            class: Class::Opening,
        }
    }

    /// What is known of its ends by their headers.
    pub const fn ends(&self) -> &Ends {
        &self.ends
    }

    /// Goes back to what was known before a segment that is refused.
    pub const fn restore(&mut self, ends: Ends) {
        self.ends = ends;
    }

    /// What changes while a segment of one end is read.
    pub const fn parts(&mut self, from: End) -> Parts<'_, C> {
        let [low, high] = &mut self.ends.streams;
        let (own, peer) = match from {
            End::Low => (low, high),
            End::High => (high, low),
        };
        Parts { conversation: &mut self.conversation, own, peer, reported: &mut self.reported }
    }

    /// Whether only one end was ever heard, and its SYN neither seen nor answered.
    pub fn is_one_way(&self) -> bool {
        use super::stream::Known;
        let [low, high] = &self.ends.streams;
        low.known.has(Known::HEARD) != high.known.has(Known::HEARD)
    }

    /// Whether a SYN of one end is all that was seen.
    pub fn is_opening(&self) -> bool {
        let [low, high] = &self.ends.streams;
        let alone =
            |one: &Stream, other: &Stream| one.is_from_start() && !one.is_acknowledged() && !other.is_open();
        alone(low, high) || alone(high, low)
    }

    /// Begins the flow anew in its middle.
    pub fn begin_amid(&mut self, client: End, now: Timestamp) {
        self.restart(client, now);
    }

    /// Whether one end has acknowledged what was seen of the other: somebody who only forges packets of
    /// one of them can't make it so.
    pub fn is_confirmed(&self) -> bool {
        self.ends.streams.iter().any(|stream| stream.known.has(super::stream::Known::CONFIRMED))
    }

    /// Its key.
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// When its first packet was seen.
    pub const fn started(&self) -> Timestamp {
        self.started
    }

    /// Where it stands.
    pub const fn class(&self) -> Class {
        self.class
    }

    /// Which side an end is.
    pub fn side(&self, end: End) -> Side {
        if end == self.ends.client { Side::Client } else { Side::Server }
    }

    /// Which end a side is.
    pub const fn end(&self, side: Side) -> End {
        match side {
            Side::Client => self.ends.client,
            Side::Server => self.ends.client.other(),
        }
    }

    /// Whether the handshake, or what was taken for certain, told who the client is.
    pub const fn client_known(&self) -> bool {
        self.ends.client_known
    }

    /// Says that `end` is the client.
    pub fn set_client(&mut self, end: End) {
        self.ends.client = end;
        self.ends.client_known = true;
    }

    /// What one end sends.
    pub const fn stream(&self, end: End) -> &Stream {
        self.ends.stream(end)
    }

    /// What one end sends.
    pub const fn stream_mut(&mut self, end: End) -> &mut Stream {
        self.ends.stream_mut(end)
    }

    /// Forgets everything but the key: the ends begin a new connection.
    pub(super) fn restart(&mut self, client: End, now: Timestamp) {
        let fresh = Self::new(self.key, client, now);
        let (previous, next, class) = (self.previous, self.next, self.class);
        *self = Self { previous, next, class, last_seen: self.last_seen, ..fresh };
    }
}

#[derive(Debug, Clone, Copy)]
struct List {
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
    lists: [List; 6],
    limit: usize,
}

impl<C> FlowTable<C> {
    /// A table for at most `limit` flows. Only the index is allocated at once.
    pub fn new(limit: usize) -> Self {
        let limit = limit.clamp(1, NONE as usize - 1);
        Self {
            index: HashTable::with_capacity(limit),
            seed: ahash::RandomState::new(),
            chunks: Vec::new(),
            free: NONE,
            lists: [List { oldest: NONE, newest: NONE, length: 0 }; 6],
            limit,
        }
    }

    /// Flows in the table.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is room for no more.
    pub fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// Flows of one class.
    pub const fn count(&self, class: Class) -> usize {
        self.lists[class as usize].length
    }

    /// The flow with this key.
    pub fn find(&self, key: &Key) -> Option<FlowId> {
        let hash = key.hash(&self.seed);
        let chunks = &self.chunks;
        self.index.find(hash, |slot| entry(chunks, *slot).key == *key).map(|slot| FlowId(*slot))
    }

    /// A new flow, of class [`Class::Opening`]; the one with this key if there is one.
    ///
    /// # Errors
    ///
    /// [`FullTable`] when the limit is reached.
    pub fn insert(&mut self, key: Key, client: End, now: Timestamp) -> Result<FlowId, FullTable> {
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
        self.link(slot, Class::Opening);
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

    /// Notes that a packet of the flow was seen.
    pub fn touch(&mut self, id: FlowId, now: Timestamp) {
        let flow = self.get_mut(id);
        if now.since(flow.last_seen) >= ORDER_GRAIN {
            flow.last_seen = now;
            let class = flow.class;
            self.unlink(id.0);
            self.link(id.0, class);
        }
    }

    /// Puts the flow into another class.
    pub fn set_class(&mut self, id: FlowId, class: Class, now: Timestamp) {
        if self.get(id).class != class {
            self.unlink(id.0);
            self.get_mut(id).last_seen = now;
            self.link(id.0, class);
        }
    }

    /// The flow of a class that was seen longest ago.
    pub const fn oldest(&self, class: Class) -> Option<FlowId> {
        match self.lists[class as usize].oldest {
            NONE => None,
            slot => Some(FlowId(slot)),
        }
    }

    /// Flows of a class from the one that was seen longest ago on.
    pub fn by_age(&self, class: Class) -> impl Iterator<Item = FlowId> {
        let mut slot = self.lists[class as usize].oldest;
        std::iter::from_fn(move || {
            let id = (slot != NONE).then_some(FlowId(slot))?;
            slot = self.get(id).next;
            Some(id)
        })
    }

    /// Flows that there is room for.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// A flow of the class that was not seen for `timeout`, if there is one.
    pub fn expired(&self, class: Class, timeout: Duration, now: Timestamp) -> Option<FlowId> {
        let oldest = self.oldest(class)?;
        (now.since(self.get(oldest).last_seen) >= timeout).then_some(oldest)
    }

    /// Forgets a flow and gives what was known of its conversation back.
    pub fn remove(&mut self, id: FlowId) -> Option<Box<C>> {
        let hash = self.get(id).key.hash(&self.seed);
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
        flow.next = free;
        self.free = slot;
        flow.conversation.take()
    }

    /// Puts an unlinked flow at the newest end of a class.
    fn link(&mut self, slot: u32, class: Class) {
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
