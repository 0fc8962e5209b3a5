//! Walls between crates: what reads hostile bytes must not depend on servers, databases or system calls.

use std::process::Command;

/// Names, or beginnings of names, of crates that do I/O, serve, or speak to databases.
const FORBIDDEN: &[&str] = &[
    "aya",
    "askama",
    "axum",
    "bannerwall-ffi",
    "bannerwall-ring",
    "h2",
    "hyper",
    "io-uring",
    "mio",
    "nfq",
    "nix",
    "postgres",
    "rusqlite",
    "rustls",
    "socket2",
    "tokio",
    "ureq",
];

/// The crates that a crate is built of, without those of its tests.
fn dependencies(package: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .args(["--package", package])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn inspecting_and_importing_depend_on_no_server_database_or_socket() {
    for package in ["bannerwall-inspect", "bannerwall-import"] {
        let names = dependencies(package);
        assert!(
            names.iter().any(|name| name == "regex"),
            "{package} is listed with what it needs: {names:?}"
        );
        for name in names {
            let forbidden = FORBIDDEN.iter().find(|forbidden| name.starts_with(**forbidden));
            assert_eq!(forbidden, None, "{package} depends on {name}");
        }
    }
    assert!(dependencies("bannerwall").iter().any(|name| name == "tokio"), "the whole program does");
}
