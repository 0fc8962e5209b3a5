//! Check for the buffer of packets between the kernel and the guard.

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, SocketType, socket};

use super::{CheckReport, capabilities};
use crate::guard::source::SourceConfig;

/// Tries the guard's call: `SO_RCVBUFFORCE` needs `CAP_NET_ADMIN` in the first user namespace, which root of
/// another one lacks.
pub(super) fn check() -> CheckReport {
    let wanted = SourceConfig::new(0).receive_buffer;
    // The kernel treats this option alike for all families, and a Unix socket needs no privilege.
    let forced = socket(AddressFamily::UNIX, SocketType::DGRAM, None)
        .and_then(|socket| set_socket_recv_buffer_size_force(socket, wanted));
    let Err(error) = forced else {
        return CheckReport::fine(format!("{wanted} bytes are available for any net.core.rmem_max"));
    };
    let text = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap_or_default();
    match text.trim().parse::<usize>() {
        // Without the capability, the failure says nothing about a guard, which has it.
        _ if !capabilities::may_administer() => CheckReport::blind(format!("SO_RCVBUFFORCE: {error}")),
        Ok(most) if most >= wanted => {
            CheckReport::fine(format!("net.core.rmem_max is {most}, and the guard needs {wanted} bytes"))
        }
        Ok(most) => CheckReport::fault(format!(
            "the guard needs {wanted} bytes and gets {most}: SO_RCVBUFFORCE: {error} (it needs \
             CAP_NET_ADMIN in the first user namespace); raise sysctl net.core.rmem_max"
        )),
        Err(_) => CheckReport::blind(format!(
            "the guard needs {wanted} bytes, SO_RCVBUFFORCE: {error} (it needs CAP_NET_ADMIN in the first user \
             namespace), and net.core.rmem_max, which then applies, is hidden in this network namespace"
        )),
    }
}
