//! Crooked banners of servers, one row each, for `clients.rs`.
//!
//! What a client makes of a row is for the client to say: a row that nobody understands proves nothing
//! and costs nothing.

mod identifications;
mod responses;

pub(crate) use identifications::IDENTIFICATIONS;
pub(crate) use responses::RESPONSES;

/// When a server speaks, and what it does when it has said all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Behind the client's first message, and then it ends the connection.
    Answers,
    /// As `Answers`, but nothing ends the connection.
    Stays,
    /// As soon as the connection is open, and nothing ends the connection.
    Greets,
}

/// A banner that names `software`, bent in one way.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) manner: Manner,
    /// What is written at once, and then, a moment later, the rest.
    pub(crate) parts: fn(software: &str) -> Vec<Vec<u8>>,
}

const fn row(name: &'static str, manner: Manner, parts: fn(&str) -> Vec<Vec<u8>>) -> Row {
    Row { name, manner, parts }
}

/// Octets with `@` for the software.
fn text(template: &[u8], software: &str) -> Vec<u8> {
    let pieces: Vec<&[u8]> = template.split(|octet| *octet == b'@').collect();
    pieces.join(software.as_bytes())
}
