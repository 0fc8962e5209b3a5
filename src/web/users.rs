//! Users and the bcrypt hashes of their passwords.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

/// Limit of concurrent password checks; each takes a tenth of a second of a processor that others need, too.
const AT_ONCE: usize = 1;

/// Limit of cached logins, so that each needs one check.
const REMEMBERED: usize = 256;

/// Users with their password hashes.
#[derive(Debug)]
pub(crate) struct WebUsers {
    hashes: HashMap<String, String>,
    /// Digests of correct names and passwords.
    right: Mutex<Vec<[u8; 32]>>,
    trials: Arc<Semaphore>,
}

impl WebUsers {
    /// Returns users by name, with hashes that [`WebUsers::knows`] accepts.
    pub(crate) fn new(hashes: HashMap<String, String>) -> Self {
        Self { hashes, right: Mutex::default(), trials: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// True if the hash is supported: bcrypt.
    pub(crate) fn knows(hash: &str) -> bool {
        hash.parse::<bcrypt::HashParts>().is_ok()
    }

    /// Returns the digest of a name and a password.
    pub(crate) fn digest(name: &str, password: &str) -> [u8; 32] {
        Sha256::new()
            .chain_update(u64::try_from(name.len()).unwrap_or(u64::MAX).to_be_bytes())
            .chain_update(name)
            .chain_update(password)
            .finalize()
            .into()
    }

    /// True if a name and a password with this digest were correct before.
    pub(crate) fn has_seen(&self, digest: &[u8; 32]) -> bool {
        self.right.lock().unwrap_or_else(PoisonError::into_inner).contains(digest)
    }

    /// True if this is the password of a user.
    pub(crate) async fn admit(&self, name: String, password: String) -> bool {
        let digest = Self::digest(&name, &password);
        if self.has_seen(&digest) {
            return true;
        }
        let is_known = self.hashes.contains_key(&name);
        // The password of an unknown name is checked against another user's hash, so that it takes as long as
        // for a known name.
        let hash = self.hashes.get(&name).or_else(|| self.hashes.values().next()).cloned();
        let Some(hash) = hash else { return false };
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

    #[test]
    fn users_are_admitted_by_their_own_password() {
        let hash = |password: &str| bcrypt::hash(password, 4).unwrap();
        let hashes = [("ann", "a:b"), ("bob", "secret")];
        let users = WebUsers::new(hashes.map(|(name, word)| (name.to_owned(), hash(word))).into());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let admit =
            |name: &str, password: &str| runtime.block_on(users.admit(name.to_owned(), password.to_owned()));
        assert!(!users.has_seen(&WebUsers::digest("ann", "a:b")));
        assert!(admit("ann", "a:b") && admit("ann", "a:b") && admit("bob", "secret"));
        assert!(
            users.has_seen(&WebUsers::digest("ann", "a:b"))
                && !users.has_seen(&WebUsers::digest("anna", ":b"))
        );
        assert!(
            !admit("ann", "secret") && !admit("eve", "secret") && !admit("eve", "") && !admit("an", "na:b")
        );
        assert!(!WebUsers::knows("$apr1$x$y") && !WebUsers::knows("secret"));
    }
}
