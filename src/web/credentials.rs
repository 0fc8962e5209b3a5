//! Credentials of a request: `Authorization: Basic` (RFC 7617) or `Bearer` (RFC 6750).

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// Returns the user's name, if there is one, and the token or password.
pub(crate) fn credentials(headers: &HeaderMap) -> Option<(Option<String>, String)> {
    let told = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, value) = told.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some((None, value.trim().to_owned()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let octets = BASE64_STANDARD.decode(value.trim()).ok()?;
    let text = String::from_utf8(octets).ok()?;
    text.split_once(':').map(|(name, password)| (Some(name.to_owned()), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_passwords_are_read_from_the_field() {
        let secret = |value: &str| {
            let field = (header::AUTHORIZATION, value.parse().unwrap());
            credentials(&HeaderMap::from_iter([field]))
        };
        assert_eq!(secret("Bearer abc"), Some((None, "abc".to_owned())));
        assert_eq!(secret("basic YTpiOmM="), Some((Some("a".to_owned()), "b:c".to_owned())));
        for bad in ["Basic", "Basic !!", "Basic YQ==", "Digest x", "Basic /////w=="] {
            assert_eq!(secret(bad), None, "{bad}");
        }
        assert_eq!(credentials(&HeaderMap::new()), None);
    }
}
