//! `bannerwall scan`: turns flags into the options of a session, and shows it on the terminal.

mod default_mode;
pub(super) mod fleet_scan;
mod formats;
mod http;
mod progress;
mod resume;
mod run;
mod terminal;
mod tls;

pub(super) use default_mode::with_mode;
pub(super) use resume::fill;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, Subcommand, ValueEnum};
use regex::bytes::Regex;

use super::flags::{FingerprintsFlag, InventoryFlags, LogHeadersFlag, duration, output_file, severity};
use super::metrics::MetricsFlags;
use super::rule_paths::RulesFlag;
use super::{CliExitCode, CommandFailure, GlobalFlags};
use crate::scan::pacing::ScanRate;
use crate::scan::report::ResultPattern;
use crate::scan::targets::{PortSet, Shard};
use crate::scan::tls::TlsTargets;
use crate::scan::{CloseMethod, HttpOptions, ProbeOptions, SshOptions};
use crate::terms::{GreetingProtocol, Severity};
use formats::ScanFormat;
use http::{HttpArgs, TlsName};
use tls::TlsArgs;

/// ALPN names of application protocols.
const HTTP_1_1: &str = "http/1.1";
const HTTP_2: &str = "h2";

/// Limit of bytes to read from an SSH server.
const SSH_BYTES: u32 = 65_536;

/// Default port of HTTPS.
const HTTPS: u16 = 443;

/// Flags of `bannerwall scan`.
#[derive(Debug, Args)]
#[command(
    override_usage = "bannerwall scan [FLAGS] TARGET...        (addresses, networks, names with a dot)
       bannerwall scan <MODE> [FLAGS] TARGET...",
    subcommand_value_name = "MODE",
    after_help = "Examples:
  bannerwall scan 192.0.2.0/24 --top-ports 100
  bannerwall scan connect 192.0.2.0/24 -p 22,80,8000-8010
  bannerwall scan ssh 192.0.2.0/24
  bannerwall scan http 192.0.2.0/24 -p 80,8080 --path / --path /server-status
  bannerwall scan tls 192.0.2.0/24 -p 443,8443
  bannerwall scan https www.example.org --path /login"
)]
pub(super) struct ScanArgs {
    #[command(subcommand)]
    mode: ScanMode,
}

#[derive(Debug, Subcommand)]
enum ScanMode {
    /// Recognize servers of any protocol, also within TLS; `scan TARGET` does this.
    #[command(
        args_override_self = true,
        after_help = "Examples:\n  bannerwall scan 192.0.2.0/24\n  bannerwall scan any 192.0.2.7 -p -\n  bannerwall scan 192.0.2.0/24 --top-ports 100 --inventory net.db"
    )]
    Any {
        /// Ports and ranges of ports; `-` is all of them.
        #[arg(short, long, value_name = "PORTS", default_value = "22,80,443")]
        ports: PortSet,
        #[command(flatten)]
        tls: TlsArgs,
        #[command(flatten)]
        common: CommonScanFlags,
    },
    /// Find open ports.
    #[command(
        args_override_self = true,
        after_help = "Examples:
  bannerwall scan connect 192.0.2.0/24 -p 22,80,8000-8010 --open
  bannerwall scan connect -i hosts.txt -p 22 --rate 50000 --resume state --format json \\
      -o results.json
  bannerwall scan connect --resume state"
    )]
    Connect {
        /// Ports and ranges of ports for targets without a port: 22,80,8000-8010.
        #[arg(short, long, value_name = "PORTS")]
        ports: Option<PortSet>,
        #[command(flatten)]
        common: CommonScanFlags,
    },
    /// Read SSH identifications, and match them against the rules.
    #[command(
        args_override_self = true,
        after_help = "Examples:\n  bannerwall scan ssh 192.0.2.0/24\n  bannerwall scan ssh -i hosts.txt -p 22,2222 --match 'OpenSSH_[1-7]\\.' --format json\n  bannerwall scan ssh 192.0.2.0/24 --host-key --inventory net.db --change-events"
    )]
    Ssh {
        /// Ports and ranges of ports.
        #[arg(short, long, value_name = "PORTS", default_value = "22")]
        ports: PortSet,
        /// Show only servers with a matching identification line; if given several times, all must match.
        #[arg(long = "match", value_name = "REGEX")]
        matches: Vec<Regex>,
        /// Limit of bytes to read from a server.
        #[arg(long, value_name = "OCTETS", default_value_t = SSH_BYTES,
              value_parser = clap::value_parser!(u32).range(256..=16_777_216))]
        max_bytes: u32,
        /// Also read the key exchange, and report its fingerprint (`hassh_server`) even if no rule needs it.
        #[arg(long)]
        hassh: bool,
        /// Exchange keys with the server to read and report its host key. This takes one more reply, and
        /// computation on both sides.
        #[arg(long)]
        host_key: bool,
        #[command(flatten)]
        common: CommonScanFlags,
    },
    /// Read the greetings of SMTP, FTP, POP3 and IMAP servers.
    #[command(
        args_override_self = true,
        after_help = "Examples:\n  bannerwall scan greeting 192.0.2.0/24\n  bannerwall scan greeting 192.0.2.0/24 --protocol smtp -p 25,587,2526 --match Exim"
    )]
    Greeting {
        /// Ports and ranges of ports [default: the protocol's usual ports].
        #[arg(short, long, value_name = "PORTS")]
        ports: Option<PortSet>,
        /// Protocol of the servers [default: recognized from ports and greetings].
        #[arg(long, value_name = "PROTOCOL", value_parser = super::flags::greeting())]
        protocol: Option<GreetingProtocol>,
        /// Show only servers with a matching line in the greeting; if given several times, all must match.
        #[arg(long = "match", value_name = "REGEX")]
        matches: Vec<Regex>,
        #[command(flatten)]
        common: CommonScanFlags,
    },
    /// Complete TLS handshakes, and match what servers choose against the rules.
    #[command(
        args_override_self = true,
        after_help = "Examples:\n  bannerwall scan tls 192.0.2.0/24 -p 443,8443\n  bannerwall scan tls mail.example.org --starttls smtp --format json\n  bannerwall scan tls 192.0.2.7 --sni www.example.org --ca authority.pem"
    )]
    Tls {
        /// Ports and ranges of ports [default: 443, and with --starttls the protocol's usual ports].
        #[arg(short, long, value_name = "PORTS")]
        ports: Option<PortSet>,
        /// Start TLS with this protocol: a greeting, then STARTTLS, STLS or AUTH TLS.
        #[arg(long, value_name = "PROTOCOL", value_parser = super::flags::greeting())]
        starttls: Option<GreetingProtocol>,
        /// Application protocols to offer (ALPN), in order [default: h2,http/1.1, and none with --starttls].
        #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = tls::application_protocol)]
        alpn: Option<Vec<String>>,
        /// Show only servers with a match in the handshake or the certificate (subject, issuer, names); if
        /// given several times, all must match.
        #[arg(long = "match", value_name = "REGEX")]
        matches: Vec<Regex>,
        #[command(flatten)]
        tls: TlsArgs,
        #[command(flatten)]
        common: CommonScanFlags,
    },
    /// Send HTTP requests within TLS, and match handshakes and responses against the rules.
    #[command(
        args_override_self = true,
        after_help = "Examples:\n  bannerwall scan https 192.0.2.0/24\n  bannerwall scan https 192.0.2.7 -p 443,8443 --sni www.example.org --path /server-status"
    )]
    Https {
        /// Ports and ranges of ports.
        #[arg(short, long, value_name = "PORTS", default_value = "443")]
        ports: PortSet,
        /// Versions of HTTP to offer (ALPN), in order: http/1.1, h2 [default: http/1.1, and h2 for servers
        /// that accept only that].
        #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = [HTTP_1_1, HTTP_2])]
        alpn: Vec<String>,
        #[command(flatten)]
        http: HttpArgs,
        #[command(flatten)]
        tls: TlsArgs,
        #[command(flatten)]
        common: CommonScanFlags,
    },
    /// Send HTTP requests, and match the responses against the rules.
    #[command(
        args_override_self = true,
        after_help = "Examples:\n  bannerwall scan http 192.0.2.0/24 -p 80,8080\n  bannerwall scan http example.org --path / --path /server-status --match 'Server: Apache'"
    )]
    Http {
        /// Ports and ranges of ports [default: 80, and 443 with --tls auto].
        #[arg(short, long, value_name = "PORTS")]
        ports: Option<PortSet>,
        /// Use of TLS: with auto, ports that are usual for TLS get TLS first, and plain HTTP if they do not
        /// speak it.
        #[arg(long = "tls", value_name = "WHEN", default_value = "never")]
        when: TlsName,
        #[command(flatten)]
        http: HttpArgs,
        #[command(flatten)]
        tls: TlsArgs,
        #[command(flatten)]
        common: CommonScanFlags,
    },
}

#[derive(Debug, Args)]
struct CommonScanFlags {
    /// Addresses, CIDR networks, ranges A-B and host names (all their addresses), IPv4 and IPv6. A target
    /// with a port (`192.0.2.7:2222`, `[2001:db8::1]:22`) is probed only at that port. So is a URL, of which
    /// only host and port count.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    #[command(flatten)]
    rules: RulesFlag,
    #[command(flatten)]
    fingerprints: FingerprintsFlag,
    /// Ask at the N most usual ports of servers, instead of --ports (at most 1000).
    #[arg(long, value_name = "N", conflicts_with = "ports", value_parser = PortSet::most_usual)]
    top_ports: Option<PortSet>,
    /// Leave out these ports and ranges of ports. Targets with a port of their own stay.
    #[arg(long, value_name = "PORTS")]
    exclude_ports: Option<PortSet>,
    /// Read targets from a file, `-` for standard input. Results of `scan`, nmap (grepable), masscan, naabu
    /// and httpx work as they are: their open TCP ports become the targets.
    #[arg(short, long, value_name = "FILE")]
    input: Option<String>,
    /// Exclude these addresses, networks or ranges; can be given several times.
    #[arg(long, value_name = "CIDR")]
    exclude: Vec<String>,
    /// Exclude the addresses in a file.
    #[arg(long, value_name = "FILE")]
    exclude_file: Option<String>,
    /// Also probe multicast, broadcast and other addresses that cannot be hosts.
    #[arg(long)]
    include_reserved: bool,
    /// Rate limit in targets a second, or `max`.
    #[arg(long, value_name = "N|max", default_value_t)]
    rate: ScanRate,
    /// Limit of concurrent connections [default: derived from the rate and the connect timeout].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: Option<u32>,
    /// Timeout of a connection attempt.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration)]
    connect_timeout: Duration,
    /// Timeout of a silent open target [default: 2s, 8s for `any`, greetings and --starttls].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    read_timeout: Option<Duration>,
    /// Timeout of a target in total [default: 10s, 30s for `any`, greetings and --starttls].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    total_timeout: Option<Duration>,
    /// Retries of a target that does not accept in time [default: up to three, but only while connection
    /// requests seem to get lost].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=100))]
    retries: Option<u32>,
    /// Number of threads [default: one, and one for each processor with `--rate max`].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Seed of the targets' order [default: a new one each time].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Scan only part I of N; all parts must use the same seed (default 0).
    #[arg(long, value_name = "I/N", default_value = "1/1")]
    shard: Shard,
    /// Save progress to a file, and resume from it if it exists. Without targets the scan uses the flags
    /// stored in the file, unless you give them again. You or root must then own the file, and no other
    /// user may write to it.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// End of connections: rst sends a reset, fin closes in order for targets that log resets.
    #[arg(long, value_name = "HOW", default_value = "rst")]
    close: CloseName,
    /// Output format; `json` is JSON lines with EVE's names.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: ScanFormat,
    /// Leave out JSON fields that are not part of Suricata's EVE.
    #[arg(long)]
    eve_strict: bool,
    #[command(flatten)]
    log_headers: LogHeadersFlag,
    #[command(flatten)]
    inventory: InventoryFlags,
    /// Write results to this file.
    #[arg(short, long, value_name = "FILE", value_parser = output_file)]
    output: Option<PathBuf>,
    /// Also write the same results in every format: to BASE.txt, BASE.jsonl, BASE.csv, BASE.xml and
    /// BASE.gnmap.
    #[arg(long, value_name = "BASE", value_parser = output_file)]
    output_all: Option<PathBuf>,
    /// Do not confine the program to the network and its own files, for debugging. A malicious reply that
    /// exploits a bug could then open every file and run every program.
    #[arg(long)]
    no_sandbox: bool,
    /// Show only open ports. (Text output does so for more than 256 targets; -v shows all.)
    #[arg(long)]
    open: bool,
    /// Progress: auto shows a bar on a terminal, lines prints a line a second to stderr for programs.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    progress: ProgressName,
    /// Exit with code 1 if a finding has this severity or a higher one.
    #[arg(long, value_name = "SEVERITY", value_parser = severity())]
    fail_on: Option<Severity>,
    #[command(flatten)]
    metrics: MetricsFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CloseName {
    Fin,
    Rst,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProgressName {
    Auto,
    Lines,
    Never,
}

/// Mode-independent form of one mode's flags.
struct ModeFlagValues<'a> {
    name: &'static str,
    ports: PortSet,
    probe: ProbeOptions,
    patterns: Vec<ResultPattern>,
    /// Flags of the mode that affect the results, for the checkpoint.
    own: Vec<(&'static str, String)>,
    common: &'a CommonScanFlags,
}

impl ScanMode {
    /// Returns the flags that all modes share.
    fn common(&self) -> &CommonScanFlags {
        match self {
            Self::Any { common, .. }
            | Self::Connect { common, .. }
            | Self::Ssh { common, .. }
            | Self::Greeting { common, .. }
            | Self::Tls { common, .. }
            | Self::Https { common, .. }
            | Self::Http { common, .. } => common,
        }
    }
}

/// Runs `bannerwall scan`.
pub(super) fn run(arguments: &ScanArgs, global: &GlobalFlags) -> Result<CliExitCode, CommandFailure> {
    run::run(&request(&arguments.mode, global)?, global)
}

fn request<'a>(mode: &'a ScanMode, global: &GlobalFlags) -> Result<ModeFlagValues<'a>, CommandFailure> {
    let mut values = match mode {
        ScanMode::Any { ports, tls, common } => any(ports, tls, common, global)?,
        ScanMode::Connect { ports, common } => ModeFlagValues {
            name: "connect",
            ports: ports.clone().unwrap_or_else(|| PortSet::from_iter([])),
            probe: ProbeOptions::Connect,
            patterns: Vec::new(),
            own: Vec::new(),
            common,
        },
        ScanMode::Ssh { ports, matches, max_bytes, hassh, host_key, common } => ModeFlagValues {
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
        ScanMode::Greeting { ports, protocol, matches, common } => ModeFlagValues {
            name: "greeting",
            ports: ports.clone().unwrap_or_else(|| usual_ports(*protocol)),
            probe: ProbeOptions::Greeting { expected: *protocol },
            patterns: banner_patterns(matches),
            own: vec![("--match", format!("{matches:?}")), ("--protocol", format!("{protocol:?}"))],
            common,
        },
        ScanMode::Tls { ports, starttls, alpn, matches, tls, common } => ModeFlagValues {
            name: "tls",
            ports: ports.clone().unwrap_or_else(|| tls_ports(*starttls)),
            probe: ProbeOptions::Tls(tls.options(
                (offered(alpn, *starttls), Vec::new()),
                TlsTargets::All,
                *starttls,
                global,
            )?),
            patterns: banner_patterns(matches),
            own: own_tls_flags(matches, *starttls, alpn, tls),
            common,
        },
        ScanMode::Https { ports, alpn, http, tls, common } => {
            http.within_tls(ports, alpn, tls, common, global)?
        }
        ScanMode::Http { ports, when, http, tls, common } => {
            http.request(ports.as_ref(), *when, tls, common, global)?
        }
    };
    choose_ports(&mut values)?;
    Ok(values)
}

/// Applies `--top-ports` and `--exclude-ports`.
fn choose_ports(values: &mut ModeFlagValues<'_>) -> Result<(), CommandFailure> {
    if let Some(ports) = &values.common.top_ports {
        values.ports = ports.clone();
    }
    if let Some(excluded) = &values.common.exclude_ports {
        let ports = values.ports.without(excluded);
        if ports.count() == 0 && values.ports.count() > 0 {
            return Err(CommandFailure::Usage(anyhow!(
                "--exclude-ports: no port is left of {}",
                values.ports
            )));
        }
        values.ports = ports;
    }
    Ok(())
}

/// Returns the request of a scan of any protocol.
fn any<'a>(
    ports: &PortSet,
    tls: &TlsArgs,
    common: &'a CommonScanFlags,
    global: &GlobalFlags,
) -> Result<ModeFlagValues<'a>, CommandFailure> {
    let ssh = SshOptions { byte_limit: octets(SSH_BYTES), hassh: false, host_key: false };
    let options = tls.options(http::https_protocols(&[]), TlsTargets::AnyProtocol, None, global)?;
    Ok(ModeFlagValues {
        name: "any",
        ports: ports.clone(),
        probe: ProbeOptions::Any(ssh, HttpOptions::default(), options),
        patterns: Vec::new(),
        own: tls.own().into(),
        common,
    })
}

/// Returns the patterns of `--match`, for banners.
fn banner_patterns(matches: &[Regex]) -> Vec<ResultPattern> {
    matches.iter().cloned().map(ResultPattern::Banner).collect()
}

/// Returns the flags of `scan tls` that affect its results.
fn own_tls_flags(
    matches: &[Regex],
    starttls: Option<GreetingProtocol>,
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

/// Converts a number of bytes to `usize`.
fn octets(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Returns the usual ports of TLS, by itself or within a protocol.
fn tls_ports(starttls: Option<GreetingProtocol>) -> PortSet {
    match starttls {
        Some(protocol) => usual_ports(Some(protocol)),
        None => PortSet::from_iter([HTTPS]),
    }
}

/// Returns the application protocols to offer: the flag's, or those of web servers.
fn offered(alpn: &Option<Vec<String>>, starttls: Option<GreetingProtocol>) -> Vec<String> {
    match (alpn, starttls) {
        (Some(alpn), _) => alpn.clone(),
        (None, Some(_)) => Vec::new(),
        (None, None) => vec![HTTP_2.to_owned(), HTTP_1_1.to_owned()],
    }
}

/// Returns the usual ports of one greeting protocol, or of all.
fn usual_ports(protocol: Option<GreetingProtocol>) -> PortSet {
    let asked = GreetingProtocol::all().filter(|greeting| protocol.is_none_or(|only| only == *greeting));
    PortSet::from_iter(asked.flat_map(GreetingProtocol::ports).copied())
}

impl From<CloseName> for CloseMethod {
    fn from(name: CloseName) -> Self {
        match name {
            CloseName::Fin => Self::Finish,
            CloseName::Rst => Self::Reset,
        }
    }
}
