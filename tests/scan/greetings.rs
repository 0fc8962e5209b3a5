//! Every protocol of the table of greetings, through the scan and all that it writes: a row without
//! one of these is not finished.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use bannerwall_inspect::terms::{GreetingDialect, GreetingProtocol};
use bannerwall_test_support::json_lines;

/// A server on a loopback port that greets each connection with `greeting`, an octet at a time.
fn server(greeting: String, delay: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            std::thread::sleep(delay);
            // A scanner that has seen enough resets the connection.
            let _ = greeting.as_bytes().chunks(1).try_for_each(|octet| connection.write_all(octet));
        }
    });
    port
}

/// What a server of that protocol may say, of several lines where the protocol has them.
fn sample(greeting: GreetingProtocol) -> String {
    let opening = greeting.openings().first().expect("an opening");
    let name = greeting.name();
    let end = format!("{opening} Evil {name} 1.2.3 <ready>\r\n");
    match greeting.dialect() {
        GreetingDialect::Code => format!("{opening}-mail.example\r\n{end}"),
        GreetingDialect::Status | GreetingDialect::Untagged => end,
    }
}

fn scan(greeting: GreetingProtocol, port: u16, rules: &Path, format: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bannerwall"))
        .args(["scan", "greeting", "127.0.0.1", "--protocol", greeting.name(), "--format", format])
        .args(["-p", &port.to_string(), "--rules"])
        .arg(rules)
        .output()
        .expect("the program runs")
}

fn rule(name: &str) -> String {
    format!(
        "[[rule]]\nid = \"evil-{name}\"\ntitle = \"Evil\"\nprotocol = \"{name}\"\naction = \"drop\"\n\
         match.text = '^Evil .* (?<version>[\\d.]+)'\nversion = \"<2\"\n"
    )
}

#[test]
fn each_protocol_is_scanned_judged_and_told_in_every_format() {
    for greeting in GreetingProtocol::all() {
        let name = greeting.name();
        let folder = tempfile::tempdir().expect("a folder");
        let rules = folder.path().join("rules.toml");
        std::fs::write(&rules, rule(name)).expect("written");
        let port = server(sample(greeting), Duration::ZERO);

        let run = scan(greeting, port, &rules, "json");
        assert_eq!(run.status.code(), Some(0), "{}", String::from_utf8_lossy(&run.stderr));
        let events = json_lines(&run.stdout);
        let [said, alert] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((&said["event_type"], &said["app_proto"]), (&name.into(), &name.into()));
        let lines = said["bannerwall"]["greeting"]["lines"].as_array().expect("lines");
        let last = lines.last().and_then(|line| line.as_str()).unwrap_or_default();
        assert!(last.ends_with(&format!("Evil {name} 1.2.3 <ready>")), "{said}");
        assert_eq!(alert["bannerwall"]["rule"], format!("evil-{name}"));
        assert_eq!(alert["bannerwall"]["version"], "1.2.3");

        for (format, expected) in [
            ("text", format!("evil-{name}: Evil")),
            ("csv", format!(",{name},")),
            ("xml", format!("<service name=\"{name}\"")),
            ("grepable", format!("{port}/open/tcp//{name}//")),
        ] {
            let run = scan(greeting, port, &rules, format);
            let text = String::from_utf8_lossy(&run.stdout).into_owned();
            assert!(text.contains(&expected), "{format}: {text}");
        }
    }
}

#[test]
fn what_greets_otherwise_is_foreign_and_what_is_silent_is_said_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = folder.path().join("rules.toml");
    std::fs::write(&rules, rule("smtp")).expect("written");
    let greeting = GreetingProtocol::named("smtp").expect("a row");
    for (said, reason) in [("SSH-2.0-x\r\n", "foreign"), ("220-without an end\r\n", "ended")] {
        let run = scan(greeting, server(said.to_owned(), Duration::ZERO), &rules, "json");
        let events = json_lines(&run.stdout);
        let [event] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((&event["event_type"], &event["state"]), (&"connect".into(), &"open".into()));
        assert_eq!(event["bannerwall"]["reason"], reason);
        assert_eq!(event["bannerwall"]["waited_ms"].is_u64(), reason == "ended", "{event}");
    }
    // It accepts and never speaks.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("bound").port();
    for format in ["json", "text"] {
        let run = scan(greeting, port, &rules, format);
        let told = String::from_utf8_lossy(&run.stdout);
        let waited = told.split_once(if format == "json" { "\"waited_ms\":" } else { "silent, waited " });
        let (_, waited) = waited.unwrap_or_else(|| panic!("{told}"));
        let number: String =
            waited.chars().take_while(|digit| digit.is_ascii_digit() || *digit == '.').collect();
        let (number, least) =
            (number.parse::<f64>().expect("a number"), if format == "json" { 7000.0 } else { 7.0 });
        assert!(number >= least, "as long as --read-timeout: {told}");
    }
}

#[test]
fn servers_that_greet_late_are_waited_for() {
    let delays = [0, 1, 2, 3, 4, 5, 6];
    let ports = delays.map(|delay| server("220 slow ESMTP\r\n".to_owned(), Duration::from_secs(delay)));
    let list = ports.map(|port| port.to_string()).join(",");
    for mode in [&["greeting", "--protocol", "smtp"][..], &["tls", "--starttls", "smtp"]] {
        let run = Command::new(env!("CARGO_BIN_EXE_bannerwall"))
            .arg("scan")
            .args(mode)
            .args(["127.0.0.1", "--format", "json", "-p", &list])
            .output()
            .expect("the program runs");
        let mut greeted: Vec<u64> = json_lines(&run.stdout)
            .iter()
            .filter(|event| event["event_type"] == "smtp")
            .filter_map(|event| event["dest_port"].as_u64())
            .collect();
        greeted.sort_unstable();
        let mut expected = ports.map(u64::from);
        expected.sort_unstable();
        assert_eq!(greeted, expected, "{mode:?}: {}", String::from_utf8_lossy(&run.stderr));
    }
}
