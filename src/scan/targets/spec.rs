//! Parser for one target or one list of ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::intervals::RangeSet;

/// Parsed target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TargetSpec {
    /// IPv4 addresses, first and last.
    V4(u32, u32),
    /// IPv6 addresses, first and last.
    V6(u128, u128),
    /// Host name to resolve.
    Name(String),
}

/// Parsed target with its port, if it has one.
pub(super) type Named = (TargetSpec, Option<u16>);

/// Parses the forms of [`parse`], one address or name with a port (`192.0.2.7:22`, `[2001:db8::1]:22`), or a
/// URL, of which only host and port count.
pub(super) fn parse_endpoint(word: &str) -> Result<Named, String> {
    if let Some((scheme, rest)) = word.split_once("://") {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let authority = rest.get(..end).unwrap_or_default();
        let (host, port) = split_port(authority)?;
        let usual = match scheme.to_ascii_lowercase().as_str() {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        let port =
            port.or(usual).ok_or_else(|| format!("`{scheme}://` has no default port: pass host:port"))?;
        return single_host(host, port);
    }
    match split_port(word)? {
        (host, Some(port)) => single_host(host, port),
        (word, None) => Ok((parse(word)?, None)),
    }
}

/// Splits the port from a host. IPv6 addresses need brackets before a port.
fn split_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if host.ends_with(']') || !host.contains(':') => (host, port),
        _ => return Ok((text, None)),
    };
    match port.parse() {
        Ok(port) if port > 0 => Ok((host, Some(port))),
        _ => Err(format!("`{port}` is not a port from 1 to 65535")),
    }
}

fn single_host(host: &str, port: u16) -> Result<Named, String> {
    match parse(host)? {
        TargetSpec::V4(first, last) if first != last => {
            Err("a port needs a single address or name".to_owned())
        }
        TargetSpec::V6(first, last) if first != last => {
            Err("a port needs a single address or name".to_owned())
        }
        spec => Ok((spec, Some(port))),
    }
}

/// Parses an address, `ADDRESS/PREFIX`, a range `A-B` or a host name.
pub(super) fn parse(word: &str) -> Result<TargetSpec, String> {
    if let Some((address, prefix)) = word.split_once('/') {
        return network(address, prefix);
    }
    if let Some(address) = address(word) {
        return Ok(single(address));
    }
    if let Some((first, last)) = word.split_once('-')
        && let Some(first) = address(first)
    {
        return range(first, last);
    }
    name(word)
}

/// Parses an address, IPv6 perhaps in brackets. An IPv4-mapped IPv6 address becomes the IPv4 address.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

fn single(address: IpAddr) -> TargetSpec {
    match address {
        IpAddr::V4(address) => TargetSpec::V4(address.to_bits(), address.to_bits()),
        IpAddr::V6(address) => TargetSpec::V6(address.to_bits(), address.to_bits()),
    }
}

fn network(text: &str, prefix: &str) -> Result<TargetSpec, String> {
    let address = address(text).ok_or_else(|| format!("`{text}` is not an address"))?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let length: u8 = prefix
        .parse()
        .ok()
        .filter(|length| *length <= bits)
        .ok_or_else(|| format!("the prefix length `/{prefix}` is not a number from 0 to {bits}"))?;
    Ok(match address {
        IpAddr::V4(address) => {
            let host = u32::MAX.checked_shr(length.into()).unwrap_or(0);
            TargetSpec::V4(address.to_bits() & !host, address.to_bits() | host)
        }
        IpAddr::V6(address) => {
            let host = u128::MAX.checked_shr(length.into()).unwrap_or(0);
            TargetSpec::V6(address.to_bits() & !host, address.to_bits() | host)
        }
    })
}

/// Parses `A-B`, where `B` is an address or only the end of one: `192.0.2.1-20`, `2001:db8::1-ff`.
fn range(first: IpAddr, last: &str) -> Result<TargetSpec, String> {
    let wrong = || format!("`{last}` cannot end a range that starts with {first}");
    let spec = match (first, address(last)) {
        (IpAddr::V4(first), Some(IpAddr::V4(last))) => TargetSpec::V4(first.to_bits(), last.to_bits()),
        (IpAddr::V6(first), Some(IpAddr::V6(last))) => TargetSpec::V6(first.to_bits(), last.to_bits()),
        (IpAddr::V4(first), None) => {
            TargetSpec::V4(first.to_bits(), tail(first, last).ok_or_else(wrong)?.to_bits())
        }
        (IpAddr::V6(first), None) => {
            let group = u16::from_str_radix(last, 16).map_err(|_| wrong())?;
            let end = (first.to_bits() & !0xffff) | u128::from(group);
            TargetSpec::V6(first.to_bits(), end)
        }
        _ => return Err(wrong()),
    };
    let backwards = match spec {
        TargetSpec::V4(first, last) => last < first,
        TargetSpec::V6(first, last) => last < first,
        TargetSpec::Name(_) => false,
    };
    if backwards { Err(format!("the range is reversed: {first} to {last}")) } else { Ok(spec) }
}

/// Returns `first` with its last bytes replaced by those of `text`.
fn tail(first: Ipv4Addr, text: &str) -> Option<Ipv4Addr> {
    let octets: Vec<u8> = text.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let mut address = first.octets();
    let kept = address.len().checked_sub(octets.len())?;
    address.get_mut(kept..)?.copy_from_slice(&octets);
    Some(address.into())
}

fn name(word: &str) -> Result<TargetSpec, String> {
    let plain = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
    };
    let labels = word.strip_suffix('.').unwrap_or(word);
    let last = labels.rsplit('.').next().unwrap_or_default();
    if word.contains('%') {
        return Err("addresses with a zone (`%eth0`) are not supported".to_owned());
    }
    if !last.is_empty() && last.chars().all(|c| c.is_ascii_digit() || c == '-') {
        return Err("not an IPv4 address, CIDR or range".to_owned());
    }
    if word.len() > 253 || !labels.split('.').all(plain) {
        return Err("neither an address, CIDR or range nor a host name".to_owned());
    }
    Ok(TargetSpec::Name(word.to_owned()))
}

/// Parses `22,80,8000-8010`; `-` alone or an open end (`-1024`, `60000-`) extends to the limit.
pub(super) fn ports(text: &str) -> Result<RangeSet<u16>, String> {
    text.split(',').map(|part| port_range(part.trim())).collect::<Result<_, _>>().map(RangeSet::new)
}

fn port_range(part: &str) -> Result<(u16, u16), String> {
    let wrong = || format!("`{part}` is not a port from 1 to 65535 or a range of them");
    let port = |text: &str, open: u16| match text {
        "" => Ok(open),
        text => text.parse().ok().filter(|port| *port != 0).ok_or_else(wrong),
    };
    let (first, last) = match part.split_once('-') {
        Some((first, last)) => (port(first, 1)?, port(last, u16::MAX)?),
        None if part.is_empty() => return Err(wrong()),
        None => (port(part, 0)?, port(part, 0)?),
    };
    if last < first { Err(format!("the range of ports is reversed: `{part}`")) } else { Ok((first, last)) }
}

/// Formats the first and last address of a range, for messages.
pub(super) fn show_v4(first: u32, last: u32) -> String {
    show(Ipv4Addr::from_bits(first).into(), Ipv4Addr::from_bits(last).into())
}

/// Formats the first and last address of a range, for messages.
pub(super) fn show_v6(first: u128, last: u128) -> String {
    show(Ipv6Addr::from_bits(first).into(), Ipv6Addr::from_bits(last).into())
}

fn show(first: IpAddr, last: IpAddr) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(word: &str) -> String {
        match parse(word) {
            Ok(TargetSpec::V4(first, last)) => show_v4(first, last),
            Ok(TargetSpec::V6(first, last)) => show_v6(first, last),
            Ok(TargetSpec::Name(name)) => format!("name {name}"),
            Err(error) => format!("error {error}"),
        }
    }

    #[test]
    fn addresses_networks_and_ranges() {
        for (word, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7/24", "192.0.2.0-192.0.2.255"),
            ("0.0.0.0/0", "0.0.0.0-255.255.255.255"),
            ("192.0.2.7/32", "192.0.2.7"),
            ("192.0.2.1-192.0.3.9", "192.0.2.1-192.0.3.9"),
            ("192.0.2.1-20", "192.0.2.1-192.0.2.20"),
            ("192.0.2.1-3.4", "192.0.2.1-192.0.3.4"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("2001:db8::/126", "2001:db8::-2001:db8::3"),
            ("2001:db8::1-2001:db8::ff", "2001:db8::1-2001:db8::ff"),
            ("2001:db8::1-ff", "2001:db8::1-2001:db8::ff"),
            ("::/0", "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("example.org", "name example.org"),
            ("my-host", "name my-host"),
            ("1-2.example.org", "name 1-2.example.org"),
            ("localhost", "name localhost"),
        ] {
            assert_eq!(shown(word), expected, "{word}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (word, part) in [
            ("192.0.2.300", "not an IPv4 address"),
            ("192.0.2", "not an IPv4 address"),
            ("192.0.2.0/33", "from 0 to 32"),
            ("2001:db8::/129", "from 0 to 128"),
            ("192.0.2.0/x", "prefix length"),
            ("192.0.2.9-3", "is reversed"),
            ("192.0.2.1-2001:db8::1", "cannot end a range"),
            ("192.0.2.1-1.2.3.4.5", "cannot end a range"),
            ("192.0.2.1-", "cannot end a range"),
            ("2001:db8::1-zz", "cannot end a range"),
            ("example.org/24", "is not an address"),
            ("http://example.org/", "is not an address"),
            ("fe80::1%eth0", "zone"),
            ("a b", "nor a host name"),
            ("", "nor a host name"),
            ("..", "nor a host name"),
        ] {
            let error = parse(word).unwrap_err();
            assert!(error.contains(part), "{word}: {error}");
        }
    }

    #[test]
    fn endpoints_and_urls() {
        let shown = |word: &str| match parse_endpoint(word) {
            Ok((TargetSpec::V4(first, _), port)) => format!("{} {port:?}", show_v4(first, first)),
            Ok((TargetSpec::V6(first, _), port)) => format!("{} {port:?}", show_v6(first, first)),
            Ok((TargetSpec::Name(name), port)) => format!("{name} {port:?}"),
            Err(error) => error,
        };
        for (word, expected) in [
            ("192.0.2.7:22", "192.0.2.7 Some(22)"),
            ("[2001:db8::1]:22", "2001:db8::1 Some(22)"),
            ("2001:db8::1:22", "2001:db8::1:22 None"),
            ("www.example:8443", "www.example Some(8443)"),
            ("www.example", "www.example None"),
            ("https://www.example/a:b?c#d", "www.example Some(443)"),
            ("HTTP://192.0.2.7", "192.0.2.7 Some(80)"),
            ("https://[2001:db8::1]:8443/x", "2001:db8::1 Some(8443)"),
            ("https://[2001:db8::1]?x", "2001:db8::1 Some(443)"),
            ("ssh://192.0.2.7:2222", "192.0.2.7 Some(2222)"),
            ("ssh://192.0.2.7", "`ssh://` has no default port: pass host:port"),
            ("192.0.2.7:0", "`0` is not a port from 1 to 65535"),
            ("192.0.2.7:", "`` is not a port from 1 to 65535"),
            ("192.0.2.7:70000", "`70000` is not a port from 1 to 65535"),
            ("192.0.2.1-9:22", "a port needs a single address or name"),
            ("https://a@b/", "neither an address, CIDR or range nor a host name"),
            ("://", "`://` has no default port: pass host:port"),
            ("http://", "neither an address, CIDR or range nor a host name"),
        ] {
            assert_eq!(shown(word), expected, "{word}");
        }
    }

    #[test]
    fn port_lists() {
        assert_eq!(ports("22,80,8000-8010,81").unwrap().ranges(), [(22, 22), (80, 81), (8000, 8010)]);
        assert_eq!(ports("-").unwrap().ranges(), [(1, 65535)]);
        assert_eq!(ports("-3,65534-").unwrap().ranges(), [(1, 3), (65534, 65535)]);
        for wrong in ["", "0", "65536", "22,,80", "x", "9-3", "22-x", "-0"] {
            assert!(ports(wrong).is_err(), "{wrong}");
        }
    }
}
