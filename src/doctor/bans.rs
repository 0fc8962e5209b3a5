//! Check for bans: `nft` exists, and the kernel accepts the table. A failure is not a fault: rules with
//! `action = "ban"` still block.

use super::CheckReport;
use crate::hook::ProgramRunner;
use crate::hook::ban_call::BanCall;
use crate::hook::bans::{self, BanError};

pub(super) fn check() -> CheckReport {
    match bans::change(&ProgramRunner::Here, &BanCall::Try) {
        Ok(()) => CheckReport::fine("clients can be banned: nftables accepts sets whose elements time out"),
        Err(BanError::Refused(why)) if why.contains("not permitted") || why.contains("must be root") => {
            CheckReport::blind(format!("bans: {why}"))
        }
        Err(why) => CheckReport::nothing(format!("clients cannot be banned here, only blocked: {why}")),
    }
}
