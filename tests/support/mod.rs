//! Throw-away network namespaces for tests that need a real netfilter.
//!
//! A test wraps its body in [`in_namespace`]: the test binary runs itself again for this one test
//! under `unshare --net`, so that rules, queues and addresses are the test's own and vanish with it.

use std::env;
use std::process::{Command, Stdio};

/// Set in the process that runs inside the namespace.
const INSIDE: &str = "BANNERWALL_TEST_NAMESPACE";

/// Runs `body` of the test `name` (its full path within the test binary) in a fresh network
/// namespace with `lo` up.
///
/// Where this machine cannot make namespaces at all the test is skipped, loudly.
pub(crate) fn in_namespace(name: &str, body: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() {
        run("ip link set lo up");
        body();
        return;
    }
    if !can_make_namespaces() {
        eprintln!(
            "SKIPPED {name}: network namespaces are impossible here (unshare --net failed; run as root)"
        );
        return;
    }
    let program = env::current_exe().expect("the test binary has a path");
    let output = Command::new("unshare")
        .args(["--net", "--kill-child", "--"])
        .arg(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .output()
        .expect("unshare runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("1 passed"), "test {name} in its namespace:\n{out}\n{err}");
    assert!(output.status.success(), "test {name} in its namespace:\n{out}\n{err}");
}

/// Runs a command line, split at spaces, and insists that it succeeds; returns its output.
pub(crate) fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a command");
    let output = Command::new(program).args(words).output().unwrap_or_else(|error| panic!("{line}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{line}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn can_make_namespaces() -> bool {
    Command::new("unshare")
        .args(["--net", "--", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
