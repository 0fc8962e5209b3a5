//! Key agreement with the peer by the Noise protocol, `Noise_KK_25519_AESGCM_BLAKE2s`. Both ends know both
//! static keys beforehand. Each session has its own keys, which the static keys do not reveal later.
//!
//! ```text
//! initiation | kind | e (32) | sealed: time of day, nanoseconds (8), the initiator's index (4) | tag (16) |
//! response   | kind | the initiator's index (4) | e (32) | sealed: the responder's index (4) | tag (16) |
//! ```
//!
//! Either end can start. An initiation is accepted once: the next one must have a later time. The responder
//! sends with the new keys only once the peer has used them, so a replayed initiation changes nothing.
//!
//! This module opens no socket and reads no clock: the caller passes datagrams and the time.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use snow::HandshakeState;
use snow::params::NoiseParams;

use super::keys::TunnelKeys;
use super::session::{SessionIndex, TunnelSession};
use crate::metrics::TunnelDrop as Reason;

/// Kinds of datagrams.
pub const INITIATION: u8 = 3;
pub const RESPONSE: u8 = 4;

const PROTOCOL: &str = "Noise_KK_25519_AESGCM_BLAKE2s";
/// Version of the protocol, which both ends must share.
const PROLOGUE: &[u8] = b"bannerwall tunnel 1";

/// Age of keys at which their initiator agrees on new ones, and at which the other end does.
const RENEW: [Duration; 2] = [Duration::from_secs(120), Duration::from_secs(140)];
/// Age at which keys expire.
const EXPIRE: Duration = Duration::from_secs(180);
/// Interval of initiations without a response.
const RETRY: Duration = Duration::from_secs(2);
/// Sessions for receiving: the current one, the previous one, and unconfirmed ones.
const MOST_SESSIONS: usize = 4;
/// Limit of initiations a second, since each needs curve arithmetic.
const INITIATIONS: u32 = 500;
/// Limit of a message in bytes.
const LONGEST: usize = 128;

/// Result of a datagram of the agreement.
#[derive(Debug, PartialEq, Eq)]
pub enum AgreementReply {
    /// Send this datagram to the peer.
    Send(Vec<u8>),
    /// A new session is in use: send something with it, so that the peer uses it, too.
    Confirm,
}

/// All sessions with the peer.
pub struct NoiseSessions {
    keys: TunnelKeys,
    params: NoiseParams,
    /// Session for sending.
    current: ArcSwapOption<TunnelSession>,
    /// Sessions for receiving.
    known: ArcSwap<Vec<Arc<TunnelSession>>>,
    agreement: Mutex<KeyAgreement>,
}

/// State of the agreement.
#[derive(Default)]
struct KeyAgreement {
    /// Own initiation that waits for its response.
    pending: Option<(SessionIndex, HandshakeState)>,
    /// Time of the last initiation.
    initiated: Option<Instant>,
    /// Time inside the peer's latest initiation.
    latest: u64,
    /// Start of the current second, and its number of initiations.
    counted: Option<(Instant, u32)>,
    /// Last index; indexes count from a random number, and none is used twice.
    index: Option<u32>,
}

impl NoiseSessions {
    /// Returns a state without a session.
    ///
    /// # Errors
    ///
    /// The library lacks the protocol.
    pub fn new(keys: TunnelKeys) -> Result<Self, snow::Error> {
        let noise = Self {
            keys,
            params: PROTOCOL.parse()?,
            current: ArcSwapOption::empty(),
            known: ArcSwap::default(),
            agreement: Mutex::default(),
        };
        noise.handshake(true).map(|_| noise)
    }

    /// Returns the session for sending, if there is one.
    pub fn current(&self) -> Option<Arc<TunnelSession>> {
        self.current.load_full()
    }

    /// Returns the session of an index.
    pub fn session(&self, index: SessionIndex) -> Option<Arc<TunnelSession>> {
        self.known.load().iter().find(|session| session.ours == index).cloned()
    }

    /// Confirms `session` after an authentic datagram: the peer has its keys, and it becomes the current one.
    /// True for the first such datagram.
    pub fn confirm(&self, session: &Arc<TunnelSession>) -> bool {
        // The load comes before the swap: this runs for each datagram, and a load does not claim the
        // cache line.
        let is_news = !session.is_confirmed.load(Relaxed) && !session.is_confirmed.swap(true, Relaxed);
        if is_news {
            self.current.store(Some(Arc::clone(session)));
        }
        is_news
    }

    /// Returns the datagram to send now to get keys, if any; called several times a second.
    pub fn tick(&self, now: Instant, day: SystemTime) -> Option<Vec<u8>> {
        self.forget(now);
        let mut agreement = self.agreement();
        let due = match &*self.current.load() {
            None => true,
            Some(session) => {
                let began = session.is_initiator();
                // The initiator renews first. The responder waits longer, so both do not start at once.
                now.saturating_duration_since(session.born) >= RENEW[usize::from(!began)]
            }
        };
        let waits = agreement.initiated.is_some_and(|then| now.saturating_duration_since(then) < RETRY);
        if !due || waits {
            return None;
        }
        agreement.initiated = Some(now);
        self.initiate(&mut agreement, day).ok()
    }

    /// Handles a datagram of the agreement.
    ///
    /// # Errors
    ///
    /// The datagram is invalid, forged or replayed.
    pub fn take(&self, datagram: &[u8], now: Instant) -> Result<AgreementReply, Reason> {
        match datagram.split_first() {
            Some((&INITIATION, message)) => self.respond(message, now).map(AgreementReply::Send),
            Some((&RESPONSE, message)) => self.complete(message, now).map(|()| AgreementReply::Confirm),
            _ => Err(Reason::Malformed),
        }
    }

    fn initiate(&self, agreement: &mut KeyAgreement, day: SystemTime) -> Result<Vec<u8>, snow::Error> {
        let mut handshake = self.handshake(true)?;
        let since = day.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let time = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let index = agreement.next_index()?;
        let mut payload = time.to_be_bytes().to_vec();
        payload.extend(index.0.to_be_bytes());
        let message = write(&mut handshake, &[INITIATION], &payload)?;
        agreement.pending = Some((index, handshake));
        Ok(message)
    }

    fn respond(&self, message: &[u8], now: Instant) -> Result<Vec<u8>, Reason> {
        let mut agreement = self.agreement();
        // The check comes before the costly arithmetic, which anyone could trigger with forged
        // datagrams.
        if !agreement.admit(now) {
            return Err(Reason::Crowd);
        }
        let mut handshake = self.handshake(false).map_err(|_| Reason::Forged)?;
        let payload: [u8; 12] = read(&mut handshake, message)?;
        let [time @ .., a, b, c, d] = payload;
        let (time, theirs) = (u64::from_be_bytes(time), SessionIndex(u32::from_be_bytes([a, b, c, d])));
        // The message was recorded and sent again: a true initiation has a later time.
        if time <= agreement.latest {
            return Err(Reason::Replayed);
        }
        agreement.latest = time;
        let ours = agreement.next_index().map_err(|_| Reason::Forged)?;
        let mut start = vec![RESPONSE];
        start.extend(theirs.0.to_be_bytes());
        let response = write(&mut handshake, &start, &ours.0.to_be_bytes()).map_err(|_| Reason::Forged)?;
        self.add(handshake, ours, theirs, now).map_err(|_| Reason::Forged)?;
        Ok(response)
    }

    fn complete(&self, message: &[u8], now: Instant) -> Result<(), Reason> {
        let (index, message) = message.split_first_chunk::<4>().ok_or(Reason::Malformed)?;
        let mut agreement = self.agreement();
        let ours = SessionIndex(u32::from_be_bytes(*index));
        let Some((_, mut handshake)) = agreement.pending.take_if(|(pending, _)| *pending == ours) else {
            return Err(Reason::Forged);
        };
        let theirs: [u8; 4] = match read(&mut handshake, message) {
            Ok(theirs) => theirs,
            Err(reason) => {
                // A forged response must not prevent the true one from being accepted.
                agreement.pending = Some((ours, handshake));
                return Err(reason);
            }
        };
        let theirs = SessionIndex(u32::from_be_bytes(theirs));
        let session = self.add(handshake, ours, theirs, now).map_err(|_| Reason::Forged)?;
        self.current.store(Some(session));
        Ok(())
    }

    /// Adds a session for receiving, and keeps the newest others.
    fn add(
        &self,
        handshake: HandshakeState,
        ours: SessionIndex,
        theirs: SessionIndex,
        now: Instant,
    ) -> Result<Arc<TunnelSession>, snow::Error> {
        let transport = handshake.into_stateless_transport_mode()?;
        let session = Arc::new(TunnelSession::new(ours, theirs, transport, now));
        let current = self.current();
        let is_current =
            |other: &Arc<TunnelSession>| current.as_ref().is_some_and(|current| Arc::ptr_eq(current, other));
        let mut known = Vec::clone(&self.known.load());
        known.insert(0, Arc::clone(&session));
        while known.len() > MOST_SESSIONS {
            // The current session stays, however many others there are.
            let oldest = known.iter().rposition(|other| !is_current(other)).unwrap_or_default();
            known.remove(oldest);
        }
        self.known.store(Arc::new(known));
        Ok(session)
    }

    /// Drops expired keys.
    fn forget(&self, now: Instant) {
        let _held = self.agreement();
        let is_old = |session: &Arc<TunnelSession>| now.saturating_duration_since(session.born) >= EXPIRE;
        if self.known.load().iter().any(is_old) {
            let kept = self.known.load().iter().filter(|session| !is_old(session)).cloned().collect();
            self.known.store(Arc::new(kept));
        }
        if self.current().as_ref().is_some_and(is_old) {
            self.current.store(None);
        }
    }

    fn handshake(&self, begins: bool) -> Result<HandshakeState, snow::Error> {
        let builder = snow::Builder::new(self.params.clone())
            .local_private_key(&self.keys.private.0)?
            .remote_public_key(&self.keys.peer.0)?
            .prologue(PROLOGUE)?;
        if begins { builder.build_initiator() } else { builder.build_responder() }
    }

    fn agreement(&self) -> MutexGuard<'_, KeyAgreement> {
        self.agreement.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for NoiseSessions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("NoiseSessions").field("known", &self.known).finish_non_exhaustive()
    }
}

impl KeyAgreement {
    /// True if another initiation may be handled.
    fn admit(&mut self, now: Instant) -> bool {
        let (second, count) = self.counted.get_or_insert((now, 0));
        if now.saturating_duration_since(*second) >= Duration::from_secs(1) {
            (*second, *count) = (now, 0);
        }
        *count += 1;
        *count <= INITIATIONS
    }

    fn next_index(&mut self) -> Result<SessionIndex, snow::Error> {
        let next = match self.index {
            Some(last) => last.wrapping_add(1),
            None => random()?,
        };
        self.index = Some(next);
        Ok(SessionIndex(next))
    }
}

fn random() -> Result<u32, snow::Error> {
    use snow::resolvers::{CryptoResolver as _, DefaultResolver};
    let mut octets = [0; 4];
    let mut random = DefaultResolver.resolve_rng().ok_or(snow::Error::Rng)?;
    random.try_fill_bytes(&mut octets)?;
    Ok(u32::from_be_bytes(octets))
}

/// Returns `start` with the next message of `handshake`, which contains `payload`.
fn write(handshake: &mut HandshakeState, start: &[u8], payload: &[u8]) -> Result<Vec<u8>, snow::Error> {
    let mut message = start.to_vec();
    message.resize(start.len() + LONGEST, 0);
    let length = handshake.write_message(payload, message.get_mut(start.len()..).unwrap_or_default())?;
    message.truncate(start.len() + length);
    Ok(message)
}

/// Returns the payload of the next message of `handshake`, if it has this length.
fn read<const LENGTH: usize>(handshake: &mut HandshakeState, message: &[u8]) -> Result<[u8; LENGTH], Reason> {
    let mut payload = [0; LONGEST];
    if message.len() > payload.len() {
        return Err(Reason::Malformed);
    }
    let length = handshake.read_message(message, &mut payload).map_err(|_| Reason::Forged)?;
    payload.get(..length).and_then(|payload| payload.try_into().ok()).ok_or(Reason::Malformed)
}

#[cfg(test)]
mod tests {
    use super::super::keys::TunnelKey;
    use super::super::piece_number::PieceNumber;
    use super::super::session;
    use super::*;

    /// Two ends that know one another's keys.
    fn ends() -> [NoiseSessions; 2] {
        let private = [(); 2].map(|()| TunnelKey::generate().unwrap());
        let public = private.map(|key| key.public().unwrap());
        [(0, 1), (1, 0)].map(|(own, other)| {
            NoiseSessions::new(TunnelKeys { private: private[own], peer: public[other] }).unwrap()
        })
    }

    fn day(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + second)
    }

    /// Agrees on keys, begun by `from`; gives the initiation.
    fn agree(from: &NoiseSessions, to: &NoiseSessions, now: Instant, second: u64) -> Vec<u8> {
        let initiation = from.tick(now, day(second)).expect("it is due");
        let Ok(AgreementReply::Send(response)) = to.take(&initiation, now) else { panic!("it is good") };
        assert_eq!(from.take(&response, now), Ok(AgreementReply::Confirm));
        initiation
    }

    fn seal(from: &NoiseSessions, packet: u64, piece: &[u8]) -> Vec<u8> {
        let mut room = vec![0; 2048];
        let session = from.current().expect("keys are agreed on");
        let length = session.seal(PieceNumber::new(packet, 0, 1), piece, &mut room).unwrap();
        room.truncate(length);
        room
    }

    fn open(to: &NoiseSessions, datagram: &[u8]) -> Result<Vec<u8>, Reason> {
        let (index, place, sealed) = session::read(datagram).ok_or(Reason::Malformed)?;
        let session = to.session(index).ok_or(Reason::Forged)?;
        let mut room = vec![0; 2048];
        let length = session.open(place, sealed, &mut room)?;
        to.confirm(&session);
        room.truncate(length);
        Ok(room)
    }

    #[test]
    fn what_one_end_seals_the_other_opens_once() {
        let ([one, other], now) = (ends(), Instant::now());
        agree(&one, &other, now, 0);
        assert!(other.current().is_none(), "the responder waits for the initiator's keys to be shown");
        let datagram = seal(&one, 0, b"hello");
        assert_eq!(open(&other, &datagram).unwrap(), b"hello");
        assert_eq!(open(&other, &datagram), Err(Reason::Replayed));
        assert_eq!(open(&one, &seal(&other, 0, b"back")).unwrap(), b"back");
        assert!(open(&one, &datagram).is_err(), "its own comes back");
    }

    #[test]
    fn what_was_changed_anywhere_is_refused() {
        let ([one, other], now) = (ends(), Instant::now());
        let initiation = one.tick(now, day(0)).unwrap();
        for at in 0..initiation.len() * 8 {
            let mut changed = initiation.clone();
            changed[at / 8] ^= 1 << (at % 8);
            assert!(other.take(&changed, now + Duration::from_secs(at as u64)).is_err(), "bit {at}");
        }
        for length in 0..initiation.len() {
            assert!(other.take(&initiation[..length], now + Duration::from_secs(9_999)).is_err(), "{length}");
        }
        let Ok(AgreementReply::Send(response)) = other.take(&initiation, now) else { panic!("it is good") };
        for at in 0..response.len() * 8 {
            let mut changed = response.clone();
            changed[at / 8] ^= 1 << (at % 8);
            assert!(one.take(&changed, now).is_err(), "bit {at}");
        }
        assert_eq!(one.take(&response, now), Ok(AgreementReply::Confirm), "forged ones change nothing");
        let datagram = seal(&one, 0, b"hello");
        for at in 0..datagram.len() * 8 {
            let mut changed = datagram.clone();
            changed[at / 8] ^= 1 << (at % 8);
            assert!(open(&other, &changed).is_err(), "bit {at}");
        }
        assert!((0..datagram.len()).all(|length| open(&other, &datagram[..length]).is_err()));
        assert_eq!(open(&other, &datagram).unwrap(), b"hello");
    }

    #[test]
    fn a_stranger_gets_no_answer() {
        let ([one, _], [_, other], now) = (ends(), ends(), Instant::now());
        let initiation = one.tick(now, day(0)).unwrap();
        assert_eq!(other.take(&initiation, now), Err(Reason::Forged));
    }

    #[test]
    fn an_initiation_that_comes_again_changes_nothing() {
        let ([one, other], now) = (ends(), Instant::now());
        let initiation = agree(&one, &other, now, 0);
        assert_eq!(other.take(&initiation, now), Err(Reason::Replayed));
        assert_eq!(open(&other, &seal(&one, 0, b"a")).unwrap(), b"a");
        let later = now + RENEW[0];
        agree(&one, &other, later, 120);
        assert_eq!(other.take(&initiation, later), Err(Reason::Replayed));
        assert_eq!(open(&other, &seal(&one, 0, b"b")).unwrap(), b"b");
    }

    #[test]
    fn keys_are_renewed_and_expire() {
        let ([one, other], now) = (ends(), Instant::now());
        agree(&one, &other, now, 0);
        let early = seal(&one, 3, b"early");
        assert_eq!(open(&other, &seal(&one, 0, b"a")).unwrap(), b"a");
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!((one.tick(at(119), day(119)), other.tick(at(139), day(139))), (None, None));
        agree(&one, &other, at(140), 140);
        assert_eq!(open(&other, &early).unwrap(), b"early", "what is under way is still taken");
        assert_eq!(open(&other, &seal(&one, 0, b"b")).unwrap(), b"b");
        assert!(other.tick(at(200), day(200)).is_none());
        assert_eq!(open(&other, &early), Err(Reason::Forged), "the old keys are gone");
        // Nobody answers any more.
        assert!(one.tick(at(319), day(319)).is_some() && one.current().is_some());
        assert!(one.tick(at(320), day(320)).is_none() && one.current().is_none(), "not two seconds apart");
        assert!(one.tick(at(321), day(321)).is_some());
    }

    #[test]
    fn both_may_begin_at_once() {
        let ([one, other], now) = (ends(), Instant::now());
        let initiations = [&one, &other].map(|end| end.tick(now, day(0)).unwrap());
        let Ok(AgreementReply::Send(to_one)) = other.take(&initiations[0], now) else { panic!("it is good") };
        let Ok(AgreementReply::Send(to_other)) = one.take(&initiations[1], now) else { panic!("it is good") };
        assert_eq!(one.take(&to_one, now), Ok(AgreementReply::Confirm));
        assert_eq!(other.take(&to_other, now), Ok(AgreementReply::Confirm));
        for packet in 0..4 {
            assert_eq!(open(&other, &seal(&one, packet, b"there")).unwrap(), b"there");
            assert_eq!(open(&one, &seal(&other, packet, b"back")).unwrap(), b"back");
        }
    }

    #[test]
    fn an_end_that_was_started_anew_is_met_again() {
        let ([one, other], now) = (ends(), Instant::now());
        agree(&one, &other, now, 0);
        assert_eq!(open(&other, &seal(&one, 0, b"a")).unwrap(), b"a");
        let anew = NoiseSessions::new(other.keys).unwrap();
        assert_eq!(open(&anew, &seal(&one, 1, b"b")), Err(Reason::Forged));
        agree(&anew, &one, now + Duration::from_secs(5), 5);
        assert_eq!(open(&one, &seal(&anew, 0, b"c")).unwrap(), b"c");
        assert_eq!(open(&anew, &seal(&one, 0, b"d")).unwrap(), b"d");
    }

    #[test]
    fn a_crowd_of_initiations_is_not_looked_at() {
        let ([_, other], now) = (ends(), Instant::now());
        let mut garbage = vec![INITIATION; 61];
        let mut outcomes = (0..=INITIATIONS).map(|_| other.take(&garbage, now));
        assert!(outcomes.by_ref().take(500).all(|outcome| outcome == Err(Reason::Forged)));
        assert_eq!(outcomes.next(), Some(Err(Reason::Crowd)));
        drop(outcomes);
        garbage.truncate(9);
        assert_eq!(other.take(&garbage, now + Duration::from_secs(1)), Err(Reason::Forged));
    }
}
