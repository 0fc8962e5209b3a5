//! Accepts the packets of a queue, and tells once a second how many came and what was lost.
//!
//! ```sh
//! iptables -A OUTPUT -p udp --dport 9 -j NFQUEUE --queue-num 5 --queue-bypass
//! cargo run --example count 5
//! ```

use std::time::{Duration, Instant};

use bannerwall_ffi::error::QueueError;
use bannerwall_ffi::queue::{Queue, QueueConfig, Verdict};

fn main() -> Result<(), QueueError> {
    let number = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut queue = Queue::bind(&QueueConfig::new(number))?;
    let mut told = Instant::now();
    loop {
        let mut batch = queue.receive()?;
        while let Some(packet) = batch.next_packet() {
            packet.verdict(Verdict::Accept, None, None);
        }
        batch.finish()?;
        if told.elapsed() >= Duration::from_secs(1) {
            told = Instant::now();
            let counters = queue.counters();
            println!(
                "{} packets by {} calls, {} missed",
                counters.packets, counters.receives, counters.missed
            );
        }
    }
}
