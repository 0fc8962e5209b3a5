//! TLS of real clients and servers: their hellos are read, fingerprinted as others do, and judged before they
//! arrive.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::path::Path;
use std::process::{Command, Output};

use bannerwall_test_support::{
    Guard, Namespace, Nginx, Running, as_root, end_capture, eventually, hello, json_lines, send_in_chunks,
    wait_listening,
};
use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// Ports of `openssl s_server` and nginx.
const OPENSSL: u16 = 4433;
const NGINX: u16 = 4434;

/// Rejects clients that ask for a name.
const RULES: &str = r#"
[[rule]]
id = "forbidden-name"
title = "A forbidden name"
protocol = "tls"
from = "client"
match.sni = '(^|\.)forbidden\.example$'
action = "reject"
examples = ["forbidden.example", { sni = "www.forbidden.example", alpn = ["h2"] }]
counterexamples = ["allowed.example"]

[[rule]]
id = "soon-expired"
title = "A certificate that expires within 30 days"
protocol = "tls"
expires_within = "30d"
match.issuer = 'CN=allowed\.example'
match.key_bits = '^2048$'
action = "alert"

[[rule]]
id = "long-expired"
title = "A certificate that expires within a week"
protocol = "tls"
expires_within = "7d"
action = "alert"
"#;

/// A namespace with both servers.
struct Stage {
    folder: TempDir,
    network: Namespace,
    _servers: (Running, Nginx),
}

impl Stage {
    fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let network = Namespace::new();
        let path = folder.path().display();
        network.run(&format!(
            "openssl req -x509 -newkey rsa:2048 -nodes -days 29 -subj /CN=allowed.example -keyout {path}/key -out {path}/cert"
        ));
        let mut server = network.command("openssl");
        server.args(["s_server", "-www", "-accept", &OPENSSL.to_string()]);
        server.arg("-cert").arg(folder.path().join("cert")).arg("-key").arg(folder.path().join("key"));
        let server = Running::start(server);
        let settings = format!(
            "listen 127.0.0.1:{NGINX} ssl;\nssl_protocols TLSv1.2 TLSv1.3;\nssl_certificate {path}/cert;\nssl_certificate_key {path}/key;\n"
        );
        let nginx = Nginx::start(&network, 8080, &settings);
        std::fs::write(nginx.root().join("index.html"), "hello").expect("the folder is ours");
        wait_listening(&network, OPENSSL);
        wait_listening(&network, NGINX);
        Self { folder, network, _servers: (server, nginx) }
    }

    /// What curl gets from a server by a name.
    fn curl(&self, name: &str, port: u16, flags: &str) -> Output {
        let words = format!(
            "curl -sSk --max-time 20 --resolve {name}:{port}:127.0.0.1 {flags} https://{name}:{port}/"
        );
        self.network.output(&words)
    }

    /// Whether `openssl s_client` comes to an encrypted connection.
    fn s_client(&self, name: &str, port: u16, flags: &str) -> bool {
        let words = format!("openssl s_client -connect 127.0.0.1:{port} -servername {name} {flags}");
        let output = self.network.output(&words);
        String::from_utf8_lossy(&output.stdout).contains("New, TLSv1")
    }
}

fn tls_events(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["event_type"] == "tls").collect()
}

#[test]
fn a_forbidden_name_never_comes_to_a_connection_and_others_do() {
    as_root(|| {
        let stage = Stage::new();
        let flags = format!("--hook output --ports {OPENSSL},{NGINX},4435 --enforce");
        let guard = Guard::start(&stage.network, PROGRAM, RULES, &flags);
        let mut allowed = 0;
        for port in [OPENSSL, NGINX] {
            for version in ["--tls-max 1.2", "--tlsv1.3", "--http1.1"] {
                let output = stage.curl("allowed.example", port, version);
                assert!(
                    output.status.success(),
                    "{port} {version}: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                let output = stage.curl("www.forbidden.example", port, version);
                assert!(!output.status.success(), "{port} {version}");
                allowed += 1;
            }
            for flags in ["-tls1_2", "-tls1_3", "-max_send_frag 512 -groups ffdhe8192:x25519"] {
                assert!(stage.s_client("allowed.example", port, flags), "{port} {flags}");
                assert!(!stage.s_client("forbidden.example", port, flags), "{port} {flags}");
                allowed += 1;
            }
        }
        eventually("a record of each handshake", || {
            let events = guard.events();
            let told = tls_events(&events);
            let whole = told.iter().filter(|event| event["tls"]["ja3s"].is_object()).count();
            let blocked = events
                .iter()
                .filter(|event| event["event_type"] == "alert" && event["alert"]["action"] == "blocked")
                .count();
            (told.len() == 2 * allowed && whole == allowed && blocked == allowed).then_some(())
        });
        let events = guard.events();
        let blocked = tls_events(&events).into_iter().filter(|event| event["tls"]["ja3s"].is_null());
        for event in blocked {
            let name = event["tls"]["sni"].as_str().unwrap_or_default();
            assert!(name.ends_with("forbidden.example"), "{event}");
        }
    });
}

#[test]
fn a_hello_in_pieces_of_any_size_is_judged_on_a_real_queue() {
    as_root(|| {
        let network = Namespace::new();
        let guard = Guard::start(&network, PROGRAM, RULES, "--hook output --ports 4435 --enforce");
        let listener = network.listen(([127, 0, 0, 1], 4435));
        for (name, passes) in [("allowed.example", true), ("forbidden.example", false)] {
            for (record, segment) in [(1 << 14, 1), (1, 700), (700, 50), (1 << 14, 4000)] {
                let octets = hello::records(&hello::client_hello(name, 1800), record);
                let mut client: TcpStream = network.connect(([127, 0, 0, 1], 4435)).expect("it listens");
                let (mut server, _) = listener.accept().expect("a connection");
                let reader = std::thread::spawn(move || {
                    let mut received = Vec::new();
                    // A rejected connection is reset.
                    let _ = server.read_to_end(&mut received);
                    received
                });
                // A reset may come while there is more to send.
                let _ = send_in_chunks(&mut client, &octets, segment);
                drop(client);
                let received = reader.join().expect("the reader ends");
                assert_eq!(received == octets, passes, "{name} {record} {segment}: {}", received.len());
            }
        }
        eventually("an alert", || {
            let is_alert = |event: &Value| event["bannerwall"]["rule"] == "forbidden-name";
            guard.events().iter().any(is_alert).then_some(())
        });
    });
}

/// Speaks SMTP up to `STARTTLS`, and relays what follows to a server of TLS.
fn mail_server(client: &TcpStream, server: &TcpStream) {
    let mut reader = BufReader::new(client.try_clone().expect("a second handle"));
    let say = |line: &str| { client }.write_all(line.as_bytes()).expect("the client reads");
    say("220 mail.example ESMTP\r\n");
    let mut line = String::new();
    while !line.starts_with("STARTTLS") {
        line.clear();
        reader.read_line(&mut line).expect("a command");
        say(if line.starts_with("EHLO") { "250-mail.example\r\n250 STARTTLS\r\n" } else { "220 go\r\n" });
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Either end may reset the connection.
            let _ = std::io::copy(&mut { server }, &mut { client });
            let _ = client.shutdown(Shutdown::Both);
        });
        let _ = std::io::copy(&mut reader, &mut { server });
        let _ = server.shutdown(Shutdown::Both);
    });
}

#[test]
fn a_forbidden_name_behind_starttls_is_judged() {
    as_root(|| {
        let stage = Stage::new();
        let guard = Guard::start(&stage.network, PROGRAM, RULES, "--hook output --ports 2525 --enforce");
        let listener = stage.network.listen(([127, 0, 0, 1], 2525));
        for (name, passes) in [("allowed.example", true), ("forbidden.example", false)] {
            let server: TcpStream = stage.network.connect(([127, 0, 0, 1], OPENSSL)).expect("it listens");
            let accept = || mail_server(&listener.accept().expect("a connection").0, &server);
            std::thread::scope(|scope| {
                scope.spawn(accept);
                assert_eq!(stage.s_client(name, 2525, "-starttls smtp"), passes, "{name}");
            });
        }
        eventually("both names", || {
            let events = guard.events();
            let told = tls_events(&events);
            let has = |name: &str| told.iter().any(|event| event["tls"]["sni"] == name);
            (has("allowed.example") && has("forbidden.example")).then_some(())
        });
    });
}

/// Servers that go on in TLS: what a client calls that, the port, and a command line in a folder of its own.
const UPGRADING: [(&str, u16, &str); 4] = [
    // It asks for another key share.
    ("", 4440, "exec openssl s_server -quiet -accept 4440 -groups P-384 -cert {d}/cert -key {d}/key"),
    (
        "-starttls postgres",
        4441,
        "chown -R postgres {d}; as='setpriv --reuid=postgres --regid=postgres --clear-groups'; \
         PATH=$(echo /usr/lib/postgresql/*/bin):$PATH; cd {d}; $as env PATH=$PATH initdb -D {d}/data >&2; \
         exec $as env PATH=$PATH postgres -D {d}/data -k {d} -p 4441 -c listen_addresses=127.0.0.1 \
         -c ssl=on -c ssl_cert_file={d}/cert -c ssl_key_file={d}/key",
    ),
    (
        "-starttls mysql",
        4442,
        "exec mariadbd --no-defaults --user=root --skip-grant-tables --datadir={d} --bind-address=127.0.0.1 \
         --port=4442 --socket={d}/socket --innodb-buffer-pool-size=8M --skip-name-resolve \
         --ssl-cert={d}/cert --ssl-key={d}/key",
    ),
    (
        "-starttls ldap",
        4443,
        "printf 'include /etc/ldap/schema/core.schema\\nmodulepath /usr/lib/ldap\\nmoduleload back_mdb\\n\
         TLSCertificateFile {d}/cert\\nTLSCertificateKeyFile {d}/key\\npidfile {d}/pid\\ndatabase mdb\\n\
         suffix dc=x\\ndirectory {d}\\n' >{d}/conf; exec slapd -h ldap://127.0.0.1:4443 -f {d}/conf -d 0",
    ),
];

#[test]
fn a_forbidden_name_behind_what_real_servers_say_before_tls_is_judged() {
    as_root(|| {
        let stage = Stage::new();
        let started: Vec<(TempDir, Running)> = UPGRADING
            .iter()
            .map(|(_, _, words)| {
                let folder = TempDir::new().expect("a temporary folder");
                for name in ["cert", "key"] {
                    std::fs::copy(stage.folder.path().join(name), folder.path().join(name)).expect("copied");
                }
                let words = words.replace("{d}", &folder.path().display().to_string());
                let mut server = stage.network.command("sh");
                server.arg("-c").arg(format!("PATH=$PATH:/usr/sbin; {words}"));
                (folder, Running::start(server))
            })
            .collect();
        for (_, port, _) in UPGRADING {
            wait_listening(&stage.network, port);
        }
        let guard = Guard::start(&stage.network, PROGRAM, RULES, "--hook output --ports 4440:4443 --enforce");
        for (words, port, _) in UPGRADING {
            // A first key share that the server does not take.
            let flags = if words.is_empty() { "-groups X25519:P-384" } else { words };
            assert!(stage.s_client("allowed.example", port, flags), "{port} {flags}");
            assert!(!stage.s_client("forbidden.example", port, flags), "{port} {flags}");
        }
        eventually("both names and the suite at each server", || {
            let events = guard.events();
            let told = tls_events(&events);
            let has = |name: &str, port: u16| {
                told.iter().any(|event| event["tls"]["sni"] == name && event["dest_port"] == port)
            };
            let whole = told.iter().filter(|event| event["tls"]["ja3s"].is_object()).count();
            let all = UPGRADING
                .iter()
                .all(|(_, port, _)| has("allowed.example", *port) && has("forbidden.example", *port));
            (all && whole >= UPGRADING.len()).then_some(())
        });
        drop(started);
    });
}

#[test]
fn a_forbidden_name_behind_the_proxy_protocol_is_judged() {
    as_root(|| {
        let stage = Stage::new();
        let path = stage.folder.path().display();
        let settings = format!(
            "listen 127.0.0.1:4450 ssl proxy_protocol;\nssl_certificate {path}/cert;\nssl_certificate_key {path}/key;\n"
        );
        let _nginx = Nginx::start(&stage.network, 8081, &settings);
        wait_listening(&stage.network, 4450);
        // It says on whose behalf it connects, by the first and the second version.
        let config = stage.folder.path().join("haproxy");
        let listen = |port: u16, version: &str| {
            format!("listen l{port}\n bind 127.0.0.1:{port}\n server s 127.0.0.1:4450 {version}\n")
        };
        let text = format!(
            "defaults\n mode tcp\n timeout connect 20s\n timeout client 20s\n timeout server 20s\n{}{}",
            listen(4451, "send-proxy"),
            listen(4452, "send-proxy-v2")
        );
        std::fs::write(&config, text).expect("the folder is ours");
        let mut haproxy = stage.network.command("haproxy");
        haproxy.arg("-db").arg("-f").arg(&config);
        let _haproxy = Running::start(haproxy);
        for port in [4451, 4452] {
            wait_listening(&stage.network, port);
        }
        let guard = Guard::start(&stage.network, PROGRAM, RULES, "--hook output --ports 4450 --enforce");
        for port in [4451, 4452] {
            assert!(stage.s_client("allowed.example", port, ""), "{port}");
            assert!(!stage.s_client("forbidden.example", port, ""), "{port}");
        }
        eventually("each name twice", || {
            let events = guard.events();
            let told = tls_events(&events);
            let count = |name: &str| told.iter().filter(|event| event["tls"]["sni"] == name).count();
            (count("allowed.example") == 2 && count("forbidden.example") == 2).then_some(())
        });
    });
}

/// The certificate of the servers as `openssl x509` tells it.
fn by_openssl(stage: &Stage, question: &str) -> String {
    let path = stage.folder.path().display();
    let text = stage.network.run(&format!("openssl x509 -in {path}/cert -noout {question}"));
    text.split_once('=').expect("a name and a value").1.trim().to_owned()
}

/// Name, JA3 and JA3S of the handshakes in a capture, as tshark tells them.
fn by_tshark(capture: &Path) -> Vec<[String; 3]> {
    let column = |field: &str| {
        let mut command = Command::new("tshark");
        command.arg("-r").arg(capture).args(["-d", &format!("tcp.port=={OPENSSL},tls"), "-Y", field]);
        command.args(["-d", &format!("tcp.port=={NGINX},tls"), "-T", "fields", "-e", field]);
        let output = command.output().expect("tshark is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let names = column("tls.handshake.extensions_server_name");
    let (clients, servers) = (column("tls.handshake.ja3"), column("tls.handshake.ja3s"));
    assert_eq!((names.len(), clients.len()), (servers.len(), servers.len()));
    names.into_iter().zip(clients).zip(servers).map(|((name, ja3), ja3s)| [name, ja3, ja3s]).collect()
}

#[test]
fn replayed_handshakes_are_told_as_tshark_tells_them() {
    as_root(|| {
        let stage = Stage::new();
        let capture = stage.folder.path().join("tls.pcap");
        let mut tcpdump = stage.network.command("tcpdump");
        tcpdump.args(["-i", "lo", "-U", "--immediate-mode", "-Z", "root", "-w"]).arg(&capture);
        tcpdump.arg("tcp or udp port 9");
        let tcpdump = Running::start(tcpdump);
        tcpdump.wait_stderr("the capture", |text| text.contains("listening on lo").then_some(()));
        for port in [OPENSSL, NGINX] {
            for flags in
                ["--tls-max 1.2", "--tlsv1.3", "--curves X25519 --ciphers ECDHE-RSA-AES128-SHA --tls-max 1.2"]
            {
                assert!(stage.curl("allowed.example", port, flags).status.success(), "{flags}");
            }
            assert!(stage.s_client("other.example", port, "-tls1_2 -alpn http/1.1"));
        }
        end_capture(tcpdump, &capture, &stage.network, Ipv4Addr::LOCALHOST);
        let rules = stage.folder.path().join("rules.toml");
        std::fs::write(&rules, RULES).expect("the folder is ours");
        let mut replay = Command::new(PROGRAM);
        replay.arg("replay").arg(&capture).arg("--rules").arg(&rules).args(["--format", "json"]);
        let events = json_lines(&replay.output().expect("the program runs").stdout);
        let fingerprint = by_openssl(&stage, "-fingerprint -sha1").to_lowercase();
        for event in tls_events(&events) {
            let (tls, is_old) = (&event["tls"], event["tls"]["version"] == "TLS 1.2");
            assert_eq!(tls["subject"] == "CN=allowed.example", is_old, "{event}");
            assert_eq!(tls["fingerprint"] == fingerprint.as_str(), is_old, "{event}");
            let own = &event["bannerwall"]["tls"]["certificates"][0];
            assert_eq!((own["key"] == "rsa", own["self_signed"] == true), (is_old, is_old), "{event}");
        }
        let alerts = events.iter().filter(|event| event["event_type"] == "alert");
        let alerts: Vec<&Value> = alerts.map(|event| &event["bannerwall"]["rule"]).collect();
        assert_eq!(alerts, ["soon-expired"; 6]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let told: Vec<[String; 3]> = tls_events(&events)
            .into_iter()
            .map(|event| {
                let tls = &event["tls"];
                [text(&tls["sni"]), text(&tls["ja3"]["hash"]), text(&tls["ja3s"]["hash"])]
            })
            .collect();
        let expected = by_tshark(&capture);
        assert_eq!(expected.len(), 8);
        assert_eq!(told, expected);
    });
}
