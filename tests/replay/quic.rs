//! QUIC in captures of others: what the hellos ask for and their fingerprints, equal to what Suricata's own
//! tests expect.
//!
//! The captures are not part of this repository. `BANNERWALL_SURICATA_VERIFY` names a checkout of
//! github.com/OISF/suricata-verify.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A test's folder, and of each hello in its capture: number of the packet that made it whole, version, name,
/// first application protocol and JA4. A part that their test does not say is what others read in the same
/// capture.
type Expected =
    (&'static str, &'static [(u64, &'static str, Option<&'static str>, &'static str, &'static str)]);

const GOOGLE: &str = "q13d0310h3_55b375c5d22e_cd85d2d88918";

const CASES: &[Expected] = &[
    (
        "ja4-quic",
        &[
            (1, "1", Some("www.blogger.com"), "h3", GOOGLE),
            (2, "1", Some("socpuppet.blogspot.com"), "h3", GOOGLE),
            (3, "1", Some("apis.google.com"), "h3", GOOGLE),
            (4, "1", Some("www.blogger.com"), "h3", GOOGLE),
            (5, "1", Some("apis.google.com"), "h3", GOOGLE),
            (6, "1", Some("www.google.com"), "h3", GOOGLE),
            (7, "1", Some("www.gstatic.com"), "h3", GOOGLE),
            (8, "1", Some("fonts.gstatic.com"), "h3", GOOGLE),
            (9, "1", Some("4.bp.blogspot.com"), "h3", GOOGLE),
            (10, "1", Some("1.bp.blogspot.com"), "h3", GOOGLE),
            (11, "1", Some("2.bp.blogspot.com"), "h3", GOOGLE),
        ],
    ),
    ("ja4-tls-quic", &[(47, "1", Some("cloudflare-quic.com"), "h3", GOOGLE)]),
    // Theirs is told with the server's hello, which is not read here.
    ("quic-ack3", &[(1, "1", Some("tether.edge.apple"), "h3", "q13d0111h3_ee47968ec53b_e36affaf772c")]),
    (
        "quic-frag-middle-gap",
        &[(
            3,
            "1",
            Some("optimizationguide-pa.googleapis.com"),
            "h3",
            "q13d0313h3_55b375c5d22e_c7319ce65786",
        )],
    ),
    (
        "quic-frag-unordered",
        &[(2, "1", Some("mastodon.social"), "h3", "q13d0311h3_55b375c5d22e_5a1f323ef56d")],
    ),
    ("quic-frag-wait", &[(2, "1", Some("www.google.com"), "h3", "q13d0314h3_55b375c5d22e_61e396c58b1f")]),
    (
        "quic-frag",
        &[(2, "1", Some("token.services.mozilla.com"), "h3", "q13d0314h3_55b375c5d22e_61e396c58b1f")],
    ),
    ("quic-ietf", &[(1, "1", Some("msquic.net"), "h3-29", "q00d0309h9_55b375c5d22e_4facdb9c99ee")]),
    (
        "quic-initial-not-first",
        &[(1, "1", Some("scontent-ams4-1.xx.fbcdn.net"), "h3", "q13d0311h3_55b375c5d22e_f2a83c8e78ae")],
    ),
    // Theirs tells the same hello once more behind the server's Retry.
    (
        "quic-retry-multiple",
        &[(2, "1", Some("public-api.wordpress.com"), "h3", "q13d0314h3_55b375c5d22e_61e396c58b1f")],
    ),
    (
        "quic-retry",
        &[
            (2, "1", Some("www.gravatar.com"), "h3", "q13d0314h3_55b375c5d22e_61e396c58b1f"),
            (6, "1", Some("www.gravatar.com"), "h3", "q13d0314h3_55b375c5d22e_61e396c58b1f"),
        ],
    ),
    ("quic-v2", &[(1, "2", None, "h3", "q13i0311h3_55b375c5d22e_c183556c78e2")]),
    // Google's own version, with a handshake that is not TLS.
    ("quic-alerts", &[]),
    ("quic-cyu", &[]),
];

fn replay(capture: &Path) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_bannerwall"))
        .args(["replay", "--format", "json", "--rules"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/rules"))
        .arg(capture)
        .output()
        .expect("the program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("JSON lines");
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn hellos_in_suricatas_captures_are_what_its_tests_expect() {
    let Some(folder) = std::env::var_os("BANNERWALL_SURICATA_VERIFY") else {
        eprintln!("SKIPPED: needs BANNERWALL_SURICATA_VERIFY, a checkout of OISF/suricata-verify");
        return;
    };
    for (name, expected) in CASES {
        let events = replay(&Path::new(&folder).join("tests").join(name).join("input.pcap"));
        let told: Vec<&Value> = events.iter().filter(|event| event["event_type"] == "quic").collect();
        let anomalies = events.iter().filter(|event| event["event_type"] == "anomaly");
        let anomalies: Vec<&Value> = anomalies.map(|event| &event["anomaly"]["event"]).collect();
        assert_eq!(told.len(), expected.len(), "{name}: {told:?} {anomalies:?}");
        let read = !expected.is_empty();
        assert!(!read || anomalies.is_empty(), "{name}: {anomalies:?}");
        assert!(read || anomalies.iter().all(|anomaly| *anomaly == "quic_unknown_version"), "{anomalies:?}");
        for (event, (number, version, sni, alpn, ja4)) in told.iter().zip(*expected) {
            let quic = &event["quic"];
            let extensions = quic["extensions"].as_array().expect("extensions");
            let offered = extensions.iter().find(|extension| extension["name"] == "alpn").expect("ALPN");
            assert_eq!(event["pcap_cnt"], *number, "{name}");
            assert_eq!((&quic["version"], quic["sni"].as_str()), (&Value::from(*version), *sni), "{name}");
            assert_eq!(
                (&offered["values"][0], &quic["ja4"]),
                (&Value::from(*alpn), &Value::from(*ja4)),
                "{name}"
            );
            assert_eq!((&event["proto"], &event["app_proto"]), (&Value::from("UDP"), &Value::from("quic")));
        }
    }
}
