//! The end of a capture.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;

use crate::{Namespace, Running, Signal, eventually};

/// What stands behind everything in a capture.
const MARKER: &[u8] = b"the end of the capture";

/// Ends a capture once its file holds all that came before, and gives what tcpdump says of it: a signal alone
/// loses what tcpdump has not read yet.
///
/// A datagram goes from `from` to port 9 of `to`, where nobody listens, and has to pass tcpdump, which
/// writes every packet at once (`-U`) and lets `udp port 9` through.
///
/// # Panics
/// When the datagram does not come to the file, or tcpdump ends badly.
pub fn end_capture(mut tcpdump: Running, capture: &Path, from: &Namespace, to: Ipv4Addr) -> String {
    let sent = from.inside(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?.send_to(MARKER, (to, 9)));
    sent.expect("the way is there");
    eventually("all of the capture", || {
        let octets = std::fs::read(capture).unwrap_or_default();
        octets.windows(MARKER.len()).rev().any(|window| window == MARKER).then_some(())
    });
    tcpdump.signal(Signal::INT);
    assert!(tcpdump.wait_exit().success(), "{}", tcpdump.stderr());
    tcpdump.stderr()
}
