//! The alerts of the guard whose page this is, as they come: the last of them, for whoever watches.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::event::Event;
use crate::inventory::Alert;
use crate::output::consumer::Feed;
use crate::output::{Consumer, Handle, Overflow, WriterConfig};

/// Alerts that are remembered.
const REMEMBERED: usize = 512;

/// Room for those that come at once; more are not shown, and nobody waits for it.
const ROOM: WriterConfig = WriterConfig { capacity: 1 << 12, octets: 16 << 20, overflow: Overflow::Count };

/// Alerts by their numbers, from 1.
#[derive(Debug, Default)]
struct Remembered {
    alerts: VecDeque<Arc<Alert>>,
    /// The number of the last one.
    last: u64,
}

/// What watchers look at.
#[derive(Debug, Default)]
pub(super) struct Board {
    remembered: Mutex<Remembered>,
    news: Notify,
}

/// Takes a guard's alerts to its page.
#[derive(Debug)]
pub struct Alerts {
    feed: Feed<Crier>,
    board: Arc<Board>,
}

/// A way to the page, for one thread.
#[derive(Debug, Clone)]
pub struct Caller(Handle);

#[derive(Debug)]
struct Crier {
    sensor: String,
    board: Arc<Board>,
}

impl Alerts {
    /// Starts the thread that takes them; `sensor` says who sees them, `guard/edge`.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(sensor: String) -> io::Result<Self> {
        let board = Arc::<Board>::default();
        let feed = Feed::open("alerts", ROOM, Crier { sensor, board: Arc::clone(&board) })?;
        Ok(Self { feed, board })
    }

    /// A way to the page.
    pub fn caller(&self) -> Caller {
        Caller(self.feed.handle())
    }

    pub(super) fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }
}

impl Caller {
    /// Shows an event, if it is an alert. Does not wait.
    pub fn show(&self, event: &Arc<Event>) {
        if matches!(event.kind, crate::event::EventKind::Alert(_)) {
            self.0.share(event);
        }
    }
}

impl Consumer for Crier {
    fn take(&mut self, event: &Event) {
        if let Some(alert) = Alert::of(event, &self.sensor) {
            self.board.put(alert);
        }
    }

    fn end(&mut self) {}
}

impl Board {
    pub(super) fn put(&self, alert: Alert) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.alerts.len() >= REMEMBERED {
            remembered.alerts.pop_front();
        }
        remembered.alerts.push_back(Arc::new(alert));
        remembered.last += 1;
        drop(remembered);
        self.news.notify_waiters();
    }

    /// Those behind a number that are still remembered, each with its own.
    pub(super) fn behind(&self, number: u64) -> Vec<(u64, Arc<Alert>)> {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let count = remembered.alerts.len() as u64;
        // Numbers of another run say nothing here.
        let number = if number > remembered.last { 0 } else { number };
        let wanted = remembered.last.saturating_sub(number).min(count);
        let newest = remembered.alerts.iter().skip(usize::try_from(count - wanted).unwrap_or(usize::MAX));
        (remembered.last - wanted + 1..).zip(newest.cloned()).collect()
    }

    /// Waits for the next one.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::inventory::Time;

    pub(in super::super) fn alert(rule: &str) -> Alert {
        Alert {
            at: Time::now(),
            address: "198.51.100.1".to_owned(),
            port: 22,
            peer: "192.0.2.1".to_owned(),
            protocol: "ssh".to_owned(),
            side: "server".to_owned(),
            banner: String::new(),
            vendor: None,
            product: None,
            version: None,
            patch: None,
            cpe: None,
            os: None,
            rule: rule.to_owned(),
            title: String::new(),
            severity: "high".to_owned(),
            action: "drop".to_owned(),
            blocked: true,
            sensor: "guard/edge".to_owned(),
        }
    }

    #[test]
    fn the_last_alerts_are_remembered_by_number() {
        let board = Board::default();
        assert!(board.behind(0).is_empty());
        (1..=600).for_each(|rule| board.put(alert(&rule.to_string())));
        let told = |number| {
            let all = board.behind(number);
            assert!(all.iter().all(|(number, alert)| number.to_string() == alert.rule));
            (all.first().map(|(number, _)| *number), all.len())
        };
        assert_eq!(told(0), (Some(89), 512));
        assert_eq!(told(598), (Some(599), 2));
        assert_eq!(told(600), (None, 0));
        assert_eq!(told(9_999), (Some(89), 512), "of another run");
    }
}
