//! Servers of protocols that bannerwall does not read: real ones where Debian has them, and for the heavy
//! ones a few octets of the specification.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bannerwall_test_support::{Namespace, Running, eventually};
use tempfile::TempDir;

/// How a server comes to be.
pub(crate) enum Server {
    /// A program of Debian's: its command line, where `{a}` is the address and `{d}` a folder of its own, and
    /// the files in that.
    Real(&'static str, &'static [(&'static str, &'static str)]),
    /// A program that gets each connection as its input and output.
    Inetd(&'static str),
    /// Octets that are said at once, or behind what the client says.
    Played(&'static [u8]),
}

/// A protocol on its server.
pub(crate) struct Foreigner {
    /// What it is to be called.
    pub(crate) name: &'static str,
    pub(crate) server: Server,
    /// What the client says first; nothing where the server speaks first.
    pub(crate) hello: &'static [u8],
}

const fn real(
    name: &'static str,
    command: &'static str,
    files: &'static [(&'static str, &'static str)],
    hello: &'static [u8],
) -> Foreigner {
    Foreigner { name, server: Server::Real(command, files), hello }
}

const fn played(name: &'static str, hello: &'static [u8], answer: &'static [u8]) -> Foreigner {
    Foreigner { name, server: Server::Played(answer), hello }
}

/// The port that every server listens on; the other one is led there.
pub(crate) const PORT: u16 = 22;

pub(crate) const FOREIGNERS: &[Foreigner] = &[
    real(
        "redis",
        "redis-server --bind {a} --port 22 --protected-mode no --save '' --dir {d}",
        &[],
        b"*1\r\n$4\r\nPING\r\n",
    ),
    real("memcached", "memcached -u root -l {a} -p 22 -U 0", &[], b"version\r\n"),
    real(
        "mqtt",
        "mosquitto -c {d}/conf",
        &[("conf", "listener 22 {a}\nallow_anonymous true\nuser root\n")],
        b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04test",
    ),
    real("nats", "nats-server -a {a} -p 22", &[], b""),
    real(
        "ldap",
        "slapd -h ldap://{a}:22 -f {d}/conf -d 0",
        &[(
            "conf",
            "include /etc/ldap/schema/core.schema\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\npidfile {d}/pid\ndatabase mdb\nsuffix dc=x\ndirectory {d}\n",
        )],
        b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00",
    ),
    real(
        "irc",
        "ngircd -n -f {d}/conf",
        &[(
            "conf",
            "[Global]\nName = irc.example\nInfo = x\nListen = {a}\nPorts = 22\nServerUID = root\nServerGID = root\n\
             [Options]\nDNS = no\nIdent = no\nPAM = no\n",
        )],
        b"NICK someone\r\nUSER someone 0 * :Some One\r\n",
    ),
    real(
        "rsync",
        "rsync --daemon --no-detach --address={a} --port=22 --config={d}/conf",
        &[("conf", "use chroot = no\n")],
        b"",
    ),
    real("svn", "svnserve -d --foreground --listen-host {a} --listen-port 22 -r {d}", &[], b""),
    real(
        "git",
        "/usr/lib/git-core/git-daemon --reuseaddr --informative-errors --init-timeout=20 --listen={a} --port=22 --export-all --base-path={d} {d}",
        &[],
        b"0024git-upload-pack /x\x00host=example\x00",
    ),
    real(
        "socks",
        "danted -f {d}/conf -p {d}/pid",
        &[(
            "conf",
            "internal: {a} port = 22\nexternal: {a}\nsocksmethod: none\nclientmethod: none\n\
             user.privileged: root\nuser.unprivileged: root\n\
             client pass { from: 0/0 to: 0/0 }\nsocks pass { from: 0/0 to: 0/0 }\n",
        )],
        b"\x05\x01\x00",
    ),
    real(
        "mysql",
        "mariadbd --no-defaults --user=root --skip-grant-tables --datadir={d} --bind-address={a} --port=22 \
         --socket={d}/socket --innodb-buffer-pool-size=8M --skip-name-resolve",
        &[],
        b"",
    ),
    real(
        "rfb",
        // It locks its display's number in /tmp, for the whole machine.
        "unshare --mount sh -c 'mount --bind {d} /tmp; HOME=/tmp exec Xtigervnc :7 -rfbport 22 -interface {a} \
         -SecurityTypes None -nolisten unix -nolisten tcp -geometry 64x64'",
        &[],
        b"",
    ),
    real(
        "dns",
        "dnsmasq --no-daemon --conf-file=/dev/null --port=22 --listen-address={a} --bind-interfaces --no-resolv \
         --no-hosts --pid-file --user=root",
        &[],
        b"\x00\x1d\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03org\x00\x00\x01\x00\x01",
    ),
    Foreigner { name: "telnet", server: Server::Inetd("telnetd"), hello: b"" },
    real(
        "tls",
        "openssl s_server -accept {a}:22 -cert {d}/cert -key {d}/key -quiet",
        &[],
        // A ClientHello of OpenSSL 3, TLS 1.2 with one cipher suite.
        b"\x16\x03\x01\x00\x83\x01\x00\x00\x7f\x03\x03\
          \xb3\xd7\xfb\x1a\x2b\x0c\xe9\x18\x81\x1d\x12\x7f\x7f\x57\x63\x2d\x2e\x89\x87\x5b\x6a\x5d\xff\x19\x56\x7d\xdd\x86\x80\xf1\x9a\x35\
          \x00\x00\x04\xc0\x2b\x00\xff\x01\x00\x00\x52\x00\x0b\x00\x04\x03\x00\x01\x02\x00\x0a\x00\x0c\x00\x0a\x00\x1d\x00\x17\x00\x1e\x00\x19\
          \x00\x18\x00\x23\x00\x00\x00\x16\x00\x00\x00\x17\x00\x00\x00\x0d\x00\x2a\x00\x28\x04\x03\x05\x03\x06\x03\x08\x07\x08\x08\x08\x09\
          \x08\x0a\x08\x0b\x08\x04\x08\x05\x08\x06\x04\x01\x05\x01\x06\x01\x03\x03\x03\x01\x03\x02\x04\x02\x05\x02\x06\x02",
    ),
    played(
        "rdp",
        b"\x03\x00\x00\x2b\x26\xe0\x00\x00\x00\x00\x00Cookie: mstshash=user\r\n\x01\x00\x08\x00\x03\x00\x00\x00",
        b"\x03\x00\x00\x13\x0e\xd0\x00\x00\x12\x34\x00\x02\x1f\x08\x00\x02\x00\x00\x00",
    ),
    played("smb", b"\x00\x00\x00\x45\xffSMBr\x00\x00\x00\x00\x18\x53\xc8", b"\x00\x00\x00\xf8\xfeSMB\x40\x00"),
    played("postgresql", b"\x00\x00\x00\x08\x04\xd2\x16\x2f", b"S"),
    played("amqp", b"AMQP\x00\x00\x09\x01", b"\x01\x00\x00\x00\x00\x01\xf4\x00\x0a\x00\x0a\x00\x09"),
    played(
        "bittorrent",
        b"\x13BitTorrent protocol\x00\x00\x00\x00\x00\x10\x00\x05aaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbb",
        b"\x13BitTorrent protocol\x00\x00\x00\x00\x00\x10\x00\x05",
    ),
    played(
        "openvpn",
        b"\x00\x0e\x38\x01\x02\x03\x04\x05\x06\x07\x08\x00\x00\x00\x00\x00",
        b"\x00\x1a\x40\x11\x12\x13\x14\x15\x16\x17\x18\x01\x00\x00\x00\x00",
    ),
    played("rtsp", b"OPTIONS rtsp://192.0.2.1/ RTSP/1.0\r\nCSeq: 1\r\n\r\n", b"RTSP/1.0 200 OK\r\nCSeq: 1\r\n\r\n"),
    played("sip", b"OPTIONS sip:x@example.org SIP/2.0\r\nVia: SIP/2.0/TCP a\r\n\r\n", b"SIP/2.0 200 OK\r\n\r\n"),
    played(
        "xmpp",
        b"<?xml version='1.0'?><stream:stream to='example.org' xmlns='jabber:client'>",
        b"<?xml version='1.0'?><stream:stream from='example.org'",
    ),
    played(
        "http2",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    ),
    played(
        "mongodb",
        b"\x3a\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\xd4\x07\x00\x00\x00\x00\x00\x00admin.$cmd\x00",
        b"\x3a\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00",
    ),
    played("tpkt", b"\x03\x00\x00\x16\x11\xe0\x00\x00\x00\x01\x00\xc1\x02\x01\x00\xc2\x02\x01\x02\xc0\x01\x0a", b"\x03\x00\x00\x16\x11\xd0"),
    played("unknown", b"", b"who are you? "),
];

/// A server that runs, with its folder.
pub(crate) struct Started {
    _folder: TempDir,
    _process: Option<Running>,
}

impl Foreigner {
    /// Starts the server at `address`, and waits until it says something to a client of its own network.
    pub(crate) fn start(&self, namespace: &Namespace, address: &str) -> Started {
        let folder = TempDir::new().expect("a folder");
        let process = match self.server {
            Server::Real(words, files) => {
                if words.starts_with("openssl") {
                    certificate(folder.path());
                }
                let fill = |text: &str| {
                    text.replace("{a}", address).replace("{d}", &folder.path().display().to_string())
                };
                for (name, text) in files {
                    std::fs::write(folder.path().join(name), fill(text)).expect("the folder is ours");
                }
                let mut command = namespace.command("sh");
                command.arg("-c").arg(format!("PATH=$PATH:/usr/sbin exec {}", fill(words)));
                command.env("HOME", folder.path());
                Some(Running::start(command))
            }
            Server::Inetd(program) => {
                let listener =
                    namespace.listen((address.parse::<std::net::IpAddr>().expect("an address"), PORT));
                std::thread::spawn(move || hand_over(&listener, program));
                None
            }
            Server::Played(answer) => {
                let listener =
                    namespace.listen((address.parse::<std::net::IpAddr>().expect("an address"), PORT));
                let asks = !self.hello.is_empty();
                std::thread::spawn(move || play(&listener, asks, answer));
                None
            }
        };
        let answer = eventually(&format!("{} to answer", self.name), || self.talk_within(namespace, address));
        assert!(!answer.is_empty());
        Started { _folder: folder, _process: process }
    }

    /// What the server says to a client in its own network.
    fn talk_within(&self, namespace: &Namespace, address: &str) -> Option<Vec<u8>> {
        let mut stream = namespace.connect((address.parse::<std::net::IpAddr>().ok()?, PORT)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        stream.write_all(self.hello).ok()?;
        let mut buffer = [0; 1024];
        let length = stream.read(&mut buffer).ok().filter(|length| *length > 0)?;
        Some(buffer[..length].to_vec())
    }
}

fn certificate(folder: &Path) {
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=example -days 2";
    let status = Command::new("openssl")
        .args(words.split_whitespace())
        .arg("-keyout")
        .arg(folder.join("key"))
        .arg("-out")
        .arg(folder.join("cert"))
        .stderr(Stdio::null())
        .status();
    assert!(status.expect("openssl").success());
}

/// Gives each connection to a process, as inetd does.
fn hand_over(listener: &TcpListener, program: &str) {
    for stream in listener.incoming().flatten() {
        let Ok(output) = stream.try_clone() else { continue };
        let child = Command::new(format!("/usr/sbin/{program}"))
            .stdin(OwnedFd::from(stream))
            .stdout(OwnedFd::from(output))
            .stderr(Stdio::null())
            .spawn();
        std::thread::spawn(move || child.map(|mut child| child.wait()));
    }
}

fn play(listener: &TcpListener, asks: bool, answer: &'static [u8]) {
    for mut stream in listener.incoming().flatten() {
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            if asks && stream.read(&mut buffer).unwrap_or(0) == 0 {
                return;
            }
            let _ = stream.write_all(answer);
            let _ = stream.read(&mut buffer);
        });
    }
}

/// Leads `from` of clients to `upstream`, the first octets of both directions in segments of `size`.
pub(crate) fn chop(
    listener: TcpListener,
    upstream: impl Fn() -> std::io::Result<TcpStream> + Send + 'static,
    size: usize,
) {
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = upstream() else { continue };
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { continue };
                std::thread::spawn(move || {
                    let _ = copy_chopped(&mut from, &mut to, size);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
}

/// Octets of a direction that are chopped.
const CHOPPED: usize = 300;

fn copy_chopped(from: &mut TcpStream, to: &mut TcpStream, size: usize) -> std::io::Result<()> {
    to.set_nodelay(true)?;
    let (mut copied, mut buffer) = (0, [0; 4096]);
    loop {
        let length = from.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        let size = if copied < CHOPPED { size } else { buffer.len() };
        for piece in buffer[..length].chunks(size) {
            to.write_all(piece)?;
        }
        copied += length;
    }
}
