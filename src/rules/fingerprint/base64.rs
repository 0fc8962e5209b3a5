//! Base64 with the standard alphabet, RFC 4648 section 4, for examples that are not printable.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// `octets` in base64, padded.
pub(crate) fn encode(octets: &[u8]) -> String {
    let mut text = String::with_capacity(octets.len().div_ceil(3) * 4);
    for chunk in octets.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, octet| group << 8 | u32::from(*octet));
        let group = group << (8 * (3 - chunk.len()));
        for position in 0..4 {
            let index = (group >> (18 - 6 * position)) & 63;
            let letter = if position > chunk.len() { b'=' } else { ALPHABET[index as usize] };
            text.push(char::from(letter));
        }
    }
    text
}

/// The octets of `text`; what is not of the alphabet (line ends, mostly) is skipped, and padding
/// ends it, as Ruby's `unpack("m")` reads it.
pub(crate) fn decode(text: &str) -> Vec<u8> {
    let mut octets = Vec::with_capacity(text.len() / 4 * 3);
    let (mut group, mut bits) = (0_u32, 0_u32);
    for letter in text.bytes().take_while(|letter| *letter != b'=') {
        let Some(value) = ALPHABET.iter().position(|known| *known == letter) else { continue };
        group = group << 6 | u32::try_from(value).unwrap_or(0);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            octets.push((group >> bits).to_le_bytes()[0]);
        }
    }
    octets
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn the_vectors_of_rfc_4648() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(plain.as_bytes()), encoded);
            assert_eq!(decode(encoded), plain.as_bytes());
        }
    }

    #[test]
    fn line_ends_within_are_skipped() {
        assert_eq!(decode("\n  Zm9v\n  YmFy\n"), b"foobar");
    }
}
