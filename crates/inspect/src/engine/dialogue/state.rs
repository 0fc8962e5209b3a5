//! The state of a dialogue: the reading of each direction, and their shared facts.
//!
//! The questions that others ask about that stand here, too; nothing here reads.

use super::awaited_input::AwaitedInput;
use super::greeting::{self, GreetingState};
use super::http::{self, HttpTransactions, ResponseRemainder};
use super::read_step::{RequestedUpgrade, UnreadReason};
use super::search_state::{self, BannerSearch};
use super::ssh::{self, SshState};
use super::tls::{self, TlsState};
use crate::banner::recognise::{FirstWord, may_become_plain_request};
use crate::banner::unread_protocols::{OtherProtocol, SignatureFit};
use crate::event::Side;

/// The dialogue of two ends.
#[derive(Debug, Default)]
pub struct Dialogue {
    pub(super) directions: [DialogueDirection; 2],
    pub(super) opening: DialogueOpening,
    pub(super) asked: RequestedUpgrade,
    pub(super) ssh: SshState,
    pub(super) http: HttpTransactions,
    pub(super) tls: TlsState,
    pub(super) greeting: GreetingState,
}

/// The progress and the protocol of one direction.
#[derive(Debug, Default)]
pub struct DialogueDirection {
    pub(super) reading: DirectionReading,
    pub(super) first: DirectionStart,
    /// Records of TLS, as long as it may be that.
    pub(super) hello: tls::HelloRecords,
    /// The findings after bytes that are not read.
    pub(super) search: BannerSearch,
    /// Handshakes with SOCKS servers that were gone over.
    pub(super) relays: u8,
    /// True if the read bytes end within a line.
    pub(super) amid_line: bool,
    /// The first word of what is unread, as far as it was looked at.
    pub(super) word: FirstWord,
    /// The input that must come before the unread bytes are read again.
    pub(super) awaited: Option<AwaitedInput>,
}

/// The reading of one direction.
#[derive(Debug, Default)]
pub enum DirectionReading {
    /// Not recognised yet.
    #[default]
    New,
    /// Bytes are missing: whatever comes next is looked at as if it were new.
    Resync,
    /// Lines that may precede an SSH identification, so many bytes behind the start of one.
    Lines(usize),
    /// SSH from its identification on.
    Ssh(ssh::SshReading),
    /// Messages of HTTP.
    Http(http::HttpReading),
    /// Records of TLS, up to where they are encrypted.
    Tls,
    /// A dialogue in lines that the server opens with a greeting.
    Greeting(greeting::GreetingReading),
    /// Nothing more is to be read: what was wanted of a protocol was seen.
    Done,
    /// Nothing more is to be read: it is no protocol that is read here.
    Foreign(UnreadReason),
}

/// The facts about both directions before any protocol, or independent of it.
#[derive(Debug, Default)]
pub struct DialogueOpening {
    /// Bytes and lines before an SSH identification that were gone over.
    pub(super) octets: usize,
    pub(super) lines: usize,
    /// Some of these lines were the client's.
    pub(super) client_lines: bool,
    /// One side spoke SSH and the other HTTP.
    pub(super) mismatched: bool,
}

/// The start of a direction.
#[derive(Debug, Default)]
pub struct DirectionStart {
    pub(super) spoken: FirstProtocol,
    /// Bytes of empty lines before that, and whether white space stood in them.
    pub(super) leading: usize,
    pub(super) spaced: bool,
}

/// The first protocol of a direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FirstProtocol {
    /// Nothing that tells.
    #[default]
    Nothing,
    /// An SSH identification.
    Ssh,
    /// An HTTP message.
    Http,
    /// Something else.
    Other,
}

impl DialogueDirection {
    /// Looks at what follows like the beginning of a connection.
    pub(super) fn reset_directions(&mut self) {
        self.reading = DirectionReading::New;
        self.first = DirectionStart::default();
        self.hello = tls::HelloRecords::default();
        self.amid_line = false;
        self.awaited = None;
    }
}

impl Dialogue {
    /// True if nothing more is to be read in either direction.
    pub fn is_decided(&self) -> bool {
        self.is_done(Side::Client) && self.is_done(Side::Server)
    }

    /// True if nothing more is to be read of one side, nor searched.
    pub fn is_done(&self, from: Side) -> bool {
        self.is_read_out(from) && !self.searches(from)
    }

    /// True if nothing more is to be read of one side; it may be searched.
    pub const fn is_read_out(&self, from: Side) -> bool {
        matches!(self.direction(from).reading, DirectionReading::Done | DirectionReading::Foreign(_))
    }

    /// True if the client's bytes are searched and the server's are let go.
    pub fn only_searches(&self) -> bool {
        self.is_read_out(Side::Client) && self.searches(Side::Client) && self.is_done(Side::Server)
    }

    /// True if both sides speak what is no protocol that is read here, and did from their first byte on: a
    /// request that nobody answered is told yet.
    pub const fn is_foreign(&self) -> bool {
        let [client, server] = &self.directions;
        !self.http.was_asked()
            && matches!(
                (&client.reading, &server.reading),
                (DirectionReading::Foreign(_), DirectionReading::Foreign(_))
            )
    }

    /// True if one side speaks SSH and the other HTTP.
    pub const fn is_mismatched(&self) -> bool {
        self.opening.mismatched
    }

    /// True if one side has begun a banner and not ended it, `unread` being what waits. Lines that may come
    /// before an identification begin none as long as nobody speaks SSH (a person may be asked for a name),
    /// and neither do bytes that no honest client begins with.
    pub fn is_amid(&self, from: Side, unread: &[u8]) -> bool {
        if self.is_perhaps_of_tunnel(from) {
            return false;
        }
        let amid_greeting = || from == Side::Server && self.greeting.is_amid();
        match &self.direction(from).reading {
            DirectionReading::New if unread.is_empty() => false,
            DirectionReading::New if from == Side::Server => true,
            DirectionReading::New => may_become_plain_request(unread),
            DirectionReading::Http(_) if self.http.is_doubtful() => false,
            DirectionReading::Lines(_) => self.ssh.is_identified(from.other()) || amid_greeting(),
            DirectionReading::Greeting(_) => amid_greeting(),
            DirectionReading::Ssh(_) | DirectionReading::Tls => !unread.is_empty(),
            DirectionReading::Http(reading) => !reading.is_body() && !unread.is_empty(),
            DirectionReading::Resync | DirectionReading::Done | DirectionReading::Foreign(_) => false,
        }
    }

    /// True if `count` bytes of one side may be missing without harm.
    pub fn can_spare(&self, from: Side, count: u64) -> bool {
        match &self.direction(from).reading {
            DirectionReading::Done | DirectionReading::Foreign(_) => !self.searches(from),
            DirectionReading::Http(reading) => reading.can_spare(count) && !self.searches(from),
            _ => false,
        }
    }

    /// Returns the rest of the current response, if no rule or event needs it and it answers the only
    /// request.
    pub fn rest_of_response(&self) -> Option<ResponseRemainder> {
        match (&self.direction(Side::Client).reading, &self.direction(Side::Server).reading) {
            (DirectionReading::Http(client), DirectionReading::Http(server))
                if client.is_behind_message() =>
            {
                self.http.rest(server).filter(|_| !self.may_speak_ssh(Side::Server))
            }
            _ => None,
        }
    }

    /// True if what one side says is kept by nobody once it was read.
    pub const fn is_fleeting(&self, from: Side) -> bool {
        self.is_read_out(from)
            || matches!(&self.direction(from).reading, DirectionReading::Http(reading) if reading.is_body())
    }

    /// True if what one side says is cheap to go over, and what decides comes behind it.
    pub const fn is_cheap(&self, from: Side) -> bool {
        matches!(self.direction(from).reading, DirectionReading::Lines(_)) || self.is_fleeting(from)
    }

    /// True if what one side says is no banner by any rule of its protocol: only judged, never waited for.
    pub const fn is_free(&self, from: Side) -> bool {
        self.is_read_out(from) || (self.is_reading_http(from) && self.http.is_doubtful())
    }

    const fn is_reading_http(&self, from: Side) -> bool {
        matches!(self.direction(from).reading, DirectionReading::Http(_))
    }

    /// True if one side began no banner and the other one has said nothing, or a word without an end: a log,
    /// a backup, a film. Nobody can tell where that ends, and what the other one may say next is awaited.
    pub fn is_monologue(&self, from: Side) -> bool {
        let other = self.direction(from.other());
        self.direction(from).first.spoken == FirstProtocol::Other
            && matches!(other.reading, DirectionReading::New)
            && other.first.spoken == FirstProtocol::Nothing
    }

    /// True if all that one side has sent could be read, and more like it may follow: the budget is for what
    /// can't.
    pub const fn is_readable_stream(&self, from: Side, unread: &[u8]) -> bool {
        match &self.direction(from).reading {
            DirectionReading::Http(reading) => reading.goes_on(unread) || self.is_perhaps_of_tunnel(from),
            _ => false,
        }
    }

    /// Bytes of memory held, roughly.
    pub fn memory(&self) -> usize {
        let reading = |direction: &DialogueDirection| {
            let read = match &direction.reading {
                DirectionReading::Http(reading) => reading.memory(),
                DirectionReading::Ssh(reading) => reading.memory(),
                _ => 0,
            };
            read + direction.hello.memory() + direction.search.memory()
        };
        let [client, server] = &self.directions;
        reading(client) + reading(server) + self.http.memory() + self.greeting.memory()
    }

    /// True if the client has begun a line that can't become a request.
    pub(super) fn client_cannot_be_http(&mut self, unread: &[u8]) -> bool {
        let client = self.direction_mut(Side::Client);
        let new = matches!(client.reading, DirectionReading::New);
        new && !unread.is_empty() && !client.word.may_become_request(unread)
    }

    /// Returns a side's first protocol, as far as it identifies the other side's bytes: after a `CONNECT` the
    /// server answers that.
    pub(super) fn spoken(&self, from: Side) -> FirstProtocol {
        if from == Side::Client && self.asked == RequestedUpgrade::Tunnel {
            return FirstProtocol::Http;
        }
        self.direction(from).first.spoken
    }

    /// True if what looks like a server's response may be lines before its SSH identification.
    pub(super) fn may_speak_ssh(&self, from: Side) -> bool {
        from == Side::Server && self.spoken(Side::Client) == FirstProtocol::Nothing
    }

    /// True if both ends have shown which one is the client: one has asked and the other has answered.
    pub fn shows_roles(&self) -> bool {
        self.http.is_answered() || self.tls.is_answered_by_hello()
    }

    /// True if no response is read any more, and every request still is.
    pub const fn only_reads_requests(&self) -> bool {
        self.http.has_left()
    }

    /// True if the client has ended a request and not begun another one.
    pub const fn is_between_requests(&self) -> bool {
        matches!(self.direction(Side::Client).reading, DirectionReading::Http(http::HttpReading::Next))
    }

    /// True if what one side says may be a tunnel's, which nobody sees granted, or a film's: it may say so
    /// little or so much for as long as it lasts. Random bytes hold what begins like a message now and then;
    /// a whole one is judged as any.
    pub const fn is_perhaps_of_tunnel(&self, from: Side) -> bool {
        self.http.is_perhaps_tunnel(from)
    }

    /// True if a side's bytes are searched.
    pub(super) fn searches(&self, from: Side) -> bool {
        let client = &self.direction(Side::Client).reading;
        let agreed = self.direction(Side::Server).first.spoken == FirstProtocol::Http
            || matches!(client, DirectionReading::Tls)
            || (self.ssh.is_identified(Side::Client) && self.ssh.is_identified(Side::Server));
        let wanted = match from {
            Side::Client => !self.tls.is_agreed(),
            Side::Server => self.tls.is_awaiting_answer(),
        };
        wanted && !agreed && self.direction(from).search.total < search_state::LIMIT
    }

    /// True if what one side says next belongs to the body of a request.
    pub(super) fn is_within_body(&self, from: Side) -> bool {
        match &self.direction(from).reading {
            _ if from == Side::Server => false,
            DirectionReading::Http(reading) => reading.is_body(),
            _ => self.http.left_body(),
        }
    }

    /// True if what the client says first, which is this so far, is listened to as a hello.
    pub(super) fn may_begin_with_hello(&self, input: &[u8]) -> bool {
        let client = self.direction(Side::Client);
        matches!(client.reading, DirectionReading::New)
            && !client.hello.over
            && self.spoken(Side::Server) == FirstProtocol::Nothing
            && OtherProtocol::TLS.fit(Side::Client, input) != SignatureFit::No
    }

    /// Returns the reading of a side whose protocol is not read here.
    ///
    /// Whoever wants to name such a protocol, or to stop it, does so here: every direction comes by once,
    /// with its reason, when that is certain and not before.
    pub(super) const fn foreign(&mut self, _from: Side, why: UnreadReason) -> DirectionReading {
        DirectionReading::Foreign(why)
    }

    /// Gives a direction another reading because of what the other one says.
    pub(super) fn change(&mut self, from: Side, reading: DirectionReading) {
        let direction = self.direction_mut(from);
        direction.reading = reading;
        direction.awaited = None;
    }

    pub(super) const fn direction(&self, from: Side) -> &DialogueDirection {
        let [client, server] = &self.directions;
        match from {
            Side::Client => client,
            Side::Server => server,
        }
    }

    pub(super) const fn direction_mut(&mut self, from: Side) -> &mut DialogueDirection {
        let [client, server] = &mut self.directions;
        match from {
            Side::Client => client,
            Side::Server => server,
        }
    }
}
