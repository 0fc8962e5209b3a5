//! `scan any`: real servers on ports that are not theirs, each recognized and read by its own probe.

use std::collections::BTreeMap;
use std::fs;

use bannerwall_test_support::{
    Apache, Dropbear, Namespace, Nginx, Running, Sshd, as_root, json_lines, serve_by, wait_listening,
};
use serde_json::Value;

/// An SMTP server that offers STARTTLS on port 7005, one that greets after three seconds on 7006, a silent one
/// on 7007, and IMAP within TLS on 7008.
const MAIL: &str = r#"
import socket, ssl, sys, threading, time
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("own.pem", "own.key")
def smtp(connection, pause):
    time.sleep(pause)
    connection.sendall(b"220 mail.example ESMTP Exim 4.96\r\n")
    for line in connection.makefile("rb"):
        if line.startswith(b"EHLO"):
            connection.sendall(b"250-mail.example\r\n250 STARTTLS\r\n")
        elif line.startswith(b"STARTTLS"):
            connection.sendall(b"220 go ahead\r\n")
            context.wrap_socket(connection, server_side=True)
            return
        else:
            connection.sendall(b"500 what?\r\n")
def silent(connection, pause):
    time.sleep(60)
def imaps(connection, pause):
    connection = context.wrap_socket(connection, server_side=True)
    connection.sendall(b"* OK [CAPABILITY IMAP4rev1] Dovecot ready.\r\n")
    connection.recv(100)
def guarded(*arguments):
    try: arguments[0](*arguments[1:])
    except OSError: pass
def serve(port, talk, pause):
    listener = socket.create_server(("127.0.0.1", port))
    while True:
        threading.Thread(target=guarded, args=(talk, listener.accept()[0], pause), daemon=True).start()
for port, talk, pause in [(7005, smtp, 0), (7006, smtp, 3), (7007, silent, 0), (7008, imaps, 0)]:
    threading.Thread(target=serve, args=(port, talk, pause), daemon=True).start()
time.sleep(3600)
"#;

const RULES: &str = r#"
[[rule]]
id = "redis"
title = "A Redis server"
protocol = "other"
from = "server"
match.name = '^redis$'
action = "alert"
severity = "high"

[[rule]]
id = "nginx"
title = "nginx"
protocol = "http"
from = "server"
match."header.server" = '^nginx'
action = "alert"
severity = "low"

[[rule]]
id = "ssh-elsewhere"
title = "SSH at a port of HTTP"
protocol = "ssh"
from = "server"
port = [80, 8080]
match.software = '^'
action = "alert"
severity = "medium"
"#;

/// Servers on odd ports.
struct Zoo {
    namespace: Namespace,
    folder: tempfile::TempDir,
    running: Vec<Running>,
}

impl Zoo {
    fn new() -> Self {
        let (namespace, folder) = (Namespace::new(), tempfile::tempdir().expect("a folder"));
        fs::write(folder.path().join("rules.toml"), RULES).expect("the folder is ours");
        fs::write(folder.path().join("mail.py"), MAIL).expect("the folder is ours");
        let keys = "openssl req -x509 -newkey rsa:2048 -nodes -days 29 -subj /CN=www.example -keyout own.key -out own.pem";
        namespace.run(&format!("env -C {} {keys}", folder.path().display()));
        Self { namespace, folder, running: Vec::new() }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn serve(&mut self, port: u16, line: &str) {
        let mut words = line.split_whitespace();
        let mut command = self.namespace.command("env");
        command.arg("-C").arg(self.folder.path()).arg(words.next().expect("a program")).args(words);
        self.running.push(serve_by(&self.namespace, port, command));
    }

    /// Returns the events of a scan by port.
    fn scan(&self, flags: &str) -> BTreeMap<u64, Vec<Value>> {
        let mut command = self.namespace.command(env!("CARGO_BIN_EXE_bannerwall"));
        command.args(["scan", "127.0.0.1", "--format", "json", "--total-timeout", "90s", "--rules"]);
        let output = command.arg(self.path("rules.toml")).args(flags.split_whitespace()).output();
        let output = output.expect("the program runs");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let mut events: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
        for event in json_lines(&output.stdout) {
            // An alert goes from the server to the client, so its source is the server's port.
            let port = ["dest_port", "src_port"].iter().find_map(|key| event[key].as_u64());
            events.entry(port.expect("a port")).or_default().push(event);
        }
        events
    }
}

/// Returns the protocols of a port's events, without alerts.
fn protocols(events: &[Value]) -> Vec<String> {
    let named = events.iter().filter(|event| event["event_type"] != "alert").map(|event| {
        event["app_proto"].as_str().or(event["event_type"].as_str()).expect("a name").to_owned()
    });
    let mut names: Vec<String> = named.collect();
    names.dedup();
    names
}

fn alerts(events: &[Value]) -> Vec<&str> {
    let alerts = events.iter().filter(|event| event["event_type"] == "alert");
    alerts.filter_map(|event| event["bannerwall"]["rule"].as_str()).collect()
}

#[test]
fn servers_on_odd_ports_are_recognized_and_read_by_their_own_probes() {
    as_root(|| {
        let mut zoo = Zoo::new();
        let _sshd = Sshd::start(&zoo.namespace, 7001);
        let _elsewhere = Dropbear::start(&zoo.namespace, 8080);
        let _nginx = Nginx::start(&zoo.namespace, 7002, "");
        let _apache = Apache::start(&zoo.namespace, 7003);
        let (key, certificate) = (zoo.path("own.key"), zoo.path("own.pem"));
        let tls = format!("listen 7004 ssl; ssl_certificate {certificate}; ssl_certificate_key {key};");
        let _https = Nginx::start(&zoo.namespace, 7014, &tls);
        wait_listening(&zoo.namespace, 7004);
        zoo.serve(7008, "/usr/bin/python3 mail.py");
        zoo.serve(7009, "/usr/bin/redis-server --port 7009 --bind 127.0.0.1 --save '' --daemonize no");
        let events = zoo.scan("-p 7001-7009,8080");
        let named = |port: u64| events.get(&port).map(|events| protocols(events)).unwrap_or_default();
        let rules = |port: u64| events.get(&port).map(|events| alerts(events)).unwrap_or_default();
        assert_eq!(named(7001), ["ssh"]);
        assert_eq!((named(8080), rules(8080)), (vec!["ssh".to_owned()], vec!["ssh-elsewhere"]));
        assert_eq!((named(7002), rules(7002)), (vec!["http".to_owned()], vec!["nginx"]));
        assert_eq!(named(7003), ["http"]);
        assert_eq!((named(7004), rules(7004)), (vec!["tls".to_owned(), "http".to_owned()], vec!["nginx"]));
        assert_eq!(named(7005), ["smtp", "tls"], "a greeting, and STARTTLS");
        assert_eq!(named(7006), ["smtp", "tls"], "the question came before the greeting");
        assert_eq!(named(7007), ["connect"], "{:?}", events.get(&7007));
        assert_eq!(named(7008), ["tls", "imap"]);
        assert_eq!((named(7009), rules(7009)), (vec!["redis".to_owned()], vec!["redis"]));
    });
}

#[test]
fn databases_desktops_and_files_are_named_by_what_they_say_first() {
    as_root(|| {
        let mut zoo = Zoo::new();
        fs::write(zoo.folder.path().join("rsyncd.conf"), "use chroot = no\n").expect("the folder is ours");
        zoo.serve(7101, "/usr/bin/rsync --daemon --no-detach --port=7101 --config=rsyncd.conf");
        zoo.serve(7102, "/usr/bin/Xtigervnc :77 -rfbport 7102 -SecurityTypes None -nolisten unix");
        zoo.serve(
            7103,
            &format!(
                "openssl s_server -accept 7103 -key {} -cert {} -quiet",
                zoo.path("own.key"),
                zoo.path("own.pem")
            ),
        );
        let data = zoo.path("data");
        fs::create_dir(&data).expect("the folder is ours");
        let mariadb = "/usr/sbin/mariadbd --no-defaults --user=root --skip-grant-tables --skip-name-resolve";
        zoo.serve(7104, &format!("{mariadb} --datadir={data} --port=7104 --socket={data}/socket"));
        let events = zoo.scan("-p 7101-7104");
        let named = |port: u64| events.get(&port).map(|events| protocols(events)).unwrap_or_default();
        assert_eq!(named(7101), ["rsync"]);
        assert_eq!(named(7102), ["rfb"]);
        assert_eq!(named(7103), ["tls"]);
        assert_eq!(named(7104), ["mysql"]);
    });
}
