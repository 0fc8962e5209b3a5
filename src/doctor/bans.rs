//! Whether the guard can ban clients: `nft` is there, and the kernel accepts its table. That it cannot is no
//! fault: rules with `action = "ban"` block all the same.

use super::Report;
use crate::hook::Programs;
use crate::hook::bans::{self, BanCall, BanError};

pub(super) fn check() -> Report {
    match bans::change(&Programs::Here, &BanCall::Try) {
        Ok(()) => Report::fine("clients can be banned: nftables accepts sets whose elements time out"),
        Err(BanError::Refused(why)) if why.contains("not permitted") || why.contains("must be root") => {
            Report::blind(format!("whether clients can be banned: {why}"))
        }
        Err(why) => Report::fine(format!("clients cannot be banned here, only blocked: {why}")),
    }
}
