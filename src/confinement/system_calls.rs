//! System calls of a confined thread; the kernel refuses all others with `EPERM`.
//!
//! The lists are meant to be read: each call stands in one of them, by the activity that needs it. The tests
//! compare the filters with them, number by number.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp as Cmp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

use super::confinement_error::ConfinementError;

/// Activities of a thread beyond computing and reading the files that Landlock leaves it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PermittedActivities {
    /// Talks TCP and UDP.
    pub(super) network: bool,
    /// Listens for TCP, and connects to nobody.
    pub(super) listens: bool,
    /// Opens netlink sockets, for notifications of the kernel.
    pub(super) netlink: bool,
    /// Connects to a database server by its Unix socket.
    pub(super) unix: bool,
    /// Opens packet sockets (`packet(7)`), for resets on a bridge.
    pub(super) packets: bool,
    /// Sets up an `io_uring(7)`.
    pub(super) rings: bool,
    /// Reads and changes entries of eBPF maps that are open already.
    pub(super) maps: bool,
    /// Starts iptables, nft, ip, tc or this program, which inherit the filter.
    pub(super) programs: bool,
    /// Continues as two processes.
    pub(super) forks: bool,
    /// Creates, writes, renames and removes files.
    pub(super) writes: bool,
}

/// Condition: number of an argument, comparison, and value.
type Condition = (u8, Cmp, u64);

/// System call with conditions, all of which must hold.
type Allowed = (i64, &'static [Condition]);

/// Computing, waiting, threads, and open descriptors.
const ALWAYS: &[i64] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    // Threads and their end. `clone` has conditions below; an earlier filter refuses `clone3`.
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    // Signals, and the end of a child.
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_wait4,
    libc::SYS_waitid,
    // Time.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // The process itself, and giving up more of its rights.
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getrandom,
    libc::SYS_getuid,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_seccomp,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    // Descriptors.
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_fcntl,
    libc::SYS_lseek,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_pselect6,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    // Files, as far as Landlock lets them be opened.
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_statfs,
    libc::SYS_statx,
];

/// Older names of the same calls on x86-64, which other machines lack.
#[cfg(target_arch = "x86_64")]
const ALWAYS_OLDER: &[i64] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_lstat,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const ALWAYS_OLDER: &[i64] = &[];

/// Calls with conditions on their arguments.
const ALWAYS_WITH: &[Allowed] = &[
    // A thread of this process, never a new process.
    (libc::SYS_clone, &[(0, Cmp::MaskedEq(THREAD), THREAD)]),
    // Terminal queries, readable bytes, close-on-exec, and non-blocking mode.
    (libc::SYS_ioctl, &[(1, Cmp::Eq, TCGETS)]),
    (libc::SYS_ioctl, &[(1, Cmp::Eq, TIOCGWINSZ)]),
    (libc::SYS_ioctl, &[(1, Cmp::Eq, FIONREAD)]),
    (libc::SYS_ioctl, &[(1, Cmp::Eq, FIOCLEX)]),
    (libc::SYS_ioctl, &[(1, Cmp::Eq, FIONBIO)]),
    // A check that a process exists, without sending a signal.
    (libc::SYS_kill, &[(1, Cmp::Eq, 0)]),
    (libc::SYS_prctl, &[(0, Cmp::Eq, libc::PR_SET_NAME as u64)]),
    (libc::SYS_prctl, &[(0, Cmp::Eq, libc::PR_GET_NAME as u64)]),
    (libc::SYS_prctl, &[(0, Cmp::Eq, libc::PR_SET_NO_NEW_PRIVS as u64)]),
    (libc::SYS_prctl, &[(0, Cmp::Eq, libc::PR_CAPBSET_READ as u64)]),
    // Names of memory areas and the machine's features, used by C libraries and Rust's.
    (libc::SYS_prctl, &[(0, Cmp::Eq, PR_SET_VMA)]),
    (libc::SYS_prctl, &[(0, Cmp::Eq, PR_GET_AUXV)]),
    // A local pair, which wakes a thread at a signal.
    (libc::SYS_socketpair, &[(0, Cmp::Eq, libc::AF_UNIX as u64)]),
    // Limits of this process only.
    (libc::SYS_prlimit64, &[(0, Cmp::Eq, 0)]),
];

/// Writing files; Landlock decides which.
const WRITES: &[i64] = &[
    libc::SYS_fallocate,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_mkdirat,
    libc::SYS_pwritev,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_sync_file_range,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
];

#[cfg(target_arch = "x86_64")]
const WRITES_OLDER: &[i64] = &[libc::SYS_mkdir, libc::SYS_rename, libc::SYS_rmdir, libc::SYS_unlink];
#[cfg(not(target_arch = "x86_64"))]
const WRITES_OLDER: &[i64] = &[];

/// SQLite gives its log the mode of its file, but never a set-user-id or set-group-id bit.
const WRITES_WITH: &[Allowed] = &[(libc::SYS_fchmod, &[(1, Cmp::MaskedEq(SET_ID), 0)])];

/// Use of existing sockets: a guard has queue sockets even if it opens none.
const SOCKETS: &[i64] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
];

const TCP: &[Allowed] = &[
    (libc::SYS_socket, &[(0, Cmp::Eq, libc::AF_INET as u64), (1, SOCKET_TYPE, libc::SOCK_STREAM as u64)]),
    (libc::SYS_socket, &[(0, Cmp::Eq, libc::AF_INET6 as u64), (1, SOCKET_TYPE, libc::SOCK_STREAM as u64)]),
];
const UDP: &[Allowed] = &[
    (libc::SYS_socket, &[(0, Cmp::Eq, libc::AF_INET as u64), (1, SOCKET_TYPE, libc::SOCK_DGRAM as u64)]),
    (libc::SYS_socket, &[(0, Cmp::Eq, libc::AF_INET6 as u64), (1, SOCKET_TYPE, libc::SOCK_DGRAM as u64)]),
];
const NETLINK: &[Allowed] = &[
    (libc::SYS_socket, &[(0, Cmp::Eq, libc::AF_NETLINK as u64)]),
    // Interface names and indexes.
    (libc::SYS_ioctl, &[(1, Cmp::Eq, SIOCGIFNAME)]),
    (libc::SYS_ioctl, &[(1, Cmp::Eq, SIOCGIFINDEX)]),
];
const UNIX: &[Allowed] =
    &[(libc::SYS_socket, &[(0, Cmp::Eq, libc::AF_UNIX as u64), (1, SOCKET_TYPE, libc::SOCK_STREAM as u64)])];
const PACKETS: &[Allowed] = &[(libc::SYS_socket, &[(0, Cmp::Eq, libc::AF_PACKET as u64)])];

/// Starting and stopping programs, and their further calls. Compared with systemd's `@system-service`, which
/// the shipped unit allows, the list lacks other users, owners, keys, clocks and priorities.
const PROGRAMS: &[i64] = &[
    // Processes, their limits and their signals.
    libc::SYS_chdir,
    libc::SYS_close_range,
    libc::SYS_execve,
    libc::SYS_fchdir,
    libc::SYS_getgroups,
    libc::SYS_getitimer,
    libc::SYS_getpgid,
    libc::SYS_getpriority,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrlimit,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_kill,
    libc::SYS_prctl,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_setitimer,
    libc::SYS_setpgid,
    libc::SYS_setrlimit,
    libc::SYS_setsid,
    libc::SYS_tgkill,
    libc::SYS_times,
    // Memory.
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_msync,
    libc::SYS_munlock,
    // Descriptors and files.
    libc::SYS_accept,
    libc::SYS_copy_file_range,
    libc::SYS_epoll_pwait2,
    libc::SYS_linkat,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_sendfile,
    libc::SYS_signalfd4,
    libc::SYS_splice,
    libc::SYS_symlinkat,
    libc::SYS_timerfd_gettime,
    libc::SYS_truncate,
];

#[cfg(target_arch = "x86_64")]
const PROGRAMS_OLDER: &[i64] = &[
    libc::SYS_alarm,
    libc::SYS_creat,
    libc::SYS_epoll_create,
    libc::SYS_eventfd,
    libc::SYS_fork,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_inotify_init,
    libc::SYS_link,
    libc::SYS_pause,
    libc::SYS_signalfd,
    libc::SYS_symlink,
    libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
const PROGRAMS_OLDER: &[i64] = &[];

const PROGRAMS_WITH: &[Allowed] = &[
    // Processes and threads in the same namespaces.
    (libc::SYS_clone, &[(0, Cmp::MaskedEq(NAMESPACES), 0)]),
    (libc::SYS_fchmodat, &[(2, Cmp::MaskedEq(SET_ID), 0)]),
    // All requests except those that type into a terminal.
    (libc::SYS_ioctl, &[(1, Cmp::Ne, TIOCSTI), (1, Cmp::Ne, TIOCLINUX)]),
    // Raw sockets, too, which the legacy iptables uses for queries.
    (libc::SYS_socket, &[(0, Cmp::Eq, libc::AF_INET as u64)]),
    (libc::SYS_socket, &[(0, Cmp::Eq, libc::AF_INET6 as u64)]),
    (libc::SYS_socket, &[(0, Cmp::Eq, libc::AF_UNIX as u64)]),
];

/// A new process with its own memory and namespaces, and waiting for its end.
const FORKS: &[Allowed] =
    &[(libc::SYS_clone, &[(0, Cmp::MaskedEq(SHARED), 0)]), (libc::SYS_pidfd_open, &[(1, Cmp::Eq, 0)])];

/// Rings; their own restrictions limit the submitted operations.
const RINGS: &[i64] = &[libc::SYS_io_uring_enter, libc::SYS_io_uring_register, libc::SYS_io_uring_setup];

/// Commands of `bpf(2)` that look up, update or delete an entry of a map, or return the next one (1 to 4,
/// `linux/bpf.h`).
const MAPS: &[Allowed] = &[(libc::SYS_bpf, &[(0, Cmp::Ge, 1), (0, Cmp::Le, 4)])];

/// Mask of the type in the second argument of `socket`, which also holds flags.
const SOCKET_TYPE: Cmp = Cmp::MaskedEq(0xf);

/// Flags that make a `clone(2)` a thread.
const THREAD: u64 = (libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD) as u64;

/// Resources that a new process would share with this one, or new namespaces.
const SHARED: u64 = NAMESPACES
    | (libc::CLONE_VM
        | libc::CLONE_FILES
        | libc::CLONE_FS
        | libc::CLONE_SIGHAND
        | libc::CLONE_PTRACE
        | libc::CLONE_PARENT) as u64;

/// New namespaces of a process.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// Mode bits that lend the rights of a file's owner or group.
const SET_ID: u64 = 0o6000;

/// Requests of `ioctl(2)` and `prctl(2)`; C libraries disagree about their types.
const TCGETS: u64 = 0x5401;
const TIOCGWINSZ: u64 = 0x5413;
const FIONREAD: u64 = 0x541b;
const FIONBIO: u64 = 0x5421;
const FIOCLEX: u64 = 0x5451;
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;
const SIOCGIFNAME: u64 = 0x8910;
const SIOCGIFINDEX: u64 = 0x8933;
const PR_GET_AUXV: u64 = 0x4155_5856;
const PR_SET_VMA: u64 = 0x5356_4d41;

impl PermittedActivities {
    /// Refuses every other call to the calling thread and to those that it starts.
    ///
    /// # Errors
    ///
    /// The kernel has no seccomp, or refuses the filter.
    pub(super) fn enforce(self) -> Result<(), ConfinementError> {
        // The arguments of `clone3` are in memory, which no filter can read. The C library falls back to
        // `clone` at ENOSYS. If two filters refuse, the errno of the newer one counts, so this one comes
        // first.
        let refused = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        apply(refused, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS.unsigned_abs()))?;
        Ok(seccompiler::apply_filter(&self.program()?)?)
    }

    fn program(self) -> Result<BpfProgram, ConfinementError> {
        let refusal = SeccompAction::Errno(libc::EPERM.unsigned_abs());
        program(self.allowed()?, refusal, SeccompAction::Allow)
    }

    fn allowed(self) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
        let mut calls = [ALWAYS, ALWAYS_OLDER].concat();
        let mut with = ALWAYS_WITH.to_vec();
        // abort(3) and panics send their signal to a thread of this process.
        let own = [(libc::SYS_tgkill, vec![(0, Cmp::Eq, u64::from(std::process::id()))])];
        if self.writes {
            calls.extend([WRITES, WRITES_OLDER].concat());
            with.extend(WRITES_WITH);
        }
        let sockets = [
            (self.network || self.listens, TCP),
            (self.network, UDP),
            (self.netlink, NETLINK),
            (self.unix, UNIX),
            (self.packets, PACKETS),
        ];
        for (_, kind) in sockets.iter().filter(|(wanted, _)| *wanted) {
            calls.extend(SOCKETS);
            with.extend(*kind);
        }
        if self.rings {
            calls.extend(RINGS);
        }
        if self.programs {
            calls.extend([PROGRAMS, PROGRAMS_OLDER].concat());
            with.extend(PROGRAMS_WITH);
        }
        if self.forks {
            with.extend(FORKS);
        }
        if self.maps {
            with.extend(MAPS);
        }
        // A call without conditions is allowed with any arguments.
        let mut allowed: BTreeMap<i64, Vec<SeccompRule>> =
            calls.into_iter().map(|call| (call, Vec::new())).collect();
        let own = own.iter().map(|(call, conditions)| (*call, conditions.as_slice()));
        for (call, conditions) in with.into_iter().chain(own) {
            // A call that is already allowed without conditions stays so.
            match allowed.entry(call) {
                Entry::Vacant(new) => drop(new.insert(vec![rule(conditions)?])),
                Entry::Occupied(known) if known.get().is_empty() => {}
                Entry::Occupied(mut known) => known.get_mut().push(rule(conditions)?),
            }
        }
        Ok(allowed)
    }
}

fn program(
    calls: BTreeMap<i64, Vec<SeccompRule>>,
    others: SeccompAction,
    these: SeccompAction,
) -> Result<BpfProgram, ConfinementError> {
    let machine = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(calls, others, these, machine)?.try_into()?)
}

fn apply(
    calls: BTreeMap<i64, Vec<SeccompRule>>,
    others: SeccompAction,
    these: SeccompAction,
) -> Result<(), ConfinementError> {
    Ok(seccompiler::apply_filter(&program(calls, others, these)?)?)
}

fn rule(conditions: &[Condition]) -> Result<SeccompRule, BackendError> {
    let made = conditions.iter().map(|(number, comparison, value)| {
        SeccompCondition::new(*number, SeccompCmpArgLen::Dword, comparison.clone(), *value)
    });
    SeccompRule::new(made.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use seccompiler::sock_filter;

    use super::*;

    /// Numbers of calls are below this on every machine that seccompiler knows.
    const NUMBERS: i64 = 1_024;
    const ALLOW: u32 = 0x7fff_0000;

    /// Runs a filter as the kernel does (`seccomp_run_filters` of kernel/seccomp.c): its answer to a call.
    fn answer(program: &[sock_filter], call: i64, arguments: [u64; 6]) -> u32 {
        // Of `struct seccomp_data`: the number, the machine, an address, and six arguments.
        let mut data = vec![u32::try_from(call).unwrap(), 0xc000_003e, 0, 0];
        for argument in arguments {
            data.extend([argument & 0xffff_ffff, argument >> 32].map(|half| u32::try_from(half).unwrap()));
        }
        let (mut at, mut held) = (0, 0_u32);
        loop {
            let step = &program[at];
            let jump = |is_so: bool| usize::from(if is_so { step.jt } else { step.jf });
            at += 1;
            match step.code {
                0x20 => held = data[step.k as usize / 4],
                0x54 => held &= step.k,
                0x05 => at += step.k as usize,
                0x15 => at += jump(held == step.k),
                0x25 => at += jump(held > step.k),
                0x35 => at += jump(held >= step.k),
                0x06 => return step.k,
                other => panic!("an instruction that filters do not have: {other:#x}"),
            }
        }
    }

    fn is_allowed(activities: PermittedActivities, call: i64, arguments: [u64; 6]) -> bool {
        answer(&activities.program().unwrap(), call, arguments) == ALLOW
    }

    const ALL: PermittedActivities = PermittedActivities {
        network: true,
        listens: true,
        netlink: true,
        unix: true,
        packets: true,
        rings: true,
        maps: true,
        programs: false,
        forks: true,
        writes: true,
    };

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn no_number_is_allowed_that_stands_in_no_list() {
        let (network, programs) = (
            PermittedActivities { network: true, ..PermittedActivities::default() },
            PermittedActivities { programs: true, ..ALL },
        );
        for activities in [PermittedActivities::default(), ALL, network, programs] {
            let (program, listed) = (activities.program().unwrap(), activities.allowed().unwrap());
            for call in 0..NUMBERS {
                for arguments in [[0; 6], [u64::MAX; 6], [1; 6]] {
                    let allowed = answer(&program, call, arguments) == ALLOW;
                    let whatever = listed.get(&call).is_some_and(Vec::is_empty);
                    assert!(listed.contains_key(&call) || !allowed, "{call} is in no list");
                    assert!(allowed || !whatever, "{call} is listed");
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn nothing_else_is_possible_with_the_arguments_of_a_call() {
        let socket = |family: i32, kind: i32| [family as u64, kind as u64, 0, 0, 0, 0];
        let (unix, network) =
            (socket(libc::AF_UNIX, libc::SOCK_STREAM), PermittedActivities { network: true, ..ALL });
        let alone = PermittedActivities { network: true, ..PermittedActivities::default() };
        let listening = PermittedActivities { listens: true, ..PermittedActivities::default() };
        for (activities, call, arguments, wanted) in [
            (alone, libc::SYS_socket, unix, false),
            (PermittedActivities { unix: false, ..network }, libc::SYS_socket, unix, false),
            (ALL, libc::SYS_socket, unix, true),
            (listening, libc::SYS_socket, socket(libc::AF_INET6, libc::SOCK_STREAM), true),
            (listening, libc::SYS_socket, socket(libc::AF_INET, libc::SOCK_DGRAM), false),
            (alone, libc::SYS_socket, socket(libc::AF_NETLINK, libc::SOCK_RAW), false),
            (alone, libc::SYS_socket, socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC), true),
            (ALL, libc::SYS_socket, socket(libc::AF_INET6, libc::SOCK_RAW), false),
            (ALL, libc::SYS_socket, socket(libc::AF_VSOCK, libc::SOCK_STREAM), false),
            (
                PermittedActivities { forks: false, ..ALL },
                libc::SYS_clone,
                [libc::SIGCHLD as u64, 0, 0, 0, 0, 0],
                false,
            ),
            (ALL, libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0], true),
            (ALL, libc::SYS_clone, [(libc::SIGCHLD | libc::CLONE_NEWUSER) as u64, 0, 0, 0, 0, 0], false),
            (ALL, libc::SYS_clone, [(libc::SIGCHLD | libc::CLONE_VM) as u64, 0, 0, 0, 0, 0], false),
            (ALL, libc::SYS_clone, [THREAD | libc::CLONE_FILES as u64, 0, 0, 0, 0, 0], true),
            (ALL, libc::SYS_fchmod, [3, 0o4755, 0, 0, 0, 0], false),
            (ALL, libc::SYS_fchmod, [3, 0o644, 0, 0, 0, 0], true),
            (ALL, libc::SYS_kill, [1, 0, 0, 0, 0, 0], true),
            (ALL, libc::SYS_kill, [1, 9, 0, 0, 0, 0], false),
            // BPF_MAP_CREATE and BPF_PROG_LOAD beside BPF_MAP_LOOKUP_ELEM.
            (ALL, libc::SYS_bpf, [0; 6], false),
            (ALL, libc::SYS_bpf, [5, 0, 0, 0, 0, 0], false),
            (ALL, libc::SYS_bpf, [1, 0, 0, 0, 0, 0], true),
            // TIOCSTI, which types into the terminal.
            (ALL, libc::SYS_ioctl, [0, 0x5412, 0, 0, 0, 0], false),
        ] {
            assert_eq!(is_allowed(activities, call, arguments), wanted, "{call} {arguments:x?}");
        }
        let programs = PermittedActivities { programs: true, ..PermittedActivities::default() };
        for (call, arguments, wanted) in [
            (libc::SYS_execve, [0; 6], true),
            (libc::SYS_socket, socket(libc::AF_INET, libc::SOCK_RAW), true),
            (libc::SYS_socket, socket(libc::AF_PACKET, libc::SOCK_RAW), false),
            (libc::SYS_clone, [(libc::CLONE_VM | libc::CLONE_VFORK) as u64, 0, 0, 0, 0, 0], true),
            (libc::SYS_clone, [libc::CLONE_NEWNET as u64, 0, 0, 0, 0, 0], false),
            (libc::SYS_ioctl, [0, TIOCSTI, 0, 0, 0, 0], false),
            (libc::SYS_ioctl, [0, SIOCGIFINDEX, 0, 0, 0, 0], true),
        ] {
            assert_eq!(is_allowed(programs, call, arguments), wanted, "{call} {arguments:x?}");
        }
        for call in [libc::SYS_ptrace, libc::SYS_setns, libc::SYS_mount, libc::SYS_bpf, libc::SYS_setuid] {
            assert!(!is_allowed(programs, call, [0; 6]), "{call}");
        }
        for call in [libc::SYS_execve, libc::SYS_chmod, libc::SYS_fchown, libc::SYS_ptrace, libc::SYS_setns] {
            assert!(!is_allowed(ALL, call, [0; 6]), "{call}");
        }
    }
}
