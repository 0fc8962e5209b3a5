//! Escapes text from the network for a page.

use std::fmt::{self, Write};

use askama::filters::{Escaper, Html};

use crate::output::escape;

/// Escaper for HTML text and quoted attributes. It also shows control characters, and those that change the
/// direction of text, as escapes.
#[derive(Debug, Clone, Copy)]
pub(super) struct HtmlEscaper;

impl Escaper for HtmlEscaper {
    fn write_escaped_str<W: Write>(&self, dest: W, string: &str) -> fmt::Result {
        Html.write_escaped_str(dest, &escape(string))
    }
}

/// Returns a filter word for a value; none if the value cannot be quoted.
pub(super) fn term(field: &str, value: &str) -> Option<String> {
    (!value.is_empty() && !value.contains('"')).then(|| format!("{field}:\"{value}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_markup_or_turns_around_what_follows() {
        let mut shown = String::new();
        let text = "<img src=x onerror=\"a('b')\">&\u{202e}\u{1b}[2J</script>";
        HtmlEscaper.write_escaped_str(&mut shown, text).unwrap();
        assert!(!shown.contains(['<', '>', '"', '\'', '\u{202e}', '\u{1b}']), "{shown}");
        assert!(shown.contains("\\u{202e}\\x1b[2J"), "{shown}");
    }

    #[test]
    fn a_term_is_a_word_of_its_own() {
        assert_eq!(term("product", "Apache httpd").as_deref(), Some("product:\"Apache httpd\""));
        assert_eq!((term("product", ""), term("product", "a\" net:::/0")), (None, None));
    }
}
