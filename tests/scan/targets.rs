//! `bannerwall scan` as users run it, against servers on the loopback.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use bannerwall_test_support::{PATIENT, Running, eventually, json_lines};

const BANNER: &[u8] = b"SSH-2.0-OpenSSH_8.9p1 Ubuntu-3\r\n";

/// An SSH server's first line on every loopback address; its port.
fn server() -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            // A scanner that has seen enough resets the connection.
            let _ = connection.write_all(BANNER);
        }
    });
    port
}

fn scan(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bannerwall"));
    command.arg("scan").args(arguments.split_whitespace());
    command
}

fn output(arguments: &str) -> Output {
    scan(arguments).output().expect("the program runs")
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// How often each address has a result in a file of JSON lines.
fn results(file: &Path) -> HashMap<String, u32> {
    let mut seen = HashMap::new();
    for event in json_lines(&std::fs::read(file).expect("results")) {
        if event["event_type"] == "ssh" {
            *seen.entry(event["dest_ip"].to_string()).or_default() += 1;
        }
    }
    seen
}

#[test]
fn every_target_is_found_once_and_accounted_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let (port, file) = (server(), folder.path().join("out"));
    let run = output(&format!(
        "ssh 127.2.0.0/23 127.2.0.7 224.0.0.1 --exclude 127.2.1.0/24 -p {port} --format json --rate max {PATIENT} -o {}",
        file.display()
    ));
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let seen = results(&file);
    assert_eq!((seen.len(), seen.values().all(|times| *times == 1)), (256, true));
    let errors = text(&run.stderr);
    let summary = errors.lines().last().expect("a summary");
    assert!(summary.starts_with("targets 513, open 256, "), "{summary}");
    assert!(summary.starts_with("targets 513, open 256, skipped 257 "), "{summary}");
    assert!(errors.contains("left out 224.0.0.1"), "{errors}");
}

#[test]
fn an_interrupted_scan_goes_on_and_repeats_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (port, file, state) = (server(), folder.path().join("out"), folder.path().join("state"));
    let arguments = format!(
        "ssh 127.3.0.0/22 -p {port} --rate 500 --format json {PATIENT} -o {} --resume {}",
        file.display(),
        state.display()
    );
    let child = scan(&arguments).stderr(Stdio::piped()).spawn().expect("the program runs");
    while std::fs::metadata(&file).map_or(0, |file| file.len()) == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it runs");
    let stopped = child.wait_with_output().expect("it ends");
    assert_eq!(stopped.status.code(), Some(130), "{}", text(&stopped.stderr));
    assert!(results(&file).len() < 1024 && state.exists());

    let other = output(&arguments.replace("127.3.0.0/22", "127.3.0.0/23"));
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other.stderr).contains("the file belongs to a different scan"), "{}", text(&other.stderr));

    let rest = output(&arguments);
    assert_eq!(rest.status.code(), Some(0), "{}", text(&rest.stderr));
    let seen = results(&file);
    assert_eq!((seen.len(), seen.values().all(|times| *times == 1)), (1024, true));
    assert!(text(&rest.stderr).contains("targets 1024, open 1024,"), "{}", text(&rest.stderr));
    assert!(!state.exists(), "nothing is left to go on with");
}

#[test]
fn a_killed_scan_skips_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (port, file, state) = (server(), folder.path().join("out"), folder.path().join("state"));
    let arguments = format!(
        "ssh 127.4.0.0/21 -p {port} --rate 1000 --format json {PATIENT} -o {} --resume {}",
        file.display(),
        state.display()
    );
    let mut child = scan(&arguments).stderr(Stdio::null()).spawn().expect("the program runs");
    while !state.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let rest = output(&arguments);
    assert_eq!(rest.status.code(), Some(0), "{}", text(&rest.stderr));
    assert_eq!(results(&file).len(), 2048);
}

#[test]
fn a_pipe_whose_reader_left_is_no_error() {
    let port = server();
    let mut child = scan(&format!("ssh 127.5.0.0/24 -p {port} --format json"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut first = [0; 1];
    child.stdout.take().expect("a pipe").read_exact(&mut first).expect("a result");
    let end = child.wait_with_output().expect("it ends");
    assert_eq!(end.status.code(), Some(0), "{}", text(&end.stderr));
}

#[test]
fn bad_targets_are_told_with_their_place() {
    for (arguments, message) in [
        ("ssh 192.0.2.300", "TARGET: `192.0.2.300`: not an IPv4 address"),
        ("ssh", "no targets"),
        ("ssh 127.0.0.1 --rate 0", "whole number of targets"),
        ("connect 127.0.0.1 -p 70000", "not a port"),
    ] {
        let run = output(arguments);
        assert_eq!(run.status.code(), Some(2), "{arguments}");
        assert!(text(&run.stderr).contains(message), "{arguments}: {}", text(&run.stderr));
    }
}

#[test]
fn a_checkpoint_alone_is_enough_to_go_on_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let (port, file, state) = (server(), folder.path().join("out"), folder.path().join("state"));
    let (file, state) = (file.display(), state.display());
    let arguments = format!("--rate 200 --format json {PATIENT} -o {file} --resume {state}");
    let started = format!("ssh 127.6.0.0/23 -p {port} {arguments}");
    let child = scan(&started).stderr(Stdio::piped()).spawn().expect("the program runs");
    while std::fs::metadata(file.to_string()).map_or(0, |file| file.len()) == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it runs");
    assert_eq!(child.wait_with_output().expect("it ends").status.code(), Some(130));

    // What others may write to is no command line of ours.
    let permit = |mode| std::fs::set_permissions(state.to_string(), std::fs::Permissions::from_mode(mode));
    permit(0o622).expect("our file");
    let refused = output(&format!("ssh --resume {state} --rate max"));
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert!(
        text(&refused.stderr).contains("other users can write to it (mode 0622)"),
        "{}",
        text(&refused.stderr)
    );
    permit(0o600).expect("our file");
    let rest = output(&format!("ssh --resume {state} --rate max"));
    assert_eq!(rest.status.code(), Some(0), "{}", text(&rest.stderr));
    assert!(text(&rest.stderr).contains("targets 512, open 512,"), "{}", text(&rest.stderr));
    assert_eq!(results(Path::new(&file.to_string())).len(), 512);
    let other = output(&format!("http --resume {state}"));
    assert!(text(&other.stderr).contains("no targets"), "what is done is not gone on with");
}

#[test]
fn shards_ask_each_target_once_and_each_says_what_it_left_to_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let (port, mut all) = (server(), HashMap::new());
    for index in 1..=3 {
        let file = folder.path().join(index.to_string());
        let run = output(&format!(
            "ssh 127.7.0.0/24 --exclude 127.7.0.0/28 -p {port} --shard {index}/3 --format json {PATIENT} -o {}",
            file.display()
        ));
        let summary = text(&run.stderr);
        let skipped = "skipped 176 (excluded 16, other shards 160)";
        assert!(summary.contains("targets 256, open 80, ") && summary.contains(skipped), "{summary}");
        results(&file).into_iter().for_each(|(address, times)| *all.entry(address).or_insert(0) += times);
    }
    assert_eq!((all.len(), all.values().all(|times| *times == 1)), (240, true));
}

#[test]
fn a_quiet_scan_says_nothing_but_its_results() {
    let run = output(&format!("ssh 127.8.0.10 -p {} -q", server()));
    assert!(run.status.success());
    assert_eq!(text(&run.stderr), "");
    assert!(text(&run.stdout).contains("OpenSSH_8.9p1"));
}

#[test]
fn a_scan_whose_summary_nobody_reads_ends_well() {
    let mut child = scan(&format!("ssh 127.8.0.11 -p {}", server()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stderr.take());
    assert!(child.wait_with_output().expect("it ends").status.success());
}

#[test]
fn an_alert_names_both_ends_in_the_direction_of_the_banner() {
    let port = server();
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/rules/regresshion.toml");
    let run = output(&format!("ssh 127.8.0.9 -p {port} --rules {rules} --format json"));
    let events = json_lines(&run.stdout);
    let ends = |kind: &str| {
        let event = events.iter().find(|event| event["event_type"] == kind).expect("such an event");
        ["src_ip", "src_port", "dest_ip", "dest_port"].map(|name| event.get(name).cloned())
    };
    let (here, target, port) = (Some("127.0.0.1".into()), Some("127.8.0.9".into()), Some(port.into()));
    assert_eq!(ends("ssh"), [here.clone(), None, target.clone(), port.clone()]);
    assert_eq!(ends("alert"), [target, port, here, None]);
}

#[test]
fn other_programs_read_the_xml() {
    let (port, count) = (
        server(),
        "import sys, xml.etree.ElementTree as tree\n\
        ports = tree.parse(sys.stdin).getroot().findall('host/ports/port')\n\
        print(len(ports), *sorted({port.find('state').get('state') for port in ports}))",
    );
    let run = output(&format!("ssh 127.9.0.0/28 -p 1,{port} --format xml"));
    let mut python = Command::new("python3")
        .args(["-c", count])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is there");
    python.stdin.take().expect("a pipe").write_all(&run.stdout).expect("it reads");
    assert_eq!(text(&python.wait_with_output().expect("it ends").stdout).trim(), "32 closed open");
}

#[test]
fn a_scan_holds_itself_to_its_files_and_runs_no_program() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = silent.local_addr().expect("it is bound").port();
    let files = ["out", "state", "net.db"].map(|name| folder.path().join(name));
    let arguments =
        format!("ssh localhost -p {port} --read-timeout 60s --total-timeout 60s --progress never");
    let mut command = scan(&arguments);
    for (flag, file) in ["--output", "--resume", "--inventory"].into_iter().zip(&files) {
        command.arg(flag).arg(file);
    }
    let mut scan = Running::start(command);
    let held = |status: &String| status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1");
    eventually("every thread to be held", || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", scan.id())).ok()?;
        let statuses: Vec<String> =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok()).collect();
        (statuses.len() > 2 && statuses.iter().all(held)).then_some(())
    });
    // It is connected: what it hears is what it still waits for.
    let (mut connection, _) = silent.accept().expect("the scan comes");
    connection.write_all(BANNER).expect("it is connected");
    drop(connection);
    assert_eq!(scan.wait_exit().code(), Some(0), "{}", scan.stderr());
    let told = std::fs::read_to_string(&files[0]).expect("results were written");
    assert!(told.contains("OpenSSH_8.9p1"), "{told}");
    assert!(
        files[2].exists() && !files[1].exists(),
        "the inventory stays, the checkpoint of a whole scan goes"
    );
    let loud = output(&format!("connect 127.0.0.1 -p {port} --no-sandbox --progress never"));
    assert!(text(&loud.stderr).contains("could open every file"), "{}", text(&loud.stderr));
}
