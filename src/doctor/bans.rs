//! Check for bans: `nft` exists, and the kernel accepts the table. A failure is not a fault: rules with
//! `action = "ban"` still block.

use super::Report;
use crate::hook::Programs;
use crate::hook::bans::{self, BanCall, BanError};

pub(super) fn check() -> Report {
    match bans::change(&Programs::Here, &BanCall::Try) {
        Ok(()) => Report::fine("clients can be banned: nftables accepts sets whose elements time out"),
        Err(BanError::Refused(why)) if why.contains("not permitted") || why.contains("must be root") => {
            Report::blind(format!("bans: {why}"))
        }
        Err(why) => Report::fine(format!("clients cannot be banned here, only blocked: {why}")),
    }
}
