//! Escapes and bracketed classes of a Ruby pattern.

use super::{BACKTRACKS, PatternTranslator, UNENDED, UntranslatablePattern};
use bannerwall_inspect::rules::limits;

impl PatternTranslator<'_> {
    /// An escape outside a class.
    pub(super) fn escape(&mut self, offset: usize) -> Result<(), UntranslatablePattern> {
        let Some(&(_, letter)) = self.rest.peek() else {
            self.out.push_str(r"\\");
            return Ok(());
        };
        let text = match letter {
            'h' => "[0-9A-Fa-f]",
            'H' => "[^0-9A-Fa-f]",
            'Z' => r"(?:\n?\z)",
            'R' => r"(?:\r\n|[\n\x0B\x0C\r])",
            'A' | 'z' | 'b' | 'B' => {
                self.rest.next();
                self.out.push('\\');
                self.out.push(letter);
                return Ok(());
            }
            '1'..='9' | 'k' | 'g' => {
                let construct = format!("the backreference \\{letter}");
                return Err(UntranslatablePattern { construct, offset, reason: BACKTRACKS });
            }
            'G' | 'K' | 'X' => {
                return Err(UntranslatablePattern {
                    construct: format!("\\{letter}"),
                    offset,
                    reason: "is not known",
                });
            }
            _ => return self.shared_escape(offset),
        };
        self.rest.next();
        self.out.push_str(text);
        Ok(())
    }

    /// An escape that means the same inside and outside of a class.
    fn shared_escape(&mut self, offset: usize) -> Result<(), UntranslatablePattern> {
        let Some((_, letter)) = self.rest.next() else { return Ok(()) };
        match letter {
            'd' | 'D' | 'w' | 'W' | 's' | 'S' | 't' | 'n' | 'r' | 'f' | 'v' | 'a' => {
                self.out.push('\\');
                self.out.push(letter);
            }
            'e' => self.out.push_str(r"\x1B"),
            'x' => self.code(16, 2),
            'u' => self.unicode(offset)?,
            '0' => self.code(8, 2),
            'p' | 'P' => self.property(offset, letter == 'P')?,
            'c' | 'C' | 'M' => {
                let construct = format!("the control escape \\{letter}");
                return Err(UntranslatablePattern { construct, offset, reason: "is not known" });
            }
            _ => self.literal(letter),
        }
        Ok(())
    }

    /// `\xF`, `\xFF`, `\0`, `\012`: a byte by its number, in `radix`, of at most `digits` digits.
    fn code(&mut self, radix: u32, digits: usize) {
        let mut value = 0;
        for _ in 0..digits {
            let Some((_, digit)) = self.rest.next_if(|(_, next)| next.is_digit(radix)) else { break };
            value = value * radix + digit.to_digit(radix).unwrap_or(0);
        }
        self.out.push_str(&format!("\\x{value:02X}"));
    }

    fn unicode(&mut self, offset: usize) -> Result<(), UntranslatablePattern> {
        let rest = self.remaining();
        let (digits, length) = match rest.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((digits, _)) => (digits, digits.len() + 2),
            None => (rest.get(..4).unwrap_or(""), 4),
        };
        let Some(letter) = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32) else {
            return Err(UntranslatablePattern {
                construct: "\\u".into(),
                offset,
                reason: "is not a code point",
            });
        };
        self.skip(length);
        self.literal(letter);
        Ok(())
    }

    /// `\p{Alpha}`: POSIX classes only, in ASCII.
    fn property(&mut self, offset: usize, negated: bool) -> Result<(), UntranslatablePattern> {
        const KNOWN: [&str; 14] = [
            "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
            "space", "upper", "word", "xdigit",
        ];
        let inner =
            self.remaining().strip_prefix('{').and_then(|inner| inner.split_once('}')).map(|(name, _)| name);
        let name = inner.unwrap_or("").trim_start_matches('^').to_ascii_lowercase();
        if !KNOWN.contains(&name.as_str()) {
            let construct = format!("the property {{{}}}", inner.unwrap_or(""));
            return Err(UntranslatablePattern { construct, offset, reason: "does not apply to bytes" });
        }
        let negated = negated != inner.is_some_and(|inner| inner.starts_with('^'));
        self.skip(inner.map_or(0, |inner| inner.chars().count() + 2));
        let sign = if negated { "^" } else { "" };
        self.out.push_str(&format!("[[:{sign}{name}:]]"));
        Ok(())
    }

    /// A bracketed class, including nested ones. The depth is bounded, because each level is a call.
    pub(super) fn class(&mut self, offset: usize) -> Result<(), UntranslatablePattern> {
        if self.classes >= limits::PATTERN_NESTING {
            let construct = "a class".into();
            return Err(UntranslatablePattern { construct, offset, reason: "is nested too deep" });
        }
        self.classes += 1;
        let read = self.class_within(offset);
        self.classes -= 1;
        read
    }

    fn class_within(&mut self, offset: usize) -> Result<(), UntranslatablePattern> {
        self.out.push('[');
        if self.rest.next_if(|(_, next)| *next == '^').is_some() {
            self.out.push('^');
        }
        if self.rest.next_if(|(_, next)| *next == ']').is_some() {
            self.out.push_str(r"\]");
        }
        // True if the last item can't start a range, so that a dash after it is literal.
        let mut after_set = false;
        while let Some((place, letter)) = self.rest.next() {
            let set = match letter {
                ']' => {
                    self.out.push(']');
                    return Ok(());
                }
                '[' if self.remaining().starts_with(':') => self.posix(place)?,
                '[' => {
                    self.class(place)?;
                    true
                }
                '\\' => self.class_escape(place)?,
                '-' if after_set || self.dash_before_set() => {
                    self.out.push_str(r"\-");
                    false
                }
                '~' | '#' | ' ' => {
                    self.literal(letter);
                    false
                }
                _ => {
                    self.out.push(letter);
                    false
                }
            };
            after_set = set;
        }
        Err(UntranslatablePattern { construct: "a class".into(), offset, reason: UNENDED })
    }

    /// True if the item after a dash can't end a range.
    fn dash_before_set(&mut self) -> bool {
        let rest = self.remaining();
        let mut letters = rest.chars();
        match letters.next() {
            Some('[' | ']' | '-') => true,
            Some('\\') => {
                matches!(letters.next(), Some('d' | 'D' | 'w' | 'W' | 's' | 'S' | 'h' | 'H' | 'p' | 'P'))
            }
            _ => false,
        }
    }

    fn posix(&mut self, offset: usize) -> Result<bool, UntranslatablePattern> {
        let rest = self.remaining();
        let Some(length) = rest.find(":]") else {
            return Err(UntranslatablePattern { construct: "a POSIX class".into(), offset, reason: UNENDED });
        };
        self.out.push('[');
        self.out.push_str(&rest[..length + 2]);
        self.skip(rest[..length + 2].chars().count());
        Ok(true)
    }

    /// An escape in a class; returns true if it is a set.
    fn class_escape(&mut self, offset: usize) -> Result<bool, UntranslatablePattern> {
        let letter = self.rest.peek().map(|(_, letter)| *letter);
        let text = match letter {
            Some('h') => "0-9A-Fa-f",
            Some('H') => "[^0-9A-Fa-f]",
            Some('b') => r"\x08",
            Some('R') => r"\n\x0B\x0C\r",
            _ => {
                self.shared_escape(offset)?;
                return Ok(matches!(letter, Some('d' | 'D' | 'w' | 'W' | 's' | 'S' | 'p' | 'P')));
            }
        };
        self.rest.next();
        self.out.push_str(text);
        Ok(!matches!(letter, Some('b')))
    }
}
