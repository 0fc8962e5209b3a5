//! Conditions of SQL from filters.

use ipnet::IpNet;

use crate::database::{DatabaseConnection, DatabaseError, SqlParameter};
use crate::inventory::filter::{FilterTerm, ServiceFilter, TermTest};
use crate::inventory::inventory_time::InventoryTime;

/// Prepares a filter for SQL: each distinct version is compared once, instead of each service's.
pub(super) fn resolve_versions(
    link: &DatabaseConnection,
    filter: &ServiceFilter,
) -> Result<ServiceFilter, DatabaseError> {
    if !filter.asks_versions() {
        return Ok(filter.clone());
    }
    let query = "SELECT DISTINCT version FROM banners WHERE version IS NOT NULL";
    Ok(filter.naming(&link.all(query, &[], |row| row.get(0))?))
}

/// Returns a filter as a condition of SQL, except for versions that are not named.
pub(super) fn condition(filter: &ServiceFilter, now: InventoryTime) -> (String, Vec<SqlParameter<'static>>) {
    let mut values = Vec::new();
    let mut asked = |FilterTerm { holds, test }: &FilterTerm| {
        let condition = one(test, now.millis(), &mut values)?;
        // An unknown value does not fit.
        Some(if *holds { condition } else { format!("NOT coalesce({condition}, FALSE)") })
    };
    // Among a million services, those with a few banners are found by the index. So all conditions about
    // banners are combined, unless all of them are negated.
    let is_of_some = filter.names_banners();
    let (banners, others): (Vec<&FilterTerm>, Vec<&FilterTerm>) =
        filter.terms.iter().partition(|term| is_of_some && term.test.is_of_banners());
    let banners: Vec<String> = banners.into_iter().filter_map(&mut asked).collect();
    let mut text = match banners.as_slice() {
        [] => String::from("TRUE"),
        banners => format!("s.banner IN (SELECT b.id FROM banners b WHERE {})", banners.join(" AND ")),
    };
    for condition in others.into_iter().filter_map(asked) {
        text.push_str(" AND ");
        text.push_str(&condition);
    }
    (text, values)
}

fn one(test: &TermTest, now: i64, values: &mut Vec<SqlParameter<'static>>) -> Option<String> {
    Some(match test {
        TermTest::Is(column, text) => {
            values.push(text.to_ascii_lowercase().into());
            format!("lower({column}) = ?")
        }
        TermTest::Says(text) => {
            values.push(text.to_lowercase().into());
            "instr(lower(b.text), ?) > 0".to_owned()
        }
        TermTest::Version(_) => return None,
        TermTest::OneOf(versions) if versions.is_empty() => "FALSE".to_owned(),
        TermTest::OneOf(versions) => {
            values.extend(versions.iter().map(|version| version.clone().into()));
            format!("b.version IN ({})", vec!["?"; versions.len()].join(", "))
        }
        TermTest::HostKey(text) => {
            // The text is a whole word prefix: `!` is the character after the space.
            values.extend([text.clone().into(), format!("{text} ").into(), format!("{text}!").into()]);
            "s.host_key IN (SELECT k.id FROM banners k WHERE k.protocol = 'ssh' AND k.side = 'server' AND k.kind = 'host_key'
               AND (k.text = ? OR (k.text > ? AND k.text < ?)))"
                .to_owned()
        }
        TermTest::Net(network) => {
            let (first, last) = range(network);
            values.extend([first.clone().into(), last.into(), (first.len() as i64).into()]);
            "(h.octets BETWEEN ? AND ? AND length(h.octets) = ?)".to_owned()
        }
        TermTest::Port(port) => {
            values.push(i64::from(*port).into());
            "s.port = ?".to_owned()
        }
        TermTest::Within(column, age) => {
            let since = now.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
            values.push(since.into());
            format!("{column} >= ?")
        }
        TermTest::Finding(text) => {
            values.extend([text.to_lowercase().into(), text.clone().into()]);
            "EXISTS (SELECT 1 FROM findings f WHERE f.service = s.id AND f.state = 'open' AND (f.severity = ? OR f.rule = ?))"
                .to_owned()
        }
        TermTest::RareFinding(text) => {
            values.extend([text.to_lowercase().into(), text.clone().into()]);
            format!("s.id IN ({WITH_FINDING})")
        }
        TermTest::Sensor(text) => {
            values.extend([text.clone().into(), text.clone().into()]);
            "EXISTS (SELECT 1 FROM sightings g JOIN sensors n ON n.id = g.sensor
               WHERE g.service = s.id AND (n.name = ? OR n.source || '/' || n.name = ?))"
                .to_owned()
        }
    })
}

/// Services with an open finding of a severity, or of a rule, by the indexes of both.
pub(super) const WITH_FINDING: &str =
    "SELECT f.service FROM findings f WHERE f.state = 'open' AND f.severity = ?
  UNION ALL SELECT f.service FROM findings f WHERE f.state = 'open' AND f.rule = ?";

/// Returns the first and last address of a network, as the table of hosts stores them.
fn range(network: &IpNet) -> (Vec<u8>, Vec<u8>) {
    match network {
        IpNet::V4(network) => (network.network().octets().to_vec(), network.broadcast().octets().to_vec()),
        IpNet::V6(network) => (network.network().octets().to_vec(), network.broadcast().octets().to_vec()),
    }
}
