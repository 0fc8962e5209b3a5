//! Requests and answers of helper processes: a line of JSON each way over a pipe.

use std::io::{self, BufRead as _, BufReader, Read as _, Write};

use serde::{Deserialize, Serialize};

/// Bytes of a line: a hook with all its ports has some thousand, the table of others any number of rules.
const LINE: u64 = 64 << 20;

/// Writes a line of JSON.
pub(crate) fn write_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

/// The next line; none at the end.
pub(crate) fn read_line<T: for<'de> Deserialize<'de>>(
    input: &mut BufReader<impl io::Read>,
) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    input.by_ref().take(LINE).read_until(b'\n', &mut line)?;
    if line.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_slice(&line)?)) }
}
