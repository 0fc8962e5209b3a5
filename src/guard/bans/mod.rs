//! Bans: clients whose packets the kernel drops for a time, because a rule with `action = "ban"` matched in
//! one of their connections, or because an administrator banned them.
//!
//! One thread manages them, so that no packet waits for `nft`. The kernel's set ([`crate::hook::bans`]) is
//! authoritative. The copy here tells when a ban ends, and restores the set if another program removes it.

pub(super) mod ban_command;
mod exempt;
mod registry;

use std::net::IpAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use bannerwall_ffi::descriptors;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use self::ban_command::BanCommand;
use self::exempt::{BanExemption, BanExemptions};
use self::registry::{BanAddResult, BanRegistry, RegisteredBan};
use super::event_distributor::EventDistributor;
use super::forward_request::ReplySender;
use crate::diagnostics::log_line;
use crate::engine::BanRequest;
use crate::event::{self, BanFacts, Event, EventKind, EventSink as _};
use crate::hook::ProgramRunner;
use crate::hook::ban_call::{BanCall, LONGEST};
use crate::hook::bans::{self, BanError};
use crate::metrics::GuardMetrics;

/// Limit of the requests that wait for the thread.
const WAITING: usize = 4096;
/// Limit of the changes in one transaction.
const BATCH: usize = 512;
/// Limit of the bans in one list, since a reply of the control socket is bounded.
const SHOWN: usize = 10_000;
/// Interval between checks of the table while any address is banned.
const INSPECTION: Duration = Duration::from_secs(5);
/// Limit of the time that the thread may take to end.
const LAST: Duration = Duration::from_secs(2);

/// A request to the thread.
enum BanOrder {
    /// A rule asks for a ban.
    Ban(Box<BanRequest>),
    /// An administrator sends a command.
    Command(BanCommand, ReplySender),
    /// Read the kernel's set: a predecessor may have changed it last.
    Adopt,
    /// End, and leave the kernel's set as it is.
    Stop,
}

/// The settings of bans.
#[derive(Debug, Clone)]
pub(super) struct BanConfig {
    /// Networks that are never banned.
    pub(super) exempt: Vec<IpNet>,
    /// True if rules block.
    pub(super) enforces: bool,
    /// True if a rule may ask for bans.
    pub(super) expected: bool,
}

/// Bans that are in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BanList {
    /// The bans that end first, at most [`SHOWN`].
    pub bans: Vec<BanInfo>,
    /// Total number of bans.
    pub total: usize,
}

/// A ban, as an administrator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BanInfo {
    /// The banned address.
    pub address: IpAddr,
    /// Remaining time.
    pub seconds: u64,
    /// The rule that asked for it; absent for a ban by hand.
    pub rule: Option<String>,
    /// The banner of the client or its server.
    pub banner: String,
}

/// The handle of the thread that manages bans.
#[derive(Debug, Clone)]
pub(super) struct BanHandle {
    orders: Sender<BanOrder>,
    metrics: GuardMetrics,
}

impl BanHandle {
    /// Requests a ban without waiting.
    pub(super) fn request(&self, request: Box<BanRequest>) {
        if let Err(TrySendError::Full(_)) = self.orders.try_send(BanOrder::Ban(request)) {
            self.metrics.bans("lost").inc();
        }
    }

    /// Passes a command of an administrator to the thread, which replies.
    pub(super) fn command(&self, command: BanCommand, client: ReplySender) {
        if let Err(error) = self.orders.try_send(BanOrder::Command(command, client))
            && let BanOrder::Command(_, client) = error.into_inner()
        {
            // An administrator who went away does not wait.
            let _ = client.send(Err("too many bans wait to be set, or the guard stops".to_owned()));
        }
    }
}

/// The thread that manages bans.
pub(super) struct BanKeeper {
    pub(super) handle: BanHandle,
    thread: JoinHandle<()>,
}

impl BanKeeper {
    /// Starts the thread, which reads the bans that the kernel has.
    ///
    /// # Errors
    ///
    /// The system has no free thread.
    pub(super) fn start(
        programs: ProgramRunner,
        config: BanConfig,
        metrics: GuardMetrics,
        sinks: EventDistributor,
    ) -> std::io::Result<Self> {
        let (orders, receiver) = bounded(WAITING);
        let handle = BanHandle { orders, metrics: metrics.clone() };
        let keeping = BanKeeperState {
            programs,
            enforces: config.enforces,
            exempt: BanExemptions::new(config.exempt),
            registry: BanRegistry::default(),
            metrics,
            sinks,
            failure: None,
            dropped: None,
            due: None,
        };
        let run = move || keeping.run(&receiver, config.expected);
        let thread = std::thread::Builder::new().name("bans".to_owned()).spawn(run)?;
        Ok(Self { handle, thread })
    }

    /// Reads the changes that a predecessor made last.
    pub(super) fn adopt(&self) {
        let _ = self.handle.orders.send(BanOrder::Adopt);
    }

    /// Ends the thread: nothing changes the kernel's set from here on.
    pub(super) fn stop(&self) {
        let _ = self.handle.orders.send_timeout(BanOrder::Stop, LAST);
        let deadline = Instant::now() + LAST;
        // A thread that waits for nft ends with the process.
        while !self.thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The state that the thread owns.
struct BanKeeperState {
    programs: ProgramRunner,
    /// True if rules block.
    enforces: bool,
    exempt: BanExemptions,
    registry: BanRegistry,
    metrics: GuardMetrics,
    sinks: EventDistributor,
    /// The last failure that was reported.
    failure: Option<String>,
    /// The kernel's count of dropped packets at the last read.
    dropped: Option<u64>,
    /// Time of the next check of the table.
    due: Option<Instant>,
}

impl BanKeeperState {
    fn run(mut self, orders: &Receiver<BanOrder>, expected: bool) {
        // With a descriptor table of its own, the thread can start nft even if the guard has used up its
        // limit.
        if let ProgramRunner::Here = self.programs
            && let Err(error) = descriptors::keep_own()
        {
            log_line(format_args!("bannerwall: nft cannot be run when no descriptors are left: {error}"));
        }
        if let Err(error) = self.agree_with_kernel() {
            // If no rule bans, the program is not needed.
            if expected {
                self.report_failure(&error);
            }
        }
        loop {
            let due = [self.registry.next_end(), self.due].into_iter().flatten().min();
            let order = match due {
                Some(due) => orders.recv_deadline(due),
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match order {
                Ok(BanOrder::Ban(request)) => {
                    // One transaction for all bans that wait: each run of nft takes milliseconds.
                    let mut requests = vec![*request];
                    let mut other = None;
                    while requests.len() < BATCH && other.is_none() {
                        match orders.try_recv() {
                            Ok(BanOrder::Ban(request)) => requests.push(*request),
                            Ok(order) => other = Some(order),
                            Err(_) => break,
                        }
                    }
                    self.ban_all(requests);
                    if other.is_some_and(|order| !self.serve(order)) {
                        return;
                    }
                }
                Ok(order) => {
                    if !self.serve(order) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.end_bans();
            self.inspect();
            self.metrics.bans_now.set(i64::try_from(self.registry.len()).unwrap_or(i64::MAX));
        }
    }

    /// Executes an order. Returns false if the thread must end.
    fn serve(&mut self, order: BanOrder) -> bool {
        match order {
            BanOrder::Ban(request) => self.ban_all(vec![*request]),
            BanOrder::Command(command, client) => {
                let list = self.command(command);
                let reply =
                    list.and_then(|list| serde_json::to_value(list).map_err(|error| error.to_string()));
                // An administrator who has disconnected needs no reply.
                let _ = client.send(reply);
            }
            BanOrder::Adopt => {
                if let Err(error) = self.agree_with_kernel() {
                    self.report_failure(&error);
                }
            }
            BanOrder::Stop => return false,
        }
        true
    }

    /// Bans the clients that rules name.
    fn ban_all(&mut self, requests: Vec<BanRequest>) {
        let now = Instant::now();
        let mut bans = Vec::new();
        for request in requests {
            match self.exempt.of(request.client.to_canonical(), &self.programs, now) {
                None => bans.push(RegisteredBan {
                    address: request.client.to_canonical(),
                    until: now + request.time,
                    rule: Some(request.rule),
                    banner: request.banner,
                }),
                // Without the machine's addresses a ban could hit the machine itself or its gateway, so there
                // is none.
                Some(BanExemption::Unknown(why)) => {
                    self.metrics.bans("failed").inc();
                    self.report_failure(&why);
                }
                Some(_) => self.metrics.bans("exempt").inc(),
            }
        }
        if let Err(error) = self.set(bans, now) {
            self.report_failure(&error);
        }
    }

    /// Adds bans to the registry and the kernel's set.
    fn set(&mut self, bans: Vec<RegisteredBan>, now: Instant) -> Result<(), BanError> {
        let (mut add, mut remove) = (Vec::new(), Vec::new());
        for ban in bans {
            let (added, evicted) = self.registry.add(ban.clone());
            if added != BanAddResult::Known {
                add.push((ban, added));
            }
            remove.extend(evicted);
        }
        if add.is_empty() {
            return Ok(());
        }
        // One address may have been extended within the batch, or evicted again.
        add.retain(|(ban, _)| self.registry.get(ban.address) == Some(ban));
        let elements = add.iter().map(|(ban, _)| ban.element(now)).collect();
        let gone = remove.iter().map(|ban| ban.address).collect();
        if let Err(error) = bans::change(&self.programs, &BanCall::Change { remove: gone, add: elements }) {
            // The transaction failed as a whole, so the kernel has none of these bans.
            for (ban, _) in add {
                self.registry.remove(ban.address);
                self.metrics.bans("failed").inc();
                self.emit(&ban, "failed", Some(error.to_string()));
            }
            return Err(error);
        }
        self.failure = None;
        self.due.get_or_insert(now + INSPECTION);
        for ban in remove {
            self.end(&ban, "evicted");
        }
        for (ban, added) in add {
            let state = if added == BanAddResult::New { "banned" } else { "extended" };
            self.metrics.bans(state).inc();
            self.emit(&ban, state, None);
        }
        Ok(())
    }

    fn command(&mut self, command: BanCommand) -> Result<BanList, String> {
        let now = Instant::now();
        match command {
            BanCommand::List => self.agree_with_kernel().map_err(|error| error.to_string())?,
            BanCommand::Add { address, seconds } => {
                self.check_addition(address.to_canonical(), seconds, now)?;
                let until = now + Duration::from_secs(seconds);
                let ban = RegisteredBan {
                    address: address.to_canonical(),
                    rule: None,
                    banner: String::new(),
                    until,
                };
                self.set(vec![ban], now).map_err(|error| error.to_string())?;
            }
            BanCommand::Remove { address } => {
                // The kernel's set is the record: another program or an earlier guard may have added the ban.
                self.agree_with_kernel().map_err(|error| error.to_string())?;
                let address = address.to_canonical();
                let ban = self.registry.remove(address).ok_or_else(|| format!("{address} is not banned"))?;
                let call = BanCall::Change { remove: vec![address], add: Vec::new() };
                if let Err(error) = bans::change(&self.programs, &call) {
                    let _ = self.registry.add(ban);
                    return Err(error.to_string());
                }
                self.end(&ban, "removed");
            }
        }
        let info = |ban: &RegisteredBan| {
            let RegisteredBan { address, rule, banner, .. } = ban.clone();
            BanInfo { address, seconds: ban.element(now).seconds, rule, banner }
        };
        let bans = self.registry.iter().take(SHOWN).map(info).collect();
        Ok(BanList { bans, total: self.registry.len() })
    }

    fn check_addition(&mut self, address: IpAddr, seconds: u64, now: Instant) -> Result<(), String> {
        if !self.enforces {
            return Err("this guard only monitors and bans no client: start it with --enforce".to_owned());
        }
        if !(1..=LONGEST).contains(&seconds) {
            return Err(format!("a ban lasts from 1 to {LONGEST} seconds"));
        }
        let exemption = self.exempt.of(address, &self.programs, now);
        exemption.map_or(Ok(()), |why| Err(format!("{address} is never banned: {why}")))
    }

    /// Ends the bans whose time is over. The kernel has removed them already.
    fn end_bans(&mut self) {
        let now = Instant::now();
        while let Some(ban) = self.registry.pop_ended(now) {
            self.end(&ban, "expired");
        }
    }

    fn end(&mut self, ban: &RegisteredBan, why: &'static str) {
        self.metrics.unbans(why).inc();
        self.emit(ban, "unbanned", Some(why.to_owned()));
    }

    /// Updates the registry from the kernel's set.
    fn agree_with_kernel(&mut self) -> Result<(), BanError> {
        let table = bans::read(&self.programs, true)?;
        let now = Instant::now();
        let table = match table {
            Some(table) => table,
            // Another program removed the table. Bans last until their time is over, so they are set again.
            None if self.registry.len() > 0 => {
                self.restore(now);
                return Ok(());
            }
            None => return Ok(()),
        };
        self.count_dropped(table.dropped);
        for ban in self.registry.agree_with(table.elements, now) {
            // The kernel removes elements whose time is over. One that is missing earlier was removed by
            // hand.
            let why = if ban.until <= now + Duration::from_secs(1) { "expired" } else { "removed" };
            self.end(&ban, why);
        }
        self.due = (self.registry.len() > 0).then(|| now + INSPECTION);
        Ok(())
    }

    /// Reads the kernel's count of dropped packets, and restores the table if another program removed it.
    fn inspect(&mut self) {
        let now = Instant::now();
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = (self.registry.len() > 0).then(|| now + INSPECTION);
        match bans::read(&self.programs, false) {
            Ok(Some(table)) => self.count_dropped(table.dropped),
            Ok(None) if self.registry.len() > 0 => self.restore(now),
            Ok(None) => {}
            Err(error) => self.report_failure(&error),
        }
    }

    fn restore(&mut self, now: Instant) {
        let add = self.registry.iter().map(|ban| ban.element(now)).collect();
        // The counter of a new table starts at zero.
        self.dropped = None;
        match bans::change(&self.programs, &BanCall::Change { remove: Vec::new(), add }) {
            Ok(()) => log_line(format_args!(
                "bannerwall: another program removed the table of bans; bans restored: {}",
                self.registry.len()
            )),
            Err(error) => self.report_failure(&error),
        }
    }

    fn count_dropped(&mut self, dropped: u64) {
        // The first read only sets the basis: packets before it were counted by an earlier run.
        let before = self.dropped.replace(dropped).unwrap_or(dropped);
        self.metrics.banned_packets.inc_by(dropped.saturating_sub(before));
    }

    /// Reports a failure once while it lasts.
    fn report_failure(&mut self, error: &impl ToString) {
        let why = error.to_string();
        if self.failure.as_ref() != Some(&why) {
            log_line(format_args!("bannerwall: clients are not banned: {why}"));
            self.failure = Some(why);
        }
    }

    fn emit(&mut self, ban: &RegisteredBan, state: &'static str, detail: Option<String>) {
        let left = ban.until.saturating_duration_since(Instant::now());
        let facts = BanFacts {
            address: ban.address,
            state,
            time: (state != "unbanned").then_some(left),
            rule: ban.rule.clone(),
            banner: ban.banner.clone(),
            detail,
        };
        let (timestamp, source) = (SystemTime::now().into(), event::EventSource::Guard);
        self.sinks.emit(Event { timestamp, source, flow: None, kind: EventKind::Ban(Box::new(facts)) });
    }
}
