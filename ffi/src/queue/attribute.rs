//! Attributes of a message to the kernel, appended to its content.
//!
//! A message is a slice of words; the first word is its length so far. The functions return false, and
//! add nothing, if there is no space.

/// `struct nlmsghdr` and `struct nfgenmsg`, the start of every message.
pub(super) const HEADERS: usize = 20;
/// `struct nlattr`.
pub(super) const ATTRIBUTE_HEADER: usize = 4;

/// Appends an attribute with a big-endian number.
#[must_use]
pub(super) fn number(message: &mut [u32], kind: u16, value: u32) -> bool {
    attribute(message, kind, &value.to_be_bytes())
}

/// True if a message has space for `octets` more bytes.
pub(super) fn has_room(message: &[u32], octets: usize) -> bool {
    message.first().is_some_and(|length| *length as usize + octets <= message.len() * 4)
}

/// Appends a `struct nlattr` with its value, padded.
#[must_use]
pub(super) fn attribute(message: &mut [u32], kind: u16, value: &[u8]) -> bool {
    let Ok(length) = u16::try_from(value.len() + ATTRIBUTE_HEADER) else { return false };
    if !has_room(message, usize::from(length).next_multiple_of(4)) {
        return false;
    }
    let Some((whole, rest)) = message.split_first_mut() else { return false };
    // The message's first word is not part of `rest`.
    let Some((header, values)) = rest.get_mut(*whole as usize / 4 - 1..).and_then(<[u32]>::split_first_mut)
    else {
        return false;
    };
    *header = halves(length, kind);
    for (word, octets) in values.iter_mut().zip(value.chunks(4)) {
        let mut padded = [0; 4];
        padded.iter_mut().zip(octets).for_each(|(to, from)| *to = *from);
        *word = u32::from_ne_bytes(padded);
    }
    *whole += u32::from(length).next_multiple_of(4);
    true
}

/// Returns two numbers in native byte order as one word.
pub(super) fn halves(first: u16, second: u16) -> u32 {
    let [[a, b], [c, d]] = [first.to_ne_bytes(), second.to_ne_bytes()];
    u32::from_ne_bytes([a, b, c, d])
}
