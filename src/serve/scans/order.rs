//! Order of a scan: checks it against the permissions, and builds the scan's arguments.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::fleet::ScanOrder;
use crate::scan::targets::{PortSet, addresses};

/// Limit of target words.
const TARGETS: usize = 256;

/// Limit of targets and of ports, in bytes.
const TEXT: usize = 8_192;

/// Default rate in targets a second, if permitted.
const RATE: u32 = 1_000;

/// Mode of the scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PageScanMode {
    /// Open ports.
    Connect,
    /// SSH identifications.
    Ssh,
    /// HTTP responses.
    Http,
    /// HTTP responses within TLS.
    Https,
    /// TLS handshakes and certificates.
    Tls,
    /// Greetings.
    Greeting,
}

impl PageScanMode {
    pub(crate) const ALL: [Self; 6] =
        [Self::Connect, Self::Ssh, Self::Http, Self::Https, Self::Tls, Self::Greeting];

    /// Returns the mode's name in `scan`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Ssh => "ssh",
            Self::Http => "http",
            Self::Https => "https",
            Self::Tls => "tls",
            Self::Greeting => "greeting",
        }
    }
}

/// Permitted scans.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ScanPermissions {
    /// Permitted networks; empty if scans are disabled.
    pub allowed: Vec<IpNet>,
    /// Rate limit, in targets a second.
    pub rate: u32,
}

impl ScanPermissions {
    /// Returns the default rate.
    pub(crate) fn usual_rate(&self) -> u32 {
        RATE.min(self.rate)
    }

    /// Checks a rate in targets a second.
    fn check_rate(&self, rate: u32) -> Result<(), String> {
        if (1..=self.rate).contains(&rate) {
            return Ok(());
        }
        Err(format!("rate: must be from 1 to {} targets a second (limit of --scan-rate)", self.rate))
    }

    /// Checks a job of the database, which somebody may have written by hand.
    ///
    /// # Errors
    ///
    /// The job is none that this page submits.
    pub(super) fn permit(&self, order: &ScanOrder, rate: Option<u32>) -> Result<(), String> {
        self.check_rate(rate.unwrap_or_default())?;
        if PageScanMode::ALL.iter().all(|mode| mode.name() != order.mode) {
            return Err(format!("{}: no mode of a page's scan", order.mode));
        }
        let is_own = |flag: &&String| {
            *flag == "--host-key" || ["--rate=", "--ports="].iter().any(|own| flag.starts_with(own))
        };
        if let Some(flag) = order.flags.iter().find(|flag| !is_own(flag)) {
            return Err(format!("{flag}: no flag of a page's scan"));
        }
        if !order.named.is_empty() || !order.endpoints.is_empty() {
            return Err("targets: a page's scan has no names and no ports of single addresses".to_owned());
        }
        order.targets.iter().try_for_each(|word| target(word, &self.allowed).map(drop))
    }
}

/// One scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageScanOrder {
    pub(crate) mode: PageScanMode,
    /// Addresses, networks and ranges, separated by spaces or commas.
    pub(crate) targets: String,
    /// Ports and ranges of ports; empty for the usual ones.
    pub(crate) ports: String,
    /// Rate in targets a second.
    pub(crate) rate: u32,
    /// True to request host keys of SSH servers.
    pub(crate) host_key: bool,
}

impl PageScanOrder {
    /// Returns the arguments of the scan.
    ///
    /// # Errors
    ///
    /// The order is invalid, or exceeds the permissions.
    pub(crate) fn words(&self, bounds: &ScanPermissions) -> Result<Vec<String>, String> {
        // The length comes first: the text is from the network, and parsing costs time.
        if self.targets.len() > TEXT || self.ports.len() > TEXT {
            return Err("targets and ports: too long".to_owned());
        }
        bounds.check_rate(self.rate)?;
        let mut words = vec![self.mode.name().to_owned(), "--rate".to_owned(), self.rate.to_string()];
        match (self.host_key, self.mode) {
            (true, PageScanMode::Ssh) => words.push("--host-key".to_owned()),
            (true, _) => return Err("host_key: only available in mode ssh".to_owned()),
            (false, _) => {}
        }
        match self.ports.trim() {
            // Only this mode has no default ports.
            "" if self.mode == PageScanMode::Connect => {
                return Err("ports: required, as in 22,80,8000-8010".to_owned());
            }
            "" => {}
            ports => {
                let ports: PortSet = ports.parse().map_err(|why| format!("ports: {why}"))?;
                words.extend(["--ports".to_owned(), ports.to_string()]);
            }
        }
        let targets = self.targets.split([' ', ',', '\t', '\r', '\n']).filter(|word| !word.is_empty());
        let targets: Vec<String> =
            targets.map(|word| target(word, &bounds.allowed)).collect::<Result<_, _>>()?;
        match targets.len() {
            0 => return Err("targets: required".to_owned()),
            count if count > TARGETS => return Err(format!("targets: more than {TARGETS} words")),
            // No target may be read as a flag.
            _ => words.push("--".to_owned()),
        }
        words.extend(targets);
        Ok(words)
    }
}

/// Returns a target for the scan, rebuilt from its parsed form so that no other argument can slip in.
fn target(word: &str, allowed: &[IpNet]) -> Result<String, String> {
    let ends = addresses(word).map_err(|why| format!("targets: {word}: {why}"))?;
    let Some((first, last)) = ends else {
        return Err(format!("targets: {word}: a name can resolve to any address; pass addresses"));
    };
    // A network is contiguous, so a range lies in it if both of its ends do.
    let is_within = |network: &IpNet| network.contains(&first) && network.contains(&last);
    if !allowed.iter().any(is_within) {
        return Err(format!("targets: {word}: not within the networks of --scan-allow"));
    }
    Ok(if first == last { first.to_string() } else { range(first, last) })
}

fn range(first: IpAddr, last: IpAddr) -> String {
    format!("{first}-{last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(targets: &str, ports: &str) -> PageScanOrder {
        PageScanOrder {
            mode: PageScanMode::Ssh,
            targets: targets.to_owned(),
            ports: ports.to_owned(),
            rate: 100,
            host_key: false,
        }
    }

    #[test]
    fn only_what_is_allowed_becomes_words_of_a_scan() {
        let allowed = ["192.0.2.0/25", "2001:db8::/64"].map(|net| net.parse().unwrap()).to_vec();
        let bounds = ScanPermissions { allowed, rate: 5_000 };
        let words = |targets: &str, ports: &str| order(targets, ports).words(&bounds).map(|it| it.join(" "));
        assert_eq!(
            words("192.0.2.7, 192.0.2.64/26\r\n[2001:db8::1]", "22,2222").unwrap(),
            "ssh --rate 100 --ports 22,2222 -- 192.0.2.7 192.0.2.64-192.0.2.127 2001:db8::1"
        );
        assert_eq!(words("192.0.2.1-192.0.2.9", " ").unwrap(), "ssh --rate 100 -- 192.0.2.1-192.0.2.9");
        for (targets, ports, why) in [
            ("192.0.2.0/24", "", "not within"),
            ("192.0.2.127-192.0.2.128", "", "not within"),
            ("0.0.0.0/0", "", "not within"),
            ("198.51.100.1", "", "not within"),
            ("::ffff:198.51.100.1", "", "not within"),
            ("2001:db8::/63", "", "not within"),
            ("localhost", "", "a name can resolve to any address"),
            ("-oX /etc/passwd", "", "targets: -oX"),
            ("--input=/etc/passwd", "", "targets: --input=/etc/passwd"),
            ("", "", "targets: required"),
            (" ,\n", "", "targets: required"),
            ("192.0.2.1", "0-99999", "ports: "),
            ("192.0.2.1", "-oX", "ports: "),
        ] {
            let told = words(targets, ports).unwrap_err();
            assert!(told.contains(why), "{targets} {ports}: {told}");
        }
        assert!(
            order("192.0.2.1", "")
                .words(&ScanPermissions { rate: 5_000, ..ScanPermissions::default() })
                .is_err()
        );
        let keys = PageScanOrder { host_key: true, ..order("192.0.2.1", "") };
        assert_eq!(keys.words(&bounds).unwrap().join(" "), "ssh --rate 100 --host-key -- 192.0.2.1");
        assert!(PageScanOrder { mode: PageScanMode::Http, ..keys }.words(&bounds).is_err());
        assert!(
            PageScanOrder { mode: PageScanMode::Connect, ..order("192.0.2.1", "") }.words(&bounds).is_err()
        );
        let at = |rate: u32| PageScanOrder { rate, ..order("192.0.2.1", "") }.words(&bounds).is_ok();
        assert_eq!([0, 1, 5_000, 5_001].map(at), [false, true, true, false]);
        assert_eq!((bounds.usual_rate(), ScanPermissions { rate: 7, ..bounds }.usual_rate()), (1_000, 7));
    }

    #[test]
    fn a_job_is_refused_for_each_part_that_no_page_submits() {
        let bounds = ScanPermissions { allowed: vec!["192.0.2.0/25".parse().unwrap()], rate: 50 };
        let fine = ScanOrder {
            mode: "ssh".to_owned(),
            flags: vec!["--rate=9".to_owned(), "--ports=22".to_owned(), "--host-key".to_owned()],
            targets: vec!["192.0.2.0/26".to_owned(), "192.0.2.100".to_owned()],
            ..ScanOrder::default()
        };
        assert_eq!(bounds.permit(&fine, Some(50)), Ok(()));
        let with = |change: fn(&mut ScanOrder)| {
            let mut order = fine.clone();
            change(&mut order);
            bounds.permit(&order, Some(9)).unwrap_err()
        };
        assert!(bounds.permit(&fine, None).is_err() && bounds.permit(&fine, Some(51)).is_err());
        assert!(with(|it| it.targets.push("192.0.2.200".to_owned())).contains("not within"));
        assert!(with(|it| it.targets.push("localhost".to_owned())).contains("a name can resolve"));
        assert!(with(|it| it.flags.push("--retries=9".to_owned())).contains("--retries=9"));
        assert!(with(|it| it.flags.push("--host-key=x".to_owned())).contains("--host-key=x"));
        assert!(with(|it| it.mode = "udp".to_owned()).contains("udp"));
        assert!(
            with(|it| it.named.push(("198.51.100.1".parse().unwrap(), "a".to_owned()))).contains("names")
        );
        assert!(with(|it| it.endpoints.push(("198.51.100.1:22".parse().unwrap(), None))).contains("names"));
    }
}
