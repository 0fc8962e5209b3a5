//! Messages between two guards, each with at most one descriptor.
//!
//! A message is its length in bytes (32 bits, little-endian), followed by JSON. Neither guard trusts the
//! other one further than its user: the length of a message and the time for it are bounded.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use super::takeover_settings::TakeoverSettings;

/// Maximum length of a message, in bytes. A refusal is the longest.
const WORD: usize = 16 << 10;

/// A message between two guards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "lowercase")]
pub(super) enum TakeoverMessage {
    /// The new guard asks to take over.
    Ask(TakeoverSettings),
    /// The old guard refuses.
    Refused { why: String },
    /// A socket, with its descriptor.
    Socket { name: String, marks_connections: bool },
    /// The last socket was sent. The old guard keeps running until the next message.
    Offered,
    /// The new guard is ready.
    Go,
    /// The state of a worker or of the rest of the run, with its descriptor.
    State { name: String },
    /// The old guard has sent all states.
    Done,
    /// A message of a later version.
    #[serde(other)]
    Unknown,
}

/// Sends a message with an optional descriptor.
///
/// # Errors
///
/// The peer has disconnected, or is too slow.
pub(super) fn send(
    mut stream: &UnixStream,
    word: &TakeoverMessage,
    with: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let json = serde_json::to_vec(word)?;
    let length = u32::try_from(json.len()).map_err(io::Error::other)?;
    let octets = [&length.to_le_bytes(), &*json].concat();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = with.map(|descriptor| [descriptor]);
    if let Some(descriptors) = &descriptors {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    // The descriptor travels with the first byte of the message (unix(7)); the rest may follow in further
    // calls.
    let sent = sendmsg(stream.as_fd(), &[IoSlice::new(&octets)], &mut control, SendFlags::NOSIGNAL)?;
    stream.write_all(octets.get(sent..).unwrap_or_default())
}

/// Receives a message and its descriptor.
///
/// # Errors
///
/// The peer has disconnected, is too slow, or sent an invalid message.
pub(super) fn receive(mut stream: &UnixStream) -> io::Result<(TakeoverMessage, Option<OwnedFd>)> {
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // Only the length is read with the descriptor. A longer read could reach into the next message and take
    // its descriptor, too.
    let mut parts = [IoSliceMut::new(&mut length)];
    let received = recvmsg(stream.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            descriptor = descriptors.next();
        }
    }
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    stream.read_exact(length.get_mut(received.bytes..).unwrap_or_default())?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    // Before the allocation, which the peer must not size.
    if length > WORD {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
    }
    let mut json = vec![0; length];
    stream.read_exact(&mut json)?;
    // Invalid JSON is another error than the end of the stream.
    let word =
        serde_json::from_slice(&json).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
    Ok((word, descriptor))
}

/// Sets the time limit for each message of the peer.
///
/// # Errors
///
/// The kernel refuses.
pub(super) fn wait_up_to(stream: &UnixStream, time: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(time))?;
    stream.set_write_timeout(Some(time))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn words_come_as_they_were_said_and_bring_their_descriptor() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let socket = TakeoverMessage::Socket { name: "queue-7".into(), marks_connections: true };
        send(&one, &socket, Some(writer.as_fd())).unwrap();
        send(&one, &TakeoverMessage::Go, None).unwrap();
        drop(writer);
        let (word, descriptor) = receive(&other).unwrap();
        assert_eq!(word, socket);
        File::from(descriptor.unwrap()).write_all(b"it is open").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "it is open");
        assert_eq!(receive(&other).unwrap().0, TakeoverMessage::Go);
        drop(one);
        assert_eq!(receive(&other).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_word_of_a_later_version_is_no_nonsense() {
        let (mut one, other) = UnixStream::pair().unwrap();
        let json = br#"{"word":"weather","is":"fine"}"#;
        one.write_all(&[&u32::try_from(json.len()).unwrap().to_le_bytes(), &json[..]].concat()).unwrap();
        assert_eq!(receive(&other).unwrap().0, TakeoverMessage::Unknown);
        one.write_all(b"\x01\0\0\0{").unwrap();
        assert_eq!(receive(&other).unwrap_err().kind(), io::ErrorKind::InvalidData, "it has not gone");
    }

    #[test]
    fn nonsense_is_an_error_and_nobody_waits_for_ever() {
        for nonsense in [&b"\xff\xff\xff\xff"[..], b"\x02\0\0\0{}", b"\x09\0\0\0", b"\x01"] {
            let (mut one, other) = UnixStream::pair().unwrap();
            wait_up_to(&other, Duration::from_millis(50)).unwrap();
            one.write_all(nonsense).unwrap();
            assert!(receive(&other).is_err(), "{nonsense:?}");
        }
    }
}
