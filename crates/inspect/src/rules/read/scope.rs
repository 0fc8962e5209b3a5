//! Reads `source`, `destination` and `port`.

use serde_spanned::Spanned;
use toml::de::DeValue;

use super::super::scope::{self, AddressRule, AddressSet, PortRule};
use super::DeclaredLists;
use super::toml_value::{SpannedText, ValueReader};

/// Reads networks, addresses and `@lists`; `!` negates an entry.
pub(super) fn addresses(
    reader: &mut ValueReader<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    lists: &mut DeclaredLists,
) -> AddressRule {
    let (mut within, mut without) = (GatheredAddresses::default(), GatheredAddresses::default());
    refuse_none(reader, key, value);
    for text in reader.texts(key, value) {
        let trimmed = text.value.trim();
        let (entry, gathered) = match trimmed.strip_prefix('!') {
            Some(entry) => (entry.trim(), &mut without),
            None => (trimmed, &mut within),
        };
        gathered.add(reader, entry, &text, lists);
    }
    AddressRule { within: within.any.then(|| within.finish()), without: without.finish() }
}

/// Refuses an empty list: it looks as if it matched nothing, but without entries it would match
/// everything.
fn refuse_none(reader: &mut ValueReader<'_>, key: &str, value: &Spanned<DeValue<'_>>) {
    if matches!(value.get_ref(), DeValue::Array(values) if values.is_empty()) {
        let message = format!("`{key}` is an empty list");
        reader.error_with_help(&value.span(), message, "leave it out to match everything");
    }
}

/// The addresses with one sign, as they are collected.
#[derive(Default)]
struct GatheredAddresses {
    networks: Vec<ipnet::IpNet>,
    lists: Vec<AddressSet>,
    any: bool,
}

impl GatheredAddresses {
    fn add(
        &mut self,
        reader: &mut ValueReader<'_>,
        entry: &str,
        text: &SpannedText,
        lists: &mut DeclaredLists,
    ) {
        self.any = true;
        if let Some(name) = entry.strip_prefix('@') {
            self.lists.extend(lists.addresses(reader, name, &text.span));
            return;
        }
        match scope::parse_network(entry) {
            Some(network) => self.networks.push(network),
            None => {
                let message = "not an address, a network or a list";
                let help = "for instance `192.0.2.0/24`, `!2001:db8::1` or `@name` of a list";
                reader.error_with_help(&text.span, message, help);
            }
        }
    }

    fn finish(self) -> AddressSet {
        let own = AddressSet::new(self.networks);
        self.lists.into_iter().fold(own, AddressSet::union)
    }
}

/// Reads port numbers and ranges; `!` negates an entry.
pub(super) fn ports(reader: &mut ValueReader<'_>, value: &Spanned<DeValue<'_>>) -> PortRule {
    let mut rule = PortRule::default();
    refuse_none(reader, "port", value);
    let values = match value.get_ref() {
        DeValue::Array(values) => values.iter().collect(),
        _ => vec![value],
    };
    for value in values {
        if let DeValue::Integer(_) = value.get_ref() {
            let port = reader.number("port", value, 0..=u32::from(u16::MAX));
            rule.within.extend(port.and_then(|port| u16::try_from(port).ok()).map(|port| port..=port));
            continue;
        }
        let DeValue::String(text) = value.get_ref() else {
            reader.wrong_kind("port", "a number, a range, or a list of those", value);
            continue;
        };
        for part in text.split(',').map(str::trim) {
            let (part, ranges) = match part.strip_prefix('!') {
                Some(rest) => (rest, &mut rule.without),
                None => (part, &mut rule.within),
            };
            match scope::parse_ports(part) {
                Some(range) => ranges.push(range),
                None => reader.error(&value.span(), "not a port or a range of ports, such as `8000-8010`"),
            }
        }
    }
    rule
}
