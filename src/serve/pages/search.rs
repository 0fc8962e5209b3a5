//! Search: one box for addresses, products, banners, rules and CVEs.

use std::net::IpAddr;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use ipnet::IpNet;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::overview::{ValueBar, bars};
use super::rules::{RuleLine, is_cve, rules_about};
use crate::inventory::{InventoryDatabase, SearchHits, ServiceFilter, ServiceRecord, StoreError, query};
use crate::serve::database_reader::DatabaseReader;
use crate::serve::html_escape::term;
use crate::serve::page_frame::PageFrame;
use crate::serve::response::{RequestError, page};

/// Limit of each list.
const SHOWN: usize = 20;

/// Largest length of a search text, in bytes.
const LONGEST: usize = 256;

#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage {
    frame: PageFrame,
    word: String,
    rules: Vec<(RuleLine, i64)>,
    products: Vec<ValueBar>,
    services: Vec<ServiceRecord>,
    /// Filter of all services whose banner contains the word.
    term: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct SearchQuery {
    #[serde(default)]
    q: String,
}

pub(super) async fn show(
    State(reader): State<Arc<DatabaseReader>>,
    Query(asked): Query<SearchQuery>,
) -> Result<Response, RequestError> {
    let word = asked.q.trim().to_owned();
    if word.len() > LONGEST {
        return Err(RequestError::bad(format_args!("a search has at most {LONGEST} bytes")));
    }
    if let Some(path) = target(&word) {
        return Ok(Redirect::to(&path).into_response());
    }
    let (catalog, own) = (Arc::clone(&reader.rules), word.clone());
    let (hits, rules, is_rule) = reader
        .ask(move |inventory: &InventoryDatabase| -> Result<_, StoreError> {
            let is_rule = catalog.rule(&own).is_some() || query::rule(inventory, &own)?.is_some();
            if is_rule {
                return Ok((SearchHits::default(), Vec::new(), true));
            }
            let rules = rules_about(inventory, &catalog, &own, SHOWN)?;
            Ok((query::search(inventory, &own, SHOWN)?, rules, false))
        })
        .await?;
    if is_rule {
        return Ok(Redirect::to(&format!("/rules/{}", encoded(&word))).into_response());
    }
    let products = bars(hits.products, |value| term("product", value));
    let term = term("banner", &word);
    let frame = PageFrame::new("");
    Ok(page(&SearchPage { frame, word, rules, products, services: hits.services, term }))
}

/// Returns the page that a text names by its form.
fn target(word: &str) -> Option<String> {
    if word.is_empty() {
        return Some("/".to_owned());
    }
    if let Ok(address) = word.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Some(format!("/hosts/{address}"));
    }
    if is_cve(word) {
        return Some(format!("/cves/{}", word.to_uppercase()));
    }
    let network = word.parse::<IpNet>().ok().map(|network| network.to_string()).or_else(|| prefix(word));
    if let Some(network) = network {
        return Some(format!("/hosts?q={}", encoded(&format!("net:{network}"))));
    }
    let is_filter = word.contains(':') && ServiceFilter::from_text(word).is_ok();
    is_filter.then(|| format!("/services?q={}", encoded(word)))
}

/// Returns the network of an incomplete IPv4 address: `192.0.2.`
fn prefix(word: &str) -> Option<String> {
    let parts: Vec<&str> = word.strip_suffix('.').unwrap_or(word).split('.').collect();
    let is_octet = |part: &&str| part.parse::<u8>().is_ok();
    let is_prefix = (2..=3).contains(&parts.len()) && word.ends_with('.') && parts.iter().all(is_octet);
    let missing = 4_usize.checked_sub(parts.len())?;
    is_prefix.then(|| format!("{}{}/{}", parts.join("."), ".0".repeat(missing), parts.len() * 8))
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl SearchPage {
    /// True if nothing was found.
    fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.products.is_empty() && self.services.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::target;

    #[test]
    fn a_text_leads_to_the_page_that_it_names() {
        for (word, path) in [
            ("", "/"),
            ("192.0.2.7", "/hosts/192.0.2.7"),
            ("[2001:db8::1]", "/hosts/2001:db8::1"),
            ("cve-2024-6387", "/cves/CVE-2024-6387"),
            ("192.0.2.0/24", "/hosts?q=net%3A192%2E0%2E2%2E0%2F24"),
            ("192.0.", "/hosts?q=net%3A192%2E0%2E0%2E0%2F16"),
            ("product:openssh", "/services?q=product%3Aopenssh"),
        ] {
            assert_eq!(target(word).as_deref(), Some(path), "{word}");
        }
        for word in ["openssh", "OpenSSH 9.2", "9.2", "colour:red", "//evil.example", "2024.9"] {
            assert_eq!(target(word), None, "{word}");
        }
    }
}
