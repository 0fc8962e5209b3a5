//! Check for NFQUEUE: binds a queue and releases it, which tests the kernel option, the library and the
//! permission.

use super::{Report, capabilities};
use crate::guard::source::{Source, SourceConfig};

pub(super) fn check(number: u16) -> Report {
    let closed = SourceConfig::new(number).open().and_then(Source::close);
    match closed {
        Ok(()) => Report::fine(format!("queue {number} can be bound (CONFIG_NETFILTER_NETLINK_QUEUE)")),
        Err(error) if !capabilities::may_administer() => Report::blind(error.to_string()),
        Err(error) => Report::fault(error.to_string()),
    }
}
