//! Reports about the hook: on stderr, as events, in metrics and in `/readyz`. Each change is reported once.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bannerwall_ffi::queue::KernelCounters;

use super::keeper_message::OwnQueue;
use crate::bypass::BypassError;
use crate::diagnostics::log_line;
use crate::event::{self, Event, EventKind, EventSink as _, HookFacts};
use crate::guard::event_distributor::EventDistributor;
use crate::hook::{FamilyHookState, HookCheckResult, IpFamily};
use crate::metrics::{GuardMetrics, ProgramHealth};

/// Reports changes, and stores what it has reported.
pub(in crate::guard) struct HookReporter {
    metrics: GuardMetrics,
    health: Arc<ProgramHealth>,
    sinks: EventDistributor,
    /// State of each family at the last check.
    told: Vec<(IpFamily, FamilyHookState)>,
    unknown: Option<String>,
    failure: Option<String>,
    is_waiting: bool,
    /// The last report about the owner of the queues.
    disowned: Option<String>,
}

impl HookReporter {
    pub(in crate::guard) fn new(
        metrics: GuardMetrics,
        health: Arc<ProgramHealth>,
        sinks: EventDistributor,
    ) -> Self {
        let (told, unknown, failure, disowned) = (Vec::new(), None, None, None);
        Self { metrics, health, sinks, told, unknown, failure, is_waiting: false, disowned }
    }

    /// Reports what has changed since the last check.
    pub(super) fn report_changes(&mut self, look: &HookCheckResult) {
        if look.unknown != self.unknown {
            self.unknown.clone_from(&look.unknown);
            if let Some(why) = &look.unknown {
                log_line(format_args!("bannerwall: cannot read the hook: {why}"));
            }
        }
        let new: Vec<(IpFamily, FamilyHookState)> =
            look.families.iter().filter(|family| !self.told.contains(family)).cloned().collect();
        for (family, standing) in new {
            let before = self.told.iter().position(|(known, _)| *known == family);
            let before = before.map(|index| self.told.swap_remove(index).1);
            self.told.push((family, standing.clone()));
            // The first time that the hook is up is not reported.
            if standing != FamilyHookState::Up || before.is_some() {
                self.say(&family.to_string(), standing.name(), standing.to_string());
            }
        }
    }

    /// Publishes the state of the hook after all repairs.
    pub(super) fn publish_state(&mut self, look: &HookCheckResult) {
        // The last known state stays: an unreadable hook is neither up nor down.
        if look.unknown.is_some() {
            return;
        }
        for (family, standing) in &look.families {
            self.metrics.hook_up(family.name()).set(i64::from(*standing == FamilyHookState::Up));
        }
        let faults: Vec<String> = look
            .families
            .iter()
            .filter(|(_, standing)| *standing != FamilyHookState::Up)
            .map(|(family, standing)| format!("{family}: {standing}"))
            .collect();
        if faults.is_empty() {
            (self.failure, self.is_waiting) = (None, false);
            self.told.clone_from(&look.families);
        }
        self.health.set_obstacle("hook", (!faults.is_empty()).then(|| faults.join("; ")));
    }

    /// Publishes that no hook leads here. Rules made by hand may lead here: then packets arrive.
    pub(super) fn publish_missing_hook(&self, families: &[IpFamily], has_packets: bool) {
        for family in families {
            if has_packets {
                self.metrics.forget_hook(family.name());
            } else {
                self.metrics.hook_up(family.name()).set(0);
            }
        }
        let why = "no hook leads packets here, and none has arrived: run `bannerwall hook up`";
        self.health.set_obstacle("hook", (!has_packets).then(|| why.to_owned()));
    }

    /// Publishes whether the queues are bound to this guard.
    pub(super) fn publish_queue_owner(&mut self, queues: &[OwnQueue]) {
        // If the kernel's table is unreadable, the accounts have reported it.
        let Ok(table) = KernelCounters::all() else { return };
        let mut faults = Vec::new();
        for (number, own) in queues {
            let owner = table.iter().find(|line| line.queue == *number).map(|line| line.portid);
            let fault = match (owner, own) {
                (None, _) => Some(format!("queue {number} is no longer bound")),
                (Some(owner), Some(own)) if owner != *own => {
                    Some(format!("another program has bound queue {number} (netlink address {owner})"))
                }
                (Some(_), _) => None,
            };
            self.metrics.queue_bound(*number).set(i64::from(fault.is_none()));
            faults.extend(fault);
        }
        let fault = (!faults.is_empty()).then(|| faults.join("; "));
        if fault != self.disowned {
            match &fault {
                Some(fault) => {
                    log_line(format_args!("bannerwall: {fault}: this guard gets no packets of it"));
                }
                None => log_line("bannerwall: the queues are bound to this guard again"),
            }
            self.disowned.clone_from(&fault);
        }
        self.health.set_obstacle("queue", fault);
    }

    /// Reports that the hook was restored.
    pub(super) fn restored(&mut self) {
        self.metrics.hook_repairs.inc();
        let faulty = self.told.iter().filter(|(_, standing)| *standing != FamilyHookState::Up);
        let families: Vec<String> = faulty.map(|(family, _)| family.to_string()).collect();
        self.say(&families.join(", "), "restored", "set up again".to_owned());
    }

    /// Reports that the hook cannot be set up or restored.
    pub(super) fn report_failure(&mut self, error: &impl ToString) {
        let why = error.to_string();
        if self.failure.as_ref() != Some(&why) {
            log_line(format_args!("bannerwall: cannot restore the hook: {why}"));
            self.failure = Some(why);
        }
    }

    /// Reports that another program keeps removing the hook.
    pub(super) fn report_backoff(&mut self, wait: Duration) {
        if !self.is_waiting {
            log_line(format_args!(
                "bannerwall: another program keeps changing the hook; the guard restores it in {:.0} s",
                wait.as_secs_f64().ceil()
            ));
            self.is_waiting = true;
        }
    }

    /// Reports that the bypass has ended, so that decided flows pass through the hook again.
    pub(super) fn bypass_ended(&mut self, why: &BypassError) {
        self.metrics.bypass_up.set(0);
        let detail = format!("off until you restart the guard: {why}");
        self.say("IPv4, IPv6", "bypass_off", detail);
    }

    fn say(&mut self, families: &str, state: &'static str, detail: String) {
        log_line(format_args!("bannerwall: hook ({families}): {detail}"));
        let facts = HookFacts { families: families.to_owned(), state, detail };
        self.sinks.emit(Event {
            timestamp: SystemTime::now().into(),
            source: event::EventSource::Guard,
            flow: None,
            kind: EventKind::Hook(Box::new(facts)),
        });
    }
}
