//! Serialized state of a guard: a magic number with the format's version, records, and an end record.
//!
//! A record is its kind (8 bits), its length (32 bits) and its body. Numbers are little-endian. Unknown kinds
//! are skipped, so that a later version may add some. The reader trusts nothing: a state that is truncated,
//! too large or contradictory is rejected as a whole.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::super::block_log::BlockEntry;
use super::super::bridge::KnownBridgeHost;
use super::super::uninspected::AccountState;
use crate::engine::ChecksumState;
use crate::event::TransportProtocol;
use crate::flow::{FlowDecision, FlowKey, KeyEnd, OpeningSyn, SynOptions};
use crate::inspector::{DecidedFlow, InspectorState, LoggedPacket, UnseenBody};
use crate::metrics::CounterSnapshot;
use crate::rules::PacketMark;

/// First bytes of a state. The last one is the version.
const MAGIC: [u8; 8] = *b"bwstate\x01";
/// Maximum length of a state, in bytes.
const LIMIT: u64 = 512 << 20;
/// Maximum lengths of a packet and of an interface name, in bytes.
const PACKET: usize = 1 << 16;
const NAME: usize = 64;

/// Kinds of records.
const HEAD: u8 = 1;
const DECIDED: u8 = 2;
const KEPT: u8 = 3;
const UNSEEN: u8 = 4;
const END: u8 = 255;

/// The reason why a state is rejected.
#[derive(Debug, thiserror::Error)]
pub(in crate::guard) enum StateError {
    #[error("it is not the state of a guard")]
    Foreign,
    #[error("its format is version {0}, which this guard does not know")]
    Version(u8),
    #[error("it is incomplete")]
    Cut,
    #[error("it contradicts itself: {0}")]
    Malformed(&'static str),
    #[error("its head: {0}")]
    Head(#[from] serde_json::Error),
    #[error(transparent)]
    Read(#[from] io::Error),
}

/// State of a queue's worker.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::guard) struct QueueState {
    pub(in crate::guard) known: QueueStateNumbers,
    pub(in crate::guard) flows: InspectorState,
}

/// The state of a worker beside its flows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::guard) struct QueueStateNumbers {
    /// Number of bytes of each packet that the kernel copies, including packets that wait.
    pub(in crate::guard) copy_range: Option<u32>,
    pub(in crate::guard) marks_connections: bool,
    /// Number of packets received.
    pub(in crate::guard) received: u64,
    /// The kernel's counts of this queue and socket that are already published.
    pub(in crate::guard) dropped: Option<[u64; 3]>,
    /// The hosts behind the ports of bridges, by which flows of this queue that new rules reject are reset.
    pub(in crate::guard) bridge_hosts: Vec<KnownBridgeHost>,
    /// Time of writing on the clock that runs since the boot of the machine, in nanoseconds.
    pub(in crate::guard) written: u64,
}

/// State that belongs to no queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::guard) struct SharedRunState {
    pub(in crate::guard) counts: CounterSnapshot,
    pub(in crate::guard) account: Option<AccountState>,
    pub(in crate::guard) blocks: Vec<BlockEntry>,
}

impl QueueState {
    /// Returns the serialized state.
    ///
    /// # Errors
    ///
    /// Plain data cannot be written as JSON, which does not happen in practice.
    pub(in crate::guard) fn octets(&self) -> io::Result<Vec<u8>> {
        let mut octets = MAGIC.to_vec();
        let known = QueueStateNumbers { written: now(), ..self.known.clone() };
        record(&mut octets, HEAD, |body| serde_json::to_writer(body, &known).map_err(io::Error::from))?;
        for flow in &self.flows.decided {
            record(&mut octets, DECIDED, |body| {
                write_decided(body, flow);
                Ok(())
            })?;
        }
        for kept in &self.flows.kept {
            record(&mut octets, KEPT, |body| {
                write_kept(body, kept);
                Ok(())
            })?;
        }
        for UnseenBody { key, until } in &self.flows.unseen {
            record(&mut octets, UNSEEN, |body| {
                body.extend_from_slice(&key.octets());
                body.extend_from_slice(&until.to_le_bytes());
                Ok(())
            })?;
        }
        record(&mut octets, END, |_| Ok(()))?;
        Ok(octets)
    }

    /// Reads a state, and adds the time since its writing to all ages.
    ///
    /// # Errors
    ///
    /// [`StateError`].
    pub(in crate::guard) fn read(octets: &[u8]) -> Result<Self, StateError> {
        let mut state = Self::default();
        let mut headed = false;
        records(octets, |kind, body| {
            match kind {
                HEAD => {
                    state.known = serde_json::from_slice(body)?;
                    headed = true;
                }
                DECIDED => state.flows.decided.push(read_decided(body)?),
                KEPT => state.flows.kept.push(read_kept(body)?),
                UNSEEN => state.flows.unseen.push(read_unseen(body)?),
                _ => {}
            }
            Ok(())
        })?;
        if !headed {
            return Err(StateError::Malformed("no head"));
        }
        let since = Duration::from_nanos(now().saturating_sub(state.known.written));
        state.known.written = 0;
        state.flows.decided.iter_mut().for_each(|flow| flow.age = flow.age.saturating_add(since));
        state.flows.kept.iter_mut().for_each(|kept| kept.age = kept.age.saturating_add(since));
        Ok(state)
    }
}

impl SharedRunState {
    /// Returns the serialized state.
    ///
    /// # Errors
    ///
    /// As [`QueueState::octets`].
    pub(in crate::guard) fn octets(&self) -> io::Result<Vec<u8>> {
        let mut octets = MAGIC.to_vec();
        record(&mut octets, HEAD, |body| serde_json::to_writer(body, self).map_err(io::Error::from))?;
        record(&mut octets, END, |_| Ok(()))?;
        Ok(octets)
    }

    /// Reads a state.
    ///
    /// # Errors
    ///
    /// [`StateError`].
    pub(in crate::guard) fn read(octets: &[u8]) -> Result<Self, StateError> {
        head(octets)
    }
}

/// Returns a sealed anonymous file that holds `octets`.
///
/// # Errors
///
/// The kernel has no room for it.
pub(in crate::guard) fn sealed(name: &str, octets: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(file);
    // Sealed only when complete: after that neither process can change or truncate what the other one reads.
    file.write_all(octets)?;
    fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(file.into())
}

/// Returns the contents of a sealed file.
///
/// # Errors
///
/// The file is not sealed or too large.
pub(super) fn unsealed(file: OwnedFd) -> Result<Vec<u8>, StateError> {
    let seals = fcntl_get_seals(file.as_fd()).map_err(|_| StateError::Foreign)?;
    // Without these seals the sender could truncate the file during the read, or change it after a check.
    if !seals.contains(SealFlags::WRITE | SealFlags::SHRINK) {
        return Err(StateError::Foreign);
    }
    let size = u64::try_from(fstat(&file).map_err(io::Error::from)?.st_size).unwrap_or(u64::MAX);
    if size > LIMIT {
        return Err(StateError::Malformed("it is too large"));
    }
    let mut octets = vec![0; usize::try_from(size).unwrap_or_default()];
    // All holders of the file share its position, so this read leaves it alone.
    File::from(file).read_exact_at(&mut octets, 0)?;
    Ok(octets)
}

fn head<T: DeserializeOwned>(octets: &[u8]) -> Result<T, StateError> {
    let mut head = None;
    records(octets, |kind, body| {
        if kind == HEAD {
            head = Some(serde_json::from_slice(body)?);
        }
        Ok(())
    })?;
    head.ok_or(StateError::Malformed("no head"))
}

/// Returns the nanoseconds since the boot of the machine, by a clock that cannot be set and that all
/// processes share.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) =
        (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

fn record(
    octets: &mut Vec<u8>,
    kind: u8,
    write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
) -> io::Result<()> {
    octets.push(kind);
    let at = octets.len();
    octets.extend_from_slice(&[0; 4]);
    write(octets)?;
    let length = u32::try_from(octets.len() - at - 4).map_err(io::Error::other)?;
    if let Some(place) = octets.get_mut(at..at + 4) {
        place.copy_from_slice(&length.to_le_bytes());
    }
    Ok(())
}

/// Calls `take` for each record of a complete state.
fn records(
    octets: &[u8],
    mut take: impl FnMut(u8, &[u8]) -> Result<(), StateError>,
) -> Result<(), StateError> {
    let (magic, mut rest) = octets.split_first_chunk::<8>().ok_or(StateError::Foreign)?;
    let ([word @ .., version], [own @ .., its]) = (magic, &MAGIC);
    if word != own {
        return Err(StateError::Foreign);
    }
    if version != its {
        return Err(StateError::Version(*version));
    }
    loop {
        let mut body = RecordBody(rest);
        let (kind, length) = (body.number::<1>()?[0], u32::from_le_bytes(body.number()?));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let (taken, behind) = body.0.split_at_checked(length).ok_or(StateError::Cut)?;
        if kind == END {
            return if behind.is_empty() {
                Ok(())
            } else {
                Err(StateError::Malformed("bytes after its end"))
            };
        }
        take(kind, taken)?;
        rest = behind;
    }
}

/// The rest of a record's body.
struct RecordBody<'a>(&'a [u8]);

impl<'a> RecordBody<'a> {
    fn number<const N: usize>(&mut self) -> Result<[u8; N], StateError> {
        let (number, rest) = self.0.split_first_chunk::<N>().ok_or(StateError::Cut)?;
        self.0 = rest;
        Ok(*number)
    }

    fn octet(&mut self) -> Result<u8, StateError> {
        Ok(self.number::<1>()?[0])
    }

    fn word(&mut self) -> Result<u32, StateError> {
        Ok(u32::from_le_bytes(self.number()?))
    }

    fn age(&mut self) -> Result<Duration, StateError> {
        Ok(Duration::from_nanos(u64::from_le_bytes(self.number()?)))
    }

    fn slice(&mut self, length: usize) -> Result<&'a [u8], StateError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(StateError::Cut)?;
        self.0 = rest;
        Ok(taken)
    }
}

fn nanos(age: Duration) -> [u8; 8] {
    u64::try_from(age.as_nanos()).unwrap_or(u64::MAX).to_le_bytes()
}

fn write_decided(body: &mut Vec<u8>, flow: &DecidedFlow) {
    body.push(u8::from(flow.transport == TransportProtocol::Udp));
    body.extend_from_slice(&flow.key.octets());
    body.push(u8::from(flow.client == KeyEnd::High));
    body.push(match flow.ruling {
        FlowDecision::Undecided => 0,
        FlowDecision::Passed => 1,
        FlowDecision::Blocked => 2,
        FlowDecision::Refused => 3,
        FlowDecision::Rejected => 4,
    });
    let [low, high] = flow.positions;
    let mark = flow.mark;
    let there = [low.is_some(), high.is_some(), mark.is_some(), flow.reopening.is_some(), flow.told];
    body.push(there.iter().rev().fold(0, |bits, there| bits << 1 | u8::from(*there)));
    for number in [low, high, mark.map(|mark| mark.value), mark.map(|mark| mark.mask)] {
        body.extend_from_slice(&number.unwrap_or_default().to_le_bytes());
    }
    if let Some(OpeningSyn { initial, from, hop_limit, options }) = flow.reopening {
        body.extend_from_slice(&initial.to_le_bytes());
        body.extend_from_slice(&[u8::from(from == KeyEnd::High), hop_limit, options.bits()]);
    }
    body.extend_from_slice(&nanos(flow.age));
}

fn read_decided(octets: &[u8]) -> Result<DecidedFlow, StateError> {
    let mut body = RecordBody(octets);
    let transport = if body.octet()? == 0 { TransportProtocol::Tcp } else { TransportProtocol::Udp };
    let key = FlowKey::from_octets(&body.number()?).ok_or(StateError::Malformed("ends of a flow"))?;
    let client = if body.octet()? == 0 { KeyEnd::Low } else { KeyEnd::High };
    let ruling = match body.octet()? {
        // 0 would be an undecided flow, which is never written here.
        1 => FlowDecision::Passed,
        2 => FlowDecision::Blocked,
        3 => FlowDecision::Refused,
        4 => FlowDecision::Rejected,
        _ => return Err(StateError::Malformed("a decision")),
    };
    let there = body.octet()?;
    let is_there = |bit: u8| there >> bit & 1 == 1;
    let [low, high] = [body.word()?, body.word()?];
    let mark = PacketMark { value: body.word()?, mask: body.word()? };
    let positions = [is_there(0).then_some(low), is_there(1).then_some(high)];
    let mark = is_there(2).then_some(mark);
    let reopening = if is_there(3) { Some(read_syn(&mut body)?) } else { None };
    let told = is_there(4);
    Ok(DecidedFlow { transport, key, client, ruling, positions, reopening, mark, told, age: body.age()? })
}

fn read_syn(body: &mut RecordBody<'_>) -> Result<OpeningSyn, StateError> {
    let initial = body.word()?;
    let [is_high, hop_limit, options] = body.number()?;
    let from = if is_high == 0 { KeyEnd::Low } else { KeyEnd::High };
    Ok(OpeningSyn { initial, from, hop_limit, options: SynOptions::from_bits(options) })
}

fn read_unseen(octets: &[u8]) -> Result<UnseenBody, StateError> {
    let mut body = RecordBody(octets);
    let key = FlowKey::from_octets(&body.number()?).ok_or(StateError::Malformed("ends of a flow"))?;
    Ok(UnseenBody { key, until: body.word()? })
}

fn write_kept(body: &mut Vec<u8>, kept: &LoggedPacket) {
    body.extend_from_slice(&nanos(kept.age));
    body.extend_from_slice(&u32::try_from(kept.wire_length).unwrap_or(u32::MAX).to_le_bytes());
    body.push(u8::from(kept.checksums == ChecksumState::Verify));
    let name = kept.interface.as_deref().filter(|name| name.len() < NAME).unwrap_or_default();
    body.push(u8::try_from(name.len()).unwrap_or(0));
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(&kept.octets);
}

fn read_kept(octets: &[u8]) -> Result<LoggedPacket, StateError> {
    let mut body = RecordBody(octets);
    let age = body.age()?;
    let wire_length = usize::try_from(body.word()?).unwrap_or(usize::MAX);
    let checksums = if body.octet()? == 0 { ChecksumState::NotReady } else { ChecksumState::Verify };
    let length = usize::from(body.octet()?);
    let name = std::str::from_utf8(body.slice(length)?).map_err(|_| StateError::Malformed("an interface"))?;
    // The length on the wire comes from the kernel, and may be far larger (BIG TCP).
    if body.0.len() > PACKET || length > NAME {
        return Err(StateError::Malformed("the length of a packet"));
    }
    let interface = (!name.is_empty()).then(|| Arc::from(name));
    Ok(LoggedPacket { age, wire_length, checksums, interface, octets: body.0.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> QueueState {
        let mut key = [0; 36];
        (key[15], key[31], key[33], key[35]) = (1, 2, 80, 90);
        let flow = DecidedFlow {
            transport: TransportProtocol::Udp,
            key: FlowKey::from_octets(&key).unwrap(),
            client: KeyEnd::High,
            ruling: FlowDecision::Rejected,
            positions: [None, Some(7)],
            reopening: Some(OpeningSyn {
                initial: 77,
                from: KeyEnd::High,
                hop_limit: 64,
                options: SynOptions::new(Some(7), true),
            }),
            mark: Some(PacketMark { value: 1, mask: 3 }),
            told: true,
            age: Duration::from_secs(5),
        };
        let plain = DecidedFlow {
            mark: None,
            told: false,
            reopening: None,
            positions: [Some(9), None],
            ruling: FlowDecision::Passed,
            ..flow
        };
        let kept = LoggedPacket {
            age: Duration::from_millis(3),
            wire_length: 1500,
            checksums: ChecksumState::Verify,
            interface: Some("eth0".into()),
            octets: vec![0x45; 512].into(),
        };
        // As long as `gro_max_size` lets one become.
        let bare = LoggedPacket {
            interface: None,
            checksums: ChecksumState::NotReady,
            wire_length: 8 * 65_535,
            ..kept.clone()
        };
        let known = QueueStateNumbers {
            copy_range: Some(2048),
            marks_connections: true,
            received: u64::MAX,
            dropped: Some([1, 2, 3]),
            bridge_hosts: vec![KnownBridgeHost::example()],
            written: 0,
        };
        let unseen = vec![UnseenBody { key: flow.key, until: u32::MAX }];
        QueueState {
            known,
            flows: InspectorState { decided: vec![flow, plain], kept: vec![kept, bare], unseen },
        }
    }

    #[test]
    fn a_state_is_read_as_it_was_written_and_a_little_older() {
        let octets = example().octets().unwrap();
        let file = sealed("state-queue-0", &octets).unwrap();
        assert!(File::from(file.try_clone().unwrap()).write_all(b"x").is_err(), "it is sealed");
        let mut read = QueueState::read(&unsealed(file).unwrap()).unwrap();
        let wanted = example();
        for (read, wanted) in read.flows.kept.iter_mut().zip(&wanted.flows.kept) {
            assert!(read.age >= wanted.age && read.age < wanted.age + Duration::from_secs(60));
            read.age = wanted.age;
        }
        read.flows
            .decided
            .iter_mut()
            .zip(&wanted.flows.decided)
            .for_each(|(read, wanted)| read.age = wanted.age);
        assert_eq!(read, wanted);
        let account = Some(AccountState::default());
        let run = SharedRunState { counts: CounterSnapshot::default(), account, blocks: Vec::new() };
        assert_eq!(SharedRunState::read(&run.octets().unwrap()).unwrap(), run);
    }

    #[test]
    fn what_is_cut_changed_or_foreign_is_refused_and_nothing_panics() {
        let octets = example().octets().unwrap();
        for length in 0..octets.len() {
            assert!(QueueState::read(&octets[..length]).is_err(), "{length}");
        }
        let mut later = octets.clone();
        later[7] = 2;
        assert!(matches!(QueueState::read(&later), Err(StateError::Version(2))));
        for at in 0..octets.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = octets.clone();
                changed[at] = value;
                // Some changes are other states, none is a panic.
                let _ = QueueState::read(&changed);
            }
        }
        let mut longer = octets.clone();
        longer.push(0);
        assert!(QueueState::read(&longer).is_err());
        // A kind that is not known stands before the end.
        let end = octets.len() - 5;
        let added = [&octets[..end], &[200, 2, 0, 0, 0, 1, 2], &octets[end..]].concat();
        assert!(QueueState::read(&added).is_ok());
        assert!(unsealed(File::open("/dev/null").unwrap().into()).is_err());
    }
}
