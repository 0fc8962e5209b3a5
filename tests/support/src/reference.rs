//! The pages of docs/src that name what the program has.

use std::collections::BTreeSet;
use std::path::Path;

/// Asserts that the code on a page of docs/src has each of these names.
///
/// # Panics
/// If it does not, or the page can't be read.
pub fn assert_named<N: AsRef<str>>(page: &str, names: impl IntoIterator<Item = N>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src").join(page);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for code in text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)) {
        let is_word = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
        known.insert(code);
        known.extend(code.split(|character: char| !is_word(character)));
    }
    let names: Vec<N> = names.into_iter().collect();
    assert!(!names.is_empty(), "there are names for {page}");
    let missing: Vec<&str> = names.iter().map(N::as_ref).filter(|name| !known.contains(name)).collect();
    assert!(missing.is_empty(), "docs/src/{page} lacks {missing:?}");
}
