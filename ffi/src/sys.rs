//! `libnetfilter_queue` as its header declares it, and the kernel's constants for it.
//!
//! Copied by hand from `/usr/include/libnetfilter_queue/libnetfilter_queue.h` (1.0.5) and
//! `linux/netfilter/nfnetlink_queue.h`: C names, C types, true return types. Only the functions in use
//! are declared. The library's older half (`nfq_open`, `nfq_handle_packet`, …) reads one packet and sends
//! one verdict with each call. So this module binds the newer half, which fills message buffers that the
//! caller sends.

use libc::nlmsghdr;
#[cfg(feature = "libnetfilter_queue")]
use libc::{c_char, c_int, c_void};

/// Packet from the kernel.
pub(crate) const NFQNL_MSG_PACKET: u16 = 0;
/// Verdict to the kernel.
pub(crate) const NFQNL_MSG_VERDICT: u16 = 1;
/// A verdict to the kernel about all packets up to one.
pub(crate) const NFQNL_MSG_VERDICT_BATCH: u16 = 3;
/// Configuration to the kernel.
pub(crate) const NFQNL_MSG_CONFIG: u16 = 2;

/// Binds a queue to the sending socket.
pub(crate) const NFQNL_CFG_CMD_BIND: u8 = 1;
/// Unbinds a queue; packets that still wait in it are dropped.
pub(crate) const NFQNL_CFG_CMD_UNBIND: u8 = 2;

/// Copies packets, up to the copy range.
pub(crate) const NFQNL_COPY_PACKET: u8 = 2;

/// Identification and verdict: `struct nfqnl_msg_verdict_hdr`.
#[cfg(any(test, not(feature = "libnetfilter_queue")))]
pub(crate) const NFQA_VERDICT_HDR: u16 = 2;
/// A command: `struct nfqnl_msg_config_cmd`.
#[cfg(any(test, not(feature = "libnetfilter_queue")))]
pub(crate) const NFQA_CFG_CMD: u16 = 1;
/// Copy mode and range: `struct nfqnl_msg_config_params`.
#[cfg(any(test, not(feature = "libnetfilter_queue")))]
pub(crate) const NFQA_CFG_PARAMS: u16 = 2;
/// Largest number of waiting packets.
#[cfg(any(test, not(feature = "libnetfilter_queue")))]
pub(crate) const NFQA_CFG_QUEUE_MAXLEN: u16 = 3;

/// Identification, link protocol and hook: `struct nfqnl_msg_packet_hdr`.
pub(crate) const NFQA_PACKET_HDR: u16 = 1;
/// The packet's mark, absent when 0.
pub(crate) const NFQA_MARK: u16 = 3;
/// Time of arrival: two big-endian 64-bit numbers, seconds and microseconds.
pub(crate) const NFQA_TIMESTAMP: u16 = 4;
/// The incoming interface.
pub(crate) const NFQA_IFINDEX_INDEV: u16 = 5;
/// The outgoing interface.
pub(crate) const NFQA_IFINDEX_OUTDEV: u16 = 6;
/// The incoming bridge port.
pub(crate) const NFQA_IFINDEX_PHYSINDEV: u16 = 7;
/// The outgoing bridge port.
pub(crate) const NFQA_IFINDEX_PHYSOUTDEV: u16 = 8;
/// The source address of the frame: `struct nfqnl_msg_packet_hw`.
pub(crate) const NFQA_HWADDR: u16 = 9;
/// The packet from its IP header on, cut at the copy range.
pub(crate) const NFQA_PAYLOAD: u16 = 10;
/// Data about the packet's connection: nested `CTA_*`.
pub(crate) const NFQA_CT: u16 = 11;
/// True length of a packet that the copy range cut.
pub(crate) const NFQA_CAP_LEN: u16 = 13;
/// `NFQA_SKB_*` flags.
pub(crate) const NFQA_SKB_INFO: u16 = 14;

/// User of the packet's socket.
pub(crate) const NFQA_UID: u16 = 16;
/// Group of the packet's socket.
pub(crate) const NFQA_GID: u16 = 17;
/// Security context of the packet's socket, without a terminating zero.
pub(crate) const NFQA_SECCTX: u16 = 18;

/// Mask of the `NFQA_CFG_FLAGS` to change.
pub(crate) const NFQA_CFG_MASK: u16 = 4;
/// `NFQA_CFG_F_*` values.
pub(crate) const NFQA_CFG_FLAGS: u16 = 5;

/// Accept packets instead of dropping them if the queue or the socket is full.
pub(crate) const NFQA_CFG_F_FAIL_OPEN: u32 = 1 << 0;
/// Show each packet's connection; refused by kernels without `NETFILTER_NETLINK_GLUE_CT`.
pub(crate) const NFQA_CFG_F_CONNTRACK: u32 = 1 << 1;
/// Queue large packets whole instead of segmenting them in software.
pub(crate) const NFQA_CFG_F_GSO: u32 = 1 << 2;
/// Report users and groups of packets that leave this machine.
pub(crate) const NFQA_CFG_F_UID_GID: u32 = 1 << 3;
/// Report security contexts; refused by kernels without `NETWORK_SECMARK`.
pub(crate) const NFQA_CFG_F_SECCTX: u32 = 1 << 4;

/// The connection's mark (`linux/netfilter/nfnetlink_conntrack.h`).
pub(crate) const CTA_MARK: u16 = 8;
/// Mask of the mark's bits to change.
pub(crate) const CTA_MARK_MASK: u16 = 21;
/// The attribute contains attributes (`linux/netlink.h`).
pub(crate) const NLA_F_NESTED: u16 = 1 << 15;

/// Checksums are not complete yet: do not verify them.
pub(crate) const NFQA_SKB_CSUMNOTREADY: u32 = 1 << 0;
/// Larger than the device's MTU, to be segmented later.
pub(crate) const NFQA_SKB_GSO: u32 = 1 << 1;

/// `struct nfqnl_msg_packet_hdr`: packed, big-endian.
#[repr(C, packed)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct nfqnl_msg_packet_hdr {
    pub(crate) packet_id: u32,
    pub(crate) hw_protocol: u16,
    pub(crate) hook: u8,
}

/// `struct nfqnl_msg_packet_timestamp`: big-endian, aligned to 8.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub(crate) struct nfqnl_msg_packet_timestamp {
    pub(crate) sec: u64,
    pub(crate) usec: u64,
}

/// `struct nfqnl_msg_verdict_hdr`: big-endian.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct nfqnl_msg_verdict_hdr {
    pub(crate) verdict: u32,
    pub(crate) id: u32,
}

/// `struct nfqnl_msg_config_params`: packed, big-endian range.
#[repr(C, packed)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct nfqnl_msg_config_params {
    pub(crate) copy_range: u32,
    pub(crate) copy_mode: u8,
}

/// `struct nfqnl_msg_config_cmd`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct nfqnl_msg_config_cmd {
    pub(crate) command: u8,
    pub(crate) _pad: u8,
    pub(crate) pf: u16,
}

const _: () = assert!(size_of::<nfqnl_msg_packet_hdr>() == 7);
const _: () = assert!(size_of::<nfqnl_msg_packet_timestamp>() == 16);
const _: () = assert!(size_of::<nfqnl_msg_verdict_hdr>() == 8);
const _: () = assert!(size_of::<nfqnl_msg_config_params>() == 5);
const _: () = assert!(size_of::<nfqnl_msg_config_cmd>() == 4);
const _: () = assert!(size_of::<nlmsghdr>() == 16);

#[cfg(feature = "libnetfilter_queue")]
unsafe extern "C" {
    /// Writes `struct nlmsghdr` and `struct nfgenmsg` (20 bytes) at `buf` and returns the former.
    pub(crate) fn nfq_nlmsg_put(buf: *mut c_char, type_: c_int, queue_num: u32) -> *mut nlmsghdr;
    /// Appends `NFQA_CFG_CMD` (8 bytes).
    pub(crate) fn nfq_nlmsg_cfg_put_cmd(nlh: *mut nlmsghdr, pf: u16, cmd: u8);
    /// Appends `NFQA_CFG_PARAMS` (12 bytes).
    pub(crate) fn nfq_nlmsg_cfg_put_params(nlh: *mut nlmsghdr, mode: u8, range: c_int);
    /// Appends `NFQA_CFG_QUEUE_MAXLEN` (8 bytes).
    pub(crate) fn nfq_nlmsg_cfg_put_qmaxlen(nlh: *mut nlmsghdr, qmaxlen: u32);
    /// Appends `NFQA_VERDICT_HDR` (12 bytes).
    pub(crate) fn nfq_nlmsg_verdict_put(nlh: *mut nlmsghdr, id: c_int, verdict: c_int);
    /// Appends `NFQA_MARK` (8 bytes).
    pub(crate) fn nfq_nlmsg_verdict_put_mark(nlh: *mut nlmsghdr, mark: u32);
    /// Appends `NFQA_PAYLOAD`: four bytes, `plen`, and padding to four.
    pub(crate) fn nfq_nlmsg_verdict_put_pkt(nlh: *mut nlmsghdr, pkt: *const c_void, plen: u32);
}
