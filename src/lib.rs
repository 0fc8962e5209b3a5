//! bannerwall: one rule about an SSH or HTTP banner, used to block it inline, to watch for it in
//! captures and to find it with a scan.
//!
//! The modules, from the top floor down: each imports only from modules further down in this table. All are
//! private; `cargo doc` shows them because of `.cargo/config.toml`.
//!
//! | module | responsibility |
//! |---|---|
//! | [`testing`] | what tests, benches and fuzz targets reach of the modules below |
//! | [`cli`] | the command line: text to validated configuration |
//! | [`attachments`] | a guard's inventory, page and published rules, each behind a trait of the guard |
//! | [`doctor`] | what of this machine the guard and the scan can rely on, one check a file |
//! | [`serve`] | the page: the inventory for a browser and as JSON, over HTTP; who may see it |
//! | [`tunnel`] | packets of a tun device to a peer over UDP, and back |
//! | [`guard`] | the verdict loop over a netfilter queue |
//! | [`replay`] | capture files as a source of packets for the engine |
//! | [`fleet`] | scans in shards that workers take from a database, and one truth of them |
//! | [`scan`] | targets to results: a session a scan, rings of connections, one module a probe |
//! | [`inventory`] | what is on the network, since when, and what changed: a store of what events say |
//! | [`database`] | connections to an SQLite file or a PostgreSQL server, and statements for both |
//! | [`bypass`] | decided flows forwarded below netfilter, by a program of eBPF |
//! | [`hook`] | the iptables rules that lead packets to the guard; sees no packet |
//! | [`output`] | events to EVE JSON, text, CSV; the thread that writes them |
//! | [`metrics`] | the Prometheus registry and its HTTP endpoint |
//! | [`conntrack`] | the kernel's connection tracking: finds, changes and ends connections |
//! | [`web`] | what HTTP servers have in common: bounded connections, TLS, users |
//! | [`confinement`] | what the process may still do, by Landlock and seccomp |
//! | [`privileges`] | what a thread may still do |
//! | [`helper_process`] | helper processes: this program again, asked over pipes in lines of JSON |
//! | [`files`] | files put in the place of others at once, read up to a bound, or holding a secret |
//! | [`diagnostics`] | what is said on stderr |
//! | [`tls`] | set-up of TLS: PEM files, authorities, the library's provider |
//! | [`backoff`] | growing pauses between attempts |
//!
//! Below them stand four crates. [`bannerwall_inspect`] judges bytes: packets, flows, banners, rules, engine
//! and events. [`bannerwall_import`] reads advisories and fingerprints. `bannerwall_ffi` (queues) and
//! `bannerwall_ring` (`io_uring`) hold all unsafe code.
#![forbid(unsafe_code)]
// Rooms are private, where `missing_docs` does not look.
#![warn(clippy::missing_docs_in_private_items)]

mod attachments;
mod backoff;
mod bypass;
mod cli;
mod confinement;
mod conntrack;
mod database;
mod diagnostics;
mod doctor;
mod files;
mod fleet;
mod guard;
mod helper_process;
mod hook;
mod inventory;
mod metrics;
mod output;
mod privileges;
#[cfg(test)]
mod reference;
mod replay;
mod scan;
mod serve;
#[doc(hidden)]
pub mod testing;
mod tls;
mod tunnel;
mod web;

use bannerwall_import as import;
use bannerwall_inspect::{banner, engine, event, flow, inspector, packet, rules, terms};
pub use cli::{CliExitCode, main};
