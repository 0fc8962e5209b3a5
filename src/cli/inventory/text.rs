//! Text output of the inventory.

use std::fmt::Write as _;

use crate::diagnostics::several;
use crate::inventory::{
    ClientContact, HostRecord, InventoryChange, PastRun, RuleImpact, ServiceBanner, ServiceFinding,
    ServiceHistory, ServiceRecord, place,
};
use crate::output::EscapedText;
use crate::output::text::ColourMode;

/// Limit of listed clients and services of a host; the rest is only counted.
const NAMED: usize = 20;

/// Formats a service as one line, with its findings below.
pub(super) fn service(service: &ServiceRecord, colour: ColourMode) -> String {
    let place = place(&service.address, service.port);
    let mut text = format!("{place:<21}  {}", about(service));
    let gone = if service.state == "open" { "" } else { ", gone" };
    _ = write!(text, "  seen {}{gone}", service.last_seen);
    service
        .findings
        .iter()
        .for_each(|found| _ = write!(text, "\n{:21}  {}", "", finding_text(found, colour)));
    text
}

fn about(service: &ServiceRecord) -> String {
    let mut text = format!("{:<8}  {}", service.protocol, EscapedText(&service.banner));
    if let Some(product) = &service.product {
        let version = service.version.iter().map(|version| format!(" {}", EscapedText(version)));
        _ = write!(text, "  ({}{})", EscapedText(product), version.collect::<String>());
    }
    text
}

fn finding_text(found: &ServiceFinding, colour: ColourMode) -> String {
    let verdict = found.verdict.as_ref().map_or_else(String::new, |verdict| format!(" ({verdict})"));
    let blocked = if found.blocked > 0 {
        format!(", blocked {}", several(found.blocked, "time"))
    } else {
        String::new()
    };
    let gone =
        if found.state == "open" { String::new() } else { format!(", gone since {}", found.last_seen) };
    format!(
        "{}  {}: {}{verdict}{blocked}{gone}",
        colour.severity(&found.severity, 8),
        EscapedText(&found.rule),
        EscapedText(&found.title)
    )
}

/// Formats the record of a host.
pub(super) fn host(record: &HostRecord, colour: ColourMode) -> String {
    let mut text = format!("{}  first seen {}", record.address, record.first_seen);
    record.services.iter().for_each(|it| history(it, colour, &mut text));
    if !record.visited.is_empty() {
        text.push_str("\n\nvisited services");
        record.visited.iter().take(NAMED).for_each(|contact| push_contact(contact, &mut text));
        more(record.visited.len(), &mut text);
    }
    text
}

fn history(history: &ServiceHistory, colour: ColourMode, text: &mut String) {
    let service = &history.service;
    let port = if service.port == 0 { "client".to_owned() } else { service.port.to_string() };
    let state = if service.state == "open" { "" } else { "  gone" };
    _ = write!(text, "\n\n{port:<6}  {}{state}", about(service));
    _ = write!(
        text,
        "\n  seen {} to {} by {}",
        service.first_seen,
        service.last_seen,
        service.sensors.join(", ")
    );
    service.findings.iter().for_each(|found| _ = write!(text, "\n  {}", finding_text(found, colour)));
    if !history.said.is_empty() {
        text.push_str("\n  banners");
        history.said.iter().take(NAMED).for_each(|it| said(it, text));
        more(history.said.len(), text);
    }
    if !history.clients.is_empty() {
        text.push_str("\n  clients");
        history
            .clients
            .iter()
            .take(NAMED)
            .for_each(|contact| push_contact(&ClientContact { port: 0, ..contact.clone() }, text));
        more(history.clients.len(), text);
    }
    if !history.changes.is_empty() {
        text.push_str("\n  changes");
        history.changes.iter().take(NAMED).for_each(|it| _ = write!(text, "\n    {}", change(it)));
        more(history.changes.len(), text);
    }
}

fn said(said: &ServiceBanner, text: &mut String) {
    let what = match said.text.as_str() {
        "" => "(no name)".to_owned(),
        words => EscapedText(words).to_string(),
    };
    _ = write!(
        text,
        "\n    {} to {}  {:>6} times  {:<12}  {what}",
        said.first_seen, said.last_seen, said.count, said.sensor
    );
}

fn push_contact(contact: &ClientContact, text: &mut String) {
    let place = place(&contact.address, contact.port);
    _ = write!(
        text,
        "\n    {} to {}  {:>6} times  {:<8}  {place}",
        contact.first_seen, contact.last_seen, contact.count, contact.protocol
    );
}

fn more(count: usize, text: &mut String) {
    if count > NAMED {
        _ = write!(text, "\n    and {} more", count - NAMED);
    }
}

/// Formats a change as one line.
pub(super) fn change(change: &InventoryChange) -> String {
    let kind = change.words();
    let mut text = format!(
        "{}  {:<21}  {:<8}  {kind:<14}",
        change.at,
        place(&change.address, change.port),
        change.protocol
    );
    if let Some(rule) = &change.rule {
        _ = write!(text, "  {}", EscapedText(rule));
    }
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => _ = write!(text, "  {} -> {}", EscapedText(old), EscapedText(new)),
        (Some(one), None) | (None, Some(one)) => _ = write!(text, "  {}", EscapedText(one)),
        (None, None) => {}
    }
    text.trim_end().to_owned()
}

/// Formats a run as one line.
pub(super) fn run(run: &PastRun) -> String {
    let ended = run.ended.map_or_else(|| format!("{:<19}", run.state), |time| time.to_string());
    let lost = if run.lost > 0 { format!("  {} lost", run.lost) } else { String::new() };
    format!(
        "#{:<4}  {} to {ended}  {:<16}  {}{lost}",
        run.run,
        run.started,
        run.sensor,
        EscapedText(&run.about)
    )
}

/// Formats a service or client that a rule would block as one line.
pub(super) fn impact(impact: &RuleImpact) -> String {
    let place = place(&impact.address, impact.port);
    let peers = match (impact.peers.len(), impact.side.as_str()) {
        (0, _) => "no connections seen".to_owned(),
        (count, "client") => format!("connections {}, services {count}", impact.connections),
        (count, _) => format!("connections {}, clients {count}", impact.connections),
    };
    format!(
        "{place:<21}  {:<8}  {}  {} {} would {} it: {peers}, last {}",
        impact.protocol,
        EscapedText(&impact.banner),
        impact.kind,
        EscapedText(&impact.rule),
        impact.action,
        impact.last_seen
    )
}
