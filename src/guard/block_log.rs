//! The last blocked connections, which `bannerwall why` shows.
//!
//! Memory is bounded: a few entries per client and a fixed number of clients. The oldest are evicted. A
//! connection that is blocked again for the same reason increments the count of its entry.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::event::{Endpoint, Event, EventKind, MatchedText, Timestamp};
use crate::output::AlertTotals;
use crate::terms::cut;

/// Maximum number of clients with entries.
const CLIENTS: usize = 1024;
/// Maximum number of entries per client.
const ENTRIES: usize = 8;
/// Maximum length of a stored text, in bytes.
const TEXT: usize = 256;

/// Connections of one client that were blocked for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockEntry {
    /// Time of the first connection.
    pub first: Timestamp,
    /// Time of the last connection.
    pub last: Timestamp,
    /// Number of connections.
    pub count: u64,
    /// The client, with the port of the last connection.
    pub client: SocketAddr,
    /// The server.
    pub server: SocketAddr,
    /// `TCP` or `UDP`.
    pub transport: String,
    /// The rule or policy that blocked it; absent if another reason did.
    pub rule: Option<String>,
    /// `drop` or `reject`.
    pub action: String,
    /// The reason if no rule blocked it, as in `drop` events.
    pub reason: Option<String>,
    /// Sender of the banner.
    pub from: String,
    /// The line of the last banner that decided.
    pub banner: String,
    /// The field that matched, and its value in the last banner.
    pub matched: Option<MatchedText>,
}

impl BlockEntry {
    /// Returns the block that an event reports.
    fn of(event: &Event) -> Option<Self> {
        if !matches!(event.kind, EventKind::Alert(_) | EventKind::Drop(_)) {
            return None;
        }
        let flow = event.flow.as_ref()?;
        let block = Self {
            first: event.timestamp,
            last: event.timestamp,
            count: 1,
            client: address(flow.endpoints.client),
            server: address(flow.endpoints.server),
            transport: flow.transport.name().to_owned(),
            rule: None,
            action: "drop".to_owned(),
            reason: None,
            from: flow.from.map(|from| from.name().to_owned()).unwrap_or_default(),
            banner: String::new(),
            matched: None,
        };
        match &event.kind {
            EventKind::Alert(facts) if facts.blocked => Some(Self {
                rule: Some(facts.rule.clone()),
                action: facts.action.name().to_owned(),
                from: facts.from.name().to_owned(),
                banner: short(&facts.banner),
                matched: facts.matched.as_deref().map(shortened),
                ..block
            }),
            // Rules and policies also emit an alert, which carries more fields.
            EventKind::Drop(facts) if facts.rule.is_none() => {
                Some(Self { reason: Some(facts.reason.name().to_owned()), ..block })
            }
            _ => None,
        }
    }

    /// True if the address, with the port if one is given, is the client or the server.
    fn involves(&self, address: IpAddr, port: Option<u16>) -> bool {
        [self.client, self.server]
            .iter()
            .any(|end| end.ip() == address && port.is_none_or(|port| end.port() == port))
    }

    fn is_like(&self, other: &Self) -> bool {
        self.server == other.server
            && self.rule == other.rule
            && self.transport == other.transport
            && self.reason == other.reason
    }
}

fn short(text: &str) -> String {
    cut(text, TEXT).to_owned()
}

fn shortened(matched: &MatchedText) -> MatchedText {
    MatchedText { field: matched.field.clone(), text: short(&matched.text) }
}

fn address(end: Endpoint) -> SocketAddr {
    SocketAddr::new(end.address.to_canonical(), end.port)
}

/// The blocks and the totals of alerts that all threads of a guard share. The packet path takes the lock of
/// the totals only for alerts, and that of the clients only for blocked connections.
#[derive(Debug, Default)]
pub(super) struct BlockLog {
    clients: Mutex<HashMap<IpAddr, VecDeque<BlockEntry>>>,
    totals: Mutex<AlertTotals>,
}

impl BlockLog {
    /// Stores the block that an event reports, if it reports one.
    pub(super) fn record(&self, event: &Event) {
        if matches!(event.kind, EventKind::Alert(_)) {
            self.totals.lock().unwrap_or_else(PoisonError::into_inner).record(event);
        }
        if let Some(block) = BlockEntry::of(event) {
            self.add(block);
        }
    }

    /// Returns the totals of alerts and blocks as text.
    pub(super) fn totals(&self) -> String {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner).to_string()
    }

    fn add(&self, mut block: BlockEntry) {
        let mut clients = self.lock();
        let entries = clients.entry(block.client.ip()).or_default();
        // Moved to the end: the entry that was not repeated for longest is evicted first.
        if let Some(known) = entries.iter().position(|known| known.is_like(&block))
            && let Some(known) = entries.remove(known)
        {
            block.count = block.count.saturating_add(known.count);
            block.first = known.first.min(block.first);
        }
        if entries.len() >= ENTRIES {
            entries.pop_front();
        }
        entries.push_back(block);
        if clients.len() > CLIENTS {
            let last = |entries: &VecDeque<BlockEntry>| entries.back().map(|block| block.last);
            let oldest = clients.iter().min_by_key(|(_, entries)| last(entries)).map(|(client, _)| *client);
            oldest.map(|client| clients.remove(&client));
        }
    }

    /// Returns the blocks of connections from or to an address, the latest first.
    pub(super) fn of(&self, address: IpAddr, port: Option<u16>) -> Vec<BlockEntry> {
        let address = address.to_canonical();
        let mut found: Vec<BlockEntry> =
            self.lock().values().flatten().filter(|block| block.involves(address, port)).cloned().collect();
        found.sort_by_key(|block| std::cmp::Reverse(block.last));
        found
    }

    /// Returns all blocks, for the guard that takes over.
    pub(super) fn all(&self) -> Vec<BlockEntry> {
        let mut all: Vec<BlockEntry> = self.lock().values().flatten().cloned().collect();
        all.sort_by_key(|block| block.last);
        all
    }

    /// Adds the blocks of the guard that this one takes over from.
    pub(super) fn restore(&self, blocks: Vec<BlockEntry>) {
        blocks.into_iter().for_each(|block| self.add(block));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, VecDeque<BlockEntry>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(client: u32, port: u16, rule: &str, second: u64) -> BlockEntry {
        let at = Timestamp::from_nanos(second * 1_000_000_000);
        BlockEntry {
            first: at,
            last: at,
            count: 1,
            client: SocketAddr::new(IpAddr::V4((0xc633_6400 + client).into()), port),
            server: "192.0.2.1:22".parse().unwrap(),
            transport: "TCP".to_owned(),
            rule: Some(rule.to_owned()),
            action: "drop".to_owned(),
            reason: None,
            from: "server".to_owned(),
            banner: String::new(),
            matched: None,
        }
    }

    #[test]
    fn the_same_again_is_counted_and_a_client_has_few_entries() {
        let log = BlockLog::default();
        (0..100).for_each(|second| log.add(block(7, 1000 + u16::try_from(second).unwrap(), "a", second)));
        let client = "198.51.100.7".parse().unwrap();
        let [found] = &log.of(client, None)[..] else { panic!("one entry") };
        assert_eq!((found.count, found.client.port()), (100, 1099));
        assert_eq!((found.first.as_nanos(), found.last.as_nanos()), (0, 99_000_000_000));
        (0..100).for_each(|second| log.add(block(7, 1, &format!("rule-{second}"), 100 + second)));
        let found = log.of("::ffff:198.51.100.7".parse().unwrap(), None);
        let rules: Vec<&str> = found.iter().filter_map(|block| block.rule.as_deref()).collect();
        assert_eq!(rules.len(), ENTRIES);
        assert_eq!(rules.first(), Some(&"rule-99"));
        assert!(log.of(client, Some(9)).is_empty(), "another port");
        assert_eq!(log.of("192.0.2.1".parse().unwrap(), Some(22)).len(), ENTRIES, "the server's side");
    }

    #[test]
    fn the_clients_that_were_blocked_longest_ago_are_evicted() {
        let log = BlockLog::default();
        let many = u32::try_from(CLIENTS).unwrap() + 10;
        (0..many).for_each(|client| log.add(block(client, 1, "a", u64::from(client))));
        let all = log.all();
        assert_eq!(all.len(), CLIENTS);
        assert_eq!(all[0].client.ip(), IpAddr::V4((0xc633_6400 + 10).into()));
        let next = BlockLog::default();
        next.restore(all.clone());
        assert_eq!(next.all(), all);
    }
}
