//! "Only this on this port": a guard in the way of real servers that a policy does not allow, and of those
//! that it does.

use crate::foreigners;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::foreigners::{FOREIGNERS, PORT, chop};
use bannerwall_test_support::{
    Apache, Dropbear, Guard, Line, Namespace, Nginx, Signal, Sshd, as_root, eventually, json_lines,
};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// Drops on one port and rejects on the other.
const ONLY: &str = r#"
[[policy]]
id = "only-80"
port = 80
allow = ["ssh", "http"]

[[policy]]
id = "only-22"
port = 22
allow = ["ssh", "http"]
otherwise = "reject"
"#;

/// The address of the server with this number.
fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, 10 + u8::try_from(number).expect("few"))
}

/// A line whose server has an address for each of `count` servers, and leads port 80 to where they listen.
fn line(count: usize) -> Line {
    let line = Line::new();
    // Some of them bind their port when they are nobody any more.
    line.server.set("ipv4/ip_unprivileged_port_start", "0");
    for number in 0..count {
        add(&line, address(number));
    }
    line
}

/// Gives the server a further address, whose port 80 is led to the other one.
fn add(line: &Line, address: Ipv4Addr) {
    line.server.run(&format!("ip address add {address}/24 dev eth0"));
    let lead = "iptables -t nat -A PREROUTING -p tcp --dport 80 -j DNAT";
    line.server.run(&format!("{lead} -d {address} --to-destination {address}:{PORT}"));
}

/// Events about the server at `to`, of this type.
fn about<'e>(events: &'e [Value], to: SocketAddr, kind: &str) -> Vec<&'e Value> {
    let ends = |event: &Value, side: &str| {
        event[format!("{side}_ip")] == to.ip().to_string() && event[format!("{side}_port")] == to.port()
    };
    let is = |event: &&Value| event["event_type"] == kind && (ends(event, "dest") || ends(event, "src"));
    events.iter().filter(is).collect()
}

/// Says `hello` to a server and takes what comes until the guard has told that it refuses the flow.
fn talk(line: &Line, guard: &Guard, to: SocketAddr, hello: &[u8]) -> Vec<u8> {
    let mut stream = match line.client.connect(to) {
        Ok(stream) => Some(stream),
        // A server that speaks first may be refused before its client has come to know that it is connected.
        Err(error) if error.kind() == ErrorKind::ConnectionReset && hello.is_empty() => None,
        Err(error) => panic!("the handshake with {to} passes: {error}"),
    };
    if let Some(stream) = &mut stream {
        // It may have been reset already.
        let _ = stream.write_all(hello);
    }
    eventually(&format!("the guard to refuse {to}"), || {
        (!about(&guard.events(), to, "drop").is_empty()).then_some(())
    });
    let mut received = Vec::new();
    if let Some(stream) = &mut stream {
        stream.set_read_timeout(Some(Duration::from_millis(50))).expect("not zero");
        let _ = stream.read_to_end(&mut received);
    }
    received
}

#[test]
fn no_octet_of_a_forbidden_server_arrives_and_each_is_named() {
    as_root(|| {
        let line = line(FOREIGNERS.len());
        let starting: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = FOREIGNERS
                .iter()
                .enumerate()
                .map(|(number, one)| {
                    let line = &line;
                    scope.spawn(move || one.start(&line.server, &address(number).to_string()))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("it starts")).collect()
        });
        let guard = Guard::start(&line.router, PROGRAM, ONLY, "--hook forward --enforce");
        let places: Vec<(&foreigners::Foreigner, SocketAddr)> = [PORT, 80]
            .into_iter()
            .flat_map(|port| {
                (0..).zip(FOREIGNERS).map(move |(number, one)| (one, (address(number), port).into()))
            })
            .collect();
        for (one, to) in &places {
            let received = talk(&line, &guard, *to, one.hello);
            assert_eq!(received, b"", "{} at {to}: {}", one.name, received.escape_ascii());
        }
        let events = guard.events();
        let (mut named, mut wrong) = (0, Vec::new());
        for (one, to) in &places {
            let kind = if one.name == "tls" { "tls" } else { "other" };
            let told = about(&events, *to, kind);
            assert_eq!(told.len(), 1, "{} at {to}: {told:?}", one.name);
            let policy = format!("only-{}", to.port());
            let (alerts, drops) = (about(&events, *to, "alert"), about(&events, *to, "drop"));
            for told in [&alerts, &drops] {
                assert_eq!(told.len(), 1, "{} at {to}: {told:?}", one.name);
                assert_eq!(told[0]["bannerwall"]["rule"], policy);
            }
            if alerts[0]["bannerwall"]["name"] == one.name {
                named += 1;
            } else {
                wrong.push((one.name, alerts[0]["bannerwall"]["name"].clone()));
            }
            if kind == "other" {
                assert_eq!(told[0]["bannerwall"]["name"], alerts[0]["bannerwall"]["name"]);
            }
        }
        assert_eq!(wrong, Vec::<(&str, Value)>::new(), "{named} have their name");
        drop(starting);
    });
}

/// Runs a client in a network; gives all that it says.
fn client(namespace: &Namespace, words: &str) -> String {
    let mut words = words.split_whitespace();
    let mut command = namespace.command("timeout");
    command.arg("20").args(words.by_ref()).stdin(std::process::Stdio::null());
    let output = command.output().expect("nsenter starts");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn what_is_allowed_passes_whole_however_it_is_cut() {
    as_root(|| {
        let line = line(0);
        let loopback = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let sshd = Sshd::start(&line.server, 2201);
        let _dropbear = Dropbear::start(&line.server, 2202);
        let _nginx = Nginx::start(&line.server, 2203, "");
        let apache = Apache::start(&line.server, 2204);
        std::fs::write(apache.root().join("index.html"), "hello world").expect("the folder is ours");
        let key = sshd.user_key().display().to_string();
        let guard = Guard::start(&line.router, PROGRAM, ONLY, "--hook forward --enforce");
        let mut passed = 0;
        for (turn, size) in [1, 3, 7, 4096].into_iter().enumerate() {
            for (number, port) in [2201, 2202, 2203, 2204].into_iter().enumerate() {
                // A server address for each, so that both policies' ports are free.
                let number = turn * 4 + number;
                let to = address(number);
                add(&line, to);
                let network = format!("/proc/{}/ns/net", line.server.id());
                chop(line.server.listen((to, PORT)), move || within(&network, loopback(port)), size);
                for policed in [PORT, 80] {
                    let entry = line.client.listen((Ipv4Addr::LOCALHOST, 0));
                    let here = entry.local_addr().expect("bound").port();
                    let network = format!("/proc/{}/ns/net", line.client.id());
                    chop(entry, move || within(&network, (to, policed).into()), size);
                    let options =
                        "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes";
                    let said = match port {
                        2201 => client(
                            &line.client,
                            &format!("ssh {options} -i {key} -p {here} root@127.0.0.1 echo hello world"),
                        ),
                        2202 => {
                            client(&line.client, &format!("dbclient -y -y -p {here} root@127.0.0.1 true"))
                        }
                        _ => client(&line.client, &format!("curl -s http://127.0.0.1:{here}/index.html")),
                    };
                    let expected = if port == 2202 { "password" } else { "hello world" };
                    assert!(said.contains(expected), "{port} at {policed}, {size} octets a segment: {said}");
                    if port == 2201 {
                        let words = format!("plink -batch -ssh -P {here} root@127.0.0.1 true");
                        let said = client(&line.client, &words);
                        assert!(
                            said.contains("host key is not cached"),
                            "plink at {policed}, {size}: {said}"
                        );
                    }
                    passed += 1;
                }
            }
        }
        let events = guard.events();
        let refused: Vec<&Value> = events
            .iter()
            .filter(|event| {
                ["alert", "drop", "other"].contains(&event["event_type"].as_str().unwrap_or_default())
            })
            .collect();
        assert_eq!(refused, Vec::<&Value>::new(), "of {passed}");
        drop(sshd);
    });
}

/// A connection from a network.
fn within(network: &str, to: SocketAddr) -> std::io::Result<TcpStream> {
    use std::os::fd::AsFd as _;
    let network = std::fs::File::open(network)?;
    let kind = Some(rustix::thread::LinkNameSpaceType::Network);
    rustix::thread::move_into_link_name_space(network.as_fd(), kind)?;
    TcpStream::connect(to)
}

#[test]
fn what_was_learned_lets_pass_what_was_seen_and_nothing_else() {
    as_root(|| {
        let line = line(2);
        let redis = FOREIGNERS.iter().find(|one| one.name == "redis").expect("in the list");
        let _redis = redis.start(&line.server, &address(0).to_string());
        let _sshd = Sshd::start(&line.server, 2222);
        let folder = tempfile::tempdir().expect("a folder");
        let learned = folder.path().join("learned.toml");
        let flags = format!("--hook forward --learn {}", learned.display());
        let nothing =
            "[[rule]]\nid = \"x\"\nprotocol = \"ssh\"\nmatch.software = \"^x$\"\naction = \"alert\"\n";
        let mut guard = Guard::start(&line.router, PROGRAM, nothing, &flags);
        let server = IpAddr::from(Ipv4Addr::new(198, 51, 100, 2));
        let say = |to: SocketAddr, hello: &[u8]| {
            let mut stream = line.client.connect(to)?;
            stream.set_read_timeout(Some(Duration::from_secs(20)))?;
            stream.write_all(hello)?;
            let mut buffer = [0; 256];
            stream.read(&mut buffer).map(|length| buffer[..length].to_vec())
        };
        let redis_at = SocketAddr::from((address(0), PORT));
        assert_eq!(say(redis_at, redis.hello).expect("a monitor stops nothing"), b"+PONG\r\n");
        let ssh_at = SocketAddr::from((server, 2222));
        assert!(say(ssh_at, b"SSH-2.0-test\r\n").expect("it passes").starts_with(b"SSH-2.0-OpenSSH"));
        eventually("both to be told", || {
            let events = guard.events();
            let told =
                !about(&events, redis_at, "other").is_empty() && !about(&events, ssh_at, "ssh").is_empty();
            told.then_some(())
        });
        guard.process.signal(Signal::INT);
        assert_eq!(guard.process.wait_exit().code(), Some(0), "{}", guard.process.stderr());
        let text = std::fs::read_to_string(&learned).expect("it was written");
        let check = Command::new(PROGRAM).args(["rules", "check"]).arg(&learned).output().expect("it runs");
        assert_eq!(check.status.code(), Some(0), "{}{text}", String::from_utf8_lossy(&check.stdout));

        let guard = Guard::start(&line.router, PROGRAM, &text, "--hook forward --enforce");
        assert_eq!(say(redis_at, redis.hello).expect("it was learned"), b"+PONG\r\n");
        assert!(say(ssh_at, b"SSH-2.0-test\r\n").expect("it was learned").starts_with(b"SSH-2.0-OpenSSH"));
        assert!(talk(&line, &guard, redis_at, b"GET / HTTP/1.1\r\n\r\n").is_empty());
        assert!(talk(&line, &guard, ssh_at, b"\x16\x03\x01\x00\x40\x01\x00\x00\x3c\x03\x03").len() <= 256);
    });
}

#[test]
fn silence_is_dropped_in_its_time() {
    as_root(|| {
        let line = line(1);
        let rules = "[[policy]]\nport = 22\nallow = \"ssh\"\nsilent_after = \"1s\"\n";
        let listener = line.server.listen((address(0), PORT));
        let guard = Guard::start(&line.router, PROGRAM, rules, "--hook forward --enforce");
        let to = SocketAddr::from((address(0), PORT));
        let _client = line.client.connect(to).expect("the handshake passes");
        let _server = listener.accept().expect("a client");
        eventually("the silence to be told, and its end", || {
            let events = guard.events();
            let alerts = about(&events, to, "alert");
            let is_told = alerts.iter().any(|alert| alert["bannerwall"]["name"] == "silent");
            (is_told && !about(&events, to, "drop").is_empty()).then_some(())
        });
        assert_eq!(about(&guard.events(), to, "drop").len(), 1);
    });
}

#[test]
fn connections_that_the_guard_has_not_seen_begin_pass_unless_the_policy_says_otherwise() {
    as_root(|| {
        for (midstream, passes) in [("pass", true), ("judge", false)] {
            let line = line(1);
            let rules = format!("[[policy]]\nport = 22\nallow = \"ssh\"\nmidstream = \"{midstream}\"\n");
            let listener = line.server.listen((address(0), PORT));
            let mut client = line.client.connect((address(0), PORT)).expect("nobody is in the way yet");
            let (mut server, _) = listener.accept().expect("a client");
            let guard = Guard::start(&line.router, PROGRAM, &rules, "--hook forward --enforce");
            for _ in 0..3 {
                server.write_all(b"neither SSH nor anything").expect("it is open");
                client.write_all(b"that has a name").expect("it is open");
            }
            let to = SocketAddr::from((address(0), PORT));
            if passes {
                let mut received = [0; 24];
                client.read_exact(&mut received).expect("it passes");
                assert_eq!(&received, b"neither SSH nor anything");
            } else {
                eventually("the guard to refuse it", || {
                    (!about(&guard.events(), to, "drop").is_empty()).then_some(())
                });
            }
            assert_eq!(about(&guard.events(), to, "alert").is_empty(), passes);
        }
    });
}

#[test]
fn a_flow_is_tried_at_the_command_line_and_diagnostics_name_the_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = folder.path().join("policy.toml");
    let run = |arguments: &[&str]| {
        let output =
            Command::new(PROGRAM).arg("rules").args(arguments).arg(&rules).output().expect("it runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    std::fs::write(&rules, "[[policy]]\nport = 22\nallow = \"ssh\"\n").expect("written");
    let (code, said) = run(&["check"]);
    assert_eq!((code, said.contains("1 policy")), (Some(0), true), "{said}");
    let (code, said) = run(&["list"]);
    assert_eq!(
        (code, said.contains("policy-22  drop    policy    only ssh to port 22")),
        (Some(0), true),
        "{said}"
    );
    let try_it = |say: &str, expect: &str| run(&["test", "--flow", "22", "--say", say, "--expect", expect]);
    let (code, said) = try_it("server: RFB 003.008\\n", "drop");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("policy.toml:1:1") && said.contains("rfb is not ssh"), "{said}");
    assert_eq!(try_it("server: SSH-2.0-x\\r\\n", "drop").0, Some(1));
    assert_eq!(try_it("server: SSH-2.0-x\\r\\n", "pass").0, Some(0));
    assert_eq!(run(&["test", "--flow", "here"]).0, Some(2));

    // A local file's stands before it.
    let local = folder.path().join("local.toml");
    std::fs::write(&local, "[[policy]]\nid = \"mine\"\nport = 22\nallow = \"any\"\n").expect("written");
    let local = local.display().to_string();
    let (code, said) = run(&["test", "--flow", "22", "--say", "server: RFB 003.008\\n", "--local", &local]);
    assert!(code == Some(0) && said.contains("verdict: pass, under the policy `mine`"), "{said}");

    let faulty = "[[policy]]\nport = 22\nallow = \"shh\"\n[[policy]]\nport = 23\nallow_rules = [\"none\"]\n[[policy]]\nport = 24\n";
    std::fs::write(&rules, faulty).expect("written");
    let (code, said) = run(&["check"]);
    assert_eq!(code, Some(2), "{said}");
    for part in [
        "did you mean `ssh`?",
        "no rule is named `none`",
        "does not say what it allows",
        "policy.toml:3:",
        "policy.toml:7:",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let shadowed = "[[policy]]\nid = \"wide\"\nport = \"20-30\"\nallow = \"ssh\"\n[[policy]]\nport = 22\nallow = \"http\"\n\
                    [[policy]]\nid = \"some\"\nsource = \"192.0.2.0/24\"\nallow = \"tls\"\n";
    std::fs::write(&rules, shadowed).expect("written");
    let (code, said) = run(&["check", "--format", "json"]);
    assert_eq!(code, Some(1), "{said}");
    let found: Vec<(u64, String)> = json_lines(said.as_bytes())
        .iter()
        .map(|one| {
            (one["line"].as_u64().unwrap_or_default(), one["message"].as_str().unwrap_or_default().to_owned())
        })
        .collect();
    let [(5, shadow), (8, conflict)] = found.as_slice() else { panic!("{found:?}") };
    assert!(
        shadow.contains("`wide`")
            && shadow.contains("policy.toml:1:1")
            && shadow.contains("every connection")
    );
    assert!(conflict.contains("`wide`") && conflict.contains("comes first"), "{conflict}");
}

/// Captures of others, where `BANNERWALL_CORPUS` names them: policies that were learned from one drop
/// nothing of it, and most of them block what is not allowed.
#[test]
fn what_was_learned_from_a_capture_drops_nothing_of_it() {
    let Some(corpus) = std::env::var_os("BANNERWALL_CORPUS") else {
        eprintln!("skipped: BANNERWALL_CORPUS is not set");
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let learned = folder.path().join("learned.toml");
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/rules");
    let captures = ["http", "ssh"].into_iter().flat_map(|kind| {
        let all =
            std::fs::read_dir(std::path::Path::new(&corpus).join("pcap").join(kind)).expect("the corpus");
        all.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>()
    });
    let (mut tried, mut blocking) = (0, 0);
    for capture in captures {
        let replay = |flags: &[&std::ffi::OsStr]| {
            let mut command = Command::new(PROGRAM);
            command.args(["replay", "--no-local", "--format", "json", "--rules"]);
            let output = command.args(flags).arg(&capture).output().expect("it runs");
            assert!(output.status.success(), "{}: {output:?}", capture.display());
            json_lines(&output.stdout)
        };
        replay(&[rules.as_ref(), "--learn".as_ref(), learned.as_ref()]);
        let text = std::fs::read_to_string(&learned).expect("it was written");
        for event in replay(&[learned.as_ref(), "--enforce".as_ref()]) {
            assert!(event["event_type"] != "drop", "{}: {event}\n{text}", capture.display());
        }
        tried += 1;
        blocking += u32::from(text.contains("[[policy]]") && !text.contains("otherwise"));
    }
    assert!(
        tried > 30 && 4 * blocking > 3 * tried,
        "{blocking} of {tried} captures lead to policies that block"
    );
}
