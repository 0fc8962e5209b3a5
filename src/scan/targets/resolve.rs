//! Resolves host names, many at once, since each answer takes as long as its slowest server.

use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::Mutex;
use std::sync::PoisonError;

/// Concurrent look-ups.
const THREADS: usize = 32;

/// Result for a name: its addresses without duplicates, or the error.
pub(super) type Answer = Result<Vec<IpAddr>, String>;

/// Resolves `names`; the results are in their order.
pub(super) fn all<'n>(names: impl ExactSizeIterator<Item = &'n str> + Send) -> Vec<Answer> {
    each(names, look_up)
}

/// Passes `names` to `look_up` from several threads.
fn each<'n>(
    names: impl ExactSizeIterator<Item = &'n str> + Send,
    look_up: impl Fn(&str) -> Answer + Sync,
) -> Vec<Answer> {
    let threads = names.len().min(THREADS);
    let mut answers: Vec<Answer> = vec![Err("not looked up".to_owned()); names.len()];
    let work = Mutex::new(names.zip(answers.iter_mut()));
    // This drops the lock before the look-up, which takes long.
    let next = || work.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((name, answer)) = next() {
                    *answer = look_up(name);
                }
            });
        }
    });
    drop(work);
    answers
}

/// Returns all addresses of a host.
fn look_up(name: &str) -> Answer {
    let addresses = (name, 0).to_socket_addrs().map_err(|error| error.to_string())?;
    Ok(addresses.map(|address| address.ip().to_canonical()).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn answers_stand_where_their_names_stood() {
        let names: Vec<String> = (0..100).map(|number| format!("192.0.2.{number}")).collect();
        let answers = all(names.iter().map(String::as_str));
        let expected = names.iter().map(|name| Ok(vec![name.parse().expect("an address")]));
        assert!(answers.into_iter().eq(expected));
    }

    #[test]
    fn names_are_looked_up_at_the_same_time() {
        // Passes only when all three wait in it together.
        let together = Barrier::new(3);
        let answers = each(["a", "b", "c"].into_iter(), |name| {
            together.wait();
            Err(name.to_owned())
        });
        assert_eq!(answers, ["a", "b", "c"].map(|name| Err(name.to_owned())));
    }
}
