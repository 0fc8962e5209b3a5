//! Parts of heads: the first line with some of the fields. They are judged before the end of the head
//! comes, or if the head is longer than the stored part.

use super::lenient;
use crate::banner::message_head::{HttpHeader, HttpHeaders, RequestHead, ResponseHead};

/// Returns a request with only the fields in these lines, which need not be adjacent.
pub fn part_of_request<'a>(first_line: &'a [u8], lines: &[&'a [u8]]) -> Option<RequestHead<'a>> {
    let read = lenient::request(first_line)?;
    Some(RequestHead { headers: fields(lines), ..read.message })
}

/// Returns a response with only the fields in these lines, which need not be adjacent.
pub fn part_of_response<'a>(first_line: &'a [u8], lines: &[&'a [u8]]) -> Option<ResponseHead<'a>> {
    let read = lenient::response(first_line)?;
    Some(ResponseHead { headers: fields(lines), ..read.message })
}

fn fields<'a>(lines: &[&'a [u8]]) -> HttpHeaders<'a> {
    let fields: Vec<HttpHeader<'a>> = lines.iter().flat_map(|line| lenient::fields_of_line(line)).collect();
    HttpHeaders::new(fields)
}
