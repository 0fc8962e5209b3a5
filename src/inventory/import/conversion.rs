//! Conversion of other programs' terms into bannerwall's.

use std::net::IpAddr;

use crate::banner::unread_protocols::OtherProtocol;
use crate::event::{Protocol, Side, Timestamp};
use crate::inventory::banner_product::named;
use crate::inventory::sighting::{AssetBanner, AssetKey, BannerKind, NamedSoftware, UNKNOWN, banner};

/// Other programs' names of protocols.
const NAMES: [(&str, &str); 9] = [
    ("ssl", "tls"),
    ("https", "tls"),
    ("http-proxy", "http"),
    ("http-alt", "http"),
    ("ms-wbt-server", "rdp"),
    ("microsoft-ds", "smb"),
    ("netbios-ssn", "smb"),
    ("vnc", "rfb"),
    ("submission", "smtp"),
];

/// Returns the protocol of a name.
pub(super) fn protocol(name: &str) -> &'static str {
    let name = name.trim().to_ascii_lowercase();
    let name = NAMES.iter().find(|(other, _)| *other == name).map_or(name.as_str(), |(_, own)| own);
    let read = Protocol::named(name).map(Protocol::name);
    read.or_else(|| OtherProtocol::named(name).map(OtherProtocol::name)).unwrap_or(UNKNOWN)
}

/// Returns a server, if address and port are valid.
pub(super) fn server(address: &str, port: u64, protocol: &'static str) -> Option<AssetKey> {
    let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
    Some(AssetKey { address: canonical(address)?, port, side: Side::Server, protocol })
}

/// Returns a client, if the address is valid.
pub(super) fn client(address: &str, protocol: &'static str) -> Option<AssetKey> {
    Some(AssetKey { address: canonical(address)?, port: 0, side: Side::Client, protocol })
}

/// Returns an address; an IPv4-mapped one as IPv4.
pub(super) fn canonical(address: &str) -> Option<IpAddr> {
    address.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// Returns the banner and its software. Some programs omit the start of an SSH identification.
pub(super) fn says(protocol: &'static str, text: &str) -> (AssetBanner, NamedSoftware) {
    let text = text.trim();
    if protocol != "ssh" || text.is_empty() {
        return (banner(text), NamedSoftware { product: named(text), patch: None });
    }
    let software =
        text.strip_prefix("SSH-").and_then(|rest| rest.split_once('-')).map_or(text, |(_, rest)| rest);
    let patch = software.split_once(' ').map(|(_, comments)| comments.trim().to_owned());
    let patch = patch.filter(|comments| !comments.is_empty());
    let line = if text.starts_with("SSH-") { text.to_owned() } else { format!("SSH-2.0-{text}") };
    (banner(&line), NamedSoftware { product: named(software), patch })
}

/// Returns the fingerprint of a key exchange.
pub(super) fn hassh(hash: &str) -> (AssetBanner, NamedSoftware) {
    (AssetBanner::new(BannerKind::Hassh, hash), NamedSoftware::default())
}

/// Returns fingerprint and type of a host key.
pub(super) fn host_key(name: &str) -> (AssetBanner, NamedSoftware) {
    (AssetBanner::new(BannerKind::HostKey, name), NamedSoftware::default())
}

/// Parses a time: seconds since the epoch with a fraction, or RFC 3339, also with an offset without a
/// colon.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return u64::try_from(time.as_nanosecond()).ok().map(Timestamp::from_nanos);
    }
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: u64 = seconds.parse().ok()?;
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let nanos: u64 = digits.parse().ok()?;
    Some(Timestamp::from_nanos(seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_protocols_of_others_are_understood() {
        let nanos = |text: &str| time(text).map(Timestamp::as_nanos);
        assert_eq!(nanos("1700000000.5"), Some(1_700_000_000_500_000_000));
        assert_eq!(nanos("1700000000"), Some(1_700_000_000_000_000_000));
        for text in
            ["2023-11-14T22:13:20.500000+0000", "2023-11-14T22:13:20.5Z", "2023-11-14T23:13:20.5+01:00"]
        {
            assert_eq!(nanos(text), Some(1_700_000_000_500_000_000), "{text}");
        }
        for text in ["", "-", "soon", "-1", "99999999999999999999", "1.x"] {
            assert_eq!(nanos(text), None, "{text}");
        }
        let protocols = ["SSH", "ssl", "http", "mysql", "gopher"].map(protocol);
        assert_eq!(protocols, ["ssh", "tls", "http", "mysql", "unknown"]);
    }

    #[test]
    fn an_identification_is_whole_whoever_tells_it() {
        for text in ["SSH-2.0-OpenSSH_9.2p1 Debian-2", "OpenSSH_9.2p1 Debian-2"] {
            let (banner, software) = says("ssh", text);
            assert_eq!(banner.text, "SSH-2.0-OpenSSH_9.2p1 Debian-2");
            assert_eq!(software.product.version.as_deref(), Some("9.2p1"));
            assert_eq!(software.patch.as_deref(), Some("Debian-2"));
        }
        assert_eq!(says("ssh", "").0.text, "");
    }
}
