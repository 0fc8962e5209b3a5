//! Check of the `Host` field on a loopback server. A page of another site whose name resolves to this machine
//! (DNS rebinding) names that site.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, header};

/// True if a request names this machine: `localhost`, a loopback address, or the server's own address.
pub(crate) fn names_this_machine(headers: &HeaderMap, own: IpAddr) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host_of(host);
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        || name.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback())
        || name.parse() == Ok(own)
}

/// Returns the name in `name:port` or `[address]:port`.
fn host_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_sites_are_not_this_machine_s() {
        let own = IpAddr::from([127, 0, 0, 1]);
        let headers = |host: &str| HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
        for name in ["localhost:8642", "LOCALHOST", "127.0.0.1:8642", "[::1]:8642", "127.9.9.9"] {
            assert!(names_this_machine(&headers(name), own), "{name}");
        }
        for name in ["rebind.example", "localhost.example:8642", "198.51.100.1", "[2001:db8::1]:80", "", "["]
        {
            assert!(!names_this_machine(&headers(name), own), "{name}");
        }
        assert!(!names_this_machine(&HeaderMap::new(), own));
    }
}
