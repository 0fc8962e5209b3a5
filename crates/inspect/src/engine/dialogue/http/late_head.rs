//! The stored part of a head that servers read on in.

use crate::banner::framing::{self, DisputedFraming, FramedMessage};
use crate::banner::http::{self, HEAD_LIMIT};
use crate::banner::recognise::empty_lines;
use crate::banner::{HttpHeader, HttpHeaders};

/// The stored part of such a head.
#[derive(Debug)]
pub struct LateHead {
    /// Its first line.
    pub(super) first: Vec<u8>,
    /// The method of the request that it answers, where that was seen.
    pub(super) method: Option<Vec<u8>>,
    /// Names and values of the fields that say where its message ends.
    pub(super) fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes of those.
    octets: usize,
    /// The last line held one of them, which the next one may go on with.
    pub(super) behind_framing: bool,
    /// Lines held some that were not within the limit.
    pub(super) has_grown: bool,
    /// Such fields that some readers see and others do not.
    pub(super) disputed: DisputedFraming,
    /// The message as what was within the limit frames it.
    pub(super) message: FramedMessage,
}

impl LateHead {
    /// `head` is what was read of it, with these fields, and frames the message.
    pub(super) fn new(
        head: &[u8],
        headers: &HttpHeaders<'_>,
        method: Option<Vec<u8>>,
        message: FramedMessage,
    ) -> Self {
        let mut late = Self {
            first: first_line(head).to_vec(),
            method,
            fields: Vec::new(),
            octets: 0,
            behind_framing: false,
            has_grown: false,
            disputed: DisputedFraming::default(),
            message,
        };
        late.disputed.search(head);
        headers.iter().for_each(|field| late.take(field));
        late
    }

    /// The message, whatever frames it.
    pub(super) fn into_message(self) -> FramedMessage {
        self.message
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.first.capacity() + self.octets + self.message.memory()
    }

    fn take(&mut self, HttpHeader { name, value }: &HttpHeader<'_>) {
        if framing::is_framing(name) {
            self.octets += name.len() + value.len();
            self.fields.push((name.to_vec(), value.to_vec()));
            self.behind_framing = true;
        }
    }

    /// Takes what a further line says of where the message ends.
    pub(super) fn note(&mut self, line: &[u8]) {
        let folds = self.behind_framing && matches!(line.first(), Some(b' ' | b'\t'));
        if let Some((_, value)) = self.fields.last_mut().filter(|_| folds) {
            let more = line.trim_ascii();
            self.octets += 1 + more.len();
            value.push(b'\n');
            value.extend_from_slice(more);
            self.has_grown = true;
            return;
        }
        self.behind_framing = false;
        self.disputed.search(line);
        http::fields_of_line(line).for_each(|field| self.take(&field));
        self.has_grown |= self.behind_framing;
    }

    /// True if more was said of it than anybody says.
    pub(super) const fn is_over_limit(&self) -> bool {
        self.octets > HEAD_LIMIT
    }

    /// True if a request is so old that another one may follow its line.
    pub(super) fn has_no_version(&self) -> bool {
        http::part_of_request(&self.first, &[]).is_some_and(|request| request.version.is_empty())
    }
}

/// The first line of a head, empty lines before it left out: where its message begins may be anywhere in
/// a segment.
fn first_line(head: &[u8]) -> &[u8] {
    let head = head.get(empty_lines(head)..).unwrap_or_default();
    let end = memchr::memchr(b'\n', head).map_or(head.len(), |end| end + 1);
    head.get(..end).unwrap_or_default()
}
