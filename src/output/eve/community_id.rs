//! Community ID version 1: a string for a flow that all tools compute alike
//! (<https://github.com/corelight/community-id-spec>).

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};

use crate::event::{Endpoint, FlowEndpoints, TransportProtocol};

/// Returns the id of a flow with seed 0, the same for both directions.
pub(super) fn community_id(endpoints: &FlowEndpoints, transport: TransportProtocol) -> String {
    let (low, high) = ordered(endpoints);
    let mut hash = Sha1::new();
    hash.update(0_u16.to_be_bytes());
    update_address(&mut hash, low.address);
    update_address(&mut hash, high.address);
    hash.update([transport.number(), 0]);
    hash.update(low.port.to_be_bytes());
    hash.update(high.port.to_be_bytes());
    let mut id = String::with_capacity("1:".len() + 28);
    id.push_str("1:");
    STANDARD.encode_string(hash.finalize(), &mut id);
    id
}

/// Returns the smaller end first: by address bytes, then by port.
fn ordered(endpoints: &FlowEndpoints) -> (Endpoint, Endpoint) {
    let FlowEndpoints { client, server } = *endpoints;
    if (client.address, client.port) <= (server.address, server.port) {
        (client, server)
    } else {
        (server, client)
    }
}

fn update_address(hash: &mut Sha1, address: IpAddr) {
    match address {
        IpAddr::V4(address) => hash.update(address.octets()),
        IpAddr::V6(address) => hash.update(address.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(client: (&str, u16), server: (&str, u16)) -> FlowEndpoints {
        let end = |(address, port): (&str, u16)| Endpoint { address: address.parse().unwrap(), port };
        FlowEndpoints { client: end(client), server: end(server) }
    }

    /// The specification's baseline for UDP over IPv4.
    #[test]
    fn flows_of_udp_have_ids_of_their_own() {
        let ends = endpoints(("192.168.1.52", 54585), ("8.8.8.8", 53));
        assert_eq!(community_id(&ends, TransportProtocol::Udp), "1:d/FP5EW3wiY1vCndhwleRRKHowQ=");
    }

    /// From the specification's baseline for TCP over IPv4 and IPv6, seed 0.
    #[test]
    fn the_specifications_examples() {
        let forward = endpoints(("128.232.110.120", 34855), ("66.35.250.204", 80));
        let backward = endpoints(("66.35.250.204", 80), ("128.232.110.120", 34855));
        assert_eq!(community_id(&forward, TransportProtocol::Tcp), "1:LQU9qZlK+B5F3KDmev6m5PMibrg=");
        assert_eq!(
            community_id(&backward, TransportProtocol::Tcp),
            community_id(&forward, TransportProtocol::Tcp)
        );
        let six =
            endpoints(("2001:470:e5bf:dead:4957:2174:e82c:4887", 63943), ("2607:f8b0:400c:c03::1a", 25));
        assert_eq!(community_id(&six, TransportProtocol::Tcp), "1:/qFaeAR+gFe1KYjMzVDsMv+wgU4=");
    }
}
