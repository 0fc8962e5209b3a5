//! The shipped rules against what Debian has of each product: what they say of its packages is true.
//!
//! Each server runs in a network of its own; what a scan and a replay alert about must be exactly what
//! stands beside it here. A package is judged as its changelog says it is fixed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};

use bannerwall_test_support::{Namespace, Running, as_root, end_capture, eventually, json_lines};
use tempfile::TempDir;

/// What the shipped rules are expected to say of a port, by rule ids.
type Expected = (u16, &'static str, &'static [&'static str]);

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rules");

/// Servers in a network of their own, with files of their own.
struct Zoo {
    network: Namespace,
    folder: TempDir,
    servers: Vec<Running>,
}

impl Zoo {
    fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        // Some servers give up root before they read it.
        fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("the folder is ours");
        Self { network: Namespace::new(), folder, servers: Vec::new() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().expect("it is in the folder")).expect("the folder is ours");
        fs::write(&path, text).expect("the folder is ours");
        path.display().to_string()
    }

    /// Starts a server; words are split at spaces, and `script`, if any, is its last argument.
    fn start(&mut self, port: u16, words: &str, script: Option<&str>) {
        let mut words = words.split_whitespace();
        let mut command = self.network.command(words.next().expect("a program"));
        command.args(words).args(script).env("HOME", self.path());
        let mut server = Running::start(command);
        eventually(&format!("a server on port {port}"), || {
            assert!(!server.has_exited(), "the server of port {port} has ended: {}", server.stderr());
            let sockets = self.network.run(&format!("ss -Hltn sport = :{port}"));
            (!sockets.is_empty()).then_some(())
        });
        self.servers.push(server);
    }

    fn bannerwall(&self, words: &str) -> Vec<serde_json::Value> {
        let mut command = self.network.command(env!("CARGO_BIN_EXE_bannerwall"));
        command.args(words.split_whitespace()).args(["--rules", RULES, "--no-local", "--format", "json"]);
        let output = command.output().expect("the program runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {errors}");
        json_lines(&output.stdout)
    }

    /// Scans every expected port and holds the alerts against what is expected.
    fn check(&self, probe: &str, expected: &[Expected]) {
        let ports: Vec<String> = expected.iter().map(|(port, _, _)| port.to_string()).collect();
        // A server that gets no processor for a while is not what this is about.
        let events = self.bannerwall(&format!(
            "scan {probe} 127.0.0.1 -p {} --connect-timeout 9s --read-timeout 9s --total-timeout 40s",
            ports.join(",")
        ));
        let spoke: BTreeSet<u64> = events
            .iter()
            .filter(|one| one["event_type"] == *probe)
            .filter_map(|one| one["dest_port"].as_u64())
            .collect();
        let alerts = alerts(&events);
        let mut wrong = Vec::new();
        for (port, product, rules) in expected {
            let said = alerts.get(&u64::from(*port)).cloned().unwrap_or_default();
            let wanted: BTreeSet<String> = rules.iter().map(|rule| (*rule).to_owned()).collect();
            if !spoke.contains(&u64::from(*port)) || said != wanted {
                wrong.push(format!("{product} on port {port}: {said:?} instead of {wanted:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// The rules that alerted, by the port of who said what they are about.
fn alerts(events: &[serde_json::Value]) -> BTreeMap<u64, BTreeSet<String>> {
    let mut alerts: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["event_type"] == "alert") {
        let port = event["src_port"].as_u64().expect("a port");
        let rule = event["bannerwall"]["rule"].as_str().expect("a rule");
        alerts.entry(port).or_default().insert(rule.to_owned());
    }
    alerts
}

fn key(zoo: &Zoo, name: &str) -> String {
    let path = zoo.path().join(name);
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&path).status();
    assert!(made.is_ok_and(|status| status.success()), "ssh-keygen");
    path.display().to_string()
}

const ASYNCSSH: &str = "
import asyncio, asyncssh, sys
async def main():
    key = asyncssh.generate_private_key('ssh-ed25519')
    await asyncssh.create_server(asyncssh.SSHServer, '', int(sys.argv[1]), server_host_keys=[key])
    await asyncio.Event().wait()
asyncio.run(main())
";

const PARAMIKO: &str = "
import socket, sys, threading, paramiko
key = paramiko.ECDSAKey.generate()
listener = socket.create_server(('', int(sys.argv[1])))
while True:
    client, _ = listener.accept()
    transport = paramiko.Transport(client)
    transport.add_server_key(key)
    try: transport.start_server(event=threading.Event(), server=paramiko.ServerInterface())
    except Exception: pass
";

/// What Debian 12 has of SSH servers. Only Paramiko is not fixed of Terrapin there; it and GNU's lsh
/// offer old algorithms.
const SSH: &[Expected] = &[
    (2201, "OpenSSH", &[]),
    (2202, "OpenSSH that hides its package", &["openssh-regresshion-unknown-patch"]),
    (2203, "Dropbear", &[]),
    (2204, "AsyncSSH", &[]),
    (2205, "Paramiko", &["ssh-terrapin-cbc", "ssh-weak-group-offered"]),
    (2206, "Erlang", &[]),
    (
        2207,
        "lsh",
        &[
            "ssh-weak-key-exchange-only",
            "ssh-weak-group-offered",
            "ssh-arcfour-offered",
            "ssh-weak-ciphers-only",
        ],
    ),
];

fn ssh_servers() -> Zoo {
    let mut zoo = Zoo::new();
    // sshd's unprivileged half lives in this empty folder; a boot script makes it elsewhere.
    fs::create_dir_all("/run/sshd").expect("/run is writable for root");
    let host = key(&zoo, "ssh_host_ed25519_key");
    let sshd = format!("/usr/sbin/sshd -D -e -f /dev/null -h {host} -o PidFile=none -o UsePAM=no");
    zoo.start(2201, &format!("{sshd} -p 2201"), None);
    zoo.start(2202, &format!("{sshd} -p 2202 -o DebianBanner=no -o"), Some("VersionAddendum zoo keeper"));
    let dropbear = zoo.path().join("dropbear");
    let made = Command::new("dropbearkey").args(["-t", "ed25519", "-f"]).arg(&dropbear).output();
    assert!(made.is_ok_and(|output| output.status.success()), "dropbearkey");
    let (dropbear, pid) = (dropbear.display(), zoo.path().join("pid").display().to_string());
    zoo.start(2203, &format!("/usr/sbin/dropbear -F -E -r {dropbear} -P {pid} -p 2203"), None);
    let script = zoo.write("asyncssh_server.py", ASYNCSSH);
    zoo.start(2204, &format!("/usr/bin/python3 -W ignore {script} 2204"), None);
    let script = zoo.write("paramiko_server.py", PARAMIKO);
    zoo.start(2205, &format!("/usr/bin/python3 -W ignore {script} 2205"), None);
    let folder = zoo.path().display().to_string();
    let erlang = format!(
        "ssh:start(), {{ok, _}} = ssh:daemon(2206, [{{system_dir, \"{folder}\"}}]), receive stop -> ok end."
    );
    zoo.start(2206, "/usr/bin/erl -noshell -eval", Some(&erlang));
    lsh(&mut zoo);
    zoo
}

/// GNU's lsh, the last release of 2013.
fn lsh(zoo: &mut Zoo) {
    let (random, host) = (zoo.path().join("random-seed"), zoo.path().join("lsh-key"));
    let mut seed = vec![0; 2_000];
    std::io::Read::read_exact(&mut fs::File::open("/dev/urandom").expect("it is there"), &mut seed)
        .expect("it never ends");
    fs::write(&random, seed).expect("the folder is ours");
    fs::set_permissions(&random, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is ours");
    let make = format!(
        "LSH_YARROW_SEED_FILE={seed} lsh-keygen --server -a rsa -l 2048 | LSH_YARROW_SEED_FILE={seed} lsh-writekey --server -o {host}",
        seed = random.display(),
        host = host.display()
    );
    let made = Command::new("sh").args(["-c", &make]).env("HOME", zoo.path()).output().expect("sh starts");
    assert!(made.status.success(), "lsh-keygen: {}", String::from_utf8_lossy(&made.stderr));
    let run = format!(
        "LSH_YARROW_SEED_FILE={} exec lshd --no-pid-file -p 2207 -h {}",
        random.display(),
        host.display()
    );
    zoo.start(2207, "sh -c", Some(&run));
}

#[test]
fn what_is_said_of_debian_s_ssh_servers_is_true() {
    as_root(|| ssh_servers().check("ssh", SSH));
}

/// What Debian 12 has of SSH clients, and what they are expected to be told; its Paramiko can't tell.
#[test]
fn what_is_said_of_debian_s_ssh_clients_is_true() {
    as_root(|| {
        let mut zoo = Zoo::new();
        fs::create_dir_all("/run/sshd").expect("/run is writable for root");
        let host = key(&zoo, "host");
        let sshd = format!("/usr/sbin/sshd -D -e -f /dev/null -h {host} -o PidFile=none -o UsePAM=no");
        zoo.start(2222, &format!("{sshd} -p 2222"), None);
        let capture = zoo.path().join("clients.pcap");
        let mut tcpdump = zoo.network.command("tcpdump");
        tcpdump
            .args(["-i", "lo", "-U", "--immediate-mode", "-Z", "root", "-w"])
            .arg(&capture)
            .arg("tcp port 2222 or udp port 9");
        let tcpdump = Running::start(tcpdump);
        tcpdump.wait_stderr("the capture's begin", |text| text.contains("listening on").then_some(()));
        for client in [
            "ssh -F /dev/null -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -p 2222 x@127.0.0.1 true",
            "dbclient -y -y -p 2222 x@127.0.0.1 true",
            "plink -batch -P 2222 x@127.0.0.1 true",
        ] {
            client_once(&zoo, client, None);
        }
        for script in [
            "import paramiko; t = paramiko.Transport(('127.0.0.1', 2222)); t.start_client(timeout=30)",
            "import asyncio, asyncssh\nasync def main(): await asyncssh.connect('127.0.0.1', 2222, username='x', known_hosts=None)\nasyncio.run(main())",
        ] {
            client_once(&zoo, "/usr/bin/python3 -W ignore -c", Some(script));
        }
        end_capture(tcpdump, &capture, &zoo.network, Ipv4Addr::LOCALHOST);
        let events = zoo.bannerwall(&format!("replay {}", capture.display()));
        let said: BTreeSet<&str> =
            events.iter().filter_map(|one| one["ssh"]["client"]["software_version"].as_str()).collect();
        for product in ["OpenSSH", "dropbear", "PuTTY", "paramiko", "AsyncSSH"] {
            assert!(said.iter().any(|line| line.starts_with(product)), "{product} is not among {said:?}");
        }
        assert_eq!(alerts(&events), BTreeMap::new());
    });
}

/// Runs a client that is not let in.
fn client_once(zoo: &Zoo, words: &str, script: Option<&str>) {
    let mut words = words.split_whitespace();
    let mut command = zoo.network.command(words.next().expect("a program"));
    command.args(words).args(script).env("HOME", zoo.path());
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.unwrap_or_else(|error| panic!("{command:?}: {error}"));
}

/// What every page without hardening is told.
const BARE: [&str; 3] =
    ["http-no-content-security-policy", "http-no-content-type-options", "http-framing-allowed"];

const LISTED: &[&str] = &[BARE[0], BARE[1], BARE[2], "directory-listing"];

/// What Debian 12 has of HTTP servers, all over the same folder: `dir/` with two files.
const HTTP: &[Expected] = &[
    (8001, "nginx", LISTED),
    (8002, "Apache", &[BARE[0], BARE[1], BARE[2], "directory-listing", "apache-server-status-open"]),
    (8003, "lighttpd", &[BARE[0], BARE[1], BARE[2], "directory-listing", "lighttpd-server-status-open"]),
    (8004, "h2o", &[BARE[0], BARE[1], BARE[2], "directory-listing", "h2o-server-status-open"]),
    (8005, "Caddy", &[BARE[0], BARE[1], BARE[2], "directory-listing-caddy"]),
    (8006, "mini_httpd", LISTED),
    (8007, "micro_httpd", LISTED),
    (8008, "webfs", &[BARE[0], BARE[1], BARE[2], "directory-listing-webfs"]),
    (
        8009,
        "Python's http.server",
        &[BARE[0], BARE[1], BARE[2], "directory-listing", "python-simple-http-server"],
    ),
    (8010, "php -S", &[]),
    (8017, "weborf", &[BARE[0], BARE[1], BARE[2], "directory-listing-weborf"]),
    (8011, "tinyproxy", &[]),
    (8012, "Squid", &[]),
    (8013, "HAProxy", &["haproxy-statistics-open", BARE[0], BARE[1], BARE[2]]),
    (8014, "Prometheus", &["prometheus-open", BARE[1]]),
    (8015, "etcd", &["etcd-open", BARE[1]]),
    (8016, "a container registry", &["docker-registry-open", BARE[1]]),
];

#[test]
fn what_is_said_of_debian_s_http_servers_is_true() {
    as_root(|| {
        let mut zoo = Zoo::new();
        web_servers(&mut zoo);
        proxies_and_services(&mut zoo);
        zoo.check("http", HTTP);
    });
}

fn web_servers(zoo: &mut Zoo) {
    zoo.write("www/a.txt", "a");
    zoo.write("www/dir/b.txt", "b");
    let folder = zoo.path().display().to_string();
    let www = format!("{folder}/www");
    let nginx = zoo.write(
        "nginx.conf",
        &format!(
            "daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr; events {{}}\n\
         http {{ access_log off; client_body_temp_path {folder}/n1; proxy_temp_path {folder}/n2;\n\
         fastcgi_temp_path {folder}/n3; uwsgi_temp_path {folder}/n4; scgi_temp_path {folder}/n5;\n\
         server {{ listen 8001; root {www}; autoindex on; }} }}\n"
        ),
    );
    zoo.start(8001, &format!("/usr/sbin/nginx -e stderr -c {nginx}"), None);
    let apache = zoo.write("apache.conf", &apache_configuration(&folder));
    zoo.start(8002, &format!("/usr/sbin/apache2 -X -f {apache}"), None);
    let lighttpd = zoo.write(
        "lighttpd.conf",
        &format!(
            "server.modules = (\"mod_dirlisting\", \"mod_status\")\nserver.document-root = \"{www}\"\n\
         server.port = 8003\ndir-listing.activate = \"enable\"\nstatus.status-url = \"/server-status\"\n"
        ),
    );
    zoo.start(8003, &format!("/usr/sbin/lighttpd -D -f {lighttpd}"), None);
    let h2o = zoo.write("h2o.conf", &format!(
        "hosts:\n  \"*\":\n    listen: 8004\n    paths:\n      \"/\": {{ file.dir: {www}, file.dirlisting: ON }}\n      \
         \"/server-status\": {{ status: ON }}\nnum-threads: 1\n"
    ));
    zoo.start(8004, &format!("/usr/bin/h2o -c {h2o}"), None);
    zoo.start(8005, &format!("/usr/bin/caddy file-server --browse --root {www} --listen :8005"), None);
    zoo.start(8006, &format!("/usr/sbin/mini_httpd -D -p 8006 -d {www}"), None);
    zoo.start(
        8007,
        &format!("systemd-socket-activate --inetd --accept --listen 8007 /usr/sbin/micro-httpd {www}"),
        None,
    );
    zoo.start(8008, &format!("/usr/bin/webfsd -F -p 8008 -r {www}"), None);
    zoo.start(8009, &format!("/usr/bin/python3 -m http.server --directory {www} 8009"), None);
    zoo.start(8017, &format!("/usr/bin/weborf -b {www} -p 8017"), None);
    zoo.start(8010, &format!("/usr/bin/php -S 0.0.0.0:8010 -t {www}"), None);
}

fn apache_configuration(folder: &str) -> String {
    let modules = ["mpm_event", "authz_core", "dir", "mime", "autoindex", "status"];
    let load = |name: &&str| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
    let loaded: String = modules.iter().map(load).collect();
    format!(
        "ServerName zoo\nListen 8002\nPidFile {folder}/apache.pid\nErrorLog /dev/stderr\nDefaultRuntimeDir {folder}\n\
         {loaded}DocumentRoot {folder}/www\nTypesConfig /etc/mime.types\nServerTokens Full\n\
         <Directory {folder}/www>\nOptions +Indexes\n</Directory>\n\
         <Location /server-status>\nSetHandler server-status\n</Location>\n"
    )
}

fn proxies_and_services(zoo: &mut Zoo) {
    let folder = zoo.path().display().to_string();
    let tinyproxy = zoo.write("tinyproxy.conf", "Port 8011\nListen 127.0.0.1\nTimeout 30\nMaxClients 20\n");
    zoo.start(8011, &format!("/usr/bin/tinyproxy -d -c {tinyproxy}"), None);
    let squid = zoo.write("squid.conf", &format!(
        "http_port 8012\npid_filename none\naccess_log none\ncache_log stdio:/dev/null\ncache_store_log none\ncache_mem 8 MB\n\
         visible_hostname zoo\ncoredump_dir {folder}\npinger_enable off\nnetdb_filename none\nhttp_access deny all\n"
    ));
    zoo.start(8012, &format!("/usr/sbin/squid -N -n zoo{} -f {squid}", std::process::id()), None);
    let haproxy = zoo.write(
        "haproxy.conf",
        "defaults\n mode http\n timeout client 30s\n timeout connect 30s\n timeout server 30s\n\
         frontend zoo\n bind :8013\n stats enable\n stats uri /stats\n",
    );
    zoo.start(8013, &format!("/usr/sbin/haproxy -f {haproxy}"), None);
    let prometheus = zoo.write("prometheus.yml", "scrape_configs: []\n");
    zoo.start(8014, &format!(
        "/usr/bin/prometheus --config.file={prometheus} --storage.tsdb.path={folder}/tsdb --web.listen-address=127.0.0.1:8014"
    ), None);
    zoo.start(
        8015,
        &format!(
            "/usr/bin/etcd --data-dir {folder}/etcd --listen-client-urls http://127.0.0.1:8015 \
         --advertise-client-urls http://127.0.0.1:8015 --listen-peer-urls http://127.0.0.1:8115"
        ),
        None,
    );
    let registry = zoo.write("registry.yml", &format!(
        "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {folder}/registry\nhttp:\n  addr: 127.0.0.1:8016\n"
    ));
    zoo.start(8016, &format!("/usr/bin/docker-registry serve {registry}"), None);
}
