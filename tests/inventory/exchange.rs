//! `inventory import` of what nmap, Zeek and Suricata write, and `inventory export` to formats of others.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use bannerwall_test_support::{Namespace, Nginx, Sshd, as_root, json_lines};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).expect("the folder is ours");
        self.path(name)
    }

    fn run(&self, words: &str) -> Output {
        let mut command = Command::new(PROGRAM);
        command.arg("inventory").args(words.split(' ')).arg("--inventory").arg(self.path("net.db"));
        command.current_dir(self.0.path()).output().expect("it runs")
    }

    fn ask(&self, words: &str) -> Vec<u8> {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(0), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    fn list(&self, filter: &str) -> Vec<Value> {
        json_lines(&self.ask(&format!("list --format json {filter}")))
    }
}

const SSH_LOG: &str = "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\tssh\n\
    #fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tversion\tclient\tserver\thasshServer\n\
    #types\ttime\tstring\taddr\tport\taddr\tport\tcount\tstring\tstring\tstring\n\
    1700000000.250000\tC1\t192.0.2.7\t50000\t198.51.100.1\t22\t2\tSSH-2.0-OpenSSH_9.6\tSSH-2.0-OpenSSH_9.2p1\\x20Debian-2\tb12d2871a1189eff20364cf5333619ee\n\
    1700000060.000000\tC2\t192.0.2.7\t50001\t198.51.100.2\t22\t-\t-\t-\t-\n\
    #close\t2023-11-14-22-20-00\n";

const KNOWN: &str = "{\"ts\":1700000000.5,\"host\":\"198.51.100.3\",\"port_num\":443,\"port_proto\":\"tcp\",\"service\":[\"SSL\",\"HTTP\"]}\n\
    {\"ts\":1700000000.5,\"host\":\"198.51.100.3\",\"port_num\":53,\"port_proto\":\"udp\",\"service\":[\"DNS\"]}\n\
    {\"ts\":\"2023-11-14T22:13:20.5Z\",\"host\":\"198.51.100.4\",\"host_p\":80,\"software_type\":\"HTTP::SERVER\",\"name\":\"nginx\",\"version.major\":1,\"unparsed_version\":\"nginx/1.22.1\"}\n\
    {\"ts\":1700000001,\"host\":\"192.0.2.9\",\"software_type\":\"HTTP::BROWSER\",\"unparsed_version\":\"curl/8.4.0\"}\n";

const EVE: &str = r#"{"timestamp":"2023-11-14T22:13:20.500000+0000","event_type":"ssh","src_ip":"192.0.2.7","src_port":1,"dest_ip":"2001:db8::1","dest_port":2222,"ssh":{"client":{"proto_version":"2.0","software_version":"libssh_0.9.6","hassh":{"hash":"ec7378c1a92f5a8dde7e8b7a1ddf33d1"}},"server":{"proto_version":"2.0","software_version":"dropbear_2022.83"}}}
{"timestamp":"2023-11-14T22:13:21.000000+0000","event_type":"http","src_ip":"192.0.2.7","src_port":1,"dest_ip":"198.51.100.5","dest_port":8080,"http":{"hostname":"x","http_user_agent":"probe/1.5","response_headers":[{"name":"server","value":"Apache/2.4.57 (Debian)"}]}}
{"timestamp":"2023-11-14T22:13:22.000000+0000","event_type":"flow","src_ip":"192.0.2.7"}
"#;

#[test]
fn logs_of_zeek_and_suricata_become_services_and_count_once() {
    let place = Place::new();
    place.file("ssh.log", SSH_LOG);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(KNOWN.as_bytes()).expect("memory");
    std::fs::write(place.path("known.json.gz"), packed.finish().expect("memory"))
        .expect("the folder is ours");
    place.file("eve.json", EVE);
    for _ in 0..2 {
        let output = place.run("import ssh.log known.json.gz eve.json --sensor dmz");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{told}");
        assert!(told.contains("ssh.log: rows 2, without usable data 1"), "{told}");
        assert!(told.contains("known.json.gz: rows 4, without usable data 1"), "{told}");
        assert!(told.contains("eve.json: rows 3, without usable data 1"), "{told}");
    }
    let servers: Vec<String> = place
        .list("side:server")
        .iter()
        .map(|it| {
            format!("{} {} {} {}", it["address"].as_str().unwrap(), it["port"], it["protocol"], it["banner"])
        })
        .collect();
    assert_eq!(
        servers,
        [
            r#"198.51.100.1 22 "ssh" "SSH-2.0-OpenSSH_9.2p1 Debian-2""#,
            r#"198.51.100.3 443 "http" """#,
            r#"198.51.100.3 443 "tls" """#,
            r#"198.51.100.4 80 "http" "nginx/1.22.1""#,
            r#"198.51.100.5 8080 "http" "Apache/2.4.57 (Debian)""#,
            r#"2001:db8::1 2222 "ssh" "SSH-2.0-dropbear_2022.83""#,
        ]
    );
    let first = &place.list("host:198.51.100.1")[0];
    assert_eq!(first["hassh"], "b12d2871a1189eff20364cf5333619ee");
    assert_eq!((&first["version"], &first["patch"]), (&json!("9.2p1"), &json!("Debian-2")));
    assert_eq!(
        (&first["first_seen"], &first["sensors"]),
        (&json!("2023-11-14T22:13:20.250Z"), &json!(["import/dmz"]))
    );
    let clients: Vec<Value> = place.list("side:client").iter().map(|it| it["banner"].clone()).collect();
    assert_eq!(clients, ["probe/1.5", "SSH-2.0-libssh_0.9.6", "curl/8.4.0"], "the latest that each said");
    let host: Value = serde_json::from_slice(&place.ask("show 198.51.100.1 --format json")).expect("JSON");
    assert_eq!(host["services"][0]["said"][0]["count"], 1);
    assert_eq!(host["services"][0]["clients"][0]["address"], "192.0.2.7");
}

#[test]
fn what_cannot_be_read_is_named_with_its_line() {
    let place = Place::new();
    place.file("short.log", "#fields\tts\thost\n1700000000\n");
    place.file("headless.log", "#path\tssh\na\tb\n");
    place.file("cut.json", &EVE[..EVE.len() - 30]);
    place.file("timeless.json", "{\"event_type\":\"ssh\"}\n");
    place.file("other.txt", "hello\n");
    place.file("page.xml", "<html></html>");
    place.file("broken.xml", "<nmaprun><host></nmaprun>");
    for (file, said) in [
        ("short.log", "short.log:2: 1 values where `#fields` names 2"),
        ("headless.log", "headless.log:2: a row before any `#fields`"),
        ("cut.json", "cut.json:3: not JSON"),
        ("timeless.json", "timeless.json:1: no `timestamp`"),
        ("other.txt", "other.txt:1: not nmap's XML, a log of Zeek or EVE JSON"),
        ("page.xml", "page.xml:1: no <nmaprun> element"),
        ("broken.xml", "broken.xml:1: byte"),
        ("nowhere.xml", "nowhere.xml: No such file"),
    ] {
        let output = place.run(&format!("import {file}"));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), told.contains(said)), (Some(2), true), "{file}: {told}");
    }
    assert_eq!(place.list("side:server").len(), 2, "what stands before the cut was taken");
}

#[test]
fn exports_are_what_others_read_and_come_back() {
    as_root(|| {
        let (place, namespace) = (Place::new(), Namespace::new());
        let _sshd = Sshd::start(&namespace, 2222);
        let _nginx = Nginx::start(&namespace, 8080, "");
        let by_nmap = namespace
            .command("nmap")
            .args(["-n", "-Pn", "-sV", "--script", "banner", "-p", "2222,8080,8081", "-oX"])
            .arg(place.path("nmap.xml"))
            .arg("127.0.0.1")
            .output()
            .expect("nmap is installed");
        assert!(by_nmap.status.success(), "{}", String::from_utf8_lossy(&by_nmap.stderr));
        place.ask("import nmap.xml --sensor nmap");
        let list = place.list("side:server");
        let products: Vec<&str> = list.iter().map(|it| it["product"].as_str().unwrap_or_default()).collect();
        assert_eq!(products, ["OpenSSH", "nginx"], "{list:?}");
        assert!(list[0]["banner"].as_str().expect("text").starts_with("SSH-2.0-OpenSSH_"), "{list:?}");
        assert!(list[0]["cpe"].as_str().expect("text").starts_with("cpe:/a:openbsd:openssh:"), "{list:?}");

        // nmap's own document type accepts what is exported, and it is the same when it comes back.
        place.ask("export --format nmap-xml -o export.xml");
        let lint = Command::new("xmllint")
            .args(["--noout", "--dtdvalid", "/usr/share/nmap/nmap.dtd"])
            .arg(place.path("export.xml"))
            .output()
            .expect("xmllint is installed");
        assert!(lint.status.success(), "{}", String::from_utf8_lossy(&lint.stderr));
        let other = Place::new();
        std::fs::copy(place.path("export.xml"), other.path("export.xml")).expect("it is there");
        other.ask("import export.xml");
        let told = |list: Vec<Value>| -> Vec<Value> {
            list.iter()
                .map(|it| {
                    json!([
                        it["address"],
                        it["port"],
                        it["protocol"],
                        it["banner"],
                        it["product"],
                        it["version"]
                    ])
                })
                .collect()
        };
        assert_eq!(told(other.list("")), told(place.list("side:server")));

        let document: Value = serde_json::from_slice(&place.ask("export --format cyclonedx")).expect("JSON");
        assert_eq!((&document["bomFormat"], &document["specVersion"]), (&json!("CycloneDX"), &json!("1.6")));
        let names: Vec<&Value> =
            document["components"].as_array().expect("rows").iter().map(|it| &it["name"]).collect();
        assert_eq!(names, ["OpenSSH", "nginx"]);
        assert_eq!(document["components"][1]["evidence"]["occurrences"][0]["location"], "127.0.0.1:8080");
        let csv = String::from_utf8(place.ask("export --format csv product:nginx")).expect("text");
        assert_eq!(csv.lines().count(), 2, "{csv}");
        assert_eq!(json_lines(&place.ask("export --format json product:nginx")).len(), 1);
        let over = place.run("export --format csv -o net.db");
        assert_eq!(over.status.code(), Some(2), "an inventory is not written over");
    });
}

#[test]
fn a_text_without_end_is_refused_before_it_fills_the_memory() {
    let place = Place::new();
    let path = place.path("bomb.xml.gz");
    let mut packed = GzEncoder::new(std::fs::File::create(&path).expect("a file"), Compression::fast());
    packed.write_all(b"<nmaprun start=\"1700000000\"><cpe>").expect("written");
    let piece = vec![b'x'; 1 << 20];
    (0..512).for_each(|_| packed.write_all(&piece).expect("written"));
    packed.finish().expect("written");
    let limited = "ulimit -v 262144 && exec \"$0\" inventory import \"$1\" --inventory \"$2\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, PROGRAM]).arg(&path).arg(place.path("net.db"));
    let output = command.output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("bomb.xml.gz:1: byte ") && told.contains("more than 1 MiB"), "{told}");
}
