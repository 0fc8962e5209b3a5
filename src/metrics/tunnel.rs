//! The tunnel's metric families.

use prometheus::{IntCounter, IntGauge};

use super::{MetricsError, MetricsRegistry};

/// Direction of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelDirection {
    /// From the device to the peer.
    Sent,
    /// From the peer to the device.
    Received,
}

impl TunnelDirection {
    const ALL: [Self; 2] = [Self::Sent, Self::Received];

    /// The name as a label and in text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Received => "received",
        }
    }
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// The reason why a packet, or a datagram, was dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum TunnelDrop {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl TunnelDrop {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name as a label and in text.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

reasons! {
    /// It has no result: the run ended, or there is a bug.
    Unfinished = "unfinished",
    /// It is no IP packet, no datagram of a tunnel, or its header for segmentation does not fit.
    Malformed = "malformed",
    /// The tunnel's own datagram, which the route to the peer leads into the tunnel.
    Loop = "loop",
    /// There is no route to the peer, or the peer does not listen.
    Unreachable = "unreachable",
    /// It is longer than the path to the peer allows.
    TooLong = "too_long",
    /// A buffer of the kernel was full.
    NoRoom = "no_room",
    /// The kernel did not send it for another reason, such as a firewall.
    NotSent = "not_sent",
    /// There are no keys with the peer, yet or any more.
    NoKey = "no_key",
    /// It cannot be decrypted: it is not the peer's, or was changed on the path.
    Forged = "forged",
    /// It was received before, or is too old to decide.
    Replayed = "replayed",
    /// A handshake that was not processed: there were too many.
    Crowd = "crowd",
    /// Parts of it were lost on the path.
    Incomplete = "incomplete",
    /// A part that is a duplicate, or contradicts others.
    Contradictory = "contradictory",
    /// It is not segmented yet or lacks its checksum, which requires offload at both ends.
    Offload = "offload",
    /// Rules or a policy blocked it.
    Judged = "judged",
    /// The device did not accept it; most often it is down.
    Device = "device",
}

/// The tunnel's families; clones share them.
#[derive(Debug, Clone)]
pub struct TunnelMetrics {
    packets: [IntCounter; 2],
    octets: [IntCounter; 2],
    datagrams: [IntCounter; 2],
    /// In the order of [`TunnelDrop::ALL`].
    dropped: Vec<IntCounter>,
    /// Length of the longest IP packet that reaches the peer in one piece.
    pub path_mtu: IntGauge,
    /// 1 while packets are sent before they are segmented, 0 while the kernel segments them.
    pub super_packets: IntGauge,
    /// Number of handshakes with the peer.
    pub handshakes: IntCounter,
}

impl TunnelMetrics {
    /// Registers the families, every label at zero.
    ///
    /// # Errors
    /// Returns an error if the registry has them already.
    pub fn new(registry: &MetricsRegistry) -> Result<Self, MetricsError> {
        let both_ways = |name, help| {
            let family = registry.counters(name, help, &["way"])?;
            Ok::<_, MetricsError>(TunnelDirection::ALL.map(|way| family.with_label_values(&[way.name()])))
        };
        let dropped = registry.counters(
            "tunnel_dropped_total",
            "Packets and datagrams dropped, by reason",
            &["reason"],
        )?;
        Ok(Self {
            packets: both_ways("tunnel_packets_total", "Packets through the tunnel, by way")?,
            octets: both_ways("tunnel_bytes_total", "Bytes of packets through the tunnel, by way")?,
            datagrams: both_ways("tunnel_datagrams_total", "Datagrams of the tunnel, by way")?,
            dropped: TunnelDrop::ALL.iter().map(|why| dropped.with_label_values(&[why.name()])).collect(),
            path_mtu: registry
                .gauge("tunnel_path_mtu_bytes", "Longest packet that reaches the peer whole, in bytes")?,
            super_packets: registry.gauge(
                "tunnel_super_packets",
                "1 if packets are sent unsegmented, 0 with --no-offload or after too many losses",
            )?,
            handshakes: registry.counter("tunnel_handshakes_total", "Key agreements with the peer")?,
        })
    }

    /// Number of packets in this direction.
    pub fn packets(&self, way: TunnelDirection) -> &IntCounter {
        &self.packets[way as usize]
    }

    /// Number of bytes of these packets.
    pub fn octets(&self, way: TunnelDirection) -> &IntCounter {
        &self.octets[way as usize]
    }

    /// Number of datagrams sent to the peer, or received from it.
    pub fn datagrams(&self, way: TunnelDirection) -> &IntCounter {
        &self.datagrams[way as usize]
    }

    /// Number of packets dropped for this reason.
    pub fn dropped(&self, reason: TunnelDrop) -> &IntCounter {
        &self.dropped[reason as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_is_there_from_the_start_and_its_own() {
        let registry = MetricsRegistry::default();
        let metrics = TunnelMetrics::new(&registry).expect("no family twice");
        for (index, reason) in TunnelDrop::ALL.iter().enumerate() {
            metrics.dropped(*reason).inc_by(index as u64);
        }
        metrics.packets(TunnelDirection::Received).inc_by(3);
        let text = registry.render().expect("they can be shown");
        let has = |line: &str| text.lines().any(|there| there == line);
        for (index, reason) in TunnelDrop::ALL.iter().enumerate() {
            let line = format!("bannerwall_tunnel_dropped_total{{reason=\"{}\"}} {index}", reason.name());
            assert!(has(&line), "{line}: {text}");
        }
        assert!(has("bannerwall_tunnel_packets_total{way=\"received\"} 3"), "{text}");
        assert!(has("bannerwall_tunnel_packets_total{way=\"sent\"} 0"), "{text}");
    }
}
