//! Netlink messages of a queue, read in place and checked at every step.
//!
//! This is a parser in safe Rust instead of `libnetfilter_queue`'s `nfq_nlmsg_parse`, for two reasons.
//! That function writes `attr[type]` for every type that *its* `NFQA_MAX` allows; so a library newer than
//! the header of this crate writes beyond an array of the header's size. And it trusts `nlmsg_len`
//! against the number of received bytes, which the caller has to check before. Here neither is possible.
//! A message is read in one pass without a table, and nothing needs `unsafe`.
//!
//! The functions are public for property tests and fuzzers.

use crate::sys;

/// `struct nlmsghdr`.
const NETLINK_HEADER: usize = 16;
/// `struct nfgenmsg`.
const NETFILTER_HEADER: usize = 4;
/// `struct nlattr`.
const ATTRIBUTE_HEADER: usize = 4;
/// `NFNL_SUBSYS_QUEUE`, the upper byte of a message's type.
const QUEUE_SUBSYSTEM: u16 = 3;
/// `NLMSG_ERROR`.
const ERROR_TYPE: u16 = 2;
/// Upper two bits of an attribute's type: nested, and network byte order.
const ATTRIBUTE_TYPE_MASK: u16 = 0x3fff;

/// One netlink message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueMessage<'a> {
    /// A packet that waits for its verdict.
    Packet(PacketMessage<'a>),
    /// An acknowledgement (errno 0) of one of our messages, or an error.
    Answer(AnswerMessage),
    /// Any other message, with its type.
    Other(u16),
}

/// A queued packet, as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PacketMessage<'a> {
    /// Number of the queue.
    pub queue: u16,
    /// Identification for the verdict; increases by one with each packet.
    pub id: u32,
    /// `EtherType`, host byte order: 0x0800 IPv4, 0x86dd IPv6.
    pub hardware_protocol: u16,
    /// `NF_INET_*`: 0 prerouting, 1 input, 2 forward, 3 output, 4 postrouting.
    pub hook: u8,
    /// The packet's mark.
    pub mark: u32,
    /// Index of the incoming interface, 0 if there is none.
    pub input_interface: u32,
    /// Index of the outgoing interface, 0 if there is none.
    pub output_interface: u32,
    /// Index of the incoming bridge port, 0 if there is none.
    pub input_bridge_port: u32,
    /// Index of the outgoing bridge port, 0 if there is none.
    pub output_bridge_port: u32,
    /// The Ethernet source address, if the packet came in a frame.
    pub hardware_address: Option<[u8; 6]>,
    /// Time of arrival, in nanoseconds since the Unix epoch; on hooks up to forward only.
    pub timestamp: Option<u64>,
    /// `NFQA_SKB_*` flags.
    pub flags: u32,
    /// User whose socket sent it, for packets that leave this machine, if [`QueueConfig::owners`] is set.
    ///
    /// [`QueueConfig::owners`]: super::QueueConfig::owners
    pub user: Option<u32>,
    /// Group of that socket's user, like [`user`](Self::user).
    pub group: Option<u32>,
    /// Security context of the packet, if [`QueueConfig::security_contexts`] is set and a security module
    /// labels packets.
    ///
    /// [`QueueConfig::security_contexts`]: super::QueueConfig::security_contexts
    pub security_context: Option<&'a [u8]>,
    /// Length of the whole packet in bytes; greater than the payload's if the copy range cut it.
    pub wire_length: usize,
    /// The packet from its IP header on.
    pub payload: &'a [u8],
}

impl PacketMessage<'_> {
    /// True if the checksums are complete, so that they can be verified.
    pub fn checksums_ready(&self) -> bool {
        self.flags & sys::NFQA_SKB_CSUMNOTREADY == 0
    }

    /// True if it is longer than the device's MTU and will be segmented later.
    pub fn is_segmented_later(&self) -> bool {
        self.flags & sys::NFQA_SKB_GSO != 0
    }

    /// True if the payload is not the whole packet.
    pub fn is_truncated(&self) -> bool {
        self.wire_length > self.payload.len()
    }
}

/// The kernel's answer to one of our messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerMessage {
    /// Positive errno; 0 is an acknowledgement.
    pub errno: i32,
    /// The kind of message that it answers.
    pub about: AnswerSubject,
    /// Sequence number of that message.
    pub sequence: u32,
}

/// Kinds of our messages that the kernel answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerSubject {
    /// A verdict; errno `ENOENT` means that it came too late.
    Verdict,
    /// A verdict about all packets up to one; errno `ENOENT` means that none was waiting.
    BatchVerdict,
    /// A change of the queue's configuration.
    Configuration,
    /// A message that this crate never sent.
    Unknown,
}

/// A message that is inconsistent with itself or its datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedMessage {
    /// The packet that it is about, if that could be read: it still waits for a verdict.
    pub packet: Option<u32>,
}

/// Returns the messages of one datagram in order, up to the first malformed one.
pub fn messages(datagram: &[u8]) -> MessageIterator<'_> {
    MessageIterator { rest: datagram }
}

/// Iterator over the messages of a datagram.
#[derive(Debug, Clone, Default)]
pub struct MessageIterator<'a> {
    rest: &'a [u8],
}

impl MessageIterator<'_> {
    /// Number of bytes that were not read yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for MessageIterator<'a> {
    type Item = Result<QueueMessage<'a>, MalformedMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let datagram = std::mem::take(&mut self.rest);
        let Some(header) = NetlinkHeader::read(datagram) else {
            return Some(Err(MalformedMessage { packet: None }));
        };
        // A datagram that a short buffer cut still names its packet, which needs a verdict.
        let body = datagram.get(NETLINK_HEADER..header.length.min(datagram.len())).unwrap_or_default();
        // Messages begin at multiples of four bytes (NLMSG_ALIGN).
        self.rest = datagram.get(align(header.length)..).unwrap_or_default();
        Some(match header.kind {
            ERROR_TYPE => answer(body).ok_or(MalformedMessage { packet: None }).map(QueueMessage::Answer),
            kind if kind == (QUEUE_SUBSYSTEM << 8) | sys::NFQNL_MSG_PACKET => {
                packet(body).map(QueueMessage::Packet)
            }
            kind => Ok(QueueMessage::Other(kind)),
        })
    }
}

/// The useful part of `struct nlmsghdr`.
struct NetlinkHeader {
    length: usize,
    kind: u16,
}

impl NetlinkHeader {
    fn read(datagram: &[u8]) -> Option<Self> {
        let length = usize::try_from(native_u32(datagram, 0)?).ok()?;
        let kind = native_u16(datagram, 4)?;
        (length >= NETLINK_HEADER && datagram.len() >= NETLINK_HEADER).then_some(Self { length, kind })
    }
}

/// Reads `struct nlmsgerr`: the negated errno, then the header of the message that it answers.
fn answer(body: &[u8]) -> Option<AnswerMessage> {
    // The kernel sends the number negated (net/netlink/af_netlink.c:netlink_ack). Behind it is the header of
    // the message that it answers (`struct nlmsgerr`).
    let errno = i32::from_ne_bytes(array(body, 0)?).checked_neg()?;
    let kind = native_u16(body, 8)?;
    let sequence = native_u32(body, 12)?;
    let about = match (kind >> 8, kind & 0xff) {
        (QUEUE_SUBSYSTEM, sys::NFQNL_MSG_VERDICT) => AnswerSubject::Verdict,
        (QUEUE_SUBSYSTEM, sys::NFQNL_MSG_VERDICT_BATCH) => AnswerSubject::BatchVerdict,
        (QUEUE_SUBSYSTEM, sys::NFQNL_MSG_CONFIG) => AnswerSubject::Configuration,
        _ => AnswerSubject::Unknown,
    };
    Some(AnswerMessage { errno, about, sequence })
}

/// Reads `struct nfgenmsg` and the attributes of a packet.
fn packet(body: &[u8]) -> Result<PacketMessage<'_>, MalformedMessage> {
    // `struct nfgenmsg` has the queue's number in network byte order, unlike the netlink header before it.
    let Some(queue) = big_u16(body, 2) else {
        return Err(MalformedMessage { packet: None });
    };
    let mut packet = PacketMessage { queue, ..PacketMessage::default() };
    let mut id = None;
    let mut rest = body.get(NETFILTER_HEADER..).unwrap_or_default();
    while !rest.is_empty() {
        let (attribute, behind) = NetlinkAttribute::split(rest).ok_or(MalformedMessage { packet: id })?;
        rest = behind;
        let NetlinkAttribute { kind, length, value } = attribute;
        if kind == sys::NFQA_PAYLOAD {
            // The last attribute is useful even if a short buffer cut it.
            packet.payload = value;
            packet.wire_length = packet.wire_length.max(length);
        } else if value.len() != length || describe(kind, value, &mut packet, &mut id).is_none() {
            return Err(MalformedMessage { packet: id });
        }
    }
    packet.id = id.ok_or(MalformedMessage { packet: None })?;
    Ok(packet)
}

/// Reads one attribute of a packet; `None` if it is too short.
fn describe<'a>(
    kind: u16,
    value: &'a [u8],
    packet: &mut PacketMessage<'a>,
    id: &mut Option<u32>,
) -> Option<()> {
    let number = big_u32(value, 0);
    match kind {
        sys::NFQA_PACKET_HDR => *id = Some(packet_header(value, packet)?),
        sys::NFQA_MARK => packet.mark = number?,
        sys::NFQA_TIMESTAMP => packet.timestamp = Some(timestamp(value)?),
        sys::NFQA_IFINDEX_INDEV => packet.input_interface = number?,
        sys::NFQA_IFINDEX_OUTDEV => packet.output_interface = number?,
        sys::NFQA_IFINDEX_PHYSINDEV => packet.input_bridge_port = number?,
        sys::NFQA_IFINDEX_PHYSOUTDEV => packet.output_bridge_port = number?,
        sys::NFQA_HWADDR => packet.hardware_address = hardware_address(value),
        // Only a packet that was cut has this attribute.
        sys::NFQA_CAP_LEN => packet.wire_length = packet.wire_length.max(number? as usize),
        sys::NFQA_SKB_INFO => packet.flags = number?,
        sys::NFQA_UID => packet.user = Some(number?),
        sys::NFQA_GID => packet.group = Some(number?),
        sys::NFQA_SECCTX => packet.security_context = Some(value),
        // A newer kernel may send attributes that did not exist yet.
        _ => {}
    }
    Some(())
}

/// Reads `struct nfqnl_msg_packet_hdr`; returns the identification.
fn packet_header(value: &[u8], packet: &mut PacketMessage<'_>) -> Option<u32> {
    let id = big_u32(value, 0)?;
    packet.hardware_protocol = big_u16(value, 4)?;
    packet.hook = *value.get(6)?;
    Some(id)
}

/// Reads `struct nfqnl_msg_packet_hw`; links other than Ethernet have addresses of other lengths.
fn hardware_address(value: &[u8]) -> Option<[u8; 6]> {
    // Other links than Ethernet have addresses of other lengths.
    (big_u16(value, 0)? == 6).then(|| array(value, 4)).flatten()
}

/// Reads `struct nfqnl_msg_packet_timestamp` as nanoseconds.
fn timestamp(value: &[u8]) -> Option<u64> {
    let seconds = u64::from_be_bytes(array(value, 0)?);
    let micros = u64::from_be_bytes(array(value, 8)?);
    Some(seconds.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1_000)))
}

/// One `struct nlattr` with its value, which is shorter than `length` if the datagram ended.
struct NetlinkAttribute<'a> {
    kind: u16,
    length: usize,
    value: &'a [u8],
}

impl<'a> NetlinkAttribute<'a> {
    fn split(rest: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let ([low, high, kind_low, kind_high], behind) = rest.split_first_chunk()?;
        let total = usize::from(u16::from_ne_bytes([*low, *high]));
        // The two upper bits are flags (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
        let kind = u16::from_ne_bytes([*kind_low, *kind_high]) & ATTRIBUTE_TYPE_MASK;
        let length = total.checked_sub(ATTRIBUTE_HEADER)?;
        let value = behind.get(..length).unwrap_or(behind);
        Some((Self { kind, length, value }, behind.get(align(length)..).unwrap_or_default()))
    }
}

/// Rounds up to four bytes, as Netlink pads everything.
const fn align(length: usize) -> usize {
    length.saturating_add(3) & !3
}

fn array<const N: usize>(octets: &[u8], at: usize) -> Option<[u8; N]> {
    octets.get(at..)?.first_chunk().copied()
}

fn native_u16(octets: &[u8], at: usize) -> Option<u16> {
    array(octets, at).map(u16::from_ne_bytes)
}

fn native_u32(octets: &[u8], at: usize) -> Option<u32> {
    array(octets, at).map(u32::from_ne_bytes)
}

fn big_u16(octets: &[u8], at: usize) -> Option<u16> {
    array(octets, at).map(u16::from_be_bytes)
}

fn big_u32(octets: &[u8], at: usize) -> Option<u32> {
    array(octets, at).map(u32::from_be_bytes)
}
