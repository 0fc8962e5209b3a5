//! Base64 (RFC 4648 section 4) of examples that are not printable, decoded as leniently as Recog's
//! tools do.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Writes padding; accepts text without it.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Returns `octets` in base64, padded.
pub fn encode(octets: &[u8]) -> String {
    LENIENT.encode(octets)
}

/// Decodes `text`. It skips characters outside of the alphabet (mostly line ends), as Ruby's
/// `unpack("m")` does. Other text that is no base64 gives an empty result.
pub fn decode(text: &str) -> Vec<u8> {
    let letters: Vec<u8> = text
        .bytes()
        .filter(|letter| letter.is_ascii_alphanumeric() || matches!(letter, b'+' | b'/' | b'='))
        .collect();
    LENIENT.decode(letters).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn what_is_written_is_read_again() {
        let octets: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&octets)), octets);
    }

    #[test]
    fn line_ends_are_skipped_and_padding_is_optional() {
        assert_eq!(decode("\n  Zm9v\n  YmFy\n"), b"foobar");
        assert_eq!(decode("Zg"), b"f");
        assert_eq!(decode("Zg=="), b"f");
    }
}
