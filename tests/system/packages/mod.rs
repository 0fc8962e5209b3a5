//! Packages of the program that these tests are of.

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_bannerwall");

/// Makes one, without compression, which would take most of the time.
pub(crate) fn package(kind: &str, revision: &str, folder: &Path) -> PathBuf {
    compressed(kind, revision, "none", folder)
}

/// Makes one with this compression.
pub(crate) fn compressed(kind: &str, revision: &str, compression: &str, folder: &Path) -> PathBuf {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/package"));
    command.args([kind, "--program", PROGRAM, "--compress", compression, "--revision", revision, "--output"]);
    let output = command.arg(folder).output().expect("python3 is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a path").trim_end().into()
}

/// The last part of a path.
pub(crate) fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).expect("packages have names")
}
