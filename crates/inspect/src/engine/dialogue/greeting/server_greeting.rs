//! The start of a server's stream, read as a greeting next to all other protocols that it may be.

use std::sync::Arc;

use crate::banner::{Banner, GreetingBanner, ParseProgress, greeting};
use crate::engine::dialogue::awaited_input::FEW;
use crate::engine::dialogue::finding::{DialogueFinding, FoundBanner, MatchedRules, ReadContext};
use crate::event::{ApplicationFacts, GreetingFacts};
use crate::rules::BannerStage;
use crate::terms::{GreetingProtocol, Side};

/// The progress of a greeting.
#[derive(Debug, Default)]
pub enum GreetingProgress {
    /// Nothing yet.
    #[default]
    Open,
    /// The beginning of one.
    Amid(Vec<u8>),
    /// A whole one, or none.
    Over,
}

/// The kind of some bytes.
pub enum GreetingPart {
    /// Part of what may be a greeting.
    More,
    /// The end of one of that protocol, as far as so many of them.
    Whole(GreetingProtocol, usize),
    /// None.
    Nothing,
}

impl GreetingProgress {
    /// Takes the next bytes of the server.
    pub(super) fn read_first(
        &mut self,
        octets: &[u8],
        answers: bool,
        context: &mut ReadContext<'_>,
    ) -> GreetingPart {
        if octets.is_empty() {
            return GreetingPart::More;
        }
        let port = context.server_port;
        let mut heard = match std::mem::replace(self, Self::Over) {
            Self::Open => Vec::new(),
            Self::Amid(heard) => heard,
            Self::Over => return GreetingPart::Nothing,
        };
        let before = heard.len();
        let worth_a_look = before < FEW || memchr::memchr(b'\n', octets).is_some();
        heard.extend_from_slice(octets);
        if !worth_a_look && heard.len() < greeting::LINE_LIMIT {
            *self = Self::Amid(heard);
            return GreetingPart::More;
        }
        match greeting::parse(&heard, port) {
            ParseProgress::More => {
                *self = Self::Amid(heard);
                GreetingPart::More
            }
            ParseProgress::Never(_) => GreetingPart::Nothing,
            ParseProgress::Done { value, consumed } => {
                emit(&value, answers, context);
                GreetingPart::Whole(value.greeting, consumed.saturating_sub(before))
            }
        }
    }

    /// The server says no more: what there is of a greeting is all of it.
    pub(super) fn end(&mut self, answers: bool, context: &mut ReadContext<'_>) {
        let port = context.server_port;
        if let Self::Amid(heard) = std::mem::replace(self, Self::Over)
            && let Some(banner) = greeting::unfinished(&heard, port)
        {
            emit(&banner, answers, context);
        }
    }

    /// True if a greeting has begun and is not whole.
    pub(super) const fn is_amid(&self) -> bool {
        matches!(self, Self::Amid(_))
    }

    /// True if nothing more is to be heard.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }

    /// Bytes of memory held.
    pub(super) const fn memory(&self) -> usize {
        match self {
            Self::Amid(heard) => heard.capacity(),
            _ => 0,
        }
    }
}

/// Asks the rules about a greeting, and tells it. What `answers` a client that spoke first looks like one in
/// protocols that greet nobody, as Redis's `+OK` does: no event says that it is one.
fn emit(banner: &GreetingBanner<'_>, answers: bool, context: &mut ReadContext<'_>) {
    let fingerprint = context.settings.fingerprints().and_then(|fingerprints| fingerprints.greeting(banner));
    let facts = Arc::new(GreetingFacts { fingerprint, ..GreetingFacts::from(banner) });
    let said = ApplicationFacts::Greeting(Arc::clone(&facts));
    if !answers {
        context.find(DialogueFinding::Seen(said.protocol(), Side::Server));
        context.find(DialogueFinding::Exchange(said.clone(), None));
    }
    context.find(DialogueFinding::Banner(FoundBanner {
        banner: &Banner::Greeting(*banner),
        stage: BannerStage::Whole,
        request: None,
        product: facts.fingerprint.as_ref(),
        transaction: None,
        matched: &mut MatchedRules::default(),
        facts: &|| said.clone(),
    }));
}
