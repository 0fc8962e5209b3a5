//! `--fingerprints` on the guard and on a scan: products named in events, and to rules.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use bannerwall_test_support::{Banner, Line, Running, Signal, as_root, json_lines};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");
const FINGERPRINTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/fingerprints.toml");
const SAYS: &[u8] = b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2\r\n";
const RULES: &str = "[[rule]]\nid = 'by-product'\nprotocol = 'ssh'\nmatch.product = '^OpenSSH$'\nversion = '<9.8'\naction = 'reject'\n";

/// That `event` names what the fixture says of the server's banner.
fn names_the_product(event: &Value) -> bool {
    let own = &event["bannerwall"];
    own["vendor"] == "OpenBSD"
        && own["product"] == "OpenSSH"
        && own["version"] == "9.2p1"
        && own["cpe"] == "cpe:/a:openbsd:openssh:9.2p1"
        && own["os"] == "Debian Linux"
}

fn rules(folder: &Path) -> std::path::PathBuf {
    let file = folder.join("rules.toml");
    std::fs::write(&file, RULES).expect("the folder is ours");
    file
}

#[test]
fn a_scan_names_products_and_matches_by_them() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            // A scanner that has seen enough resets the connection.
            let _ = connection.write_all(SAYS);
        }
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let scan = |flags: &[&str]| -> Vec<Value> {
        let output = Command::new(PROGRAM)
            .args(["scan", "ssh", "127.0.0.1", "-p", &port.to_string(), "--format", "json", "--rules"])
            .arg(rules(folder.path()))
            .args(flags)
            .output()
            .expect("the program starts");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        json_lines(&output.stdout)
    };
    let named = scan(&["--fingerprints", FINGERPRINTS]);
    let kinds: Vec<&Value> = named.iter().map(|event| &event["event_type"]).collect();
    assert_eq!(kinds, ["ssh", "alert"], "{named:?}");
    assert!(named.iter().all(names_the_product), "{named:?}");
    assert_eq!(named[1]["bannerwall"]["rule"], "by-product");

    let plain = scan(&[]);
    assert_eq!(plain.len(), 1, "no product, no match: {plain:?}");
    assert!(plain[0]["bannerwall"]["product"].is_null(), "{plain:?}");
}

#[test]
fn the_guard_names_products_and_blocks_by_them() {
    as_root(|| {
        let line = Line::new();
        let address: IpAddr = Line::SERVER_V4.parse().expect("an address");
        let server = Banner::start(&line.server, SocketAddr::new(address, 0), SAYS, SAYS.len());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = line.router.command(PROGRAM);
        command.args(["guard", "--hook", "forward", "--enforce", "--format", "json"]);
        command.args(["--fingerprints", FINGERPRINTS, "--rules"]).arg(rules(folder.path()));
        let mut guard = Running::start(command);
        guard.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        let mut received = Vec::new();
        // A reset may come as early as connecting, or while reading.
        let _ = line.client.connect(server.address).and_then(|mut stream| stream.read_to_end(&mut received));
        assert!(received.is_empty(), "{}", String::from_utf8_lossy(&received));
        let alert = guard.wait_stdout("an alert", |text| {
            let mut events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            events.find(|event| event["event_type"] == "alert")
        });
        assert_eq!(alert["bannerwall"]["rule"], "by-product");
        assert_eq!(alert["alert"]["action"], "blocked");
        assert!(names_the_product(&alert), "{alert}");
        guard.signal(Signal::TERM);
        assert_eq!(guard.wait_exit().code(), Some(0), "{}", guard.stderr());
    });
}
