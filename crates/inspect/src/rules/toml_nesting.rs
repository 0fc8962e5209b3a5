//! Bound on the nesting of lists and tables in a TOML text, checked before it is parsed.
//!
//! The parser recurses for each list and inline table within another. Its own limit fails on
//! malformed text: `toml_parser` 1.1 subtracts brackets that it skips while it recovers, but never
//! added them. A stack overflow would kill the whole program, so such text is refused here first.
//! The parser's own lexer finds the brackets outside of strings and comments.

use std::ops::Range;

use toml_parser::Source;
use toml_parser::lexer::TokenKind;

/// Allowed depth of lists and inline tables: no rule needs more than three.
const NESTING: usize = 32;

/// Returns the first bracket that is nested too deeply, or none if the text is safe to parse.
///
/// The count is never less than the parser's recursion depth. Both decrease when a bracket closes
/// one of its own kind, and only then. A closing bracket of another kind closes nothing here, while
/// the parser may give up everything that is open.
pub fn too_deep(text: &str) -> Option<Range<usize>> {
    let mut open = Vec::new();
    for token in Source::new(text).lex() {
        match token.kind() {
            kind @ (TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket) => {
                open.push(kind);
                if open.len() > NESTING {
                    return Some(token.span().start()..token.span().end());
                }
            }
            TokenKind::RightSquareBracket => close(&mut open, TokenKind::LeftSquareBracket),
            TokenKind::RightCurlyBracket => close(&mut open, TokenKind::LeftCurlyBracket),
            _ => {}
        }
    }
    None
}

fn close(open: &mut Vec<TokenKind>, kind: TokenKind) {
    if open.last() == Some(&kind) {
        open.pop();
    }
}

/// Returns the message for such a text.
pub(super) fn message() -> String {
    format!("lists and tables are nested more than {NESTING} deep, or brackets are not closed")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use toml::de::DeTable;

    use super::*;

    #[test]
    fn depth_is_counted_where_brackets_are_brackets() {
        let nested = |depth: usize| format!("a = {}{}\n", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(too_deep(&nested(NESTING)), None);
        assert_eq!(too_deep(&nested(NESTING + 1)), Some(4 + NESTING..5 + NESTING));
        assert_eq!(too_deep(&"a = 1 # [[[\nb = '[[['\nc = \"{{{\"\n[[rule]]\n".repeat(100)), None);
        assert_eq!(too_deep(&"[[rule]]\nx = { y = [1, { z = 2 }] }\n".repeat(100)), None);
    }

    #[test]
    fn text_that_talks_the_parser_out_of_counting_is_refused() {
        for text in ["[[rule]]\nx = {", "x = { a b = [", "x = [ { [ ] ] "] {
            assert!(too_deep(&text.repeat(20_000)).is_some(), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_let_through_does_not_overflow_a_small_stack(
            unit in "(\\[|\\]|\\{|\\}|=|,|a|\\.|'|\n| ){1,12}", times in 1_usize..20_000,
        ) {
            let text = unit.repeat(times);
            if too_deep(&text).is_none() {
                // An overflow would end the whole test program.
                let parsing = std::thread::Builder::new().stack_size(512 << 10).spawn(move || {
                    drop(DeTable::parse_recoverable(&text));
                });
                parsing.unwrap().join().unwrap();
            }
        }
    }
}
