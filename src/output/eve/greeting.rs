//! EVE's `ftp` and `pop3` objects, whose reply is the greeting. EVE has no field for other greetings;
//! these are in `bannerwall.greeting`.

use serde::Serialize;

use crate::event::GreetingFacts;

/// EVE's `ftp`.
#[derive(Debug, Serialize)]
pub(super) struct EveFtp<'a> {
    completion_code: [&'a str; 1],
    reply: &'a [String],
    reply_received: &'static str,
}

/// EVE's `pop3`.
#[derive(Debug, Serialize)]
pub(super) struct EvePop3<'a> {
    response: Pop3Response<'a>,
}

#[derive(Debug, Serialize)]
struct Pop3Response<'a> {
    success: bool,
    /// `OK` or `ERR`.
    status: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<&'a str>,
}

impl<'a> EveFtp<'a> {
    /// Returns none if the greeting belongs to another protocol.
    pub(super) fn new(facts: &'a GreetingFacts) -> Option<Self> {
        (facts.greeting.name() == "ftp").then_some(Self {
            completion_code: [&facts.code],
            reply: &facts.texts,
            reply_received: "yes",
        })
    }
}

impl<'a> EvePop3<'a> {
    /// Returns none if the greeting belongs to another protocol.
    pub(super) fn new(facts: &'a GreetingFacts) -> Option<Self> {
        let response = Pop3Response {
            success: facts.welcome,
            status: facts.code.trim_start_matches(['+', '-']),
            header: facts.texts.first().map(String::as_str).filter(|text| !text.is_empty()),
        };
        (facts.greeting.name() == "pop3").then_some(Self { response })
    }
}
