//! Results of port scanners as targets: the output of `scan connect`, nmap, masscan, naabu and httpx.
//!
//! A line becomes target words, `host:port` or a URL, for its open TCP ports.

use serde_json::{Map, Value};

/// Columns of bannerwall's CSV that name an open port.
const COLUMNS: [&str; 4] = ["event_type", "dest_ip", "dest_port", "state"];

/// Events about a port that are not a port's result.
const OTHER_EVENTS: [&str; 8] = ["alert", "anomaly", "change", "drop", "fileinfo", "flow", "hook", "stats"];

/// States of ports in bannerwall's text output.
const STATES: [&str; 4] = ["open", "closed", "filtered", "error"];

/// Parser for the lines of one file.
#[derive(Debug, Default)]
pub(super) struct ResultsParser {
    /// Positions of the columns in a CSV file.
    columns: Option<[usize; COLUMNS.len()]>,
    /// True after a line of bannerwall's text, whose indented lines belong to the same target.
    in_text: bool,
}

impl ResultsParser {
    /// Returns the targets of a line; none if it is not a scanner's result.
    ///
    /// # Errors
    ///
    /// The line is a result in an unknown form.
    pub(super) fn read(&mut self, line: &str) -> Option<Result<Vec<String>, String>> {
        let was_in_text = std::mem::take(&mut self.in_text);
        if line.starts_with("timestamp,source,event_type,") {
            let place = |name: &&str| line.split(',').position(|column| column == *name);
            let places: Vec<usize> = COLUMNS.iter().filter_map(place).collect();
            self.columns = places.try_into().ok();
            return Some(Ok(Vec::new()));
        }
        if let Some(columns) = self.columns {
            return Some(csv_row(line, columns));
        }
        let text = line.trim();
        if was_in_text && line.starts_with("          ") {
            self.in_text = true;
            return Some(Ok(Vec::new()));
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            // Brackets and commas around the objects of a JSON list.
            ["[" | "]" | "," | "{finished:", ..] => Some(Ok(Vec::new())),
            [first, ..] if first.starts_with('{') => Some(object(text.trim_end_matches([',', ' ']))),
            ["Host:", ..] | ["Timestamp:", ..] if text.contains("Host: ") => Some(Ok(grepable(text))),
            // Columns of masscan's list: state, protocol, port, address, time.
            [state @ ("open" | "closed" | "banner"), "tcp" | "udp", port, address, ..] => {
                let is_open = *state == "open" && words.get(1) == Some(&"tcp");
                Some(Ok(is_open.then(|| endpoint(address, port)).into_iter().collect()))
            }
            [target, state, ..] if STATES.contains(state) && target.contains(':') => {
                self.in_text = true;
                let is_open = *state == "open";
                Some(Ok(is_open.then(|| (*target).to_owned()).into_iter().collect()))
            }
            // httpx may print more of a response after its URL.
            [url, more, ..] if url.contains("://") && more.starts_with('[') => {
                Some(Ok(vec![(*url).to_owned()]))
            }
            _ => None,
        }
    }
}

fn csv_row(line: &str, columns: [usize; COLUMNS.len()]) -> Result<Vec<String>, String> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
    let record = reader.records().next().transpose().map_err(|error| error.to_string())?;
    let record = record.unwrap_or_default();
    let [event, address, port, state] = columns.map(|column| record.get(column).unwrap_or_default());
    if OTHER_EVENTS.contains(&event) || !matches!(state, "" | "open") || port.is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![endpoint(address, port)])
}

/// Parses tab-separated fields: `Host: 192.0.2.1 ()`, `Ports: 22/open/tcp//ssh//OpenSSH 9.2/,
/// 23/closed/tcp//telnet///`.
fn grepable(text: &str) -> Vec<String> {
    let field = |name: &str| text.split('\t').find_map(|field| field.trim().strip_prefix(name));
    let address = field("Host: ").and_then(|host| host.split(' ').next());
    let (Some(address), Some(ports)) = (address, field("Ports: ")) else { return Vec::new() };
    let open = |port: &str| {
        let mut parts = port.trim().split('/');
        let (number, state, protocol) = (parts.next()?, parts.next()?, parts.next()?);
        (state == "open" && protocol == "tcp").then(|| endpoint(address, number))
    };
    ports.split(", ").filter_map(open).collect()
}

/// Parses a JSON object: an event of bannerwall, or a result of naabu, httpx or masscan.
fn object(text: &str) -> Result<Vec<String>, String> {
    let object: Map<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let word = |name: &str| object.get(name).and_then(Value::as_str);
    if let Some(event) = word("event_type") {
        let is_result = !OTHER_EVENTS.contains(&event) && matches!(word("state"), None | Some("open"));
        let port = object.get("dest_port").and_then(number);
        let ends = word("dest_ip").zip(port).filter(|_| is_result);
        return Ok(ends.map(|(address, port)| endpoint(address, &port)).into_iter().collect());
    }
    if let Some(url) = word("url") {
        let has_failed = object.get("failed").and_then(Value::as_bool).unwrap_or_default();
        return Ok((!has_failed).then(|| url.to_owned()).into_iter().collect());
    }
    let unknown = "neither an event of bannerwall nor a result of naabu, httpx or masscan";
    let host = word("host").or_else(|| word("ip")).ok_or(unknown)?;
    if let Some(Value::Array(ports)) = object.get("ports") {
        let is_open = |port: &&Value| {
            let is = |name: &str, wanted: &str| port.get(name).is_none_or(|value| *value == wanted);
            is("status", "open") && is("proto", "tcp")
        };
        let numbers = ports.iter().filter(is_open).filter_map(|port| number(port.get("port")?));
        return Ok(numbers.map(|port| endpoint(host, &port)).collect());
    }
    let port = object.get("port").ok_or(unknown)?;
    let port = number(port).or_else(|| number(port.get("Port")?)).ok_or(unknown)?;
    let is_tcp = word("protocol").is_none_or(|protocol| protocol.eq_ignore_ascii_case("tcp"));
    Ok(is_tcp.then(|| endpoint(host, &port)).into_iter().collect())
}

/// Returns a number, which may be written as a string.
fn number(value: &Value) -> Option<String> {
    value.as_u64().map(|number| number.to_string()).or_else(|| value.as_str().map(str::to_owned))
}

fn endpoint(host: &str, port: &str) -> String {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a file, and the lines that are no results.
    fn words(text: &str) -> (Vec<String>, usize) {
        let (mut results, mut words, mut others) = (ResultsParser::default(), Vec::new(), 0);
        for line in text.lines() {
            match results.read(line) {
                Some(read) => words.extend(read.unwrap()),
                None => others += 1,
            }
        }
        (words, others)
    }

    #[test]
    fn open_ports_of_each_scanner_are_read() {
        let json = r#"{"event_type":"connect","dest_ip":"192.0.2.1","dest_port":22,"state":"closed"}
{"event_type":"connect","dest_ip":"2001:db8::1","dest_port":22,"state":"open"}
{"event_type":"alert","src_ip":"192.0.2.1","dest_ip":"192.0.2.9","dest_port":99}
{"event_type":"ssh","dest_ip":"192.0.2.1","dest_port":2222}"#;
        let csv = "timestamp,source,event_type,src_ip,src_port,dest_ip,dest_port,app_proto,state\n\
                   t,scan,connect,,,192.0.2.1,22,,open\nt,scan,connect,,,192.0.2.1,23,,filtered\n\
                   t,scan,connect,,,2001:db8::1,22,,open\n";
        let table = "192.0.2.1:22           open      SSH-2.0-x\n                                 host key x\n\
                     192.0.2.1:23           closed    refused\n[2001:db8::1]:22       open      accepted, 0.1 ms\n";
        let nmap = "# Nmap 7.93\nHost: 192.0.2.1 ()\tStatus: Up\n\
                    Host: 192.0.2.1 ()\tPorts: 22/open/tcp//ssh//OpenSSH 9/, 53/open/udp//dns///, 80/closed/tcp//http///\n";
        let masscan = "#masscan\nopen tcp 80 192.0.2.1 1390380064\nopen udp 53 192.0.2.1 1\n\
                       banner tcp 80 192.0.2.1 1 http x\n# end\n";
        let masscan_json = "[\n{ \"ip\": \"192.0.2.1\", \"ports\": [ {\"port\": 80, \"proto\": \"tcp\", \"status\": \"open\"} ] },\n,\n{finished: 1}\n]\n";
        let naabu = "{\"host\":\"www.example\",\"ip\":\"192.0.2.1\",\"port\":8443,\"protocol\":\"tcp\"}\n{\"ip\":\"192.0.2.1\",\"port\":{\"Port\":80}}\n";
        let httpx = "{\"url\":\"https://www.example:8443\",\"host\":\"192.0.2.1\",\"port\":\"8443\"}\n{\"url\":\"http://x\",\"failed\":true}\n";
        for (text, expected, others) in [
            (json, &["[2001:db8::1]:22", "192.0.2.1:2222"][..], 0),
            (csv, &["192.0.2.1:22", "[2001:db8::1]:22"], 0),
            (table, &["192.0.2.1:22", "[2001:db8::1]:22"], 0),
            (nmap, &["192.0.2.1:22"], 1),
            (masscan, &["192.0.2.1:80"], 2),
            (masscan_json, &["192.0.2.1:80"], 0),
            (naabu, &["www.example:8443", "192.0.2.1:80"], 0),
            (httpx, &["https://www.example:8443"], 0),
            ("https://www.example [200] [Title]\n", &["https://www.example"], 0),
            ("192.0.2.1:80\nwww.example\n  192.0.2.2, 192.0.2.3\nhttps://x/\n", &[], 4),
        ] {
            assert_eq!(
                words(text),
                (expected.iter().map(|word| (*word).to_owned()).collect(), others),
                "{text}"
            );
        }
    }

    #[test]
    fn objects_that_are_no_results_are_refused() {
        for line in
            ["{", "{}", "{\"ip\":\"192.0.2.1\"}", "{\"ip\":\"192.0.2.1\",\"port\":[]}", "{\"port\":80}"]
        {
            assert!(ResultsParser::default().read(line).is_some_and(|read| read.is_err()), "{line}");
        }
    }
}
