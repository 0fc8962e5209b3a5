//! Advisories: a distribution's data about one weakness in one package, and the verdict about a
//! banner: affected, fixed or unknown.
//!
//! An advisory holds a [`ReleaseAdvisory`] for each release, and one for the development line (`sid`). Only a
//! package's own line judges it: a fix in another release, with a greater or a smaller version,
//! proves nothing.
//!
//! - `2+deb12u2`, judged by Debian 12's: affected below the fix, or no fix and not newer than the data; fixed
//!   from the fix on, or not affected
//! - `2`, with which Debian 12 began, judged by Debian 12's: affected the same; fixed the same
//! - `5`, between two releases, judged by `sid`: affected below `sid`'s fix, where the release before was
//!   affected, too; fixed from `sid`'s fix on
//! - `5+deb10u4`, of a release that is not in the data, judged by `sid`: affected never; fixed if the release
//!   began with `sid`'s fix
//! - an upstream version only, judged by all: affected never; fixed if `sid` fixed an older upstream version
//!
//! Ubuntu's data list every affected version, and the list decides ([`ubuntu`]). Versions outside
//! of upstream's affected ranges are fixed. Versions inside may have been patched by their builder,
//! so their verdict is unknown.
//!
//! If the identification leaves the verdict unknown, the key exchange may settle it
//! ([`marker`](super::kex_marker)): the advisory names markers that prove the fix or the weakness. A
//! marker never overrules the identification. If they contradict each other, the verdict is
//! unknown.
//!
//! In all other cases the verdict is unknown, with a reason. It is also unknown for a third-party
//! build (`2+deb12u2.example1`) whose number would be vulnerable.

mod bounds;
mod evaluate_advisory;
pub(super) mod package;
mod package_advisory;
pub(super) mod release_advisory;
mod ubuntu;

pub(super) use evaluate_advisory::{AdvisoryFinding, ShownPackage};
pub use package::PackageVersion;
pub(super) use package_advisory::Advisory;
pub use release_advisory::{PackageStatus, ReleaseAdvisory, ReleaseFixState};
