//! Translates the Ruby regular expressions of Recog's databases into the regex crate's syntax.
//!
//! Ruby's engine backtracks. The regex crate is linear in its input, which untrusted banners require. So
//! constructs that need backtracking (lookaround within a pattern, backreferences, recursion) are
//! refused. Constructs with another spelling are rewritten. A lookahead that opens an anchored pattern
//! becomes a second pattern that excludes matches.

mod escapes;

use std::iter::Peekable;
use std::str::CharIndices;

use bannerwall_inspect::rules::limits;

/// A pattern in the regex crate's syntax.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedPattern {
    /// The pattern that must match.
    pub pattern: String,
    /// A pattern that must not match: a negative lookahead at the start.
    pub unless: Option<String>,
    /// Differences of meaning.
    pub notes: Vec<&'static str>,
}

/// Ruby's options for a whole pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RubyOptions {
    /// Letters match in either case: Recog's `REG_ICASE`.
    pub ignore_case: bool,
    /// `.` matches a line feed too: Recog's `REG_DOT_NEWLINE` and `REG_MULTILINE`.
    pub dot_matches_newline: bool,
}

/// The reason why a pattern can't be translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{construct} at byte {offset} of the pattern {reason}")]
pub struct UntranslatablePattern {
    /// The construct.
    pub construct: String,
    /// Its offset in the pattern, in bytes.
    pub offset: usize,
    /// The reason why it is refused.
    pub reason: &'static str,
}

const BACKTRACKS: &str = "needs a backtracking engine";
const UNENDED: &str = "never ends";

/// Translates a Ruby pattern into the regex crate's syntax.
///
/// # Errors
/// Returns [`UntranslatablePattern`] with the construct that can't be translated, and its position.
pub fn translate(pattern: &str, options: RubyOptions) -> Result<TranslatedPattern, UntranslatablePattern> {
    if pattern.len() > limits::PATTERN_OCTETS {
        let construct = format!("{} bytes", pattern.len());
        return Err(UntranslatablePattern {
            construct,
            offset: limits::PATTERN_OCTETS,
            reason: "are too many",
        });
    }
    let mut translator = PatternTranslator::new(pattern);
    translator.run()?;
    let flags = match (options.ignore_case, options.dot_matches_newline) {
        (false, false) => "(?m)",
        (true, false) => "(?im)",
        (false, true) => "(?ms)",
        (true, true) => "(?ims)",
    };
    // `unless` holds for the whole pattern, but the lookahead only for its own alternative.
    if let (Some((offset, _)), true) = (&translator.lookahead, translator.alternation_at_top) {
        return Err(UntranslatablePattern {
            construct: "a lookahead before an alternation".into(),
            offset: *offset,
            reason: BACKTRACKS,
        });
    }
    Ok(TranslatedPattern {
        pattern: format!("{flags}{}", translator.out),
        unless: translator.lookahead.map(|(_, unless)| format!("{flags}{unless}")),
        notes: translator.notes,
    })
}

struct PatternTranslator<'p> {
    pattern: &'p str,
    rest: Peekable<CharIndices<'p>>,
    out: String,
    /// For each open group, the number of groups that its closing also ends (see `inline_flags`).
    open: Vec<usize>,
    /// The same number for the top level.
    open_at_top: usize,
    named: bool,
    alternation_at_top: bool,
    lookahead: Option<(usize, String)>,
    /// True in a lookahead, which may contain no other.
    in_lookahead: bool,
    /// Number of open nested bracketed classes.
    classes: u32,
    notes: Vec<&'static str>,
}

impl<'p> PatternTranslator<'p> {
    fn new(pattern: &'p str) -> Self {
        Self {
            pattern,
            rest: pattern.char_indices().peekable(),
            out: String::with_capacity(pattern.len() + 8),
            open: Vec::new(),
            open_at_top: 0,
            named: names_groups(pattern),
            alternation_at_top: false,
            lookahead: None,
            in_lookahead: false,
            classes: 0,
            notes: Vec::new(),
        }
    }

    fn run(&mut self) -> Result<(), UntranslatablePattern> {
        while let Some((offset, letter)) = self.rest.next() {
            match letter {
                '\\' => self.escape(offset)?,
                '[' => self.class(offset)?,
                '(' => self.group(offset)?,
                ')' => self.close(),
                '{' => self.brace(offset),
                '}' | ']' => self.literal(letter),
                '*' | '+' | '?' => self.repetition(letter),
                '.' => self.dot(offset),
                '|' => {
                    self.alternation_at_top |= self.open.is_empty();
                    self.out.push('|');
                }
                _ => self.out.push(letter),
            }
        }
        self.out.extend(std::iter::repeat_n(')', self.open_at_top));
        Ok(())
    }

    fn remaining(&mut self) -> &'p str {
        let offset = self.rest.peek().map_or(self.pattern.len(), |(offset, _)| *offset);
        &self.pattern[offset..]
    }

    fn skip(&mut self, characters: usize) {
        for _ in 0..characters {
            self.rest.next();
        }
    }

    fn literal(&mut self, letter: char) {
        let mut buffer = [0; 4];
        self.out.push_str(&regex::escape(letter.encode_utf8(&mut buffer)));
    }

    /// Ruby's dot takes a whole UTF-8 character, the crate's a byte. In `.*` that is the same; it hardly
    /// differs if dots are counted. Between letters or digits (`1.0`) a literal full stop was meant.
    fn dot(&mut self, offset: usize) {
        let next = self.rest.peek().map(|(_, next)| *next);
        let before = self.pattern[..offset].chars().next_back();
        let alphanumeric = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
        if matches!(next, Some('*' | '+' | '{')) || (alphanumeric(before) && alphanumeric(next)) {
            self.out.push('.');
        } else {
            self.out.push_str(r"(?:[\xC2-\xF4][\x80-\xBF]{1,3}|.)");
        }
    }

    /// `a++` is possessive in Ruby, but would be a repetition of a repetition in the crate.
    fn repetition(&mut self, operator: char) {
        self.out.push(operator);
        if self.rest.next_if(|(_, next)| *next == '+').is_some() {
            self.note("a possessive repetition is read as a greedy one");
        }
    }

    fn note(&mut self, note: &'static str) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// `{2,3}` repeats; any other brace is literal in Ruby and an error in the crate.
    fn brace(&mut self, offset: usize) {
        match interval(&self.pattern[offset..]) {
            Some(length) => {
                let text = &self.pattern[offset..offset + length];
                self.skip(length - 1);
                self.out.push_str(&text.replace("{,", "{0,"));
            }
            None => self.literal('{'),
        }
    }

    fn close(&mut self) {
        let inner = self.open.pop().unwrap_or(0);
        self.out.extend(std::iter::repeat_n(')', inner + 1));
    }

    fn group(&mut self, offset: usize) -> Result<(), UntranslatablePattern> {
        let rest = self.remaining();
        let refuse = |construct: &str| {
            Err(UntranslatablePattern { construct: construct.into(), offset, reason: BACKTRACKS })
        };
        if !rest.starts_with('?') {
            // Once one group has a name, Ruby's unnamed groups do not capture.
            self.out.push_str(if self.named { "(?:" } else { "(" });
            self.open.push(0);
            return Ok(());
        }
        if rest.starts_with("?#") {
            return self.comment(offset);
        }
        if rest.starts_with("?!") {
            return self.negative_lookahead(offset);
        }
        for (sign, construct) in [
            ("?=", "a lookahead"),
            ("?<=", "a lookbehind"),
            ("?<!", "a lookbehind"),
            ("?(", "a condition"),
            ("?~", "an absence operator"),
        ] {
            if rest.starts_with(sign) {
                return refuse(construct);
            }
        }
        if rest.starts_with("?>") {
            self.skip(2);
            self.note("an atomic group is read as a plain one");
            self.out.push_str("(?:");
            self.open.push(0);
            return Ok(());
        }
        if rest.starts_with("?<") || rest.starts_with("?'") {
            return self.named_group(offset);
        }
        self.inline_flags(offset)
    }

    fn comment(&mut self, offset: usize) -> Result<(), UntranslatablePattern> {
        for (_, letter) in self.rest.by_ref() {
            if letter == ')' {
                return Ok(());
            }
        }
        Err(UntranslatablePattern { construct: "a comment".into(), offset, reason: UNENDED })
    }

    fn named_group(&mut self, offset: usize) -> Result<(), UntranslatablePattern> {
        let rest = self.remaining();
        let end = if rest.starts_with("?<") { '>' } else { '\'' };
        let Some((name, _)) = rest[2..].split_once(end) else {
            return Err(UntranslatablePattern {
                construct: "a group's name".into(),
                offset,
                reason: UNENDED,
            });
        };
        self.skip(3 + name.chars().count());
        self.out.push_str("(?<");
        self.out.push_str(name);
        self.out.push('>');
        self.open.push(0);
        Ok(())
    }

    /// `(?i)`, `(?m-i:…)`. Ruby's `m` is the crate's `s`, and Ruby's `a(?i)b|c` means `a(?i:b|c)`.
    fn inline_flags(&mut self, offset: usize) -> Result<(), UntranslatablePattern> {
        let rest = self.remaining();
        let letters =
            rest[1..].find(|letter: char| !matches!(letter, 'i' | 'm' | 'x' | 'a' | 'u' | 'd' | '-'));
        let Some((flags, end)) =
            letters.and_then(|length| Some((&rest[1..=length], rest[1 + length..].chars().next()?)))
        else {
            return Err(UntranslatablePattern { construct: "a group".into(), offset, reason: UNENDED });
        };
        if !matches!(end, ':' | ')') {
            let construct = format!("the group (?{flags}{end}");
            return Err(UntranslatablePattern { construct, offset, reason: "is not known" });
        }
        self.skip(flags.len() + 2);
        let flags: String = flags
            .chars()
            .filter(|flag| !matches!(flag, 'a' | 'u' | 'd'))
            .map(|flag| if flag == 'm' { 's' } else { flag })
            .collect();
        self.out.push_str("(?");
        self.out.push_str(flags.trim_end_matches('-'));
        self.out.push(':');
        if end == ':' {
            self.open.push(0);
        } else {
            // In Ruby, flags without a colon hold to the end of the group, also over its alternatives
            // (Onigmo's doc/RE, isolated option). As a group that closes with the one around it, they do so
            // in the crate too.
            *self.open.last_mut().unwrap_or(&mut self.open_at_top) += 1;
        }
        Ok(())
    }

    /// `^(?!a)b` is `^b` unless `^a`. Elsewhere, the text matched before the lookahead may vary.
    fn negative_lookahead(&mut self, offset: usize) -> Result<(), UntranslatablePattern> {
        let refuse =
            |reason| UntranslatablePattern { construct: "a negative lookahead".into(), offset, reason };
        let anchored = self.out.ends_with('^') || self.out.ends_with("\\A");
        let only_flags_before = self.out.trim_end_matches('^').trim_end_matches("\\A");
        // A group that only sets flags may precede: it matches no text.
        let at_start = only_flags_before.is_empty()
            || (only_flags_before.starts_with("(?")
                && only_flags_before.ends_with(':')
                && only_flags_before.matches('(').count() == 1);
        let second = self.in_lookahead || self.lookahead.is_some();
        if !anchored || !at_start || !self.open.is_empty() || second {
            return Err(refuse(BACKTRACKS));
        }
        let length = closing(&self.pattern[offset..]).ok_or_else(|| refuse(UNENDED))?;
        let mut inner = PatternTranslator::new(&self.pattern[offset + 3..offset + length]);
        inner.in_lookahead = true;
        inner.run()?;
        // `out` may still have such groups open. They close at the pattern's end.
        let unless = format!("{}(?:{}){}", self.out, inner.out, ")".repeat(self.open_at_top));
        self.lookahead = Some((offset, unless));
        let characters = self.pattern[offset..=offset + length].chars().count();
        self.skip(characters - 1);
        Ok(())
    }
}

/// True if a pattern names a group.
fn names_groups(pattern: &str) -> bool {
    pattern.match_indices("(?").filter(|(offset, _)| !pattern[..*offset].ends_with('\\')).any(
        |(offset, _)| {
            let rest = &pattern[offset + 2..];
            rest.starts_with('\'')
                || (rest.starts_with('<') && !rest.starts_with("<=") && !rest.starts_with("<!"))
        },
    )
}

/// The length of an interval (`{2}`, `{2,}`, `{2,3}`, `{,3}`) at the start of `text`.
fn interval(text: &str) -> Option<usize> {
    let (inner, _) = text.strip_prefix('{')?.split_once('}')?;
    let digits = |text: &str| text.bytes().all(|octet| octet.is_ascii_digit());
    let (low, high) = inner.split_once(',').unwrap_or((inner, "0"));
    let known = digits(low) && digits(high) && !(low.is_empty() && (high.is_empty() || !inner.contains(',')));
    known.then_some(inner.len() + 2)
}

/// The offset of the parenthesis that closes the group at the start of `text`.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut in_class, mut escaped) = (0_usize, false, false);
    for (offset, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => depth += 1,
            ')' if !in_class => {
                depth -= 1;
                if depth == 0 {
                    return Some(offset);
                }
            }
            _ => {}
        }
    }
    None
}
