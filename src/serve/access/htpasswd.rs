//! User files of Apache's `htpasswd -B`.

use std::collections::HashMap;
use std::path::Path;

use super::AccessError;
use crate::web::WebUsers;

/// Parses a file's text.
pub(super) fn read(path: &Path, text: &str) -> Result<WebUsers, AccessError> {
    let mut hashes = HashMap::new();
    for (at, line) in text.lines().enumerate() {
        let line_text = line.trim();
        if line_text.is_empty() || line_text.starts_with('#') {
            continue;
        }
        let fault = |why| AccessError::Line { path: path.to_owned(), line: at + 1, why };
        let (name, hash) =
            line_text.split_once(':').ok_or(fault("a line must be a name, a colon and a hash"))?;
        if !WebUsers::knows(hash) {
            return Err(fault("only bcrypt hashes ($2y$…) are supported: use `htpasswd -B`"));
        }
        hashes.insert(name.to_owned(), hash.to_owned());
    }
    if hashes.is_empty() {
        return Err(AccessError::Nobody(path.to_owned()));
    }
    Ok(WebUsers::new(hashes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `htpasswd -nbB -C 4 …`, as the crate makes it.
    fn line(name: &str, password: &str) -> String {
        format!("{name}:{}\n", bcrypt::hash(password, 4).unwrap())
    }

    #[test]
    fn lines_are_names_and_hashes_beside_comments() {
        let text = format!("# people\n{}\n{}", line("ann", "a:b"), line("bob", "secret"));
        let users = read(Path::new("users"), &text).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let admit =
            |name: &str, password: &str| runtime.block_on(users.admit(name.to_owned(), password.to_owned()));
        assert!(admit("ann", "a:b") && admit("bob", "secret") && !admit("bob", "a:b"));
    }

    #[test]
    fn other_hashes_are_refused_with_their_line() {
        for (text, said) in [
            ("ann:$apr1$x$y\n", "users:1: only bcrypt"),
            ("\n\nann\n", "users:3: a line must be a name"),
            ("# nobody\n", "users: the file has no users"),
        ] {
            let error = read(Path::new("users"), text).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
