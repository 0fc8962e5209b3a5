//! Error of the confinement.

use landlock::RulesetError;

/// Error of the confinement.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfinementError {
    /// Landlock refused.
    #[error("files: {0}")]
    Landlock(#[from] RulesetError),
    /// Seccomp refused, or does not support this machine.
    #[error("system calls: {0}")]
    Seccomp(#[from] seccompiler::Error),
    /// The filter is invalid.
    #[error("system calls: {0}")]
    Filter(#[from] seccompiler::BackendError),
}
