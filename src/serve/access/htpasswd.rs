//! Users and their passwords, as Apache's `htpasswd -B` writes them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use super::AccessError;

/// Passwords that are tried at the same time: each takes a tenth of a second.
const AT_ONCE: usize = 2;

/// Logins that are remembered, so that each is worked out once.
const REMEMBERED: usize = 256;

/// What an unknown name's password is held against, so that it takes as long as a known one's.
const NOBODY: &str = "$2y$10$abcdefghijklmnopqrstuu5Lo0g67CiD3M4RpN1BmBb4Crp5w7dbK";

/// Who may log in.
#[derive(Debug)]
pub(in crate::serve) struct Users {
    hashes: HashMap<String, String>,
    /// Digests of names and passwords that were right.
    right: Mutex<Vec<[u8; 32]>>,
    trials: Arc<Semaphore>,
}

/// Reads a file's text.
pub(super) fn read(path: &Path, text: &str) -> Result<Users, AccessError> {
    let mut hashes = HashMap::new();
    for (at, line) in text.lines().enumerate() {
        let line_text = line.trim();
        if line_text.is_empty() || line_text.starts_with('#') {
            continue;
        }
        let fault = |why| AccessError::Line { path: path.to_owned(), line: at + 1, why };
        let (name, hash) = line_text.split_once(':').ok_or(fault("a line is a name, a colon and a hash"))?;
        let known = hash.parse::<bcrypt::HashParts>().is_ok();
        if !known {
            return Err(fault("only bcrypt hashes ($2y$…) are taken: `htpasswd -B` makes them"));
        }
        hashes.insert(name.to_owned(), hash.to_owned());
    }
    if hashes.is_empty() {
        return Err(AccessError::Nobody(path.to_owned()));
    }
    Ok(Users { hashes, right: Mutex::default(), trials: Arc::new(Semaphore::new(AT_ONCE)) })
}

impl Users {
    /// Whether this is the password of somebody who may log in.
    pub(super) async fn admit(&self, name: String, password: String) -> bool {
        let digest: [u8; 32] = Sha256::new()
            .chain_update(u64::try_from(name.len()).unwrap_or(u64::MAX).to_be_bytes())
            .chain_update(&name)
            .chain_update(&password)
            .finalize()
            .into();
        if self.right.lock().unwrap_or_else(PoisonError::into_inner).contains(&digest) {
            return true;
        }
        let known = self.hashes.get(&name).cloned();
        let is_known = known.is_some();
        let hash = known.unwrap_or_else(|| NOBODY.to_owned());
        let Ok(trial) = Arc::clone(&self.trials).acquire_owned().await else { return false };
        let verified = tokio::task::spawn_blocking(move || {
            let verified = bcrypt::verify(password, &hash).unwrap_or(false);
            drop(trial);
            verified
        });
        let admitted = verified.await.unwrap_or(false) && is_known;
        if admitted {
            let mut right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
            if right.len() >= REMEMBERED {
                right.clear();
            }
            right.push(digest);
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `htpasswd -nbB -C 4 …`, as the crate makes it.
    fn line(name: &str, password: &str) -> String {
        format!("{name}:{}\n", bcrypt::hash(password, 4).unwrap())
    }

    #[test]
    fn users_are_admitted_by_their_own_password() {
        let text = format!("# people\n{}{}", line("ann", "a:b"), line("bob", "secret"));
        let users = read(Path::new("users"), &text).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let admit =
            |name: &str, password: &str| runtime.block_on(users.admit(name.to_owned(), password.to_owned()));
        assert!(admit("ann", "a:b") && admit("ann", "a:b") && admit("bob", "secret"));
        assert!(
            !admit("ann", "secret") && !admit("eve", "secret") && !admit("eve", "") && !admit("an", "na:b")
        );
        assert!(NOBODY.parse::<bcrypt::HashParts>().is_ok(), "an unknown name takes as long");
    }

    #[test]
    fn other_hashes_are_refused_with_their_line() {
        for (text, said) in [
            ("ann:$apr1$x$y\n", "users:1: only bcrypt"),
            ("\n\nann\n", "users:3: a line is a name"),
            ("# nobody\n", "users: nobody stands in it"),
        ] {
            let error = read(Path::new("users"), text).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
