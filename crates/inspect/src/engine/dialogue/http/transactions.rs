//! HTTP transactions of one connection: each response with the request that it answers.

use std::collections::VecDeque;
use std::sync::Arc;

use super::late_head::LateHead;
use super::message_end::{self, RTSP, UnfinishedReason, note_disputed, note_hostile, note_unfinished};
use super::transaction::{
    HttpTransaction, OverdueRequest, RequestMethod, ask_request, ask_response, name_by_title,
};
use crate::banner::framing::{self, FramedMessage};
use crate::banner::http::{self, KeptHead, ParsedHead};
use crate::banner::recognise::is_plain_request_line;
use crate::banner::{
    Anomaly, HttpHeaders, ParseProgress, ParseRejection, RequestHead, ResponseHead, html_title,
};
use crate::engine::dialogue::finding::{DialogueFinding, MatchedRules, ReadContext};
use crate::event::{ApplicationFacts, HttpFacts, Protocol, Side};
use crate::rules::BannerStage;

/// Requests that wait for their response; with more, the oldest is told without one.
const WAITING_LIMIT: usize = 128;

/// Requests told without a response whose place in the order is still known. With more, the client asks
/// for what no server answers.
const OVERDUE_LIMIT: usize = 1 << 16;

/// The transactions of one connection.
#[derive(Debug, Default)]
pub struct HttpTransactions {
    /// Requests that were told without a response, oldest first: all before those that wait.
    overdue: VecDeque<OverdueRequest>,
    /// Requests without a response, oldest first.
    pub(super) waiting: VecDeque<HttpTransaction>,
    /// The last request asks for a tunnel, or for another protocol on the same connection.
    asks_tunnel: bool,
    /// Both ends agree on WebSocket.
    websocket: bool,
    /// The one whose response is being read.
    pub(super) answering: Option<HttpTransaction>,
    /// True if readers could disagree about the end of that response.
    disputed: bool,
    /// True if no further response is read.
    left: bool,
    /// True if a request asked for a tunnel since, or to send what has no end: whether it may, nobody sees.
    perhaps_tunnel: bool,
    /// True if both ends mingle messages with bytes of another kind, as they may by RTSP.
    mingles: bool,
    /// True if a response came for which no request was seen.
    unasked: bool,
    /// True if no request was one by RFC 9112, and the server has not answered by HTTP: rules are asked about
    /// what some server would take for a request, but no event says that it was one.
    doubtful: bool,
    /// True if the server has answered by HTTP.
    answered: bool,
    /// True if reading ended within the body of a request.
    left_body: bool,
    next: u32,
}

/// The progress in one direction.
#[derive(Debug)]
pub enum HttpProgress {
    /// More bytes are needed.
    More,
    /// A head of so many bytes; a body follows, perhaps an empty one.
    Head(usize, FramedMessage),
    /// An interim response of so many bytes.
    Interim(usize),
    /// Number of bytes of a head after which others may read more fields: it has no version, or is too long
    /// to store.
    Part(usize, Box<LateHead>),
    /// The part of the head so far is enough to stop the flow.
    Stopped,
    /// An SSH identification begins behind so many bytes.
    Ssh(usize),
    /// It was not HTTP after all.
    Never(ParseRejection),
}

impl HttpTransactions {
    /// Reads the whole request head at the start of `input`.
    pub(super) fn whole_request(&mut self, input: &[u8], context: &mut ReadContext<'_>) -> HttpProgress {
        let (ParsedHead { message, anomalies }, consumed) = match http::parse_request(input) {
            ParseProgress::More => return HttpProgress::More,
            ParseProgress::Never(reason) => return HttpProgress::Never(reason),
            ParseProgress::Done { value, consumed } => (value, consumed),
        };
        context.note_all(anomalies);
        let framed = framing::of_request(&message);
        let head = input.get(..consumed).unwrap_or_default();
        note_hostile(framed.hostile, Side::Client, context);
        note_disputed(head, anomalies, Side::Client, context);
        let is_cut = anomalies.contains(Anomaly::HeadTooLong);
        let body =
            message_end::open(framed.framing, is_cut, || KeptHead::of_request(head, &message), context);
        let part = message.version.is_empty() || is_cut;
        let is_connect = framing::is_connect(message.method);
        let upgrades = || message.headers.all("upgrade");
        let asks = is_connect || upgrades().next().is_some();
        self.perhaps_tunnel |= self.left && asks || message_end::streams(&message);
        self.asks_tunnel = is_connect || upgrades().any(|protocols| !is_websocket(protocols));
        self.mingles |= message.version.starts_with(RTSP);
        let stage = message_end::stage(&body);
        let reached = if part {
            HttpProgress::Part(consumed, Box::new(LateHead::new(head, &message.headers, None, body)))
        } else {
            HttpProgress::Head(consumed, body)
        };
        self.take_request(message, head, stage, context);
        reached
    }

    /// True if what is read as requests may well be something else.
    pub const fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// Notes what a side begins with.
    pub fn begin(&mut self, from: Side, input: &[u8]) {
        let line = input.split(|octet| *octet == b'\n').next().unwrap_or_default();
        self.doubtful = match from {
            Side::Client => !is_plain_request_line(line) && !self.answered,
            Side::Server if line.starts_with(RTSP) => self.doubtful || !self.was_asked(),
            Side::Server => false,
        };
        self.answered |= from == Side::Server && !line.starts_with(RTSP);
    }

    /// True if reading ended within the body of a request.
    pub const fn left_body(&self) -> bool {
        self.left_body
    }

    /// Notes whether the body of a request goes on where reading stands.
    pub(super) const fn note_body(&mut self, goes_on: bool) {
        self.left_body = goes_on;
    }

    /// True if there was a request.
    pub const fn was_asked(&self) -> bool {
        self.next > 0
    }

    /// True if a server has answered a request by HTTP.
    pub const fn is_answered(&self) -> bool {
        self.was_asked() && self.answered && !self.unasked && !self.doubtful
    }

    /// True if the last request was a `CONNECT`, or asks for another protocol than WebSocket: the client may
    /// send what is to be relayed at once.
    pub(super) const fn asks_tunnel(&self) -> bool {
        self.asks_tunnel
    }

    /// True if what follows a response that switches protocols is WebSocket: both ends have named it. Clients
    /// that have not may take such a response for an interim one.
    fn agrees_on_websocket(&self, response: &ResponseHead<'_>) -> bool {
        let named = |headers: &HttpHeaders<'_>| headers.all("upgrade").any(is_websocket);
        let request = self.waiting.front().and_then(|waiting| waiting.head.request());
        named(&response.headers) && request.is_some_and(|request| named(&request.headers))
    }

    /// True if both ends speak WebSocket.
    pub(super) const fn speaks_websocket(&self) -> bool {
        self.websocket
    }

    /// True if no request waits for its response.
    pub(super) fn has_answered_all(&self) -> bool {
        self.waiting.is_empty() && self.overdue.is_empty()
    }

    pub(super) fn take_request(
        &mut self,
        message: RequestHead<'_>,
        head: &[u8],
        stage: BannerStage,
        context: &mut ReadContext<'_>,
    ) {
        self.doubtful &= !is_plain_request_line(message.line);
        if !self.doubtful {
            context.find(DialogueFinding::Seen(Protocol::Http, Side::Client));
        }
        self.emit_unanswered(context);
        // It is kept for the response that answers it.
        let head = if self.left { KeptHead::default() } else { KeptHead::of_request(head, &message) };
        let mut transaction = HttpTransaction {
            number: self.number(),
            head,
            facts: Arc::new(HttpFacts {
                request: Some(context.settings.disclosure.request(&message)),
                response: None,
            }),
            matched: MatchedRules::default(),
        };
        ask_request(message, stage, &mut transaction, context);
        self.waiting.push_back(transaction);
        if self.waiting.len() > WAITING_LIMIT
            && let Some(oldest) = self.waiting.pop_front()
        {
            if self.overdue.len() < OVERDUE_LIMIT {
                self.overdue
                    .push_back(OverdueRequest { number: oldest.number, method: RequestMethod::of(&oldest) });
            }
            self.emit(oldest, context);
        }
    }

    /// Reads the whole response head at the start of `input`.
    pub(super) fn whole_response(&mut self, input: &[u8], context: &mut ReadContext<'_>) -> HttpProgress {
        let (ParsedHead { message, anomalies }, consumed) = match http::parse_response(input) {
            ParseProgress::More => return HttpProgress::More,
            ParseProgress::Never(reason) => return HttpProgress::Never(reason),
            ParseProgress::Done { value, consumed } => (value, consumed),
        };
        context.note_all(anomalies);
        if framing::is_interim(message.status) {
            self.take_interim(message, context);
            return HttpProgress::Interim(consumed);
        }
        let asked = || Some(self.waiting.front()?.facts.request.as_ref()?.method.as_bytes());
        let method = self.overdue.front().map_or_else(asked, |overdue| Some(overdue.method.name()));
        let framed = framing::of_response(&message, method);
        self.websocket = message.status == framing::SWITCHING && self.agrees_on_websocket(&message);
        note_hostile(framed.hostile, Side::Server, context);
        let head = input.get(..consumed).unwrap_or_default();
        let is_disputed = note_disputed(head, anomalies, Side::Server, context);
        self.disputed = framed.hostile.is_some() || is_disputed;
        let is_cut = anomalies.contains(Anomaly::HeadTooLong);
        let method = method.filter(|_| is_cut).map(<[u8]>::to_vec);
        let body =
            message_end::open(framed.framing, is_cut, || KeptHead::of_response(head, &message), context);
        let stage = message_end::stage(&body);
        let reached = if is_cut {
            HttpProgress::Part(consumed, Box::new(LateHead::new(head, &message.headers, method, body)))
        } else {
            HttpProgress::Head(consumed, body)
        };
        let transaction = self.take_response(message, stage, context);
        self.answering = Some(transaction);
        reached
    }

    /// Judges an interim response, which some clients show or take for the final one. It is told only if no
    /// final response replaces it.
    fn take_interim(&mut self, message: ResponseHead<'_>, context: &mut ReadContext<'_>) {
        if !self.overdue.is_empty() || self.waiting.is_empty() {
            return ask_response(message, BannerStage::Part, &mut HttpTransaction::default(), context);
        }
        if let Some(waiting) = self.waiting.front_mut() {
            let facts = context.settings.disclosure.response(&message);
            Arc::make_mut(&mut waiting.facts).response = Some(facts);
            ask_response(message, BannerStage::Part, waiting, context);
        }
    }

    pub(super) fn take_response(
        &mut self,
        message: ResponseHead<'_>,
        stage: BannerStage,
        context: &mut ReadContext<'_>,
    ) -> HttpTransaction {
        context.find(DialogueFinding::Seen(Protocol::Http, Side::Server));
        let overdue = self.overdue.pop_front();
        let mut transaction = match &overdue {
            Some(overdue) => HttpTransaction { number: overdue.number, ..HttpTransaction::default() },
            None => self.next_waiting(),
        };
        let mut facts = context.settings.disclosure.response(&message);
        facts.fingerprint =
            context.settings.fingerprints().and_then(|known| known.http_response(&message, None));
        Arc::make_mut(&mut transaction.facts).response = Some(facts);
        ask_response(message, stage, &mut transaction, context);
        transaction
    }

    /// True if the response that is being read answers a request that was seen, ends without dispute, and is
    /// awaited alone.
    pub(super) fn answers_the_only_request(&self) -> bool {
        let asked = self.answering.as_ref().is_some_and(|it| it.facts.request.is_some());
        asked && !self.disputed && self.waiting.is_empty() && self.overdue.is_empty()
    }

    /// Reads what there is of a head whose end will not come.
    pub fn unfinished(
        &mut self,
        from: Side,
        input: &[u8],
        why: UnfinishedReason,
        context: &mut ReadContext<'_>,
    ) {
        match from {
            Side::Client => {
                let Some(ParsedHead { message, anomalies }) =
                    http::parse_unfinished_request(input, why == UnfinishedReason::Ended)
                else {
                    return;
                };
                note_unfinished(anomalies, why, context);
                self.take_request(message, input, BannerStage::Part, context);
            }
            Side::Server => {
                let Some(ParsedHead { message, anomalies }) =
                    http::parse_unfinished_response(input, why == UnfinishedReason::Ended)
                else {
                    return;
                };
                note_unfinished(anomalies, why, context);
                if framing::is_interim(message.status) {
                    return self.take_interim(message, context);
                }
                let transaction = self.take_response(message, BannerStage::Part, context);
                self.emit(transaction, context);
            }
        }
    }

    /// Judges what waited for a body and ends the message; a response ends its transaction.
    pub(super) fn finish(&mut self, from: Side, mut message: FramedMessage, context: &mut ReadContext<'_>) {
        self.judge_body(from, &mut message, context);
        if from == Side::Client {
            return self.emit_unanswered(context);
        }
        let Some(mut transaction) = self.answering.take() else { return };
        if let Some(response) = &mut Arc::make_mut(&mut transaction.facts).response {
            response.body_length = message.length();
        }
        self.emit(transaction, context);
    }

    /// Records whether readers could disagree about the end of the current response.
    pub(super) const fn dispute(&mut self, disputed: bool) {
        self.disputed |= disputed;
    }

    /// No further response is read: those that were seen have answered all requests.
    pub(super) const fn leave(&mut self) {
        self.left = true;
    }

    /// True if no further response is read.
    pub const fn has_left(&self) -> bool {
        self.left
    }

    /// True if what one side says may be no messages: in a tunnel that a response which nobody read has
    /// opened, or of a film.
    pub const fn is_perhaps_tunnel(&self, from: Side) -> bool {
        self.mingles || (self.perhaps_tunnel && matches!(from, Side::Client))
    }

    /// True if a response was read, and no request waits for one.
    pub(super) fn has_answered(&self) -> bool {
        self.next > 0 && !self.unasked && self.has_answered_all()
    }

    /// Tells of requests whose responses will not be read.
    fn emit_unanswered(&mut self, context: &mut ReadContext<'_>) {
        if self.left {
            for transaction in std::mem::take(&mut self.waiting) {
                self.emit(transaction, context);
            }
        }
    }

    /// Asks the rules that wait for a message's body, once.
    pub(super) fn judge_body(
        &mut self,
        from: Side,
        message: &mut FramedMessage,
        context: &mut ReadContext<'_>,
    ) {
        let title = html_title::title(message.body());
        if from == Side::Server
            && let Some(response) =
                self.answering.as_mut().and_then(|it| Arc::make_mut(&mut it.facts).response.as_mut())
        {
            response.title = title;
        }
        let Some(head) = message.take_head() else { return };
        let body = message.body();
        match from {
            Side::Client => {
                if let (Some(request), Some(transaction)) = (head.request(), self.waiting.back_mut()) {
                    let request = RequestHead { body, ..request };
                    ask_request(request, BannerStage::Rest, transaction, context);
                }
            }
            Side::Server => {
                if let (Some(response), Some(transaction)) = (head.response(), self.answering.as_mut()) {
                    let response = ResponseHead { body, ..response };
                    name_by_title(&response, transaction, context);
                    ask_response(response, BannerStage::Rest, transaction, context);
                }
            }
        }
    }

    /// Tells of every transaction that will not be finished.
    pub fn emit_rest(&mut self, context: &mut ReadContext<'_>) {
        if let Some(transaction) = self.answering.take() {
            self.emit(transaction, context);
        }
        self.overdue.clear();
        for transaction in std::mem::take(&mut self.waiting) {
            self.emit(transaction, context);
        }
    }

    /// Bytes of memory held, roughly.
    pub fn memory(&self) -> usize {
        let heads: usize =
            self.waiting.iter().chain(&self.answering).map(|waiting| waiting.head.memory() * 2).sum();
        heads + self.overdue.len() * size_of::<OverdueRequest>()
    }

    /// Forgets the requests that wait: they were never accepted.
    pub fn forget(&mut self) {
        self.overdue.clear();
        self.waiting.clear();
        self.next = 0;
    }

    fn emit(&self, transaction: HttpTransaction, context: &mut ReadContext<'_>) {
        if !self.doubtful {
            let HttpTransaction { number, facts, .. } = transaction;
            let said = ApplicationFacts::Http(facts);
            context.find(DialogueFinding::Exchange(said, Some(number)));
        }
    }

    /// The request that the next response answers; one that was not seen if none waits.
    fn next_waiting(&mut self) -> HttpTransaction {
        match self.waiting.pop_front() {
            Some(transaction) => transaction,
            None => {
                self.unasked = true;
                HttpTransaction { number: self.number(), ..HttpTransaction::default() }
            }
        }
    }

    const fn number(&mut self) -> u32 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        number
    }
}

fn is_websocket(protocols: &[u8]) -> bool {
    protocols.trim_ascii().eq_ignore_ascii_case(b"websocket")
}
