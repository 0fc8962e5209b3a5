//! Parts of heads: the first line with some of the fields. They are judged before the end of the head
//! comes, or if the head is longer than the stored part.

use super::lenient;
use crate::banner::{Header, Headers, Request, Response};

/// Returns a request with only the fields in these lines, which need not be adjacent.
pub fn part_of_request<'a>(first_line: &'a [u8], lines: &[&'a [u8]]) -> Option<Request<'a>> {
    let read = lenient::request(first_line)?;
    Some(Request { headers: fields(lines), ..read.message })
}

/// Returns a response with only the fields in these lines, which need not be adjacent.
pub fn part_of_response<'a>(first_line: &'a [u8], lines: &[&'a [u8]]) -> Option<Response<'a>> {
    let read = lenient::response(first_line)?;
    Some(Response { headers: fields(lines), ..read.message })
}

fn fields<'a>(lines: &[&'a [u8]]) -> Headers<'a> {
    let fields: Vec<Header<'a>> = lines.iter().flat_map(|line| lenient::fields_of_line(line)).collect();
    Headers::new(fields)
}
