//! A separate file descriptor table for a thread, and descriptors that a service manager passes to a
//! process.

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::c_uint;

use crate::error::CallError;

/// Gives the calling thread a separate descriptor table that holds only stdin, stdout and stderr.
///
/// The limit of open files counts a table. So the thread can open files and start programs for any number
/// of descriptors in the rest of the process. Descriptors that the thread had before, also inside other
/// values, are closed for it, but not for other threads.
///
/// Signals are blocked for the thread, because a handler may write to a descriptor of the process's
/// table. Programs that the thread starts have them blocked, too.
///
/// # Errors
///
/// The kernel has no `close_range` (before Linux 5.9); then the thread shares the table as before.
pub fn keep_own() -> Result<(), CallError> {
    const FIRST: c_uint = 3;
    block_signals()?;
    // SAFETY: takes no pointers. Unshared, it closes nothing for other threads; what this thread owns
    // among the closed is the caller's affair as said above, and can at worst fail with EBADF later, or
    // meet a file that this very thread has opened since.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST, c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) };
    if result < 0 { Err(CallError::last("close_range(CLOSE_RANGE_UNSHARE)")) } else { Ok(()) }
}

/// Largest number of descriptors from a service manager.
const INHERITED: RawFd = 4096;

/// Takes the descriptors that a service manager has opened for this process (`sd_listen_fds(3)`), with
/// their names. Programs that this process starts do not inherit them. A second call returns none.
///
/// Their number comes from the environment, and only if that names this very process. The descriptors
/// start at 3; they were open when the process began, and nothing owns them before this call.
///
/// # Errors
///
/// One of them is not open; then none is taken.
pub fn inherited() -> Result<Vec<(String, OwnedFd)>, CallError> {
    let variable = |name: &str| std::env::var(name).ok();
    let count = count(variable("LISTEN_PID"), variable("LISTEN_FDS"), std::process::id());
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    Ok(named(&names, take(count)?).collect())
}

/// Takes `count` descriptors, only once.
fn take(count: RawFd) -> Result<Vec<OwnedFd>, CallError> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    const FIRST: RawFd = 3;
    // Before the descriptors are checked: a failed first call must not let a second one own a part of them.
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Ok(Vec::new());
    }
    // All are checked before any is taken, so that an error takes none.
    for number in FIRST..FIRST + count {
        // SAFETY: takes no pointers; a number that is no descriptor is refused.
        let result = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        if result < 0 {
            return Err(CallError::last("fcntl(FD_CLOEXEC)"));
        }
    }
    // SAFETY: these numbers are open, as was just seen; the environment says that this process was started
    // with them, so that nothing it has opened since can have them, and the swap above lets nobody take them
    // twice.
    Ok((FIRST..FIRST + count).map(|number| unsafe { OwnedFd::from_raw_fd(number) }).collect())
}

/// Returns the number of descriptors that are meant for the process `own`.
fn count(process: Option<String>, count: Option<String>, own: u32) -> RawFd {
    let number = |text: Option<String>| text.and_then(|text| text.parse::<u32>().ok());
    // Variables can be inherited by a child; LISTEN_PID shows whether they mean this process
    // (sd_listen_fds(3)).
    let count = number(count).filter(|_| number(process) == Some(own)).unwrap_or_default();
    RawFd::try_from(count).unwrap_or(INHERITED).min(INHERITED)
}

/// Returns the descriptors with their names.
fn named<T>(names: &str, descriptors: Vec<T>) -> impl Iterator<Item = (String, T)> {
    let names = names.split(':').map(str::to_owned).chain(std::iter::repeat_with(String::new));
    names.zip(descriptors)
}

fn block_signals() -> Result<(), CallError> {
    // SAFETY: a sigset_t is plain numbers, for which zero is a valid value; it is filled in below.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is live and writable.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: `all` was filled in above; the old mask is not asked for.
    let errno = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut()) };
    if errno == 0 { Ok(()) } else { Err(CallError::of("pthread_sigmask", errno)) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn only_what_is_meant_for_this_process_is_taken_and_each_has_its_name() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(count(text("7"), text("3"), 7), 3);
        for (process, number) in
            [(text("8"), text("3")), (None, text("3")), (text("7"), None), (text("7"), text("-1"))]
        {
            assert_eq!(count(process, number, 7), 0);
        }
        assert_eq!(count(text("7"), text("4000000000"), 7), INHERITED);
        let names: Vec<_> = named("queue-0:metrics", vec![3, 4, 5]).collect();
        assert_eq!(names, [("queue-0".into(), 3), ("metrics".into(), 4), (String::new(), 5)]);
    }

    #[test]
    fn nobody_is_given_what_this_process_has_opened_itself() {
        let mine = File::open("/dev/null").expect("it is there");
        // This process was not told of any.
        assert!(inherited().expect("nothing is looked for").is_empty());
        assert!(mine.metadata().is_ok());
    }

    #[test]
    fn a_thread_of_its_own_opens_files_and_closes_nobodys() {
        let mine = File::open("/dev/null").expect("it is there");
        let number = mine.as_raw_fd();
        let theirs = std::thread::spawn(|| {
            keep_own().expect("Linux 5.9");
            File::open("/dev/null").expect("there is room").as_raw_fd()
        });
        assert_eq!(theirs.join().expect("no panic"), 3);
        assert!(number >= 3 && mine.metadata().is_ok(), "it is open here still");
    }
}
