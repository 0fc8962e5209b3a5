//! Suggestion of the known name nearest to an unknown one.

/// Returns the candidate that `name` probably means: at most a third of its letters differ.
pub(super) fn nearest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    // Longer texts are not misspelt names, and the distance costs the product of both lengths.
    if name.len() > 64 {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_ascii_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len().max(3) / 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn only_what_is_near_is_suggested() {
        let known = ["severity", "source", "from", "id"];
        assert_eq!(nearest("sevrity", known), Some("severity"));
        assert_eq!(nearest("Source", known), Some("source"));
        assert_eq!(nearest("form", known), Some("from"));
        assert_eq!(nearest("ib", known), Some("id"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest(&"x".repeat(1_000), known), None);
    }
}
