//! Heads of HTTP messages, and their header fields.

/// One header field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpHeader<'a> {
    /// The name as sent; compare it ignoring ASCII case.
    pub name: &'a [u8],
    /// Value without surrounding white space.
    pub value: &'a [u8],
}

/// The header fields of a message, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpHeaders<'a>(Vec<HttpHeader<'a>>);

impl<'a> HttpHeaders<'a> {
    /// Headers from fields in order.
    pub fn new(fields: Vec<HttpHeader<'a>>) -> Self {
        Self(fields)
    }

    /// All fields in order.
    pub fn iter(&self) -> std::slice::Iter<'_, HttpHeader<'a>> {
        self.0.iter()
    }

    /// Every value of the field `name`, in order, ignoring case.
    pub fn all<'n>(&'n self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + 'n {
        self.0
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name.as_bytes()))
            .map(|header| header.value)
    }

    /// The first value of the field `name`, ignoring case.
    pub fn first(&self, name: &str) -> Option<&'a [u8]> {
        self.0
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name.as_bytes()))
            .map(|header| header.value)
    }

    /// True if the field `name` is present.
    pub fn contains(&self, name: &str) -> bool {
        self.first(name).is_some()
    }
}

/// True if some reader takes two names of header fields for the same: ignoring case, and with `_` for
/// `-`, because applications behind CGI and WSGI can't distinguish these (`HTTP_USER_AGENT`).
pub fn same_name(sent: &[u8], wanted: &str) -> bool {
    let folded = |octet: &u8| if *octet == b'_' { b'-' } else { octet.to_ascii_lowercase() };
    sent.len() == wanted.len() && sent.iter().map(folded).eq(wanted.as_bytes().iter().map(folded))
}

/// The head of an HTTP request, RFC 9112 section 3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead<'a> {
    /// The whole request line without CR LF.
    pub line: &'a [u8],
    /// Method.
    pub method: &'a [u8],
    /// Request target as sent.
    pub url: &'a [u8],
    /// `HTTP/1.1`; empty for HTTP/0.9.
    pub version: &'a [u8],
    /// Header fields.
    pub headers: HttpHeaders<'a>,
    /// The collected part of the body, decoded from chunks.
    pub body: &'a [u8],
}

/// The head of an HTTP response, RFC 9112 section 4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// The whole status line without CR LF.
    pub line: &'a [u8],
    /// `HTTP/1.1`.
    pub version: &'a [u8],
    /// Status code.
    pub status: u16,
    /// Reason phrase, perhaps empty.
    pub reason: &'a [u8],
    /// Header fields.
    pub headers: HttpHeaders<'a>,
    /// The collected part of the body (up to the body limit), decoded from chunks.
    pub body: &'a [u8],
}
