//! The table of markers, held against the software that Debian 12 installs.

use std::path::Path;
use std::process::Command;

#[test]
fn what_real_software_offers_is_what_the_table_says() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: sshd wants root");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/prove-markers");
    let arguments = ["--installed", "--bannerwall", env!("CARGO_BIN_EXE_bannerwall")];
    let output = Command::new(script).args(arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    let line = |speaker: &str| {
        let mut lines = told.lines().skip_while(|line| !line.starts_with(speaker));
        lines.nth(2).unwrap_or_else(|| panic!("{speaker}: {told}")).to_owned()
    };
    for (speaker, marker) in [
        ("installed bookworm openssh-server 1:9.2p1-2+deb12u", "strict-kex-server"),
        ("installed bookworm dropbear-bin", "strict-kex-server"),
        ("installed bookworm putty-tools", "strict-kex-client"),
        ("installed bookworm python3-asyncssh", "strict-kex-server"),
        // Nobody has fixed it there.
        ("installed bookworm python3-paramiko", "terrapin-cbc"),
    ] {
        assert!(line(speaker).contains(marker), "{speaker}: {told}");
    }
}
