//! Escaping of network text, for terminals and for line-based readers.

use std::borrow::Cow;
use std::fmt;

/// Displays text with all characters escaped that a terminal could take for a command: C0 and C1 control
/// characters, DEL, and characters that reverse the direction of writing.
#[derive(Debug, Clone, Copy)]
pub struct EscapedText<'a>(pub &'a str);

impl fmt::Display for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nearly all text is plain ASCII.
        if self.0.bytes().all(|octet| matches!(octet, b' '..=b'~')) {
            return f.write_str(self.0);
        }
        let mut clean = 0;
        for (at, character) in self.0.char_indices().filter(|(_, character)| is_unsafe(*character)) {
            f.write_str(&self.0[clean..at])?;
            write_escape(f, character)?;
            clean = at + character.len_utf8();
        }
        f.write_str(&self.0[clean..])
    }
}

/// Returns the escaped text; borrowed if nothing had to be escaped.
pub fn escape(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_unsafe) { EscapedText(text).to_string().into() } else { text.into() }
}

fn write_escape(f: &mut fmt::Formatter<'_>, character: char) -> fmt::Result {
    match character {
        '\n' => f.write_str("\\n"),
        '\r' => f.write_str("\\r"),
        '\t' => f.write_str("\\t"),
        other if u32::from(other) < 0x100 => write!(f, "\\x{:02x}", u32::from(other)),
        other => write!(f, "\\u{{{:x}}}", u32::from(other)),
    }
}

/// True for control characters, and for Unicode's bidirectional and line-breaking ones.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}'
            | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_commands_are_shown_not_sent() {
        assert_eq!(escape("SSH-2.0-\x1b]0;owned\x07\u{9b}2J"), "SSH-2.0-\\x1b]0;owned\\x07\\x9b2J");
        assert_eq!(escape("a\r\nb\tc\0"), "a\\r\\nb\\tc\\x00");
        assert_eq!(escape("evil\u{202e}txt"), "evil\\u{202e}txt");
    }

    #[test]
    fn ordinary_text_is_borrowed() {
        assert!(matches!(escape("OpenSSH_9.2p1 Grüße"), Cow::Borrowed(_)));
    }

    proptest::proptest! {
        #[test]
        fn nothing_unsafe_survives(text in ".*") {
            proptest::prop_assert!(!escape(&text).chars().any(is_unsafe));
        }
    }
}
