//! The mode of a `scan` without one.

use std::ffi::OsString;

/// Adds the mode `any` to a `scan` without a mode.
pub(in crate::cli) fn with_mode(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let scan = behind_global_flags(&arguments, 1);
    if arguments.get(scan).is_none_or(|word| word != "scan") {
        return arguments;
    }
    let at = behind_global_flags(&arguments, scan + 1);
    let Some(word) = arguments.get(at).map(|word| word.to_string_lossy()) else { return arguments };
    // A first word of letters is a mode, or a misspelled one, which clap reports.
    let is_mode = word != "localhost" && word.chars().all(|character| character.is_ascii_alphabetic());
    if !is_mode && !["-h", "--help", "-V", "--version"].contains(&&*word) {
        arguments.insert(at, OsString::from("any"));
    }
    arguments
}

/// Returns the position of the first word at or behind `at` that belongs to no global flag.
fn behind_global_flags(arguments: &[OsString], at: usize) -> usize {
    let is_switch = |word: &str| match word.strip_prefix('-') {
        Some("-quiet" | "-verbose") => true,
        Some(letters) => !letters.is_empty() && letters.chars().all(|letter| matches!(letter, 'q' | 'v')),
        None => false,
    };
    match arguments.get(at).map(|word| word.to_string_lossy()) {
        Some(word) if word == "--config" => behind_global_flags(arguments, at + 2),
        Some(word) if is_switch(&word) || word.starts_with("--config=") => {
            behind_global_flags(arguments, at + 1)
        }
        _ => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_without_a_mode_asks_for_the_usual_protocols() {
        for (given, filled) in [
            ("scan 192.0.2.1", "scan any 192.0.2.1"),
            ("--config c.toml scan 192.0.2.1 -v", "--config c.toml scan any 192.0.2.1 -v"),
            ("--config=c.toml -vq scan -q 192.0.2.1", "--config=c.toml -vq scan -q any 192.0.2.1"),
            ("scan --config c.toml 192.0.2.1", "scan --config c.toml any 192.0.2.1"),
            ("scan --format json -p- localhost", "scan any --format json -p- localhost"),
            ("scan -i -", "scan any -i -"),
            ("scan localhost", "scan any localhost"),
            ("scan ssh 192.0.2.1", "scan ssh 192.0.2.1"),
            ("scan sssh 192.0.2.1", "scan sssh 192.0.2.1"),
            ("scan -h", "scan -h"),
            ("scan", "scan"),
            ("--config scan guard", "--config scan guard"),
            ("rules test scan/", "rules test scan/"),
        ] {
            let words = |line: &str| -> Vec<OsString> {
                std::iter::once("bannerwall").chain(line.split(' ')).map(OsString::from).collect()
            };
            assert_eq!(with_mode(words(given)), words(filled));
        }
    }
}
