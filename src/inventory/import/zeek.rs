//! Logs of Zeek: `known_services`, `software`, `ssh` and `http`, as tables with tabs or as JSON.

use std::collections::HashMap;

use serde_json::Value;

use super::conversion::{canonical, client, hassh, protocol, says, server, time};
use super::{FileImporter, ImportFileError, NumberedLines, silent};
use crate::event::Timestamp;
use crate::inventory::sighting::{NamedSoftware, SightingContent};

/// A row: its fields by name, without unset ones.
struct ZeekRow(HashMap<String, String>);

/// The head of a table.
#[derive(Default)]
struct ZeekHeader {
    separator: Option<char>,
    fields: Vec<String>,
    unset: Option<String>,
    empty: Option<String>,
}

pub(super) fn read(lines: &mut NumberedLines, importer: &mut FileImporter) -> Result<(), ImportFileError> {
    let mut head = ZeekHeader::default();
    while let Some(line) = lines.next()? {
        let row = if line.starts_with('{') {
            of_json(&line)?
        } else if line.starts_with('#') {
            head.read(&line);
            continue;
        } else {
            head.row(&line)?
        };
        let told = row.tell(importer)?;
        importer.count(told);
    }
    Ok(())
}

impl ZeekHeader {
    /// Reads `#separator \x09`, `#fields⇥ts⇥host`, `#unset_field⇥-`.
    fn read(&mut self, line: &str) {
        if let Some(told) = line.strip_prefix("#separator ") {
            self.separator = unescaped(told.trim()).chars().next();
            return;
        }
        let mut words = line.split(self.separator());
        match words.next() {
            Some("#fields") => self.fields = words.map(str::to_owned).collect(),
            Some("#unset_field") => self.unset = words.next().map(str::to_owned),
            Some("#empty_field") => self.empty = words.next().map(str::to_owned),
            _ => {}
        }
    }

    fn separator(&self) -> char {
        self.separator.unwrap_or('\t')
    }

    fn row(&self, line: &str) -> Result<ZeekRow, ImportFileError> {
        if self.fields.is_empty() {
            return Err("a row before any `#fields`".to_owned().into());
        }
        let values: Vec<&str> = line.split(self.separator()).collect();
        if values.len() != self.fields.len() {
            let (found, said) = (values.len(), self.fields.len());
            return Err(format!("{found} values where `#fields` names {said}").into());
        }
        let is_set = |value: &str| {
            value != self.unset.as_deref().unwrap_or("-")
                && value != self.empty.as_deref().unwrap_or("(empty)")
        };
        let pairs = self.fields.iter().zip(values).filter(|(_, value)| is_set(value));
        Ok(ZeekRow(pairs.map(|(name, value)| (name.clone(), unescaped(value))).collect()))
    }
}

/// Reads a row that is a JSON object.
fn of_json(line: &str) -> Result<ZeekRow, ImportFileError> {
    let object: serde_json::Map<String, Value> = serde_json::from_str(line)
        .map_err(|error| ImportFileError::Fault(format!("not a JSON object: {error}")))?;
    let text = |value: Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text),
        Value::Array(values) => {
            let words =
                values.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            Some(words.collect::<Vec<_>>().join(","))
        }
        other => Some(other.to_string()),
    };
    Ok(ZeekRow(object.into_iter().filter_map(|(name, value)| Some((name, text(value)?))).collect()))
}

/// Returns `\x09` as the byte that it means; other texts unchanged.
fn unescaped(text: &str) -> String {
    if !text.contains("\\x") {
        return text.to_owned();
    }
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\\x") {
        octets.extend(rest.get(..at).unwrap_or_default().as_bytes());
        let digits =
            rest.get(at + 2..at + 4).filter(|digits| digits.bytes().all(|it| it.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(octet) => octets.push(octet),
            None => {
                octets.extend(b"\\x");
                rest = rest.get(at + 2..).unwrap_or_default();
                continue;
            }
        }
        rest = rest.get(at + 4..).unwrap_or_default();
    }
    octets.extend(rest.as_bytes());
    String::from_utf8_lossy(&octets).into_owned()
}

impl ZeekRow {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// Records the sightings of the row; returns false if there are none.
    fn tell(&self, importer: &mut FileImporter) -> Result<bool, ImportFileError> {
        let at = self.text("ts").and_then(time);
        let at = at.ok_or_else(|| ImportFileError::Fault("no `ts` with a time".to_owned()))?;
        let has = |name: &str| self.0.contains_key(name);
        if has("software_type") {
            return self.software(importer, at);
        }
        if has("port_num") {
            return self.known_service(importer, at);
        }
        if has("id.resp_h") && (has("user_agent") || has("status_code") || has("method")) {
            return self.http(importer, at);
        }
        if has("id.resp_h") && (has("client") || has("server") || has("hassh") || has("hasshServer")) {
            return self.ssh(importer, at);
        }
        Ok(false)
    }

    fn known_service(&self, importer: &mut FileImporter, at: Timestamp) -> Result<bool, ImportFileError> {
        if self.text("port_proto").is_some_and(|transport| !transport.eq_ignore_ascii_case("tcp")) {
            return Ok(false);
        }
        let (host, port) = (self.text("host").unwrap_or_default(), self.number("port_num"));
        let mut told = false;
        for name in self.text("service").unwrap_or("unknown").split(',') {
            let Some(asset) = server(host, port, protocol(name)) else { continue };
            importer.said(&asset, silent(), at)?;
            told = true;
        }
        Ok(told)
    }

    fn software(&self, importer: &mut FileImporter, at: Timestamp) -> Result<bool, ImportFileError> {
        let (name, role) =
            self.text("software_type").and_then(|kind| kind.split_once("::")).unwrap_or_default();
        let protocol = protocol(name);
        let host = self.text("host").unwrap_or_default();
        let asset = if role.contains("SERVER") {
            server(host, self.number("host_p"), protocol)
        } else {
            client(host, protocol)
        };
        let (Some(asset), Some(text)) = (asset, self.text("unparsed_version")) else { return Ok(false) };
        importer.said(&asset, says(protocol, text), at)?;
        Ok(true)
    }

    fn ssh(&self, importer: &mut FileImporter, at: Timestamp) -> Result<bool, ImportFileError> {
        let sides = [
            (self.server("ssh"), self.text("server"), self.text("hasshServer")),
            (self.client("ssh"), self.text("client"), self.text("hassh")),
        ];
        let mut told = false;
        for (asset, said, hash) in sides {
            let Some(asset) = asset else { continue };
            if let Some(said) = said {
                importer.said(&asset, says("ssh", said), at)?;
            }
            if let Some(hash) = hash {
                importer.said(&asset, hassh(hash), at)?;
            }
            told |= said.is_some() || hash.is_some();
        }
        self.met("ssh", importer, at)?;
        Ok(told)
    }

    fn http(&self, importer: &mut FileImporter, at: Timestamp) -> Result<bool, ImportFileError> {
        let Some(asset) = self.server("http") else { return Ok(false) };
        // Zeek does not keep the Server field here; its `software` log has it.
        importer.said(&asset, silent(), at)?;
        if let (Some(client), Some(agent)) = (self.client("http"), self.text("user_agent")) {
            importer.said(&client, says("http", agent), at)?;
        }
        self.met("http", importer, at)?;
        Ok(true)
    }

    fn met(
        &self,
        protocol: &'static str,
        importer: &mut FileImporter,
        at: Timestamp,
    ) -> Result<(), ImportFileError> {
        let client = self.text("id.orig_h").and_then(canonical);
        if let (Some(asset), Some(client)) = (self.server(protocol), client) {
            importer.tell(&asset, SightingContent::Met(client), NamedSoftware::default(), at)?;
        }
        Ok(())
    }

    fn server(&self, protocol: &'static str) -> Option<crate::inventory::sighting::AssetKey> {
        server(self.text("id.resp_h")?, self.number("id.resp_p"), protocol)
    }

    fn client(&self, protocol: &'static str) -> Option<crate::inventory::sighting::AssetKey> {
        client(self.text("id.orig_h")?, protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_for_octets_is_read_and_the_rest_is_left() {
        assert_eq!(unescaped("a\\x09b\\x2d"), "a\tb-");
        for text in ["plain", "\\", "\\x", "\\xg0", "\\x4", "\\y", "ü\\xZZ"] {
            assert_eq!(unescaped(text), text);
        }
        assert_eq!(unescaped("\\xff"), "\u{fffd}");
    }
}
