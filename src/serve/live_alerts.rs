//! Live alerts of the guard that serves this page: keeps the last ones for watching browsers.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::event::Event;
use crate::inventory::LiveAlert;
use crate::output::consumer::ConsumerThread;
use crate::output::{ChannelHandle, EventConsumer, OverflowPolicy, WriterConfig};

/// Number of kept alerts.
const REMEMBERED: usize = 512;

/// Queue of the alert feed; if it is full, further alerts are not shown. The guard never waits for it.
const ROOM: WriterConfig =
    WriterConfig { capacity: 1 << 12, octets: 16 << 20, overflow: OverflowPolicy::Count };

/// Alerts by their numbers, from 1.
#[derive(Debug, Default)]
struct AlertHistory {
    alerts: VecDeque<Arc<LiveAlert>>,
    /// Number of the last alert.
    last: u64,
}

/// Alerts for the page's readers.
#[derive(Debug, Default)]
pub(super) struct RecentAlerts {
    remembered: Mutex<AlertHistory>,
    news: Notify,
}

/// Feeds a guard's alerts to its page.
#[derive(Debug)]
pub struct AlertFeed {
    feed: ConsumerThread<AlertConsumer>,
    board: Arc<RecentAlerts>,
}

/// Sender to the page, for one thread.
#[derive(Debug, Clone)]
pub struct AlertSender(ChannelHandle);

#[derive(Debug)]
struct AlertConsumer {
    sensor: String,
    board: Arc<RecentAlerts>,
}

impl AlertFeed {
    /// Starts the thread that receives alerts; `sensor` names their source, `guard/edge`.
    ///
    /// # Errors
    ///
    /// The system cannot start a thread.
    pub fn start(sensor: String) -> io::Result<Self> {
        let board = Arc::<RecentAlerts>::default();
        let feed = ConsumerThread::open("alerts", ROOM, AlertConsumer { sensor, board: Arc::clone(&board) })?;
        Ok(Self { feed, board })
    }

    /// Returns a sender to the page.
    pub fn caller(&self) -> AlertSender {
        AlertSender(self.feed.handle())
    }

    pub(super) fn board(&self) -> Arc<RecentAlerts> {
        Arc::clone(&self.board)
    }
}

impl AlertSender {
    /// Sends an event to the page, if it is an alert. Never blocks.
    pub fn show(&self, event: &Arc<Event>) {
        if matches!(event.kind, crate::event::EventKind::Alert(_)) {
            self.0.share(event);
        }
    }
}

impl EventConsumer for AlertConsumer {
    fn take(&mut self, event: &Event) {
        if let Some(alert) = LiveAlert::from_event(event, &self.sensor) {
            self.board.put(alert);
        }
    }

    fn end(&mut self) {}
}

impl RecentAlerts {
    pub(super) fn put(&self, alert: LiveAlert) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.alerts.len() >= REMEMBERED {
            remembered.alerts.pop_front();
        }
        remembered.alerts.push_back(Arc::new(alert));
        remembered.last += 1;
        // The lock is released before the readers wake up, since each of them takes it at once.
        drop(remembered);
        self.news.notify_waiters();
    }

    /// Returns the kept alerts after a number, each with its own number.
    pub(super) fn behind(&self, number: u64) -> Vec<(u64, Arc<LiveAlert>)> {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let count = remembered.alerts.len() as u64;
        // A larger number comes from an earlier run of the guard, so the reader gets all alerts.
        let number = if number > remembered.last { 0 } else { number };
        let wanted = remembered.last.saturating_sub(number).min(count);
        let newest = remembered.alerts.iter().skip(usize::try_from(count - wanted).unwrap_or(usize::MAX));
        (remembered.last - wanted + 1..).zip(newest.cloned()).collect()
    }

    /// Waits for the next alert.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::inventory::InventoryTime;

    pub(in super::super) fn alert(rule: &str) -> LiveAlert {
        LiveAlert {
            at: InventoryTime::now(),
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
        let board = RecentAlerts::default();
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
