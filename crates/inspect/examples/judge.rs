//! Inspects a capture with a file of rules:
//! `cargo run -p bannerwall-inspect --example judge RULES.toml CAPTURE.pcap`.

use std::{env, error::Error, fs, sync::Arc};

use bannerwall_inspect::engine::{ChecksumState, Engine, EngineConfig, PacketInput};
use bannerwall_inspect::event::{EventKind, Timestamp};
use bannerwall_inspect::packet::link::{FrameContent, carried};
use bannerwall_inspect::rules::RuleSet;
use pcap_parser::pcap::parse_pcap;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(rules), Some(capture)) = (arguments.next(), arguments.next()) else {
        return Err("usage: judge RULES.toml CAPTURE.pcap".into());
    };
    let rules = RuleSet::parse(&rules, &fs::read_to_string(&rules)?)?.rules;
    let mut engine = Engine::new(EngineConfig::default(), Arc::new(rules), None);
    let mut events = Vec::new();
    let octets = fs::read(capture)?;
    let (_, capture) = parse_pcap(&octets).map_err(|error| format!("not a capture: {error}"))?;
    let link = u16::try_from(capture.header.network.0)?;
    for block in &capture.blocks {
        let now =
            Timestamp::from_nanos(u64::from(block.ts_sec) * 1_000_000_000 + u64::from(block.ts_usec) * 1_000);
        let FrameContent::Ip { packet: ip, .. } = carried(link, block.data) else { continue };
        let wire_length = ip.len();
        let checksums = ChecksumState::Verify;
        let packet =
            PacketInput { now, ip, wire_length, checksums, interface: None, vlan: &[], packet_number: None };
        engine.inspect(&packet, &mut events);
    }
    for event in &events {
        if let EventKind::Alert(alert) = &event.kind {
            println!("{} {}: {}", event.timestamp, alert.rule, alert.banner);
        }
    }
    Ok(())
}
