//! `bannerwall fleet results`: prints the results of a scan's targets.

use std::io::Write as _;

use super::{DatabaseFlag, ResultFormat};
use crate::cli::inventory::row_writer::create;
use crate::cli::{CliExitCode, CommandFailure};
use crate::output::csv::COLUMNS;

pub(super) fn show(
    scan: i64,
    database: &DatabaseFlag,
    format: ResultFormat,
    output: Option<&std::path::Path>,
) -> Result<CliExitCode, CommandFailure> {
    let queue = database.open()?;
    let mut out = create(output)?;
    let mut failed = None;
    let mut put = |line: &str| {
        if failed.is_none() {
            failed = out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")).err();
        }
    };
    if format == ResultFormat::Csv {
        put(&COLUMNS.join(","));
    }
    queue.results(scan, format == ResultFormat::Csv, |line| {
        put(line);
        Ok(())
    })?;
    match failed.or_else(|| out.flush().err()) {
        // A closed pipe is not an error.
        Some(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(CliExitCode::Done),
    }
}
