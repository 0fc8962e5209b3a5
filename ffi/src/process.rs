//! A process that continues as two.

use std::os::unix::fs::MetadataExt as _;

use crate::error::CallError;

/// Links of `/proc/self/task` in a process of one thread: itself, its parent, and that thread.
const ALONE: u64 = 3;

/// Continues as two processes: returns the number of the new one, and nothing in that.
///
/// # Errors
///
/// If the process has more than one thread, if `/proc` is not there to show that, or if the kernel refuses.
pub fn fork() -> Result<Option<i32>, CallError> {
    // A fork copies only the calling thread. Locks that others hold would stay locked in the copy (fork(2)).
    let threads =
        std::fs::metadata("/proc/self/task").map_err(|source| CallError { call: "fork", source })?;
    if threads.nlink() != ALONE {
        return Err(CallError::of("fork", libc::EBUSY));
    }
    // SAFETY: takes no pointers. No other thread of this process could hold a lock that the new one waits for
    // for ever.
    match unsafe { libc::fork() } {
        ..0 => Err(CallError::last("fork")),
        0 => Ok(None),
        number => Ok(Some(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::fork;

    #[test]
    fn a_process_with_other_threads_does_not_fork() {
        // The harness has a thread of its own, and this is another one.
        std::thread::scope(|scope| {
            let error =
                scope.spawn(|| fork().expect_err("there are other threads")).join().expect("no panic");
            assert_eq!(error.errno(), Some(libc::EBUSY));
        });
    }
}
