//! Parts of heads: the first line with some of the fields, before the end of the head has come or where
//! the head is longer than what is kept of it.

use super::lenient;
use crate::banner::{Header, Headers, Request, Response};

/// A request with the fields in these lines only, which need not be next to each other.
pub fn part_of_request<'a>(first_line: &'a [u8], lines: &[&'a [u8]]) -> Option<Request<'a>> {
    let read = lenient::request(first_line)?;
    Some(Request { headers: fields(lines), ..read.message })
}

/// A response with the fields in these lines only, which need not be next to each other.
pub fn part_of_response<'a>(first_line: &'a [u8], lines: &[&'a [u8]]) -> Option<Response<'a>> {
    let read = lenient::response(first_line)?;
    Some(Response { headers: fields(lines), ..read.message })
}

fn fields<'a>(lines: &[&'a [u8]]) -> Headers<'a> {
    let fields: Vec<Header<'a>> = lines.iter().flat_map(|line| lenient::fields_of_line(line)).collect();
    Headers::new(fields)
}
