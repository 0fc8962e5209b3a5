//! Page to test rules against the inventory.

use std::sync::Arc;

use askama::Template;
use askama::filters::{Escaper as _, Html};
use axum::Form;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use crate::inventory::{RuleImpact, ServiceFilter, place};
use crate::serve::database_reader::DatabaseReader;
use crate::serve::response::{RequestError, page};
use crate::serve::rule_test::{RuleTestOutcome, RuleTestResult, run};

/// Initial content of the form.
const EXAMPLE: &str = r#"[[rule]]
id = "old-openssh"
title = "OpenSSH before 9.0"
protocol = "ssh"
from = "server"
match.software = '^OpenSSH_[5-8]\.'
action = "reject"
severity = "medium"
"#;

#[derive(Template)]
#[template(path = "try.html")]
struct RuleTestPage {
    here: &'static str,
    q: String,
    rules: String,
    refused: Option<String>,
    judged: Option<RuleTestResult>,
}

/// Form data.
#[derive(Debug, Deserialize)]
pub(super) struct RuleTestForm {
    rules: String,
    #[serde(default)]
    q: String,
}

pub(super) async fn form() -> Response {
    page(&RuleTestPage {
        here: "try",
        q: String::new(),
        rules: EXAMPLE.to_owned(),
        refused: None,
        judged: None,
    })
}

pub(super) async fn show(
    State(reader): State<Arc<DatabaseReader>>,
    Form(sent): Form<RuleTestForm>,
) -> Result<Response, RequestError> {
    let filter = ServiceFilter::from_text(&sent.q).map_err(RequestError::bad)?;
    // Browsers send forms with CRLF line ends.
    let rules = sent.rules.replace("\r\n", "\n");
    let text = rules.clone();
    let outcome = reader.ask(move |inventory| run(inventory, &text, &filter)).await?;
    let (refused, judged) = match outcome {
        RuleTestOutcome::Refused(why) => (Some(why), None),
        RuleTestOutcome::Judged(judged) => (None, Some(judged)),
    };
    Ok(page(&RuleTestPage { here: "try", q: sent.q, rules, refused, judged }))
}

impl RuleTestPage {
    /// Returns the rules of the form, escaped for HTML only: tabs and line ends are part of them.
    fn sent(&self) -> String {
        let mut text = String::new();
        match Html.write_escaped_str(&mut text, &self.rules) {
            Ok(()) => text,
            Err(_) => String::new(),
        }
    }

    fn place(&self, impact: &RuleImpact) -> String {
        place(&impact.address, impact.port)
    }
}
