//! Privilege for tests that make networks.

use std::process::Command;

/// Set in a test that was started again inside of a user namespace.
const INSIDE: &str = "BANNERWALL_TEST_IN_USER_NAMESPACE";

/// Runs `test`, a closure written within a test function, with the privilege to make networks.
///
/// For root that is a plain call. Otherwise the one test is run again in a user namespace of its
/// own, where it is root over the networks that it makes. Where the machine forbids that too, the
/// test is skipped with a message.
///
/// # Panics
/// When the test fails.
pub fn as_root<F: FnOnce()>(test: F) {
    if rustix::process::geteuid().is_root() || std::env::var_os(INSIDE).is_some() {
        return test();
    }
    let name = std::any::type_name::<F>();
    let name = name.split_once("::").map_or(name, |(_, path)| path);
    let name = name.split("::{{closure}}").next().unwrap_or(name);
    let possible = Command::new("unshare").args(["--user", "--map-root-user", "--net", "true"]).status();
    if !possible.is_ok_and(|status| status.success()) {
        eprintln!("skipped: {name} needs root, or user namespaces");
        return;
    }
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user"])
        .arg(std::env::current_exe().expect("the test program's path"))
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .expect("unshare starts");
    assert!(status.success(), "{name} failed in its user namespace");
}
