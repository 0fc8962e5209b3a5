//! Which protocol a direction speaks: what its first octets may be, beside what the other one has said.
//!
//! No octet's looks decide. A client reads any lines before a server's identification, and what one server
//! calls nonsense another takes for a request. So a hypothesis is kept until both ends say otherwise:
//!
//! | the client said | the server said | read on as |
//! |---|---|---|
//! | nothing | nothing | anything |
//! | nothing | `SSH-` | SSH |
//! | nothing | a status line | HTTP, and lines before an SSH identification |
//! | nothing | anything else | lines before an SSH identification |
//! | `SSH-` | anything | SSH, lines before an identification |
//! | a request | a status line | HTTP |
//! | a request | `SSH-` | both, told as `protocol_mismatch` |
//! | a request | anything else | HTTP of the client only |
//! | anything else | nothing | lines that may precede a client's identification |
//! | anything else | `SSH-` | SSH, lines before the client's identification |
//! | anything else | a status line | HTTP of the server only, told as `http_unknown_request` |
//! | anything else | anything else | a greeting of the server, as far as it is one |
//!
//! What a server says first is listened to as a greeting beside all this, until it is a whole one or none.
//!
//! *Anything else* is a first line (to LF) that no server takes for a request; of a server, the first octet
//! that begins neither an identification nor a status line. A client that has begun a line with something
//! that is no word is taken for one that says anything else as soon as the server does, too.

use super::{Conversation, Need, State, Step};
use crate::banner::recognise::{FIRST_LINE_LIMIT, LEADING_USUAL, empty_lines, may_become_request};
use crate::banner::{self, Progress, Recognition, http as heads, recognise, socks, ssh as identification};
use crate::engine::http;
use crate::engine::judge::Judge;
use crate::terms::{Anomaly, Side};

/// What a direction turned out to say first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Spoken {
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

/// So few octets are looked at as they come; a line is waited for behind them.
const FEW: usize = 16;

impl Conversation {
    /// Looks at the first octets of a direction.
    pub(super) fn recognise(&mut self, from: Side, input: &[u8], judge: &mut Judge<'_>) -> (State, Step) {
        if let Some(relayed) = self.read_relay(from, input) {
            return relayed;
        }
        let empty = empty_lines(input);
        if empty > 0 {
            self.overlook(from, input.get(..empty).unwrap_or_default());
            return (State::New, Step::Used(empty));
        }
        let strange = from == Side::Client && !may_become_request(input) && !matches!(input, [4 | 5, ..]);
        if strange && self.heard(Side::Server) == Spoken::Other {
            return self.give_up(from);
        }
        match recognise(from, input) {
            Recognition::More => wait_for_line(input),
            Recognition::Ssh => {
                self.spoke(from, Spoken::Ssh);
                (State::Preamble(0), Step::Used(0))
            }
            Recognition::Http => self.begin_http(from, judge),
            Recognition::PerhapsSsh | Recognition::Relayed => self.begin_other(from, judge),
        }
    }

    /// Goes over empty lines before anything else.
    fn overlook(&mut self, from: Side, lines: &[u8]) {
        let direction = self.direction_mut(from);
        direction.leading += lines.len();
        direction.spaced |= heads::is_spaced(lines);
    }

    fn begin_http(&mut self, from: Side, judge: &mut Judge<'_>) -> (State, Step) {
        let direction = self.direction(from);
        let mut odd = banner::Anomalies::NONE;
        odd.insert_if(direction.spaced, banner::Anomaly::LeadingSpace);
        odd.insert_if(direction.leading > LEADING_USUAL, banner::Anomaly::LongLeading);
        judge.note_message(odd);
        self.spoke(from, Spoken::Http);
        if from == Side::Server {
            match self.heard(Side::Client) {
                // What is a response to one client may be lines before an identification to another.
                Spoken::Ssh => return (State::Preamble(0), Step::Used(0)),
                Spoken::Other => self.note_unknown_request(judge),
                _ => {}
            }
        }
        (State::Head(http::Head::default()), Step::Used(0))
    }

    fn begin_other(&mut self, from: Side, judge: &mut Judge<'_>) -> (State, Step) {
        self.spoke(from, Spoken::Other);
        match self.heard(from.other()) {
            Spoken::Nothing if from == Side::Server && self.client_is_strange() => self.give_up(from),
            Spoken::Nothing | Spoken::Ssh => (State::Preamble(0), Step::Used(0)),
            Spoken::Other => self.give_up(from),
            Spoken::Http => {
                if from == Side::Client {
                    self.note_unknown_request(judge);
                }
                (self.strange(from), Step::Used(0))
            }
        }
    }

    /// What is left of a side that speaks neither SSH nor HTTP: a server may be amid a greeting.
    pub(super) fn strange(&self, from: Side) -> State {
        if from == Side::Server && !self.hearing.is_over() {
            return State::Greeting;
        }
        State::Done { foreign: true }
    }

    /// Whether the client has begun a line that can't become a request.
    fn client_is_strange(&self) -> bool {
        let client = self.direction(Side::Client);
        let unread = client.collector.unread();
        matches!(client.state, State::New) && !unread.is_empty() && !may_become_request(unread)
    }

    /// Both ends say what is neither SSH nor HTTP.
    fn give_up(&mut self, from: Side) -> (State, Step) {
        let other = self.strange(from.other());
        self.change(from.other(), other);
        (self.strange(from), Step::Used(0))
    }

    /// A server answers by HTTP what was not read as a request.
    fn note_unknown_request(&mut self, judge: &mut Judge<'_>) {
        judge.note_application(Anomaly::UnknownRequest);
        if matches!(self.direction(Side::Client).state, State::Preamble(_)) {
            self.change(Side::Client, State::Done { foreign: true });
        }
    }

    /// Remembers what a side says and what that means for the other one.
    fn spoke(&mut self, from: Side, spoken: Spoken) {
        let other = self.heard(from.other());
        self.direction_mut(from).spoken = spoken;
        self.mismatched |=
            matches!((spoken, other), (Spoken::Ssh, Spoken::Http) | (Spoken::Http, Spoken::Ssh));
        let line = usize::from(!self.direction(from.other()).line_start);
        let convert = match (from, spoken, &self.direction(from.other()).state) {
            (Side::Client, Spoken::Ssh, State::Head(_) | State::Next | State::Body(_) | State::Late(_)) => {
                Some(State::Preamble(line))
            }
            (_, Spoken::Http, State::Preamble(_)) => Some(self.strange(from.other())),
            _ => None,
        };
        if let Some(state) = convert {
            self.change(from.other(), state);
        }
    }

    /// What a side has said first, as far as that tells what the other one's octets are: behind a `CONNECT`
    /// the server answers that.
    pub(super) fn heard(&self, from: Side) -> Spoken {
        if from == Side::Client && self.tunnel_asked { Spoken::Http } else { self.direction(from).spoken }
    }

    /// Whether what looks like a server's response may be lines before its SSH identification.
    pub(super) fn may_speak_ssh(&self, from: Side) -> bool {
        from == Side::Server && self.heard(Side::Client) == Spoken::Nothing
    }

    /// Reads lines that may precede an identification, and finds that.
    pub(super) fn read_preamble(
        &mut self,
        from: Side,
        place: usize,
        input: &[u8],
        judge: &mut Judge<'_>,
    ) -> (State, Step) {
        let (state, used) = self.go_over_lines(from, place, input, judge);
        if from == Side::Server {
            self.hearing.hear(input.get(..used).unwrap_or_default(), judge);
        }
        self.preamble += used;
        judge.desk.counters.preamble_octets += used as u64;
        if self.preamble > identification::PREAMBLE_LIMIT
            || self.preamble_lines > identification::PREAMBLE_LINES
        {
            let odd = banner::Anomaly::SshLongPreamble;
            judge.note_application(odd);
        }
        match state {
            State::Ssh => {
                let direction = self.direction(from);
                if from == Side::Client && (self.client_lines || direction.leading > 0) {
                    let odd = banner::Anomaly::SshClientPreamble;
                    judge.note_application(odd);
                }
                self.direction_mut(from).spoken = Spoken::Ssh;
                (State::Ssh, Step::Used(used))
            }
            state if used > 0 => (state, Step::Used(used)),
            state => {
                let cut = matches!(state, State::Preamble(1..));
                let need =
                    if cut { Need::line(identification::CUT_LIMIT) } else { Need::octets(input.len() + 1) };
                (state, Step::Wait(need))
            }
        }
    }

    /// Goes over lines up to an identification; gives how many octets that were.
    fn go_over_lines(
        &mut self,
        from: Side,
        mut place: usize,
        input: &[u8],
        judge: &mut Judge<'_>,
    ) -> (State, usize) {
        let mut at = 0;
        while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
            let begins = identification::begins_line(place);
            if begins && begins_identification(rest) {
                let whole = rest.starts_with(identification::PREFIX);
                match (place, whole) {
                    (0, true) => return (State::Ssh, at),
                    (_, false) => return (State::Preamble(place), at),
                    _ => {}
                }
                let Some(line) = identification::cut_line(rest) else { return (State::Preamble(place), at) };
                self.ssh.suspect(from, line, judge);
            }
            let reach = identification::next_start(place) - place;
            let readable = rest.get(..reach).unwrap_or(rest);
            heads::count_steps(readable.len());
            match memchr::memchr(b'\n', readable) {
                Some(end) => {
                    (at, place) = (at + end + 1, 0);
                    self.preamble_lines += 1;
                    self.client_lines |= from == Side::Client;
                }
                None => (at, place) = (at + readable.len(), place + readable.len()),
            }
        }
        (State::Preamble(place), at)
    }

    /// Goes over a handshake with a SOCKS server: what follows is relayed, and looked at afresh.
    fn read_relay(&mut self, from: Side, input: &[u8]) -> Option<(State, Step)> {
        if from == Side::Server && !self.awaits_relay() {
            return None;
        }
        match socks::handshake(from, input) {
            Progress::More => Some((State::New, Step::Wait(Need::octets(input.len() + 1)))),
            Progress::Never(_) => None,
            Progress::Done { consumed, .. } => {
                let direction = self.direction_mut(from);
                direction.relays = direction.relays.saturating_add(1);
                Some((State::New, Step::Used(consumed)))
            }
        }
    }

    /// Whether the client speaks to a SOCKS server that has not granted its request yet.
    fn awaits_relay(&self) -> bool {
        let client = self.direction(Side::Client);
        let asks = || match (&client.state, client.collector.unread()) {
            (State::New, unread @ [_, ..]) => socks::handshake(Side::Client, unread) == Progress::More,
            _ => false,
        };
        client.relays > self.direction(Side::Server).relays || asks()
    }
}

fn wait_for_line(input: &[u8]) -> (State, Step) {
    let few = input.len() < FEW || matches!(input, [4 | 5, ..]);
    let need = if few { Need::octets(input.len() + 1) } else { Need::line(FIRST_LINE_LIMIT) };
    (State::New, Step::Wait(need))
}

/// Whether `octets` begin an identification, as far as they go.
fn begins_identification(octets: &[u8]) -> bool {
    octets.starts_with(identification::PREFIX) || identification::PREFIX.starts_with(octets)
}
