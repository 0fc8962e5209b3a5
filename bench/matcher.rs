//! What a banner costs with 10 to 10,000 rules, and what loading them costs.
//!
//! `cargo bench --bench matcher`

use std::fmt::Write as _;
use std::hint::black_box;

use bannerwall_inspect::banner::{Banner, ParseProgress, Side, SshBanner, http, ssh};
use bannerwall_inspect::rules::{BannerContext, RuleSet};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

const COUNTS: [usize; 4] = [10, 100, 1_000, 10_000];

/// Rules as packs have them: products with versions, exact builds, headers that tell, clients.
fn rules(count: usize) -> String {
    let mut text = String::new();
    for number in 0..count {
        let body = match number % 5 {
            0 => format!(
                "protocol = 'ssh'\nmatch.software = '^Product{number}_(?<version>\\d+\\.\\d+(p\\d+)?)'\nversion = '<{}.{}'",
                number % 90 + 1,
                number % 7
            ),
            1 => format!("protocol = 'ssh'\nmatch.banner = '^SSH-2\\.0-Vendor[-_]{number}\\.(\\d+)$'"),
            2 => format!(
                "protocol = 'http'\nmatch.\"header.server\" = '(?i)^thing{number}/(?<version>[\\d.]+)'\nversion = '>=2.{}, <2.{}'",
                number % 30,
                number % 30 + 9
            ),
            3 => format!(
                "protocol = 'http'\nmatch.status = '^200$'\nmatch.\"header.x-powered-by\" = 'engine{number}\\b'"
            ),
            _ => format!("protocol = 'http'\nfrom = 'client'\nmatch.user_agent = '(?i)scanner{number}(/|$)'"),
        };
        writeln!(text, "[[rule]]\nid = 'r{number}'\naction = 'alert'\n{body}\n").expect("a String takes all");
    }
    text
}

fn load(count: usize) -> RuleSet {
    RuleSet::parse("bench.toml", &rules(count)).expect("the rules are good").rules
}

/// Rules of which all share one pattern and differ in the versions that they are about.
fn one_product(count: usize) -> RuleSet {
    let text: String = (0..count)
        .map(|number| {
            let version = format!("{}.{}p1", 20 + number / 100, number % 100);
            format!(
                "[[rule]]\nid = 'r{number}'\nprotocol = 'ssh'\naction = 'alert'\nmatch.software = '^OpenSSH_(?<version>\\d+\\.\\d+p\\d+)'\nversion = '={version}'\n"
            )
        })
        .collect();
    RuleSet::parse("bench.toml", &text).expect("the rules are good").rules
}

fn benchmark(criterion: &mut Criterion) {
    let line = b"SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13.5";
    let identification = ssh::parse_line(line).0;
    let banner = Banner::Ssh(SshBanner { from: Side::Server, identification, kex: None });
    let head = b"HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 12:00:00 GMT\r\nServer: nginx/1.27.3\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 6124\r\nConnection: keep-alive\r\nX-Powered-By: PHP/8.3.1\r\nStrict-Transport-Security: max-age=31536000\r\nX-Frame-Options: DENY\r\n\r\n";
    let ParseProgress::Done { value: response, .. } = http::parse_response(head) else {
        panic!("a response")
    };
    let response = Banner::Response(response.message);
    let context = BannerContext::default();
    for (name, banner) in [("ssh, nothing matches", &banner), ("http, nothing matches", &response)] {
        let mut group = criterion.benchmark_group(name);
        for count in COUNTS {
            let set = load(count);
            assert!(set.evaluate(banner, &context).is_empty());
            group.bench_with_input(BenchmarkId::from_parameter(count), &set, |bencher, set| {
                bencher.iter(|| black_box(set.evaluate(black_box(banner), &context)));
            });
        }
    }
    let mut group = criterion.benchmark_group("ssh, one product, no version matches");
    for count in COUNTS {
        let set = one_product(count);
        assert!(set.evaluate(&banner, &context).is_empty());
        group.bench_with_input(BenchmarkId::from_parameter(count), &set, |bencher, set| {
            bencher.iter(|| black_box(set.evaluate(black_box(&banner), &context)));
        });
    }
    drop(group);
    let mut group = criterion.benchmark_group("load");
    group.sample_size(10);
    for count in COUNTS {
        let text = rules(count);
        group.bench_with_input(BenchmarkId::from_parameter(count), &text, |bencher, text| {
            bencher.iter(|| RuleSet::parse("bench.toml", black_box(text)).expect("the rules are good"));
        });
    }
}

criterion_group!(benches, benchmark);
criterion_main!(benches);
