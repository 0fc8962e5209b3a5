//! Check for NFQUEUE: binds a queue and releases it, which tests the kernel option, the library and the
//! permission.

use super::{CheckReport, capabilities};
use crate::guard::source::{PacketSource, SourceConfig};

pub(super) fn check(number: u16) -> CheckReport {
    let closed = SourceConfig::new(number).open().and_then(PacketSource::close);
    match closed {
        Ok(()) => CheckReport::fine(format!("queue {number} can be bound (CONFIG_NETFILTER_NETLINK_QUEUE)")),
        Err(error) if !capabilities::may_administer() => CheckReport::blind(error.to_string()),
        Err(error) => CheckReport::fault(error.to_string()),
    }
}
