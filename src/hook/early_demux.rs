//! The kernel's early lookup of TCP sockets ("early demux"), which loses packets that wait in INPUT.
//!
//! Before INPUT the kernel looks up the socket of a TCP packet and keeps it with the packet. If that socket
//! enters TIME-WAIT or FIN-WAIT-2 while the packet waits in the queue, another object takes its place. The
//! kernel then delivers the packet to the closed socket, and drops it without a trace. So a client's FIN is
//! lost if it waits together with its acknowledgement of the server's FIN, and the client's port stays in use
//! until the FIN is sent again. Without the early lookup, the kernel looks up the socket on delivery.

use std::io;

use super::{BaseChain, HookConfig};

/// The setting of a network namespace, for IPv4 and IPv6.
const SETTING: &str = "/proc/sys/net/ipv4/tcp_early_demux";

/// The command that turns the early lookup off.
pub(crate) const TURN_OFF: &str = "sysctl -w net.ipv4.tcp_early_demux=0";

/// Error of turning off the early lookup.
#[derive(Debug, thiserror::Error)]
#[error(
    "connections to this machine may close late: a client's FIN can get lost while it waits in the queue; \
     cannot write {SETTING}: {0} (run as root: `{TURN_OFF}`)"
)]
pub struct EarlyDemuxError(io::Error);

/// Turns off the kernel's early lookup of TCP sockets, if the hook queues packets to this machine. It stays
/// off after the hook: nothing shows whether this machine's administrator wants it off, too.
///
/// # Errors
///
/// The setting cannot be written.
pub fn turn_off_early_demux(config: &HookConfig) -> Result<(), EarlyDemuxError> {
    if config.loses_to_early_demux() { std::fs::write(SETTING, "0").map_err(EarlyDemuxError) } else { Ok(()) }
}

impl HookConfig {
    /// True if the kernel looks up the sockets of packets early that the hook queues.
    pub(crate) fn loses_to_early_demux(&self) -> bool {
        self.chains.contains(&BaseChain::Input)
            && std::fs::read_to_string(SETTING).is_ok_and(|value| value.trim() != "0")
    }
}
