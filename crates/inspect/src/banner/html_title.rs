//! The text of the first `<title>` in an HTML body.
//!
//! This is no HTML parser. It finds the element by its tag, decodes the entities that titles use and
//! folds white space. A title that is cut off is returned as far as it goes.

/// Length of the longest title, in characters.
const TITLE_LIMIT: usize = 256;

/// Returns the first title in `body`; `None` if there is none or it is empty.
pub fn title(body: &[u8]) -> Option<String> {
    let open = find_tag(body, b"<title")?;
    let behind = body.get(open..)?;
    let start = memchr::memchr(b'>', behind)? + 1;
    let text = behind.get(start..)?;
    let end = find(text, b"</title").unwrap_or(text.len());
    let text = String::from_utf8_lossy(text.get(..end)?);
    let folded = fold(&decode(&text));
    (!folded.is_empty()).then_some(folded)
}

/// Returns the end of the tag's name, for the first tag of exactly that name.
fn find_tag(body: &[u8], tag: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let rest = body.get(from..)?;
        let end = from + find(rest, tag)? + tag.len();
        let next = body.get(end)?;
        // `<titles>` begins alike, but is another tag.
        if *next == b'>' || next.is_ascii_whitespace() {
            return Some(end);
        }
        from = end;
    }
}

/// Returns the first position of `needle`, which begins with `<`, ignoring case.
fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'<', haystack).find(|&at| {
        haystack.get(at..at + needle.len()).is_some_and(|found| found.eq_ignore_ascii_case(needle))
    })
}

fn decode(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        let (before, behind) = rest.split_at(at);
        decoded.push_str(before);
        match entity(behind) {
            Some((character, length)) => {
                decoded.push(character);
                rest = behind.get(length..).unwrap_or_default();
            }
            None => {
                decoded.push('&');
                rest = behind.get(1..).unwrap_or_default();
            }
        }
    }
    decoded.push_str(rest);
    decoded
}

/// Returns the entity at the start of `text` and its length in bytes.
fn entity(text: &str) -> Option<(char, usize)> {
    // The bound keeps a text of many `&` without `;` linear.
    let end = text.bytes().take(12).position(|octet| octet == b';')?;
    let name = text.get(1..end)?;
    let character = match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "copy" => '©',
        "reg" => '®',
        "ndash" => '–',
        "mdash" => '—',
        "middot" => '·',
        "raquo" => '»',
        "laquo" => '«',
        _ => numeric(name.strip_prefix('#')?)?,
    };
    Some((character, end + 1))
}

fn numeric(digits: &str) -> Option<char> {
    let value = match digits.strip_prefix(['x', 'X']) {
        Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16).ok()?,
        None => digits.parse().ok()?,
    };
    char::from_u32(value)
}

fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len().min(TITLE_LIMIT));
    for word in text.split_whitespace() {
        if !folded.is_empty() {
            folded.push(' ');
        }
        folded.push_str(word);
    }
    match folded.char_indices().nth(TITLE_LIMIT) {
        Some((end, _)) => folded.get(..end).unwrap_or_default().to_owned(),
        None => folded,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn titles_are_found_decoded_and_folded() {
        for (body, expected) in [
            ("<html><head><title>Welcome to nginx!</title>", Some("Welcome to nginx!")),
            ("<TITLE lang=en>\n  A &amp; B&#39;s\t&#x263A; </TITLE>", Some("A & B's ☺")),
            ("<titles>no</titles><title>yes</title>", Some("yes")),
            ("<title>cut of", Some("cut of")),
            ("<title></title>", None),
            ("<title", None),
            ("no title", None),
            ("<title>AT&T &unknown; &</title>", Some("AT&T &unknown; &")),
        ] {
            assert_eq!(title(body.as_bytes()).as_deref(), expected, "{body}");
        }
    }

    #[test]
    fn long_titles_are_cut() {
        let body = format!("<title>{}</title>", "ü".repeat(1000));
        assert_eq!(title(body.as_bytes()).unwrap().chars().count(), TITLE_LIMIT);
    }

    proptest! {
        #[test]
        fn random_text_never_panics(body in proptest::collection::vec(any::<u8>(), 0..200), text in ".{0,60}") {
            let _ = title(&body);
            let _ = title(&[b"<title>".as_slice(), &body].concat());
            let _ = title(format!("<title>&{text};").as_bytes());
        }
    }
}
