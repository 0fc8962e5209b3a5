//! Alerts for live views: an event in the terms of the inventory, and the test whether a filter selects
//! it.

use serde::Serialize;

use super::filter::{FilterTerm, ServiceFilter, TermTest};
use super::inventory_time::InventoryTime;
use super::sighting::{SightingContent, of_events};
use crate::event::{Event, EventKind};

/// A match of a rule about a connection.
#[derive(Debug, Clone, Serialize)]
pub struct LiveAlert {
    /// Time of the alert.
    pub at: InventoryTime,
    /// The host of the service or client that the rule is about.
    pub address: String,
    /// Its TCP port, 0 for a client.
    pub port: u16,
    /// The other end of the connection.
    pub peer: String,
    /// The protocol.
    pub protocol: String,
    /// `server` or `client`.
    pub side: String,
    /// The text of the banner.
    pub banner: String,
    /// Vendor, if known.
    pub vendor: Option<String>,
    /// Product, if known.
    pub product: Option<String>,
    /// Version, if known.
    pub version: Option<String>,
    /// The package's revision.
    pub patch: Option<String>,
    /// CPE name.
    pub cpe: Option<String>,
    /// Operating system.
    pub os: Option<String>,
    /// The rule's id.
    pub rule: String,
    /// Its title.
    pub title: String,
    /// Its severity.
    pub severity: String,
    /// Its action.
    pub action: String,
    /// True if the connection was blocked.
    pub blocked: bool,
    /// The sensor that saw it, `guard/edge`.
    pub sensor: String,
}

impl LiveAlert {
    /// Returns the alert of an event, if it is one.
    pub fn from_event(event: &Event, sensor: &str) -> Option<Self> {
        let (EventKind::Alert(facts), Some(flow)) = (&event.kind, &event.flow) else { return None };
        let sighting = of_events(std::slice::from_ref(event)).into_iter().next()?;
        let SightingContent::Found(banner, finding) = sighting.what else { return None };
        let peer = match facts.from {
            crate::event::Side::Server => flow.endpoints.client,
            crate::event::Side::Client => flow.endpoints.server,
        };
        let (asset, product) = (sighting.asset, sighting.software.product);
        Some(Self {
            at: sighting.at.into(),
            address: asset.address.to_string(),
            port: asset.port,
            peer: super::place(&peer.address.to_canonical().to_string(), peer.port),
            protocol: asset.protocol.to_owned(),
            side: asset.side.name().to_owned(),
            banner: banner.text,
            vendor: product.vendor,
            product: product.product,
            version: product.version,
            patch: sighting.software.patch,
            cpe: product.cpe,
            os: product.os,
            rule: finding.rule,
            title: finding.title,
            severity: finding.severity.to_owned(),
            action: finding.action.to_owned(),
            blocked: finding.blocked,
            sensor: sensor.to_owned(),
        })
    }
}

impl ServiceFilter {
    /// True if the filter selects the alert's service. It counts as seen now, and its finding as open.
    pub fn selects(&self, alert: &LiveAlert) -> bool {
        self.admits(alert.version.as_deref())
            && self.terms.iter().all(|FilterTerm { holds, test }| match test {
                TermTest::Version(_) => true,
                test => passes(test, alert) == *holds,
            })
    }
}

fn passes(test: &TermTest, alert: &LiveAlert) -> bool {
    let is =
        |value: Option<&str>, wanted: &str| value.is_some_and(|value| value.eq_ignore_ascii_case(wanted));
    match test {
        TermTest::Is(column, wanted) => match *column {
            "b.product" => is(alert.product.as_deref(), wanted),
            "b.vendor" => is(alert.vendor.as_deref(), wanted),
            "b.cpe" => is(alert.cpe.as_deref(), wanted),
            "b.os" => is(alert.os.as_deref(), wanted),
            "b.patch" => is(alert.patch.as_deref(), wanted),
            "s.protocol" => is(Some(&alert.protocol), wanted),
            "b.side" => is(Some(&alert.side), wanted),
            _ => is(Some("open"), wanted),
        },
        TermTest::OneOf(versions) => alert.version.as_ref().is_some_and(|version| versions.contains(version)),
        // An alert holds the banner, not the key of the server.
        TermTest::HostKey(_) => false,
        TermTest::Says(text) => alert.banner.to_lowercase().contains(&text.to_lowercase()),
        TermTest::Version(_) | TermTest::Within(..) => true,
        TermTest::Net(network) => {
            alert.address.parse().is_ok_and(|address: std::net::IpAddr| network.contains(&address))
        }
        TermTest::Port(port) => alert.port == *port,
        TermTest::Finding(text) | TermTest::RareFinding(text) => {
            alert.rule == *text || is(Some(&alert.severity), text)
        }
        TermTest::Sensor(text) => {
            alert.sensor == *text || alert.sensor.split_once('/').is_some_and(|(_, name)| name == text)
        }
    }
}
