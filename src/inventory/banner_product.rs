//! Product that a banner itself names, if no fingerprint database knows better.

use crate::event::ProductFacts;

/// Largest length of a product's name in bytes.
const NAME: usize = 64;

/// Returns the product and version at the start of a banner: `OpenSSH_9.2p1 Debian-2`, `nginx/1.22.1`,
/// `dropbear`.
///
/// A server can claim anything: this parses the claim and does not verify it.
pub(super) fn named(text: &str) -> ProductFacts {
    let word = text.split([' ', ';', ',', '(', '\t']).next().unwrap_or_default();
    let split = word.char_indices().find(|(at, character)| {
        let digit_behind = || word.get(at + 1..).is_some_and(|rest| rest.starts_with(digit_or_v));
        match character {
            '/' => true,
            '_' | '-' => digit_behind(),
            _ => false,
        }
    });
    let (name, version) = match split {
        Some((at, _)) => (word.get(..at), word.get(at + 1..)),
        None => (Some(word), None),
    };
    let is_name = |name: &&str| (1..=NAME).contains(&name.len()) && name.contains(char::is_alphabetic);
    let product = name.filter(is_name).map(str::to_owned);
    let version =
        version.filter(|version| product.is_some() && version.contains(|it: char| it.is_ascii_digit()));
    ProductFacts { version: version.map(str::to_owned), product, ..ProductFacts::default() }
}

/// True if a version may begin with this character after the product's name.
fn digit_or_v(character: char) -> bool {
    character.is_ascii_digit() || character == 'v'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_names_product_and_version() {
        for (text, product, version) in [
            ("OpenSSH_9.2p1 Debian-2+deb12u3", Some("OpenSSH"), Some("9.2p1")),
            ("nginx/1.22.1", Some("nginx"), Some("1.22.1")),
            ("nginx", Some("nginx"), None),
            ("Apache/2.4.57 (Debian)", Some("Apache"), Some("2.4.57")),
            ("dropbear_2022.83", Some("dropbear"), Some("2022.83")),
            ("libssh-0.9.6", Some("libssh"), Some("0.9.6")),
            ("paramiko_v1", Some("paramiko"), Some("v1")),
            ("Mozilla/5.0 (X11; Linux)", Some("Mozilla"), Some("5.0")),
            ("mini_httpd", Some("mini_httpd"), None),
            ("", None, None),
            ("/1", None, None),
            ("1.0", None, None),
            ("Cisco-1.25", Some("Cisco"), Some("1.25")),
        ] {
            let said = named(text);
            assert_eq!((said.product.as_deref(), said.version.as_deref()), (product, version), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_too_strange(text in ".*") {
            let said = named(&text);
            proptest::prop_assert!(said.product.is_some() || said.version.is_none());
        }
    }
}
