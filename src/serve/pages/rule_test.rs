//! Page to test rules against the inventory.

use std::sync::Arc;

use askama::Template;
use askama::filters::{Escaper as _, Html};
use axum::Form;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;

use crate::diagnostics::several;
use crate::inventory::{InventoryDatabase, RuleImpact, ServiceFilter, place};
use crate::serve::database_reader::DatabaseReader;
use crate::serve::page_frame::PageFrame;
use crate::serve::response::{RequestError, page};
use crate::serve::rule_catalog::RuleDetails;
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
    frame: PageFrame,
    q: String,
    rules: String,
    refused: Option<String>,
    judged: Option<RuleTestResult>,
}

/// Form data: rules, or the id of a rule that the page knows.
#[derive(Debug, Deserialize)]
pub(super) struct RuleTestForm {
    #[serde(default)]
    rules: String,
    #[serde(default)]
    rule: String,
    #[serde(default)]
    q: String,
}

/// Initial content of the form: a known rule, or a policy of a port.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RuleTestQuery {
    #[serde(default)]
    rule: String,
    #[serde(default)]
    port: Option<u16>,
    #[serde(default)]
    allow: String,
}

pub(super) async fn form(
    State(reader): State<Arc<DatabaseReader>>,
    Query(asked): Query<RuleTestQuery>,
) -> Result<Response, RequestError> {
    let rules = match (asked.rule.as_str(), asked.port) {
        ("", Some(port)) => policy(port, &asked.allow),
        ("", None) => EXAMPLE.to_owned(),
        (id, _) => text_of(&reader, id.to_owned()).await?,
    };
    let frame = PageFrame::new("try");
    Ok(page(&RuleTestPage { frame, q: String::new(), rules, refused: None, judged: None }))
}

pub(super) async fn show(
    State(reader): State<Arc<DatabaseReader>>,
    Form(sent): Form<RuleTestForm>,
) -> Result<Response, RequestError> {
    let filter = ServiceFilter::from_text(&sent.q).map_err(RequestError::bad)?;
    let rules = match sent.rule.as_str() {
        // Browsers send forms with CRLF line ends.
        "" => sent.rules.replace("\r\n", "\n"),
        id => text_of(&reader, id.to_owned()).await?,
    };
    let text = rules.clone();
    let outcome = reader.ask(move |inventory| run(inventory, &text, &filter)).await?;
    let (refused, judged) = match outcome {
        RuleTestOutcome::Refused(why) => (Some(why), None),
        RuleTestOutcome::Judged(judged) => (None, Some(judged)),
    };
    Ok(page(&RuleTestPage { frame: PageFrame::new("try"), q: sent.q, rules, refused, judged }))
}

/// Returns the text of a rule that the page knows, with a blocking action.
async fn text_of(reader: &Arc<DatabaseReader>, id: String) -> Result<String, RequestError> {
    let rules = Arc::clone(&reader.rules);
    let read = move |_: &InventoryDatabase| {
        let text = rules.rule(&id).and_then(RuleDetails::read_blocking_text);
        text.ok_or_else(|| RequestError::Missing(format!("The rule files of this page have no rule {id}.")))
    };
    reader.ask(read).await
}

/// Returns a policy that allows only one protocol on a port.
fn policy(port: u16, protocol: &str) -> String {
    // The protocol comes from a link; a quote in it would end the string.
    let protocol: String = protocol.chars().filter(|it| it.is_ascii_alphanumeric() || *it == '-').collect();
    format!("[[policy]]\nid = \"only-{protocol}-on-{port}\"\nport = {port}\nallow = \"{protocol}\"\n")
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

    /// Returns the result in a sentence.
    fn outcome(&self, judged: &RuleTestResult) -> String {
        let assets: usize = judged.sums.iter().map(|sum| sum.assets).sum();
        let connections: i64 = judged.sums.iter().map(|sum| sum.connections).sum();
        match i64::try_from(assets).unwrap_or(i64::MAX) {
            0 => "These rules would cut off nothing that was seen".to_owned(),
            count => format!(
                "These rules would cut off {} in {}",
                if count == 1 {
                    "1 service or client".to_owned()
                } else {
                    format!("{count} services and clients")
                },
                several(connections, "connection")
            ),
        }
    }

    fn place(&self, impact: &RuleImpact) -> String {
        place(&impact.address, impact.port)
    }
}
