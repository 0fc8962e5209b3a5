//! Lines for people: broken between words at the width of the terminal, and whole in files and pipes.

use std::borrow::Cow;
use std::io::IsTerminal as _;

use textwrap::core::display_width;

/// Fewest columns with which lines are broken.
const NARROWEST: usize = 40;

/// Deepest indentation of a continued line, as a share of the width.
const DEEPEST: usize = 2;

/// Further indentation of a continued line without columns.
const STEP: usize = 4;

/// Indentation of text that is meant for a file, which stays whole.
const QUOTED: &str = "    ";

/// Breaks long lines for stdout, if that is a terminal.
pub(super) fn fit(text: &str) -> Cow<'_, str> {
    let stdout = std::io::stdout();
    let size = terminal_size::terminal_size_of(&stdout).filter(|_| stdout.is_terminal());
    match size.map(|(width, _)| usize::from(width.0)).filter(|width| *width >= NARROWEST) {
        Some(width) => wrap(text, width).into(),
        None => text.into(),
    }
}

/// Breaks lines that are wider than `width`. What follows is indented as the last column of the line.
fn wrap(text: &str, width: usize) -> String {
    text.split_inclusive('\n').map(|line| wrap_line(line, width)).collect()
}

fn wrap_line(line: &str, width: usize) -> Cow<'_, str> {
    let is_quoted =
        line.strip_prefix(QUOTED).is_some_and(|rest| rest.starts_with(|first: char| first != ' '));
    if is_quoted || display_width(line.trim_end()) <= width {
        return line.into();
    }
    let indent = " ".repeat(last_column(line, width / DEEPEST));
    let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
    let options = textwrap::Options::new(width).subsequent_indent(&indent).break_words(false);
    let options = options.word_splitter(textwrap::WordSplitter::NoHyphenation);
    (textwrap::fill(body, options) + end).into()
}

/// Returns the column in which the last cell begins, at most `deepest`: behind two spaces or more.
fn last_column(line: &str, deepest: usize) -> usize {
    let starts = line.match_indices("  ").filter_map(|(at, _)| {
        let behind = line.get(at..)?.trim_start();
        let before = line.get(..line.len() - behind.len())?;
        let column = display_width(before);
        (!behind.is_empty() && column <= deepest).then_some(column)
    });
    starts.max().unwrap_or(STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_go_on_below_their_last_column() {
        let line = "192.0.2.7:22  ssh  SSH-2.0-OpenSSH_9.2p1 a banner that is long and has many words\n";
        assert_eq!(
            wrap(line, 50),
            "192.0.2.7:22  ssh  SSH-2.0-OpenSSH_9.2p1 a banner\n                   that is long and has many words\n"
        );
        assert_eq!(wrap("fault: one two three\n", 14), "fault: one two\n    three\n");
        assert_eq!(wrap("short\nlines\n", 14), "short\nlines\n");
    }

    #[test]
    fn colours_take_no_columns_and_quoted_text_stays_whole() {
        let red = "\x1b[31mone\x1b[0m two three";
        assert_eq!(wrap(red, 13), red);
        assert_eq!(wrap("    id = \"a long name\"\n", 10), "    id = \"a long name\"\n");
        assert_eq!(wrap("abcdefghijklmnop", 10), "abcdefghijklmnop", "a word is never broken");
    }
}
