//! `bannerwall scan`: flags to the options of a session, and the terminal that looks on.

mod http;
pub(super) mod ordered;
mod progress;
mod resume;
mod run;
mod terminal;
mod tls;

pub(super) use resume::fill;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use regex::bytes::Regex;

use super::flags::{FingerprintsFlag, InventoryFlags, LogHeadersFlag, duration, output_file};
use super::metrics::MetricsFlags;
use super::rule_paths::RulesFlag;
use super::{Exit, Failure, Global};
use crate::scan::pacing::Rate;
use crate::scan::report::Pattern;
use crate::scan::targets::{Ports, Shard};
use crate::scan::tls::With;
use crate::scan::{Close, ProbeOptions, SshOptions};
use crate::terms::Greeting;
use http::{HttpArgs, TlsName};
use tls::TlsArgs;

/// Application protocols, as TLS names them.
const HTTP_1_1: &str = "http/1.1";
const HTTP_2: &str = "h2";

/// The port of HTTP within TLS.
const HTTPS: u16 = 443;

/// Flags of `bannerwall scan`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall scan connect 192.0.2.0/24 -p 22,80,8000-8010
  bannerwall scan ssh 192.0.2.0/24
  bannerwall scan http 192.0.2.0/24 -p 80,8080 --path / --path /server-status
  bannerwall scan tls 192.0.2.0/24 -p 443,8443
  bannerwall scan https www.example.org --path /login")]
pub(super) struct ScanArgs {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Debug, Subcommand)]
enum Mode {
    /// Find open ports.
    #[command(
        args_override_self = true,
        after_help = "Examples:\n  bannerwall scan connect 192.0.2.0/24 -p 22,80,8000-8010 --open\n  bannerwall scan connect -i hosts.txt -p 22 --rate 50000 --resume state --format json -o results.json\n  bannerwall scan connect --resume state"
    )]
    Connect {
        /// Ports and ranges of ports: 22,80,8000-8010; of targets that name no port.
        #[arg(short, long, value_name = "PORTS")]
        ports: Option<Ports>,
        #[command(flatten)]
        common: Common,
    },
    /// Read SSH identifications and judge them by the rules.
    #[command(
        args_override_self = true,
        after_help = "Examples:\n  bannerwall scan ssh 192.0.2.0/24\n  bannerwall scan ssh -i hosts.txt -p 22,2222 --match 'OpenSSH_[1-7]\\.' --format json\n  bannerwall scan ssh 192.0.2.0/24 --host-key --inventory net.db --change-events"
    )]
    Ssh {
        /// Ports and ranges of ports.
        #[arg(short, long, value_name = "PORTS", default_value = "22")]
        ports: Ports,
        /// Show only servers whose identification line matches; given several times, all must.
        #[arg(long = "match", value_name = "REGEX")]
        matches: Vec<Regex>,
        /// Octets of a server that are read at most before it is given up.
        #[arg(long, value_name = "OCTETS", default_value_t = 65_536,
              value_parser = clap::value_parser!(u32).range(256..=16_777_216))]
        max_bytes: u32,
        /// Read the key exchange, too, and tell its fingerprint (`hassh_server`), whether or not a rule asks
        /// for it.
        #[arg(long)]
        hassh: bool,
        /// Exchange keys with the server as far as its host key, and tell that: one more answer to wait for,
        /// and some computing for both.
        #[arg(long)]
        host_key: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Read what mail and file servers say first (SMTP, FTP, POP3, IMAP) and judge it by the rules.
    #[command(
        args_override_self = true,
        after_help = "Examples:\n  bannerwall scan greeting 192.0.2.0/24\n  bannerwall scan greeting 192.0.2.0/24 --protocol smtp -p 25,587,2526 --match Exim"
    )]
    Greeting {
        /// Ports and ranges of ports; by default those that the protocol is usual at.
        #[arg(short, long, value_name = "PORTS")]
        ports: Option<Ports>,
        /// The protocol, where ports and words would not tell it; by default any of them.
        #[arg(long, value_name = "PROTOCOL", value_parser = super::flags::greeting())]
        protocol: Option<Greeting>,
        /// Show only servers of whose greeting a line matches; given several times, all must.
        #[arg(long = "match", value_name = "REGEX")]
        matches: Vec<Regex>,
        #[command(flatten)]
        common: Common,
    },
    /// Shake hands with servers of TLS, and judge their versions, cipher suites and certificates by the
    /// rules.
    #[command(
        args_override_self = true,
        after_help = "Examples:\n  bannerwall scan tls 192.0.2.0/24 -p 443,8443\n  bannerwall scan tls mail.example.org --starttls smtp --format json\n  bannerwall scan tls 192.0.2.7 --sni www.example.org --ca authority.pem"
    )]
    Tls {
        /// Ports and ranges of ports; by default 443, and with --starttls those that the protocol is usual
        /// at.
        #[arg(short, long, value_name = "PORTS")]
        ports: Option<Ports>,
        /// Ask for TLS as this protocol does: a greeting, then STARTTLS, STLS or AUTH TLS.
        #[arg(long, value_name = "PROTOCOL", value_parser = super::flags::greeting())]
        starttls: Option<Greeting>,
        /// Application protocols to offer (ALPN), in order [default: h2,http/1.1, and none with --starttls].
        #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = tls::application_protocol)]
        alpn: Option<Vec<String>>,
        /// Show only servers of whose handshake or certificate (subject, issuer, names) something matches;
        /// given several times, all must.
        #[arg(long = "match", value_name = "REGEX")]
        matches: Vec<Regex>,
        #[command(flatten)]
        tls: TlsArgs,
        #[command(flatten)]
        common: Common,
    },
    /// Ask HTTP servers within TLS, and judge handshakes and answers by the rules.
    #[command(
        args_override_self = true,
        after_help = "Examples:\n  bannerwall scan https 192.0.2.0/24\n  bannerwall scan https 192.0.2.7 -p 443,8443 --sni www.example.org --path /server-status"
    )]
    Https {
        /// Ports and ranges of ports.
        #[arg(short, long, value_name = "PORTS", default_value = "443")]
        ports: Ports,
        /// Versions of HTTP to offer (ALPN), in order: http/1.1, h2 [default: http/1.1, and h2 to who takes
        /// only that].
        #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = [HTTP_1_1, HTTP_2])]
        alpn: Vec<String>,
        #[command(flatten)]
        http: HttpArgs,
        #[command(flatten)]
        tls: TlsArgs,
        #[command(flatten)]
        common: Common,
    },
    /// Ask HTTP servers and judge their answers by the rules.
    #[command(
        args_override_self = true,
        after_help = "Examples:\n  bannerwall scan http 192.0.2.0/24 -p 80,8080\n  bannerwall scan http example.org --path / --path /server-status --match 'Server: Apache'"
    )]
    Http {
        /// Ports and ranges of ports; by default 80, and 443 with --tls auto.
        #[arg(short, long, value_name = "PORTS")]
        ports: Option<Ports>,
        /// Whether ports that are usual for it are asked for TLS first, and without it where there is none.
        #[arg(long = "tls", value_name = "WHEN", default_value = "never")]
        when: TlsName,
        #[command(flatten)]
        http: HttpArgs,
        #[command(flatten)]
        tls: TlsArgs,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Debug, Args)]
struct Common {
    /// Addresses, CIDR networks, ranges A-B and host names (all their addresses), IPv4 and IPv6. A target
    /// with a port (`192.0.2.7:2222`, `[2001:db8::1]:22`) or a URL, of which only host and port count, is
    /// asked at that port alone.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    #[command(flatten)]
    rules: RulesFlag,
    #[command(flatten)]
    fingerprints: FingerprintsFlag,
    /// Read targets from a file, `-` for standard input. Results of `scan`, nmap (grepable), masscan, naabu
    /// and httpx are taken as they are: their open TCP ports are the targets.
    #[arg(short, long, value_name = "FILE")]
    input: Option<String>,
    /// Leave these addresses, networks or ranges out; may be given several times.
    #[arg(long, value_name = "CIDR")]
    exclude: Vec<String>,
    /// Leave out what a file lists.
    #[arg(long, value_name = "FILE")]
    exclude_file: Option<String>,
    /// Also ask multicast, broadcast and other addresses that no host answers at.
    #[arg(long)]
    include_reserved: bool,
    /// Targets a second, or `max`.
    #[arg(long, value_name = "N|max", default_value_t)]
    rate: Rate,
    /// Connections at once; by default what the rate and the connect timeout ask for.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: Option<u32>,
    /// Longest time that a target may take to accept.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration)]
    connect_timeout: Duration,
    /// Longest silence of an open target [default: 2s, 8s for greetings and --starttls].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    read_timeout: Option<Duration>,
    /// Longest time for a target altogether [default: 10s, 30s for greetings and --starttls].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    total_timeout: Option<Duration>,
    /// How often a target that does not accept in time is asked again; by default up to three times, but
    /// only while connection requests seem to get lost.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=100))]
    retries: Option<u32>,
    /// Threads; by default one, and one a processor for `--rate max`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// The order of the targets; by default another one each time.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Scan only the Ith of N parts; the others must have the same seed (0 unless given).
    #[arg(long, value_name = "I/N", default_value = "1/1")]
    shard: Shard,
    /// Keep where the scan stands in a file, and go on from there if it exists. Without targets all
    /// other flags are those that the file's scan was started with, unless given again; the file must be
    /// yours or root's then, and nobody else's to write to.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// How connections are ended: by a reset, or in order for targets that log resets.
    #[arg(long, value_name = "HOW", default_value = "rst")]
    close: CloseName,
    /// How results are written; `json` is JSON lines in EVE names.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: ScanFormat,
    /// Leave out of JSON what Suricata's EVE has no name for.
    #[arg(long)]
    eve_strict: bool,
    #[command(flatten)]
    log_headers: LogHeadersFlag,
    #[command(flatten)]
    inventory: InventoryFlags,
    /// Write results to this file.
    #[arg(short, long, value_name = "FILE", value_parser = output_file)]
    output: Option<PathBuf>,
    /// Do not confine the program to the network and its own files, for debugging: what an answer leads
    /// astray may then open every file and run every program. A scan that notifies others is not confined
    /// either.
    #[arg(long)]
    no_sandbox: bool,
    /// Show open ports only. (Text does so anyway where there are more than 256 targets; -v shows all.)
    #[arg(long)]
    open: bool,
    /// Whether progress is shown: on a terminal, or as a line a second on stderr, for programs.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    progress: ProgressName,
    #[command(flatten)]
    metrics: MetricsFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CloseName {
    Fin,
    Rst,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScanFormat {
    Text,
    Json,
    Csv,
    Xml,
    Grepable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProgressName {
    Auto,
    Lines,
    Never,
}

/// One mode's flags, brought to what all modes share.
struct Request<'a> {
    name: &'static str,
    ports: Ports,
    probe: ProbeOptions,
    patterns: Vec<Pattern>,
    /// What of the mode's own flags decides the results, for the checkpoint.
    own: Vec<(&'static str, String)>,
    common: &'a Common,
}

impl Mode {
    /// What all modes share.
    fn common(&self) -> &Common {
        match self {
            Self::Connect { common, .. }
            | Self::Ssh { common, .. }
            | Self::Greeting { common, .. }
            | Self::Tls { common, .. }
            | Self::Https { common, .. }
            | Self::Http { common, .. } => common,
        }
    }
}

/// Runs `bannerwall scan`.
pub(super) fn run(arguments: &ScanArgs, global: &Global) -> Result<Exit, Failure> {
    run::run(&request(&arguments.mode, global)?, global)
}

fn request<'a>(mode: &'a Mode, global: &Global) -> Result<Request<'a>, Failure> {
    Ok(match mode {
        Mode::Connect { ports, common } => Request {
            name: "connect",
            ports: ports.clone().unwrap_or_else(|| Ports::from_iter([])),
            probe: ProbeOptions::Connect,
            patterns: Vec::new(),
            own: Vec::new(),
            common,
        },
        Mode::Ssh { ports, matches, max_bytes, hassh, host_key, common } => Request {
            name: "ssh",
            ports: ports.clone(),
            probe: ProbeOptions::Ssh(SshOptions {
                byte_limit: octets(*max_bytes),
                hassh: *hassh,
                host_key: *host_key,
            }),
            patterns: banner_patterns(matches),
            own: vec![
                ("--match", format!("{matches:?}")),
                ("--max-bytes", max_bytes.to_string()),
                ("--hassh", hassh.to_string()),
                ("--host-key", host_key.to_string()),
            ],
            common,
        },
        Mode::Greeting { ports, protocol, matches, common } => Request {
            name: "greeting",
            ports: ports.clone().unwrap_or_else(|| usual_ports(*protocol)),
            probe: ProbeOptions::Greeting { expected: *protocol },
            patterns: banner_patterns(matches),
            own: vec![("--match", format!("{matches:?}")), ("--protocol", format!("{protocol:?}"))],
            common,
        },
        Mode::Tls { ports, starttls, alpn, matches, tls, common } => Request {
            name: "tls",
            ports: ports.clone().unwrap_or_else(|| tls_ports(*starttls)),
            probe: ProbeOptions::Tls(tls.options(
                (offered(alpn, *starttls), Vec::new()),
                With::All,
                *starttls,
                global,
            )?),
            patterns: banner_patterns(matches),
            own: own_tls_flags(matches, *starttls, alpn, tls),
            common,
        },
        Mode::Https { ports, alpn, http, tls, common } => {
            http.within_tls(ports, alpn, tls, common, global)?
        }
        Mode::Http { ports, when, http, tls, common } => {
            http.request(ports.as_ref(), *when, tls, common, global)?
        }
    })
}

/// The regular expressions of `--match`, for banners.
fn banner_patterns(matches: &[Regex]) -> Vec<Pattern> {
    matches.iter().cloned().map(Pattern::Banner).collect()
}

/// The flags of `scan tls` that decide its results.
fn own_tls_flags(
    matches: &[Regex],
    starttls: Option<Greeting>,
    alpn: &Option<Vec<String>>,
    tls: &TlsArgs,
) -> Vec<(&'static str, String)> {
    let own = [
        ("--match", format!("{matches:?}")),
        ("--starttls", format!("{starttls:?}")),
        ("--alpn", format!("{alpn:?}")),
    ];
    own.into_iter().chain(tls.own()).collect()
}

/// As many octets as there can be in memory.
fn octets(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// The ports that TLS is usual at, by itself or where a protocol asks for it.
fn tls_ports(starttls: Option<Greeting>) -> Ports {
    match starttls {
        Some(protocol) => usual_ports(Some(protocol)),
        None => Ports::from_iter([HTTPS]),
    }
}

/// What is offered of application protocols: what servers of the web speak, unless they are said.
fn offered(alpn: &Option<Vec<String>>, starttls: Option<Greeting>) -> Vec<String> {
    match (alpn, starttls) {
        (Some(alpn), _) => alpn.clone(),
        (None, Some(_)) => Vec::new(),
        (None, None) => vec![HTTP_2.to_owned(), HTTP_1_1.to_owned()],
    }
}

/// The ports that a protocol of greetings, or any of them, is usual at.
fn usual_ports(protocol: Option<Greeting>) -> Ports {
    let asked = Greeting::all().filter(|greeting| protocol.is_none_or(|only| only == *greeting));
    Ports::from_iter(asked.flat_map(Greeting::ports).copied())
}

impl From<CloseName> for Close {
    fn from(name: CloseName) -> Self {
        match name {
            CloseName::Fin => Self::Finish,
            CloseName::Rst => Self::Reset,
        }
    }
}
