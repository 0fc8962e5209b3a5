//! Messages to the thread that keeps the hook.

use crossbeam_channel::Sender;

use crate::guard::GuardError;
use crate::guard::account_file::RunEnd;
use crate::guard::uninspected::AccountState;
use crate::hook::HookError;

/// Orders of the main thread, and notifications of the kernel.
pub(super) enum HookKeeperMessage {
    /// Set the hook up, and check it from then on.
    ///
    /// If the flag is set, a failure to set it up is retried.
    Raise(Sender<Result<(), GuardError>>, bool),
    /// Rules have changed.
    Changed,
    /// Take the hook down.
    TakeDown(Sender<Result<(), HookError>>),
    /// Close the accounts of a run that ended this way, and end.
    Close(RunEnd),
    /// Leave the hook and the accounts to the successor.
    HandOver(Sender<AccountState>),
    /// Leave them to a process that may never start: no process reads packets any more.
    Leave(Sender<AccountState>),
}

/// A queue of this guard, and the netlink address of the socket that has bound it, if known.
pub(in crate::guard) type OwnQueue = (u16, Option<u32>);
