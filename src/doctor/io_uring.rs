//! Check for `io_uring`: creates a small ring as a scan would, which tests the sysctl, the permission and every
//! operation.

use bannerwall_ring::{Options, Ring};

use super::Report;

pub(super) fn check() -> Report {
    let smallest =
        Options { submissions: 8, operations: 8, sockets: 1, buffers: 1, buffer_size: 64, no_delay: true };
    match Ring::<()>::new(&smallest) {
        Ok(ring) if ring.has_no_delay() => Report::fine("the kernel supports every operation of the scan"),
        Ok(_) => Report::fine("the kernel supports scans; HTTP pipelines are faster from Linux 6.7 on"),
        Err(error) => Report::fault(format!("{error}: scans do not work")),
    }
}
