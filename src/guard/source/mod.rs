//! Interface between the guard and a netfilter queue: packets in, verdicts out.
//!
//! Two backends do the same work and pass the same tests. [`libnetfilter_queue`] uses our own binding of
//! `libnetfilter_queue` (many packets per receive call, many verdicts per send call). [`mod@nfq`] uses the
//! `nfq` crate (one packet and one verdict per call). Nothing here looks into a packet.

mod libnetfilter_queue;
mod nfq;
mod open;
mod packet_source;

pub use bannerwall_ffi::queue::{ConnectionMark, MAXIMUM_COPY_RANGE};

pub use self::packet_source::{
    BatchCounts, PacketAnswer, PacketSource, PacketVerdict, QueueBackend, QueueStatistics, QueuedPacket,
    SourceConfig, SourceError,
};
