//! Forwards segments of decided flows below netfilter, with an eBPF program at their entry (`guard --bypass
//! tc:…`).
//!
//! # Path of the data
//!
//! ```text
//! guard, packet of FORWARD judged ──► Pass, nothing left to read ──► both directions into the map `flows`
//!                                └──► anything else, or SYN, FIN or RST ──► both directions out of it
//!
//! interface ──► the program (tcx ingress)
//!   SYN, FIN, RST             both directions out of the map, then as ever
//!   not in the map, or in by another interface
//!                             as ever: conntrack, the hook, the guard
//!   silent for five minutes   out of the map, then as ever
//!   URG, TTL 1, a fragment, IPv4 options, IPv6 extension headers, a VLAN tag, not for our Ethernet address,
//!   longer than the way out takes, no route, another way out than when it was decided, neighbour not known
//!                             as ever
//!   one in thirty seconds     as ever
//!   all else                  one hop less, to the next hop's neighbour: no conntrack, no rule
//! ```
//!
//! # Why no undecided traffic passes
//!
//! An entry stands for one connection, and a connection starts with a SYN. On its entry, the program removes
//! the entries of the SYN's addresses and ports before anything else sees it. On an interface without the
//! program, the guard removes them when it reads the SYN. The guard may insert a late entry (the SYN arrived
//! while it inspected the old connection's last packet). It removes that when it reads the SYN. The SYN has
//! not passed until then, so no reply can exist. An entry that is evicted or removed without reason (a forged
//! RST) only costs the flow its short path.
//!
//! Reloaded rules leave decided flows as they are, as they do for flows that the kernel passes by its mark.
//!
//! # Connection tracking
//!
//! Conntrack has seen the start, and sees little of the rest: a FIN is far outside of its known window.
//! [`ConntrackSocket::relax_sequence_checks`] makes it accept such segments, so it keeps state and mark. A
//! flow that leaves the map continues by its mark, whether the guard still runs or not. One segment in thirty
//! seconds still passes conntrack, which would otherwise drop the connection. Connections unknown to
//! conntrack are not bypassed.
//!
//! # Lifetime
//!
//! The program is loaded before the guard gives up the needed rights; afterwards only the maps' descriptors
//! remain. The attachment is a descriptor, too (tcx, Linux 6.6). So a guard leaves neither program nor map
//! behind, whatever ends it, and its flows return to the hook. Nothing is pinned for the next guard, which
//! would have to trust it.
//!
//! [`third_party_config`] lists third-party configuration that the bypass would skip. It is checked at the
//! start, and then as often as the hook.

mod flow_map;
pub(crate) mod third_party_config;

use std::fmt;
use std::os::fd::AsFd as _;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aya::maps::{HashMap, Map, MapData, MapError, PerCpuArray};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader};

pub use self::flow_map::BypassFlows;
use self::flow_map::BypassState;
use self::third_party_config::BypassInterface;
use crate::conntrack::ConntrackSocket;

/// Built by `scripts/bypass-object` from the source in this folder.
static OBJECT: &[u8] = include_bytes!("bypass.bpf.o");

/// Name of the program in the object.
const PROGRAM: &str = "bannerwall";

/// Default limit of flows; each has two directions.
pub const FLOWS: u32 = 65_536;

/// Interfaces of the bypass, and its limit of flows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BypassConfig {
    /// Names of the interfaces, two at least.
    pub interfaces: Vec<String>,
    /// Limit of flows.
    pub flows: u32,
}

impl FromStr for BypassConfig {
    type Err = BypassError;

    fn from_str(text: &str) -> Result<Self, BypassError> {
        let wrong = || BypassError::Spelling(text.to_owned());
        let names = text.strip_prefix("tc:").ok_or_else(wrong)?;
        let mut interfaces: Vec<String> = Vec::new();
        for name in names.split(',') {
            // The kernel's rules for names.
            let is_name =
                (1..16).contains(&name.len()) && !name.contains(|c: char| c == '/' || c.is_whitespace());
            if !is_name || interfaces.iter().any(|other| other == name) {
                return Err(wrong());
            }
            interfaces.push(name.to_owned());
        }
        if interfaces.len() < 2 {
            return Err(wrong());
        }
        Ok(Self { interfaces, flows: FLOWS })
    }
}

/// Error of the bypass.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BypassError {
    /// Invalid value of the flag.
    #[error("`{0}` is not a bypass: use tc:INTERFACE,INTERFACE with two or more different interfaces")]
    Spelling(String),
    /// Bypassed packets would skip third-party configuration.
    #[error("--bypass: refused, since forwarded packets would skip {}", .0.join("; "))]
    Neighbours(Vec<String>),
    /// Third-party configuration cannot be read.
    #[error("--bypass: refused, since the rules that it would skip cannot be read: {0}")]
    Blind(String),
    /// Unknown interface.
    #[error("--bypass: interface {0}: {1}")]
    Interface(String, String),
    /// The kernel refuses the program.
    #[error(
        "--bypass: the kernel refuses the program (needs Linux 6.6 with CONFIG_BPF_SYSCALL, CONFIG_NET_XGRESS and CONFIG_NET_CLS_ACT; root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN): {0}"
    )]
    Kernel(String),
    /// Connection tracking cannot be configured.
    #[error(
        "--bypass: cannot configure the kernel's connection tracking (needs CONFIG_NF_CT_NETLINK and CAP_NET_ADMIN): {0}"
    )]
    Tracking(String),
}

impl BypassError {
    /// True if a permission or a feature of this machine is missing.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Kernel(_) | Self::Tracking(_))
    }
}

/// Returns an error with all its causes.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Program on its interfaces.
pub struct Bypass {
    interfaces: Vec<BypassInterface>,
    phase: Mutex<BypassPhase>,
    /// Totals that were already reported.
    told: Mutex<BypassTotals>,
    state: Arc<BypassState>,
}

/// State of the program: active, or stopped with its totals.
enum BypassPhase {
    On(Box<ActiveBypass>),
    Off(BypassTotals),
}

impl fmt::Debug for Bypass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Bypass").field("state", &self.state).finish_non_exhaustive()
    }
}

/// Resources of the active bypass.
struct ActiveBypass {
    /// The program; its attachments end with it.
    program: Ebpf,
    flows: MapData,
    totals: PerCpuArray<MapData, [u64; 2]>,
}

/// Totals of the bypass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BypassTotals {
    /// Number of inserted flows.
    pub flows: u64,
    /// Number of forwarded segments.
    pub packets: u64,
    /// Number of their bytes, from the IP header on.
    pub octets: u64,
}

impl Bypass {
    /// Loads the program, and attaches it to the interfaces. The caller checks the [`third_party_config`].
    ///
    /// # Errors
    ///
    /// An interface is missing, or the kernel refuses.
    pub fn start(config: &BypassConfig) -> Result<Self, BypassError> {
        let indexes = config.interfaces.iter().map(|name| {
            let index = rustix::net::netdevice::name_to_index(socket()?, name);
            index.map_err(|error| BypassError::Interface(name.clone(), error.to_string()))
        });
        let interfaces = indexes.collect::<Result<Vec<u32>, _>>()?;
        // An attachment belongs to the loaded program. If a later step fails, dropping the program removes
        // it.
        let mut program = load(config.flows)?;
        let classifier = classifier(&mut program)?;
        for name in &config.interfaces {
            // Third-party programs of the interface stay in front and see every packet.
            let last = TcAttachOptions::TcxOrder(LinkOrder::default());
            let attached = classifier.attach_with_options(name, TcAttachType::Ingress, last);
            attached.map_err(refused)?;
        }
        let mut take = |name: &str| {
            program.take_map(name).ok_or_else(|| BypassError::Kernel(format!("the object has no map {name}")))
        };
        let Map::LruHashMap(flows) = take("flows")? else {
            return Err(BypassError::Kernel("the object's map `flows` has the wrong type".to_owned()));
        };
        let totals: PerCpuArray<MapData, [u64; 2]> =
            take("totals")?.try_into().map_err(refused::<MapError>)?;
        // This reads and caches the number of processors, whose file is out of reach once files are confined.
        totals.get(&0, 0).map_err(refused)?;
        let named = config.interfaces.iter().zip(&interfaces);
        let named =
            named.map(|(name, index)| BypassInterface { name: name.clone(), index: Some(*index) }).collect();
        let state = BypassState { is_on: AtomicBool::new(true), interfaces, handed: AtomicU64::new(0) };
        let active = Box::new(ActiveBypass { program, flows, totals });
        let told = Mutex::new(BypassTotals::default());
        Ok(Self {
            interfaces: named,
            phase: Mutex::new(BypassPhase::On(active)),
            told,
            state: Arc::new(state),
        })
    }

    /// Returns the interfaces of the program.
    pub(crate) fn interfaces(&self) -> &[BypassInterface] {
        &self.interfaces
    }

    /// Returns the map for one worker.
    ///
    /// # Errors
    ///
    /// No descriptor is left.
    pub fn entries(&self) -> Result<BypassFlows, BypassError> {
        let failed = |why: String| BypassError::Kernel(why);
        let phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let BypassPhase::On(active) = &*phase else { return Err(failed("the bypass is stopped".to_owned())) };
        // A descriptor of its own for each worker, so that no lock is on the packet path.
        let copy = active.flows.fd().as_fd().try_clone_to_owned();
        let data = copy.map_err(|error| failed(error_chain(&error)))?;
        let data = MapData::from_fd(data).map_err(|error| failed(error_chain(&error)))?;
        let flows = HashMap::try_from(Map::LruHashMap(data)).map_err(|error| failed(error_chain(&error)))?;
        let connections =
            ConntrackSocket::open().map_err(|error| BypassError::Tracking(error.to_string()))?;
        Ok(BypassFlows::new(flows, connections, Arc::clone(&self.state)))
    }

    /// Detaches the program; all flows return to the hook.
    pub fn detach(&self) {
        // First, so that workers insert nothing any more while the program goes.
        self.state.is_on.store(false, Ordering::Relaxed);
        let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *phase, BypassPhase::Off(BypassTotals::default()));
        *phase = BypassPhase::Off(match before {
            BypassPhase::On(active) => {
                let ActiveBypass { program, totals, .. } = *active;
                // The totals are read behind the program's end, so that its last packets count.
                drop(program);
                self.sum(&totals)
            }
            BypassPhase::Off(totals) => totals,
        });
    }

    /// Returns the totals since the last call.
    pub fn take_totals(&self) -> BypassTotals {
        let now = match &*self.phase.lock().unwrap_or_else(PoisonError::into_inner) {
            BypassPhase::On(active) => self.sum(&active.totals),
            BypassPhase::Off(totals) => *totals,
        };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let news = BypassTotals {
            flows: now.flows.saturating_sub(told.flows),
            packets: now.packets.saturating_sub(told.packets),
            octets: now.octets.saturating_sub(told.octets),
        };
        told.flows += news.flows;
        told.packets += news.packets;
        told.octets += news.octets;
        news
    }

    fn sum(&self, totals: &PerCpuArray<MapData, [u64; 2]>) -> BypassTotals {
        let start =
            BypassTotals { flows: self.state.handed.load(Ordering::Relaxed), ..BypassTotals::default() };
        // If the totals are unreadable, nothing is reported.
        let values = totals.get(&0, 0).ok();
        values.iter().flat_map(|values| values.iter()).fold(start, |sum, [packets, octets]| BypassTotals {
            packets: sum.packets + packets,
            octets: sum.octets + octets,
            ..sum
        })
    }
}

/// Checks that this kernel supports the program and its attachment; leaves nothing behind.
///
/// # Errors
///
/// The kernel does not, or this process is not permitted.
pub(crate) fn check_support() -> Result<(), BypassError> {
    classifier(&mut load(1)?)?;
    // No program needs to be attached. Some kernels report that as ENOENT (kernel/bpf/tcx.c: tcx_prog_query).
    match SchedClassifier::query_tcx("lo", TcAttachType::Ingress) {
        Err(error) if !error_chain(&error).contains("(os error 2)") => Err(refused(error)),
        _ => ConntrackSocket::open().map(drop).map_err(|error| BypassError::Tracking(error.to_string())),
    }
}

fn load(flows: u32) -> Result<Ebpf, BypassError> {
    // A flow needs two entries, one for each direction.
    let directions = flows.saturating_mul(2).max(2);
    EbpfLoader::new().map_max_entries("flows", directions).load(OBJECT).map_err(refused)
}

/// Returns the loaded program of the object.
fn classifier(object: &mut Ebpf) -> Result<&mut SchedClassifier, BypassError> {
    let program = object.program_mut(PROGRAM);
    let program = program.ok_or_else(|| BypassError::Kernel("the object has no program".to_owned()))?;
    let classifier: &mut SchedClassifier = program.try_into().map_err(refused::<ProgramError>)?;
    classifier.load().map_err(refused)?;
    Ok(classifier)
}

/// Wraps an error of the kernel or of the library.
fn refused<E: std::error::Error>(error: E) -> BypassError {
    BypassError::Kernel(error_chain(&error))
}

/// Returns a socket for queries of interfaces.
fn socket() -> Result<std::os::fd::OwnedFd, BypassError> {
    use rustix::net::{AddressFamily, SocketType, socket};
    socket(AddressFamily::INET, SocketType::DGRAM, None)
        .map_err(|error| BypassError::Interface("any".to_owned(), error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bypass_is_between_interfaces() {
        let config: BypassConfig = "tc:eth0,eth1".parse().expect("two");
        assert_eq!(config.interfaces, ["eth0", "eth1"]);
        for wrong in
            ["tc", "tc:", "tc:eth0", "eth0,eth1", "xdp:eth0,eth1", "tc:eth0,eth0", "tc:eth0,", "tc:a b,c"]
        {
            assert!(wrong.parse::<BypassConfig>().is_err(), "{wrong}");
        }
    }
}
