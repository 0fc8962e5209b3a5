//! Names that the program has in tables: on pages that are made of them, or that must have each.

use bannerwall_test_support::reference::assert_named;

use super::{code, keep, prose, table};
use crate::engine::AnomalyPolicy;
use crate::inventory::query;
use crate::rules::PolicyProtocol;
use crate::terms::{Anomaly, Protocol};

#[test]
fn the_anomalies_are_as_their_page_says() {
    let drops = AnomalyPolicy::default();
    let of = |wanted: &str| {
        let rows = Anomaly::ALL.iter().filter(|anomaly| AnomalyPolicy::class_of(**anomaly) == wanted).map(
            |anomaly| {
                let default = if drops.drops(*anomaly) { "drop" } else { "alert" };
                [code(anomaly.name()), default.to_owned(), prose(anomaly.detail())]
            },
        );
        table(["Anomaly", "With `--enforce`", "Meaning"], rows)
    };
    let classes = ["packet", "tcp", "quic", "banner", "budget"];
    keep("anomalies.md", &classes.map(|class| (class, of(class))));
}

#[test]
fn each_protocol_has_its_name_on_the_page() {
    assert_named("reference/protocols.md", PolicyProtocol::names().into_iter().filter(|name| *name != "any"));
    assert_named(
        "reference/protocols.md",
        Protocol::all().map(Protocol::name).filter(|name| *name != "other"),
    );
}

#[test]
fn each_path_of_the_api_stands_on_the_page() {
    let api: serde_json::Value = serde_json::from_str(include_str!("../serve/openapi.json")).expect("JSON");
    let paths = api["paths"].as_object().expect("paths");
    let methods = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods").keys();
        methods.map(move |method| format!("{} {path}", method.to_uppercase()))
    });
    assert_named("reference/http-api.md", methods);
}

#[test]
fn each_field_that_can_be_counted_stands_on_the_page() {
    assert_named("reference/filters.md", query::fields());
}
