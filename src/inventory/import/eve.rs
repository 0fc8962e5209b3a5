//! EVE JSON: `ssh`, `http` and `tls` events of Suricata and of bannerwall.

use serde_json::Value;

use super::conversion::{canonical, client, hassh, host_key, says, server, time};
use super::{FileImporter, ImportFileError, NumberedLines, silent};
use crate::event::{SignatureResult, Timestamp};
use crate::inventory::sighting::{AssetKey, NamedSoftware, SightingContent};

pub(super) fn read(lines: &mut NumberedLines, importer: &mut FileImporter) -> Result<(), ImportFileError> {
    while let Some(line) = lines.next()? {
        let event: Value = serde_json::from_str(&line)
            .map_err(|error| ImportFileError::Fault(format!("not JSON: {error}")))?;
        let told = tell(&event, importer)?;
        importer.count(told);
    }
    Ok(())
}

fn tell(event: &Value, importer: &mut FileImporter) -> Result<bool, ImportFileError> {
    let Some(kind) = event["event_type"].as_str() else {
        return Err(ImportFileError::Fault("no `event_type`".to_owned()));
    };
    let protocol = match kind {
        "ssh" => "ssh",
        "http" => "http",
        "tls" => "tls",
        _ => return Ok(false),
    };
    let at = event["timestamp"].as_str().and_then(time);
    let at = at.ok_or_else(|| ImportFileError::Fault("no `timestamp` with a time".to_owned()))?;
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    let Some(asset) = server(text("dest_ip"), event["dest_port"].as_u64().unwrap_or_default(), protocol)
    else {
        return Ok(false);
    };
    let facts = &event[protocol];
    let ends = (asset, client(text("src_ip"), protocol));
    match protocol {
        "ssh" => {
            ssh(facts, &ends, importer, at)?;
            key(&event["bannerwall"]["host_key"], &ends.0, importer, at)?;
        }
        "http" => http(facts, &ends, importer, at)?,
        _ => importer.said(&ends.0, silent(), at)?,
    }
    if let Some(client) = canonical(text("src_ip")) {
        importer.tell(&ends.0, SightingContent::Met(client), NamedSoftware::default(), at)?;
    }
    Ok(true)
}

fn ssh(
    facts: &Value,
    (server, client): &(AssetKey, Option<AssetKey>),
    importer: &mut FileImporter,
    at: Timestamp,
) -> Result<(), ImportFileError> {
    for (asset, side) in [(Some(server), &facts["server"]), (client.as_ref(), &facts["client"])] {
        let Some(asset) = asset else { continue };
        if let Some(software) = side["software_version"].as_str() {
            let protocol = side["proto_version"].as_str().unwrap_or("2.0");
            importer.said(asset, says("ssh", &format!("SSH-{protocol}-{software}")), at)?;
        }
        if let Some(hash) = side["hassh"]["hash"].as_str() {
            importer.said(asset, hassh(hash), at)?;
        }
    }
    Ok(())
}

/// Adds the host key of a scan's event.
fn key(
    facts: &Value,
    server: &AssetKey,
    importer: &mut FileImporter,
    at: Timestamp,
) -> Result<(), ImportFileError> {
    let [algorithm, fingerprint, signature] =
        ["algorithm", "fingerprint", "signature"].map(|name| facts[name].as_str().unwrap_or_default());
    if fingerprint.is_empty() || signature == SignatureResult::Bad.name() {
        return Ok(());
    }
    Ok(importer.said(server, host_key(&format!("{fingerprint} {algorithm}")), at)?)
}

fn http(
    facts: &Value,
    (server, client): &(AssetKey, Option<AssetKey>),
    importer: &mut FileImporter,
    at: Timestamp,
) -> Result<(), ImportFileError> {
    let fields = facts["response_headers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_server =
        |field: &&Value| field["name"].as_str().is_some_and(|name| name.eq_ignore_ascii_case("server"));
    let listed = fields.iter().find(is_server).and_then(|field| field["value"].as_str());
    let said = facts["server"].as_str().or(listed).unwrap_or_default();
    importer.said(server, says("http", said), at)?;
    if let (Some(client), Some(agent)) = (client, facts["http_user_agent"].as_str()) {
        importer.said(client, says("http", agent), at)?;
    }
    Ok(())
}
