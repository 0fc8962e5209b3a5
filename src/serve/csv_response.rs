//! Lists as CSV, for spreadsheets.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::output::csv::plain;

/// Largest number of rows of a list as CSV. `bannerwall inventory list` writes all.
pub(super) const CSV_ROWS: usize = 10_000;

/// Returns rows as a file to save. Text from the network becomes inert: no cell is a formula.
pub(super) fn csv<const N: usize>(
    name: &str,
    columns: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Response {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    let heads = std::iter::once(columns.map(str::to_owned));
    let mut rows = heads.chain(rows);
    let written = rows.try_for_each(|row| writer.write_record(row.iter().map(|cell| plain(cell))));
    match written.ok().and_then(|()| writer.into_inner().ok()) {
        Some(text) => {
            let file = format!("attachment; filename=\"{name}\"");
            let fields = [
                (header::CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()),
                (header::CONTENT_DISPOSITION, file),
                (header::CACHE_CONTROL, "no-store".to_owned()),
            ];
            (fields, text).into_response()
        }
        // Writing to memory does not fail, and all rows have the same length.
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
