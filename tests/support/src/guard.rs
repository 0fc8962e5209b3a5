//! A guard under test, with rules of its own.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::{Namespace, Running, json_lines_so_far};

/// A rule that rejects HTTP clients that call themselves sqlmap.
pub const NO_SQLMAP: &str = r#"
[[rule]]
id = "no-sqlmap"
title = "A forbidden client"
protocol = "http"
from = "client"
match."header.user-agent" = '^sqlmap/'
action = "reject"
severity = "high"
examples = ["GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: sqlmap/1.7\r\n\r\n"]
counterexamples = ["GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: curl/8.0\r\n\r\n"]
"#;

/// Flags of a guard that judges every packet however late it comes to it: what a full queue lets pass, and
/// what waited for too long, is the affair of other tests.
pub const JUDGES_ALL: &str = "--max-wait off --queue-length 16384";

/// A rule that forbids a user agent.
#[must_use]
pub fn forbids(agent: &str) -> String {
    format!(
        "[[rule]]\nid = \"no-{agent}\"\nprotocol = \"http\"\nfrom = \"client\"\n\
         match.user_agent = '^{agent}$'\naction = \"reject\"\n"
    )
}

/// A guard that runs inside of a namespace, and ends with the value.
#[derive(Debug)]
pub struct Guard {
    folder: TempDir,
    /// The process.
    pub process: Running,
}

impl Guard {
    /// Starts `program` as a guard with these rules and flags, and waits until it takes packets.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(namespace: &Namespace, program: &str, rules: &str, flags: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("rules.toml");
        std::fs::write(&file, rules).expect("the folder is ours");
        let mut command = namespace.command(program);
        command.arg("guard").arg("--rules").arg(&file).args(["--format", "json"]);
        command.args(flags.split_whitespace());
        let process = Running::start(command);
        process.wait_stderr("ready", |text| text.contains("ready: queue").then_some(()));
        Self { folder, process }
    }

    /// A file in the guard's own folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The events that it has written so far.
    ///
    /// # Panics
    /// When a line is no JSON.
    pub fn events(&self) -> Vec<serde_json::Value> {
        json_lines_so_far(self.process.stdout().as_bytes())
    }
}
