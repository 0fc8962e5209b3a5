//! Messages for people on stderr, apart from results and events. Every module may use this one.

use std::fmt::Display;
use std::io::Write as _;

/// Writes a line to stderr. A closed stderr is not an error: the program keeps running.
pub fn log_line(message: impl Display) {
    let _ = writeln!(std::io::stderr(), "{message}");
}

/// Formats `1 rule` or `2 rules`.
pub fn several<N: Copy + Display + PartialEq + From<u8>>(count: N, what: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {what}{plural}")
}
