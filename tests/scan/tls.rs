//! `scan tls` and `scan https` against real servers: what they choose, whose certificates they show and what
//! those are worth, and within TLS all that `scan http` does.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;

use bannerwall_test_support::{Namespace, Nginx, Running, as_root, json_lines, wait_listening};
use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

const RULES: &str = r#"
[[rule]]
id = "not-valid"
protocol = "tls"
match.verification = '^(expired|wrong name|self-signed|unknown issuer)$'
action = "alert"

[[rule]]
id = "soon"
protocol = "tls"
match.version = '^TLS 1\.3$'
match.issuer = '^CN=authority$'
expires_within = "30d"
action = "alert"

[[rule]]
id = "refuses"
protocol = "tls"
match.alert = '^(protocol_version|handshake_failure)$'
action = "alert"

[[rule]]
id = "status"
protocol = "http"
from = "server"
request = { path = "/asked-by-a-rule" }
match.body = 'asked'
action = "alert"
"#;

/// What `openssl ca` needs to sign anything.
const AUTHORITY: &str = "[ca]\ndefault_ca = own\n[own]\ndatabase = FOLDER/index\nnew_certs_dir = FOLDER\n\
                         serial = FOLDER/serial\nunique_subject = no\ndefault_md = sha256\npolicy = any\ncopy_extensions = copy\n[any]\ncommonName = supplied\n";

/// A namespace, and a folder with an authority.
struct Stage {
    folder: TempDir,
    network: Namespace,
}

impl Stage {
    fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let path = folder.path().display().to_string();
        for (name, text) in [
            ("conf", &*AUTHORITY.replace("FOLDER", &path)),
            ("index", ""),
            ("serial", "01\n"),
            ("rules.toml", RULES),
        ] {
            fs::write(folder.path().join(name), text).expect("the folder is ours");
        }
        let stage = Self { folder, network: Namespace::new() };
        stage.openssl(
            "req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=authority -keyout ca.key -out ca.pem",
        );
        stage
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Runs openssl on files of the folder.
    fn openssl(&self, words: &str) -> String {
        self.network.run(&format!("env -C {} openssl {words}", self.folder.path().display()))
    }

    /// Has the authority sign a certificate for `host` that is valid until `end`.
    fn sign(&self, name: &str, host: &str, end: &str) {
        self.sign_from(name, host, "20200101000000Z", end);
    }

    /// The same of a certificate that is valid from `start`.
    fn sign_from(&self, name: &str, host: &str, start: &str, end: &str) {
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={host} \
             -addext subjectAltName=DNS:{host} -keyout {name}.key -out {name}.csr"
        ));
        self.openssl(&format!(
            "ca -batch -config conf -cert ca.pem -keyfile ca.key -notext \
             -startdate {start} -enddate {end} -in {name}.csr -out {name}.pem"
        ));
    }

    /// OpenSSL's server with a certificate.
    fn server(&self, port: u16, name: &str, flags: &str) -> Running {
        let mut command = self.network.command("openssl");
        command.args(["s_server", "-www", "-accept", &format!("127.0.0.1:{port}")]);
        command.args([
            "-cert",
            &self.path(&format!("{name}.pem")),
            "-key",
            &self.path(&format!("{name}.key")),
        ]);
        let server = Running::start({
            command.args(flags.split_whitespace());
            command
        });
        wait_listening(&self.network, port);
        server
    }

    fn scan(&self, words: &str) -> Output {
        let (mode, words) = words.split_once(' ').expect("a mode and targets");
        let patience = "--read-timeout 20s --total-timeout 60s --progress never";
        let rules = self.path("rules.toml");
        let words = format!("{PROGRAM} scan {mode} --rules {rules} {patience} {words}");
        let output = self.network.output(&words);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    }

    fn events(&self, words: &str) -> Vec<Value> {
        json_lines(&self.scan(&format!("{words} --format json")).stdout)
    }

    fn text(&self, words: &str) -> String {
        String::from_utf8_lossy(&self.scan(words).stdout).into_owned()
    }
}

/// Events of a kind by port.
fn by_port<'a>(events: &'a [Value], kind: &str) -> BTreeMap<u64, &'a Value> {
    let of_kind = events.iter().filter(|event| event["event_type"] == kind);
    of_kind.map(|event| (event["dest_port"].as_u64().expect("a port"), event)).collect()
}

/// The rules that alerted of each port.
fn alerts(events: &[Value]) -> BTreeMap<u64, Vec<&str>> {
    let mut alerts = BTreeMap::<u64, Vec<&str>>::new();
    for event in events.iter().filter(|event| event["event_type"] == "alert") {
        let rule = event["bannerwall"]["rule"].as_str().expect("a rule");
        alerts.entry(event["src_port"].as_u64().expect("a port")).or_default().push(rule);
    }
    alerts
}

#[test]
fn certificates_are_told_and_what_they_are_worth() {
    as_root(|| {
        let stage = Stage::new();
        stage.sign("good", "www.example", "20491231235959Z");
        stage.sign("old", "www.example", "20200201000000Z");
        stage.sign("other", "other.example", "20491231235959Z");
        stage.openssl("req -x509 -newkey rsa:2048 -nodes -days 29 -subj /CN=www.example -addext subjectAltName=DNS:www.example -keyout own.key -out own.pem");
        let _servers = [
            (4430, "good", "-tls1_3 -alpn http/1.1"),
            (4431, "good", "-tls1_2"),
            (4432, "old", ""),
            (4433, "other", ""),
            (4434, "own", "-tls1_2"),
        ]
        .map(|(port, name, flags)| stage.server(port, name, flags));
        let ca = format!("--ca {}", stage.path("ca.pem"));
        let asked = format!("tls 127.0.0.1 -p 4430-4434 --sni www.example {ca}");
        let events = stage.events(&asked);
        let told = by_port(&events, "tls");
        for (port, version, verification) in [
            (4430, "TLS 1.3", "valid"),
            (4431, "TLS 1.2", "valid"),
            (4432, "TLS 1.3", "expired"),
            (4433, "TLS 1.3", "wrong name"),
            (4434, "TLS 1.2", "self-signed"),
        ] {
            let event = told[&port];
            assert_eq!(event["tls"]["version"], version, "{event}");
            assert_eq!(event["tls"]["sni"], "www.example", "{event}");
            assert_eq!(event["tls"]["ja3s"]["hash"].as_str().map(str::len), Some(32), "{event}");
            assert_eq!(
                event["bannerwall"]["tls"]["verification"],
                serde_json::json!([verification]),
                "{event}"
            );
        }
        assert_eq!(told[&4430]["tls"]["server_alpns"][0], "http/1.1");
        let digest = stage.openssl("x509 -in good.pem -noout -fingerprint -sha256").to_lowercase();
        let digest = digest.split_once('=').expect("a name and a value").1.trim().replace(':', "");
        for port in [4430, 4431] {
            let own = &told[&port]["bannerwall"]["tls"]["certificates"][0];
            assert_eq!(own["sha256"], digest.as_str(), "{own}");
            assert_eq!((&own["key"], &own["key_bits"]), (&"ec".into(), &"256".into()), "{own}");
        }
        let expected =
            [(4432, vec!["not-valid", "soon"]), (4433, vec!["not-valid"]), (4434, vec!["not-valid"])];
        assert_eq!(alerts(&events), BTreeMap::from(expected));
        // Whoever signed it is nobody that this system knows; a name that was not asked for is not missed.
        let events = stage.events("tls 127.0.0.1 -p 4430,4433");
        for event in by_port(&events, "tls").values() {
            let told = &event["bannerwall"]["tls"]["verification"];
            assert_eq!(*told, serde_json::json!(["unknown issuer"]), "{event}");
            assert_eq!(event["tls"]["sni"], Value::Null);
        }
        let own = format!("tls 127.0.0.1 -p 4434 --sni www.example --ca {}", stage.path("own.pem"));
        let events = stage.events(&own);
        let told = &by_port(&events, "tls")[&4434]["bannerwall"]["tls"]["verification"];
        assert_eq!(*told, serde_json::json!(["valid"]), "who trusts it by itself");
        for (format, expected) in [
            ("text", "TLS 1.3 TLS_AES_256_GCM_SHA384  CN=www.example, until 2020-02-01, expired"),
            ("csv", "\"CN=www.example, until 2020-02-01, expired\""),
            ("grepable", "4432/open/tcp//tls//"),
            ("xml", "Not valid after:  2020-02-01T00:00:00"),
        ] {
            let text = stage.text(&format!("{asked} --format {format}"));
            assert!(text.contains(expected), "{format}: {text}");
        }
        let matched = stage.events(&format!("{asked} --match other\\.example"));
        assert_eq!(by_port(&matched, "tls").into_keys().collect::<Vec<_>>(), [4433]);
    });
}

#[test]
fn certificates_without_a_subject_or_from_before_1970_are_judged_by_what_they_are() {
    as_root(|| {
        let stage = Stage::new();
        stage.openssl("req -x509 -newkey rsa:2048 -nodes -days 29 -subj / -addext subjectAltName=critical,DNS:www.example -keyout bare.key -out bare.pem");
        stage.sign_from("ancient", "www.example", "600101000000Z", "20491231235959Z");
        let _servers = [(4430, "bare"), (4431, "ancient")].map(|(port, name)| stage.server(port, name, ""));
        let events = stage
            .events(&format!("tls 127.0.0.1 -p 4430-4431 --sni www.example --ca {}", stage.path("ca.pem")));
        let told = by_port(&events, "tls");
        for (port, verification) in [(4430, "self-signed"), (4431, "unusable")] {
            let shown = &told[&port]["bannerwall"]["tls"]["verification"];
            assert_eq!(*shown, serde_json::json!([verification]), "{}", told[&port]);
        }
        let own = &told[&4431]["bannerwall"]["tls"]["certificates"][0];
        assert_eq!(own["subject"], "CN=www.example", "{own}");
    });
}

#[test]
fn who_cannot_be_talked_to_is_told_by_what_there_is() {
    as_root(|| {
        let stage = Stage::new();
        stage.sign("good", "www.example", "20491231235959Z");
        let _old = stage.server(4430, "good", "-tls1_1 -cipher DEFAULT:@SECLEVEL=0");
        let _plain = Nginx::start(&stage.network, 4431, "");
        let silent = stage.network.listen(([127, 0, 0, 1], 4432));
        let events = stage.events("tls 127.0.0.1 -p 4430-4431,4433");
        let alert = &by_port(&events, "tls")[&4430]["bannerwall"]["tls"]["alert"];
        assert_eq!((&alert["description"], &alert["from"]), (&"protocol_version".into(), &"server".into()));
        assert_eq!(alerts(&events), BTreeMap::from([(4430, vec!["not-valid", "refuses"])]));
        let others = by_port(&events, "connect");
        assert_eq!(others[&4431]["bannerwall"]["reason"], "foreign", "{others:?}");
        assert_eq!(others[&4433]["bannerwall"]["reason"], "refused", "{others:?}");
        let output = stage.scan("https 127.0.0.1 -p 4430,4432 --read-timeout 5s");
        let (text, summary) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("4430         open      TLS 1.1 TLS_"), "{text}");
        assert!(text.contains("silent, waited"), "{text}");
        assert!(summary.contains("silent 1, TLS refused 1"), "{summary}");
        drop(silent);
    });
}

#[test]
fn https_asks_all_that_http_asks() {
    as_root(|| {
        let stage = Stage::new();
        stage.sign("good", "www.example", "20491231235959Z");
        let (key, certificate) = (stage.path("good.key"), stage.path("good.pem"));
        let settings = format!(
            "listen 127.0.0.1:4430 ssl http2; ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {certificate};\n\
             ssl_certificate_key {key}; location /page {{ return 200 $uri:$http_host:$connection; }}\n\
             location /asked-by-a-rule {{ return 200 asked; }}"
        );
        let nginx = Nginx::start(&stage.network, 8080, &settings);
        let index = "<html><title>Within TLS</title></html>";
        fs::write(nginx.root().join("index.html"), index).expect("the folder is ours");
        wait_listening(&stage.network, 4430);
        let paths: Vec<String> = (0..60).map(|number| format!("/page-{number}")).collect();
        let asked: String = paths.iter().map(|path| format!(" --path {path}")).collect();
        let ca = format!("--ca {} --sni www.example", stage.path("ca.pem"));
        for flags in ["", "--no-pipeline", "--host-connections 4", "--alpn h2", "--alpn http/1.1,h2"] {
            let events = stage.events(&format!("https 127.0.0.1 -p 4430 {ca} --path / {asked} {flags}"));
            let mut answers = BTreeMap::new();
            for event in events.iter().filter(|event| event["event_type"] == "http") {
                assert_eq!(event["http"]["status"], 200, "{flags}: {event}");
                let version = if flags.contains("h2") { "HTTP/2" } else { "HTTP/1.1" };
                assert_eq!(event["http"]["protocol"], version, "{flags}: {event}");
                let url = event["http"]["url"].as_str().expect("a path").to_owned();
                assert!(answers.insert(url, event).is_none(), "{flags}: {event}");
            }
            assert!(paths.iter().all(|path| answers.contains_key(path)), "{flags}: {:?}", answers.keys());
            assert_eq!(answers["/"]["bannerwall"]["title"], "Within TLS", "{flags}");
            assert_eq!(alerts(&events), BTreeMap::from([(4430, vec!["status"])]), "{flags}");
            let handshakes: Vec<&Value> =
                events.iter().filter(|event| event["event_type"] == "tls").collect();
            let [handshake] = handshakes.as_slice() else { panic!("{flags}: {handshakes:?}") };
            assert_eq!(handshake["bannerwall"]["tls"]["verification"][0], "valid", "{handshake}");
        }
        let text = stage.text(&format!("https 127.0.0.1 -p 4430 {ca}"));
        assert!(text.contains("\"Within TLS\"") && text.contains("CN=www.example, until 2049"), "{text}");
        let grepable = stage.text(&format!("https 127.0.0.1 -p 4430 {ca} --format grepable"));
        assert!(grepable.contains("4430/open/tcp//ssl|http//nginx 1."), "{grepable}");
        let xml = stage.text(&format!("https 127.0.0.1 -p 4430 {ca} --format xml"));
        assert!(xml.contains("tunnel=\"ssl\"") && xml.contains("id=\"ssl-cert\""), "{xml}");
    });
}

#[test]
fn http_is_asked_within_tls_where_the_port_says_so_and_without_where_there_is_none() {
    as_root(|| {
        let stage = Stage::new();
        stage.sign("good", "www.example", "20491231235959Z");
        let (key, certificate) = (stage.path("good.key"), stage.path("good.pem"));
        let settings = format!(
            "listen 127.0.0.1:443 ssl; ssl_certificate {certificate}; ssl_certificate_key {key};\n\
             listen 127.0.0.1:8443; location /page {{ return 200 $http_host; }}"
        );
        let _nginx = Nginx::start(&stage.network, 80, &settings);
        let _old = stage.server(9443, "good", "-tls1_1 -cipher DEFAULT:@SECLEVEL=0");
        // It waits for the end of a line, which a hello has not got.
        let patient = stage.network.listen(([127, 0, 0, 1], 4443));
        std::thread::spawn(move || {
            for client in patient.incoming().flatten() {
                let mut line = String::new();
                let mut reader = BufReader::new(&client);
                while reader.read_line(&mut line).is_ok_and(|length| length > 2) {
                    line.clear();
                }
                let _ = (&client).write_all(b"HTTP/1.0 200 Patient\r\n\r\n");
            }
        });
        wait_listening(&stage.network, 443);
        let words = "http 127.0.0.1 --tls auto --path /page -p 80,443,4443,8443,9443 --read-timeout 5s";
        let events = stage.events(words);
        let answers = by_port(&events, "http");
        assert_eq!(answers.keys().copied().collect::<Vec<_>>(), [80, 443, 4443, 8443], "{events:?}");
        assert_eq!(by_port(&events, "tls").into_keys().collect::<Vec<_>>(), [443, 9443]);
        for (port, host) in [(80, "127.0.0.1"), (443, "127.0.0.1"), (8443, "127.0.0.1")] {
            assert_eq!(answers[&port]["http"]["hostname"], host, "{}", answers[&port]);
        }
        let text = stage.text("http 127.0.0.1 --tls auto");
        assert!(text.contains(":80 ") && text.contains(":443 ") && text.contains("CN=www.example"), "{text}");
    });
}

/// Greets, answers what is asked before TLS, and relays what follows to a server of TLS.
fn upgrade(listener: &TcpListener, server: &TcpStream, lines: &[&str]) {
    let client = listener.accept().expect("a connection").0;
    let mut reader = BufReader::new(client.try_clone().expect("a second handle"));
    for (number, line) in lines.iter().enumerate() {
        if number > 0 {
            reader.read_line(&mut String::new()).expect("a command");
        }
        (&client).write_all(line.as_bytes()).expect("the client reads");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The scan resets the connection.
            let _ = std::io::copy(&mut { server }, &mut &client);
            let _ = client.shutdown(Shutdown::Both);
        });
        let _ = std::io::copy(&mut reader, &mut { server });
        let _ = server.shutdown(Shutdown::Both);
    });
}

#[test]
fn tls_that_has_to_be_asked_for_is_asked_for() {
    as_root(|| {
        let stage = Stage::new();
        stage.sign("good", "www.example", "20491231235959Z");
        let _server = stage.server(4430, "good", "");
        let ca = format!("--ca {} --sni www.example", stage.path("ca.pem"));
        for (port, protocol, lines) in [
            (2501, "smtp", &["220 a ESMTP\r\n", "250-a\r\n250 STARTTLS\r\n", "220 go\r\n"][..]),
            (1431, "imap", &["* OK ready\r\n", "* CAPABILITY x\r\na OK go\r\n"]),
            (1101, "pop3", &["+OK ready\r\n", "+OK go\r\n"]),
            (2101, "ftp", &["220-welcome\r\n220 ready\r\n", "234 go\r\n"]),
        ] {
            let listener = stage.network.listen(([127, 0, 0, 1], port));
            let server = stage.network.connect(([127, 0, 0, 1], 4430)).expect("it listens");
            let events = std::thread::scope(|scope| {
                scope.spawn(|| upgrade(&listener, &server, lines));
                stage.events(&format!("tls 127.0.0.1 -p {port} --starttls {protocol} {ca}"))
            });
            let kinds: Vec<_> =
                events.iter().map(|event| event["event_type"].as_str().expect("a kind")).collect();
            assert_eq!(kinds, [protocol, "tls"]);
            assert_eq!(events[1]["bannerwall"]["tls"]["verification"][0], "valid", "{}", events[1]);
        }
        let listener = stage.network.listen(([127, 0, 0, 1], 2502));
        let server = stage.network.connect(([127, 0, 0, 1], 4430)).expect("it listens");
        let lines = ["220 a ESMTP\r\n", "250 a\r\n", "502 no\r\n"];
        let text = std::thread::scope(|scope| {
            scope.spawn(|| upgrade(&listener, &server, &lines));
            let output = stage.scan("tls 127.0.0.1 -p 2502 --starttls smtp");
            String::from_utf8_lossy(&output.stderr).into_owned()
        });
        assert!(text.contains("TLS refused 1"), "{text}");
    });
}

#[test]
fn flags_that_mean_nothing_are_refused_by_name() {
    let folder = TempDir::new().expect("a temporary folder");
    let empty = folder.path().join("empty.pem");
    fs::write(&empty, "no certificate").expect("the folder is ours");
    let run = |words: &str, file: Option<&Path>| {
        let mut command = std::process::Command::new(PROGRAM);
        command.arg("scan").args(words.split_whitespace());
        if let Some(file) = file {
            command.arg("--ca").arg(file);
        }
        let output = command.output().expect("the program runs");
        assert_eq!(output.status.code(), Some(2), "{words}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(run("tls 127.0.0.1", Some(&empty)).contains("empty.pem: the file has no certificate"));
    assert!(run("tls 127.0.0.1", Some(&folder.path().join("none"))).contains("none: "));
    assert!(run("https 127.0.0.1 --sni 127.0.0.1/8", None).contains("--sni"));
    assert!(run("https 127.0.0.1 --alpn h3", None).contains("--alpn"));
    assert!(run("tls 127.0.0.1 --alpn h2,,x", None).contains("--alpn"));
    assert!(run("http 127.0.0.1 --sni www.example", None).contains("--tls auto"));
    assert!(run("tls 127.0.0.1 --starttls ldap", None).contains("--starttls"));
}
