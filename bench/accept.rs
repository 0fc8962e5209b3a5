//! The source alone: accepts every packet without looking at it, to tell the cost of a backend from
//! the cost of inspection.
//!
//! usage: `accept QUEUE libnetfilter_queue|nfq`; prints its counts on SIGTERM or SIGINT.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use bannerwall::testing::guard::source::{PacketAnswer, PacketVerdict, QueueBackend, SourceConfig};
use signal_hook::consts::{SIGINT, SIGTERM};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().collect();
    let [_program, queue, backend] = arguments.as_slice() else {
        bail!("usage: accept QUEUE libnetfilter_queue|nfq");
    };
    let queue = queue.parse().context("QUEUE is a number up to 65535")?;
    let backend =
        QueueBackend::ALL.into_iter().find(|known| known.name() == backend).context("no such backend")?;
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&stop))?;
    signal_hook::flag::register(SIGINT, Arc::clone(&stop))?;
    let mut source = SourceConfig { backend, ..SourceConfig::new(queue) }.open()?;
    eprintln!("ready");
    while !stop.load(Ordering::Relaxed) {
        source.next_batch(&mut |_packet| PacketAnswer::new(PacketVerdict::Accept))?;
    }
    eprintln!("{:?}", source.statistics());
    source.close()?;
    Ok(())
}
