//! Flags of the subcommands of `bannerwall rules` that select rules and test them.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::flow_test::{FlowEnds, FlowTestStep, FlowTestVerdict};
use super::result_table::TableOutputFlags;
use super::rule_paths::RulesFlag;
use crate::event::Protocol;

/// Selected rules, and the output's format.
#[derive(Debug, Args)]
pub(super) struct RuleFilesArgs {
    /// Rule files, or folders of *.toml files [default: that of --rules].
    #[arg(value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) rules: RulesFlag,
    #[command(flatten)]
    pub(super) output: TableOutputFlags,
}

#[derive(Debug, Args)]
pub(super) struct TestArgs {
    #[command(flatten)]
    pub(super) files: RuleFilesArgs,
    /// SSH identification line, or head of an HTTP message, with \r and \n for line ends.
    #[arg(long, value_name = "STRING")]
    pub(super) banner: Option<String>,
    /// KEXINIT of the same side, for SSH: a file with its first bytes (`(printf 'SSH-2.0-x\r\n'; sleep 1) |
    /// nc HOST 22 > FILE`), or with lines such as `kex = "curve25519-sha256,kex-strict-s-v00@openssh.com"`
    /// (also `host_key`, `encryption`, `mac`, `compression`).
    #[arg(long, value_name = "FILE", requires = "banner", conflicts_with = "flow")]
    pub(super) kexinit: Option<PathBuf>,
    /// Protocol of the banner [default: recognized from its first bytes].
    #[arg(long, value_name = "PROTOCOL", requires = "banner", conflicts_with = "flow", value_parser = super::flags::protocol())]
    pub(super) protocol: Option<Protocol>,
    /// Sender of the banner [default: the server, or the client for an HTTP request].
    #[arg(long, value_name = "SIDE", requires = "banner", conflicts_with = "flow")]
    pub(super) from: Option<SideName>,
    /// Client's address, for `source` of rules and for exemptions.
    #[arg(long, value_name = "ADDR", requires = "banner", conflicts_with = "flow", value_parser = super::flags::address)]
    pub(super) source: Option<IpAddr>,
    /// Server's address, for `destination` of rules and for exemptions.
    #[arg(long, value_name = "ADDR", requires = "banner", conflicts_with = "flow", value_parser = super::flags::address)]
    pub(super) destination: Option<IpAddr>,
    /// Server's port, for `port` of rules.
    #[arg(long, value_name = "PORT", requires = "banner", conflicts_with = "flow")]
    pub(super) port: Option<u16>,
    /// Test a connection against policies and rules: `[CLIENT >] SERVER:PORT`, or only a port. Pass its data
    /// with --say.
    #[arg(long, value_name = "FLOW", conflicts_with = "banner")]
    pub(super) flow: Option<FlowEnds>,
    /// Data that one end sends (`client: TEXT`, `server: TEXT`, with \r, \n, \t, \\ and \xHH for bytes), or a
    /// silence (`wait: 10s`); can be given several times, in order.
    #[arg(long, value_name = "STEP", requires = "flow", conflicts_with = "banner")]
    pub(super) say: Vec<FlowTestStep>,
    /// Expected verdict of the connection; exit code 1 for any other.
    #[arg(long, value_name = "VERDICT", requires = "flow", conflicts_with = "banner")]
    pub(super) expect: Option<FlowTestVerdict>,
    /// Fingerprint file or folder, to identify the banner's product.
    #[arg(long, value_name = "PATH", requires = "banner", conflicts_with = "flow")]
    pub(super) fingerprints: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SideName {
    Server,
    Client,
}

impl RuleFilesArgs {
    /// Returns the flags with PATH as further `--rules`.
    pub(super) fn flag(&self) -> RulesFlag {
        self.rules.with_paths(&self.paths)
    }
}
