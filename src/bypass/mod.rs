//! Segments of decided flows forwarded below netfilter, by a program of eBPF where they come in (`guard
//! --bypass tc:…`).
//!
//! # The data's way
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
//! # Why nothing undecided goes by
//!
//! An entry stands for one connection, and a connection begins with a SYN. That SYN takes entries of its
//! addresses and ports away where it comes in, before anything else sees it, or, on an interface without the
//! program, where the guard reads it. What the guard inserts late (the SYN came while the last packet of the
//! old connection was judged) goes when it reads that SYN: it has not let it go on until then, so that there
//! is nobody yet to be spoken to. An entry that is displaced or taken away for no reason (a forged RST) costs
//! the flow its short way and nothing else.
//!
//! Rules that are read again leave decided flows as they are, as they leave those that the kernel passes for
//! their mark.
//!
//! # What conntrack thinks
//!
//! It has seen the beginning, and sees little of the rest: a FIN is far outside of the window that it knows.
//! [`connections`] has it take that for the connection's own all the same, so that it keeps state and mark: a
//! flow that falls out of the map goes on as decided by its mark, whether the guard still is there or not.
//! One segment in thirty seconds is left to it, as it would forget the connection otherwise. What it does not
//! know is not bypassed.
//!
//! # Its life
//!
//! Loaded before the guard gives up what that takes; what remains is the maps' descriptors. The attachment is
//! a descriptor, too (tcx, Linux 6.6): a guard that ends in whatever way leaves neither program nor map
//! behind, and its flows take the hook's way. Nothing is pinned for the next guard, which would have to trust
//! what it finds.
//!
//! [`neighbours`] says what others would be skipped; it is looked at at the start, and then as often as the
//! hook.
mod connections;
mod entries;
pub(crate) mod neighbours;

use std::fmt;
use std::os::fd::AsFd as _;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aya::maps::{HashMap, Map, MapData, MapError, PerCpuArray};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader};

use self::connections::Connections;
pub use self::entries::Entries;
use self::neighbours::Interface;

/// `scripts/bypass-object` makes it of the source beside it.
static OBJECT: &[u8] = include_bytes!("bypass.bpf.o");

/// What the object calls its program.
const PROGRAM: &str = "bannerwall";

/// Flows that are known at once unless something else is said; of each both directions are.
pub const FLOWS: u32 = 65_536;

/// Between which interfaces, and for how many flows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BypassConfig {
    /// Their names, two at least.
    pub interfaces: Vec<String>,
    /// Flows at once.
    pub flows: u32,
}

impl FromStr for BypassConfig {
    type Err = BypassError;

    fn from_str(text: &str) -> Result<Self, BypassError> {
        let wrong = || BypassError::Spelling(text.to_owned());
        let names = text.strip_prefix("tc:").ok_or_else(wrong)?;
        let mut interfaces: Vec<String> = Vec::new();
        for name in names.split(',') {
            // As the kernel takes them; more is not for a command line.
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

/// Why there is no bypass.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BypassError {
    /// Not what the flag takes.
    #[error("`{0}` is no bypass: use tc:INTERFACE,INTERFACE, two or more and each once")]
    Spelling(String),
    /// What others have set up would not be met by what the bypass forwards.
    #[error("--bypass: refused, since what it forwards would skip {}", .0.join("; "))]
    Neighbours(Vec<String>),
    /// Whether there is such a thing can't be seen.
    #[error("--bypass: refused, since what it would skip cannot be seen: {0}")]
    Blind(String),
    /// No such interface.
    #[error("--bypass: interface {0}: {1}")]
    Interface(String, String),
    /// The kernel refuses.
    #[error(
        "--bypass: the kernel does not take the program (Linux 6.6 with CONFIG_BPF_SYSCALL, CONFIG_NET_XGRESS and CONFIG_NET_CLS_ACT; root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN): {0}"
    )]
    Kernel(String),
    /// The kernel's tracking of connections can't be told of what it will not see.
    #[error(
        "--bypass: the kernel's tracking of connections cannot be told (CONFIG_NF_CT_NETLINK; CAP_NET_ADMIN): {0}"
    )]
    Tracking(String),
}

impl BypassError {
    /// True if a permission or a feature of this machine is missing.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Kernel(_) | Self::Tracking(_))
    }
}

/// An error with all that led to it.
fn told(error: &dyn std::error::Error) -> String {
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

/// The program on its interfaces.
pub struct Bypass {
    interfaces: Vec<Interface>,
    phase: Mutex<Phase>,
    /// What was told of it already.
    told: Mutex<Totals>,
    state: Arc<State>,
}

/// Whether it still is there, or what it had done by its end.
enum Phase {
    On(Box<Active>),
    Off(Totals),
}

impl fmt::Debug for Bypass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Bypass").field("state", &self.state).finish_non_exhaustive()
    }
}

/// What all who know of it share.
#[derive(Debug)]
struct State {
    is_on: AtomicBool,
    interfaces: Vec<u32>,
    /// Flows that were put into the map.
    handed: AtomicU64,
}

/// What goes with the bypass.
struct Active {
    /// The attachments, which end with it.
    program: Ebpf,
    flows: MapData,
    totals: PerCpuArray<MapData, [u64; 2]>,
}

/// What it has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Flows that were handed to it.
    pub flows: u64,
    /// Segments that it forwarded.
    pub packets: u64,
    /// Their octets, from the IP header on.
    pub octets: u64,
}

impl Bypass {
    /// Loads the program, and puts it on the interfaces. Whether it may be there is another question
    /// ([`neighbours`]).
    ///
    /// # Errors
    /// An interface is not there, or the kernel refuses.
    pub fn start(config: &BypassConfig) -> Result<Self, BypassError> {
        let indexes = config.interfaces.iter().map(|name| {
            let index = rustix::net::netdevice::name_to_index(socket()?, name);
            index.map_err(|error| BypassError::Interface(name.clone(), error.to_string()))
        });
        let interfaces = indexes.collect::<Result<Vec<u32>, _>>()?;
        let mut program = load(config.flows)?;
        let classifier = classifier(&mut program)?;
        for name in &config.interfaces {
            let last = TcAttachOptions::TcxOrder(LinkOrder::default());
            let attached = classifier.attach_with_options(name, TcAttachType::Ingress, last);
            attached.map_err(refused)?;
        }
        let mut take = |name: &str| {
            program.take_map(name).ok_or_else(|| BypassError::Kernel(format!("the object has no map {name}")))
        };
        let Map::LruHashMap(flows) = take("flows")? else {
            return Err(BypassError::Kernel("the object's map is none of flows".to_owned()));
        };
        let totals: PerCpuArray<MapData, [u64; 2]> =
            take("totals")?.try_into().map_err(refused::<MapError>)?;
        // How many processors there may be is read once, and not any more where files are confined.
        totals.get(&0, 0).map_err(refused)?;
        let named = config.interfaces.iter().zip(&interfaces);
        let named =
            named.map(|(name, index)| Interface { name: name.clone(), index: Some(*index) }).collect();
        let state = State { is_on: AtomicBool::new(true), interfaces, handed: AtomicU64::new(0) };
        let active = Box::new(Active { program, flows, totals });
        let told = Mutex::new(Totals::default());
        Ok(Self { interfaces: named, phase: Mutex::new(Phase::On(active)), told, state: Arc::new(state) })
    }

    /// The interfaces that the program is on.
    pub(crate) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// What one worker inserts and removes by.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn entries(&self) -> Result<Entries, BypassError> {
        let failed = |why: String| BypassError::Kernel(why);
        let phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let Phase::On(active) = &*phase else { return Err(failed("it is off".to_owned())) };
        let copy = active.flows.fd().as_fd().try_clone_to_owned();
        let data = copy.map_err(|error| failed(told(&error)))?;
        let data = MapData::from_fd(data).map_err(|error| failed(told(&error)))?;
        let flows = HashMap::try_from(Map::LruHashMap(data)).map_err(|error| failed(told(&error)))?;
        let connections = Connections::open().map_err(|error| BypassError::Tracking(error.to_string()))?;
        Ok(Entries::new(flows, connections, Arc::clone(&self.state)))
    }

    /// Takes the program off; all goes the hook's way from here on.
    pub fn end(&self) {
        self.state.is_on.store(false, Ordering::Relaxed);
        let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *phase, Phase::Off(Totals::default()));
        *phase = Phase::Off(match before {
            Phase::On(active) => {
                let Active { program, totals, .. } = *active;
                drop(program);
                self.sum(&totals)
            }
            Phase::Off(totals) => totals,
        });
    }

    /// What it has done since this was asked last.
    pub fn news(&self) -> Totals {
        let now = match &*self.phase.lock().unwrap_or_else(PoisonError::into_inner) {
            Phase::On(active) => self.sum(&active.totals),
            Phase::Off(totals) => *totals,
        };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let news = Totals {
            flows: now.flows.saturating_sub(told.flows),
            packets: now.packets.saturating_sub(told.packets),
            octets: now.octets.saturating_sub(told.octets),
        };
        told.flows += news.flows;
        told.packets += news.packets;
        told.octets += news.octets;
        news
    }

    fn sum(&self, totals: &PerCpuArray<MapData, [u64; 2]>) -> Totals {
        let start = Totals { flows: self.state.handed.load(Ordering::Relaxed), ..Totals::default() };
        // Where they can't be read, nothing is new.
        let values = totals.get(&0, 0).ok();
        values.iter().flat_map(|values| values.iter()).fold(start, |sum, [packets, octets]| Totals {
            packets: sum.packets + packets,
            octets: sum.octets + octets,
            ..sum
        })
    }
}

/// Whether this kernel takes the program, and has a place for it on interfaces; nothing is left of it.
///
/// # Errors
/// It does not, or this process may not.
pub(crate) fn try_out() -> Result<(), BypassError> {
    classifier(&mut load(1)?)?;
    // The place is there whether somebody is in it or not.
    match SchedClassifier::query_tcx("lo", TcAttachType::Ingress) {
        Err(error) if !told(&error).contains("(os error 2)") => Err(refused(error)),
        _ => Connections::open().map(drop).map_err(|error| BypassError::Tracking(error.to_string())),
    }
}

fn load(flows: u32) -> Result<Ebpf, BypassError> {
    let directions = flows.saturating_mul(2).max(2);
    EbpfLoader::new().map_max_entries("flows", directions).load(OBJECT).map_err(refused)
}

/// The program of the object, loaded.
fn classifier(object: &mut Ebpf) -> Result<&mut SchedClassifier, BypassError> {
    let program = object.program_mut(PROGRAM);
    let program = program.ok_or_else(|| BypassError::Kernel("the object has no program".to_owned()))?;
    let classifier: &mut SchedClassifier = program.try_into().map_err(refused::<ProgramError>)?;
    classifier.load().map_err(refused)?;
    Ok(classifier)
}

/// What the kernel, or what speaks to it, says.
fn refused<E: std::error::Error>(error: E) -> BypassError {
    BypassError::Kernel(told(&error))
}

/// A socket to ask about interfaces by.
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
