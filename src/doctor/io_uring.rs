//! Check for `io_uring`: creates a small ring as a scan would, which tests the sysctl, the permission and
//! every operation.

use bannerwall_ring::{Ring, RingOptions};

use super::CheckReport;

pub(super) fn check() -> CheckReport {
    let smallest = RingOptions {
        // The sizes do not matter: the kernel tests the permission and the operations with any.
        submissions: 8,
        operations: 8,
        sockets: 1,
        buffers: 1,
        buffer_size: 64,
        no_delay: true,
    };
    match Ring::<()>::new(&smallest) {
        Ok(ring) if ring.has_no_delay() => {
            CheckReport::fine("the kernel supports every operation of the scan")
        }
        Ok(_) => CheckReport::fine("the kernel supports scans; HTTP pipelines are faster from Linux 6.7 on"),
        Err(error) => CheckReport::fault(format!("{error}: scans do not work")),
    }
}
