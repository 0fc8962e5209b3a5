//! Asks the rules about one banner and turns what they say into events and an outcome.

use std::sync::Arc;

use super::config::OnFailure;
use super::context::{EngineSettings, InspectionSession, SharedState, merge};
use super::decision::{BanRequest, PacketInput};
use super::dialogue::{DialogueFinding, FindingSink, FoundBanner, KnownIdentification, ReadContext};
use super::event_quota;
use super::flow_facts::FlowFacts;
use super::mirrored_roles::WaitingFindings;
use super::outcome::{FlowStop, PacketOutcome};
use super::report_limit::{ReportLimit, is_grave};
use crate::banner::{Banner, RequestHead};
use crate::event::{
    AlertFacts, AnomalyFacts, ApplicationFacts, DropFacts, DropReason, Event, EventKind, EventSink,
    FlowContext, FlowEndpoints, OtherFacts, ProductFacts, Protocol, RuleAction, Severity, Side,
};
use crate::flow::{Anomaly, AnomalySet, KeyEnd, TrackingMode};
use crate::packet::{Datagram, Segment};
use crate::rules::{
    AlertContext, BannerContext, BannerSender, BannerStage, Policy, PolicyRuleResult, Rule, RuleMatch,
};

/// Everything that judging one packet's banners takes.
pub(super) struct BannerInspector<'e> {
    pub(super) settings: &'e EngineSettings,
    pub(super) shared: &'e mut SharedState,
    pub(super) sink: &'e mut dyn EventSink,
    pub(super) packet: &'e PacketInput<'e>,
    pub(super) segment: Option<&'e Segment<'e>>,
    /// The datagram that is judged, of a flow of UDP.
    pub(super) datagram: Option<&'e Datagram<'e>>,
    pub(super) flow: FlowFacts,
    /// True if what blocks really does in this flow.
    enforced: bool,
    /// The findings that wait while bytes are read in other roles than those that events show.
    mirrored: Option<WaitingFindings>,
    /// The sender of the packet; absent if a flow is only removed.
    pub(super) from: Option<Side>,
    /// The limit of this flow's reports.
    pub(super) reports: ReportLimit,
    /// The anomalies of this packet of which an event was told.
    told: AnomalySet,
    pub(super) outcome: PacketOutcome,
    /// The policy whose rules are asked about every banner.
    pub(super) asks: Option<Arc<Policy>>,
    /// Alerts that are told once the flow is confirmed.
    pub(super) withheld: Vec<WithheldAlert>,
}

/// An alert about a flow that nobody has confirmed.
#[derive(Debug)]
pub(super) struct WithheldAlert {
    /// The client in the roles that it is about.
    client: KeyEnd,
    kind: EventKind,
    from: Option<Side>,
    protocol: Option<Protocol>,
    transaction: Option<u32>,
}

/// Alerts that are withheld of one flow at most.
const WITHHELD: usize = 4;

impl<'e> InspectionSession<'e> {
    /// A judge of what `segment` shows, or of what a flow owes where it ended without one.
    pub(super) fn new_inspector(
        self,
        flow: FlowFacts,
        from: Option<Side>,
        segment: Option<&'e Segment<'e>>,
        packet: &'e PacketInput<'e>,
    ) -> BannerInspector<'e> {
        let Self { settings, shared, sink } = self;
        let (reports, outcome) = (ReportLimit::default(), PacketOutcome::default());
        let told = AnomalySet::default();
        BannerInspector {
            settings,
            shared,
            sink,
            packet,
            segment,
            datagram: None,
            enforced: settings.enforces(flow.key()),
            mirrored: None,
            flow,
            from,
            reports,
            told,
            outcome,
            asks: None,
            withheld: Vec::new(),
        }
    }

    /// The same for a moment.
    pub(super) fn reborrow(&mut self) -> InspectionSession<'_> {
        InspectionSession { settings: self.settings, shared: self.shared, sink: self.sink }
    }
}

/// The judge asks the rules about each banner that a dialogue finds.
impl FindingSink for BannerInspector<'_> {
    fn take(&mut self, finding: DialogueFinding<'_>) {
        let Some(finding) = self.put_aside(finding) else { return };
        match finding {
            DialogueFinding::Seen(protocol, from) => self.shared.counters.count_banner(protocol, from),
            DialogueFinding::Banner(mut found) => self.evaluate_rules(&mut found),
            DialogueFinding::Odd(anomaly) => self.report_application_anomaly(anomaly),
            DialogueFinding::Exchange(said, transaction) => {
                let protocol = Some(said.protocol());
                self.emit(EventKind::Application(said), None, protocol, transaction);
            }
            // Not what packets held: what is reported must not depend on how bytes were split.
            DialogueFinding::Bytes(count) => self.reports.add_read(count),
            DialogueFinding::Preamble(count) => self.shared.counters.preamble_octets += count as u64,
        }
    }

    fn is_stopped(&self) -> bool {
        self.outcome.stop.is_some() && self.enforces()
    }

    /// Nothing is told or counted.
    fn would_stop(
        &self,
        part: &Banner<'_>,
        request: Option<&RequestHead<'_>>,
        product: Option<&ProductFacts>,
    ) -> bool {
        let context = self.context(BannerStage::Part, request, product);
        self.settings.rules.would_block(part, &context, &self.shared.thresholds, self.packet.now)
    }

    fn identify(&mut self, from: Side, line: &[u8]) -> KnownIdentification {
        self.shared.identifications.identify(
            from,
            line,
            &self.settings.rules,
            self.settings.dialogue.fingerprints.as_deref(),
        )
    }
}

impl BannerInspector<'_> {
    /// True if what blocks really does in this flow.
    pub(super) const fn enforces(&self) -> bool {
        self.enforced
    }

    /// True while anybody could have sent what is judged, so that alerts and drops about it would be
    /// anybody's word: they are told as one bounded anomaly.
    fn withholds(&self) -> bool {
        self.enforces() && self.settings.tracking == TrackingMode::Inline && !self.flow.is_confirmed()
    }

    /// Emits the alerts of a flow that is confirmed now; those of another one are kept for later.
    pub(super) fn emit_withheld(&mut self, withheld: &mut Vec<WithheldAlert>) {
        if withheld.is_empty() && self.withheld.is_empty() {
            return;
        }
        if self.withholds() {
            let room = WITHHELD.saturating_sub(withheld.len());
            self.shared.counters.alerts_suppressed += self.withheld.len().saturating_sub(room) as u64;
            withheld.extend(self.withheld.drain(..).take(room));
            return;
        }
        let flow = self.flow;
        for WithheldAlert { client, kind, from, protocol, transaction } in withheld.drain(..) {
            self.flow = if client == flow.client() { flow } else { flow.mirrored() };
            self.emit(kind, from, protocol, transaction);
        }
        self.flow = flow;
    }

    fn withhold(&mut self, withheld: WithheldAlert) {
        let anomaly = Anomaly::UnconfirmedMatch;
        self.shared.counters.count_anomaly(anomaly);
        self.emit_detailed_anomaly(anomaly, anomaly.detail());
        if self.withheld.len() < WITHHELD {
            self.withheld.push(withheld);
        } else {
            self.shared.counters.alerts_suppressed += 1;
        }
    }

    /// The context that it borrows, for what happens to other flows meanwhile.
    pub(super) fn session(&mut self) -> InspectionSession<'_> {
        InspectionSession { settings: self.settings, shared: self.shared, sink: self.sink }
    }

    /// Inspects the findings of `read` with the roles of the two ends exchanged.
    pub(super) fn mirrored(&mut self, waiting: &mut WaitingFindings, read: impl FnOnce(&mut Self)) {
        self.exchange_roles();
        std::mem::swap(&mut self.asks, &mut waiting.asks);
        std::mem::swap(&mut self.outcome.opinions, &mut waiting.opinions);
        self.mirrored = Some(std::mem::take(waiting));
        read(self);
        *waiting = self.mirrored.take().unwrap_or_default();
        std::mem::swap(&mut self.outcome.opinions, &mut waiting.opinions);
        std::mem::swap(&mut self.asks, &mut waiting.asks);
        self.exchange_roles();
    }

    /// Takes the server for the client from now on.
    pub(super) fn exchange_roles(&mut self) {
        (self.flow, self.from) = (self.flow.mirrored(), self.from.map(Side::other));
    }

    /// Returns a finding that counts in any role. Others wait while bytes are read in other roles.
    fn put_aside<'f>(&mut self, finding: DialogueFinding<'f>) -> Option<DialogueFinding<'f>> {
        let Some(waiting) = &mut self.mirrored else { return Some(finding) };
        match finding {
            DialogueFinding::Seen(protocol, from) => waiting.add_seen(protocol, from),
            DialogueFinding::Exchange(said, transaction) => waiting.add_exchange(said, transaction),
            DialogueFinding::Bytes(_) | DialogueFinding::Preamble(_) => {}
            DialogueFinding::Odd(anomaly) if !anomaly.is_hostile() => {}
            finding => return Some(finding),
        }
        None
    }

    const fn is_mirrored(&self) -> bool {
        self.mirrored.is_some()
    }

    /// True if a banner was judged by this rule in the roles that events show: both ends of SSH say the same.
    fn is_judged_already(&self, rule: &Rule, banner: &Banner<'_>) -> bool {
        self.is_mirrored() && matches!(banner, Banner::Ssh(_)) && rule.from() == BannerSender::Either
    }

    /// Returns the context of reading. The findings go to the inspector.
    pub(super) fn reading(&mut self) -> ReadContext<'_> {
        let settings = self.settings;
        let (server_port, enforced) = (self.flow.server_port(), self.enforced);
        let asks_policy = self.asks.is_some();
        ReadContext { settings: &settings.dialogue, server_port, enforced, asks_policy, sink: self }
    }

    /// Asks the rules about a banner, those left out that matched it before.
    fn evaluate_rules(&mut self, found: &mut FoundBanner<'_>) {
        let context = self.context(found.stage, found.request, found.product);
        self.ask_policy(found, &context);
        let settings = self.settings;
        for matching in settings.rules.evaluate(found.banner, &context) {
            let is_new = !self.is_judged_already(matching.rule, found.banner);
            if is_new && found.matched.insert(found.banner.from(), matching.rule.index()) {
                self.take_match(&matching, found);
            }
        }
        for matching in settings.rules.exempted(found.banner, &context) {
            if found.matched.insert(found.banner.from(), matching.rule.index()) {
                self.emit_alert_within_limit(&matching, found);
            }
        }
    }

    /// Asks the rules that the flow's policy names.
    fn ask_policy(&mut self, found: &FoundBanner<'_>, context: &BannerContext<'_>) {
        if found.stage == BannerStage::Part {
            return;
        }
        let Some(policy) = &self.asks else { return };
        let rules = &self.settings.rules;
        for (number, (index, id)) in policy.allow_rules().enumerate() {
            let either = || rules.rules().get(index).is_some_and(|rule| rule.from() == BannerSender::Either);
            match rules.opinion((index, id), found.banner, context) {
                // The other side's may match yet.
                PolicyRuleResult::Differs if either() => {}
                opinion => self.outcome.opinions.push((number, opinion)),
            }
        }
    }

    /// Says that a flow is not what its policy allows.
    pub(super) fn refuse(&mut self, policy: &Policy, facts: OtherFacts) {
        let action = policy.otherwise();
        let from = facts.from.unwrap_or(Side::Client);
        self.shared.counters.count_refusal(policy.id());
        let alert = AlertFacts {
            rule: policy.id().to_owned(),
            title: policy.title(),
            category: "policy".to_owned(),
            action,
            blocked: action.blocks() && self.enforces(),
            enforced: self.enforces(),
            severity: Severity::Medium,
            references: Vec::new(),
            product: ProductFacts::default(),
            from,
            resets: None,
            verdict: None,
            banner: OtherFacts::text(facts.first(from)),
            matched: None,
            let_pass: None,
            application: ApplicationFacts::Other(Arc::new(facts)),
        };
        self.emit(EventKind::Alert(alert.into()), Some(from), Some(Protocol::Other), None);
        if action.blocks() && self.outcome.stop.is_none() {
            let reject = action == RuleAction::Reject;
            let rule = Some(policy.id().to_owned());
            self.outcome.stop = Some(FlowStop { reason: DropReason::Policy, rule, reject, ban: None });
        }
    }

    pub(super) fn context<'q>(
        &self,
        stage: BannerStage,
        request: Option<&'q RequestHead<'q>>,
        product: Option<&'q ProductFacts>,
    ) -> BannerContext<'q> {
        let FlowEndpoints { client, server } = self.flow.endpoints();
        BannerContext {
            source: Some(client.address),
            destination: Some(server.address),
            port: Some(server.port),
            product,
            request,
            stage,
            now: self.packet.now,
        }
    }

    fn take_match(&mut self, matching: &RuleMatch<'_>, found: &FoundBanner<'_>) {
        let rule = matching.rule;
        if let Some(count) = self.shared.counters.matches.get_mut(rule.index()) {
            *count += 1;
        }
        let source = self.flow.endpoints().client.address;
        if !self.shared.thresholds.admit(rule, source, self.packet.now) {
            self.shared.counters.suppressed += 1;
            return;
        }
        let action = matching.action();
        if action == RuleAction::Accept {
            return;
        }
        // A monitor changes nothing on the wire, nor how the kernel routes or shapes it.
        if let Some(mark) = matching.mark()
            && self.enforces()
        {
            self.outcome.mark = Some(merge(self.outcome.mark, mark));
        }
        let ban = matching.ban().map(|time| {
            let line = self.settings.config.disclosure.line(found.banner.line());
            Box::new(BanRequest { client: source, rule: rule.id().to_owned(), banner: line, time })
        });
        self.emit_alert_within_limit(matching, found);
        if action.blocks() {
            let stop = self.outcome.stop.get_or_insert_with(|| FlowStop {
                reason: DropReason::Rules,
                rule: Some(rule.id().to_owned()),
                reject: action == RuleAction::Reject,
                ban: None,
            });
            stop.ban = stop.ban.take().or(ban);
        }
    }

    /// Emits the alert of a match, unless the flow has had too many.
    fn emit_alert_within_limit(&mut self, matching: &RuleMatch<'_>, found: &FoundBanner<'_>) {
        let length = found.banner.line().len().min(self.settings.config.disclosure.text);
        let grave = matching.action().blocks() || is_grave(matching.severity());
        if self.reports.admit_alert(matching.rule.index(), grave, length) {
            self.emit_alert(matching, found);
        } else {
            self.shared.counters.alerts_suppressed += 1;
            self.reports.cut_alert(matching.rule.id());
        }
    }

    fn emit_alert(&mut self, matching: &RuleMatch<'_>, found: &FoundBanner<'_>) {
        let banner = found.banner;
        let alert = matching.alert(AlertContext {
            from: banner.from(),
            line: banner.line(),
            disclosure: &self.settings.config.disclosure,
            product: found.product,
            application: (found.facts)(),
            enforced: self.enforces(),
        });
        let protocol = banner.protocol();
        let from = banner.from();
        self.emit(EventKind::Alert(alert.into()), Some(from), Some(protocol), found.transaction);
    }

    /// Names the rules that matched and of which no alert was told.
    pub(super) fn emit_suppressed_rules(&mut self) {
        let Some(rules) = self.reports.take_cut() else { return };
        let anomaly = Anomaly::AlertsCut;
        self.shared.counters.count_anomaly(anomaly);
        let detail = format!("{}: {rules}", anomaly.detail());
        self.emit_anomaly(AnomalyFacts::new(anomaly, detail));
    }

    /// Notes what was odd about a packet or stream: an event for the first of its kind in a flow.
    pub(super) fn report_anomalies(&mut self, anomalies: AnomalySet, reported: &mut AnomalySet) {
        if anomalies.is_empty() {
            return;
        }
        for anomaly in anomalies.iter() {
            self.shared.counters.count_anomaly(anomaly);
            if reported.insert(anomaly) {
                self.emit_detailed_anomaly(anomaly, anomaly.detail());
            }
            // Bytes that were let through are fixed, whatever else is only to be told.
            let fixed = anomaly == Anomaly::OverlapDifferentData && self.enforces();
            if fixed || (anomaly.is_refusable() && self.settings.config.on_anomaly.drops(anomaly)) {
                self.outcome.refuse.get_or_insert(anomaly.drop_reason());
            }
        }
    }

    /// Notes something odd about a packet, with a detail of its own.
    pub(super) fn report_anomaly_with(&mut self, anomaly: Anomaly, detail: &str, reported: &mut AnomalySet) {
        self.shared.counters.count_anomaly(anomaly);
        if reported.insert(anomaly) {
            self.emit_detailed_anomaly(anomaly, detail);
        }
        if self.settings.config.on_anomaly.drops(anomaly) {
            self.outcome.refuse.get_or_insert(anomaly.drop_reason());
        }
    }

    fn emit_detailed_anomaly(&mut self, anomaly: Anomaly, detail: &str) {
        let Some(suppressed) = self.shared.quotas.of(anomaly).admit(self.packet.now) else {
            self.shared.counters.events_suppressed += 1;
            return;
        };
        self.told.insert(anomaly);
        self.emit_anomaly(AnomalyFacts::new(anomaly, event_quota::detail(detail, suppressed)));
    }

    /// Notes something odd of the application layer.
    pub(super) fn report_application_anomaly(&mut self, anomaly: Anomaly) {
        self.shared.counters.count_anomaly(anomaly);
        if self.reports.admit_anomaly(anomaly) {
            self.told.insert(anomaly);
            self.emit_anomaly(AnomalyFacts::from(anomaly));
        }
        let config = &self.settings.config;
        // Behind an upgrade that was not followed nothing can be read.
        let blinds = anomaly == Anomaly::UpgradeNotFollowed && config.on_failure == OnFailure::Closed;
        if (blinds || config.on_anomaly.drops(anomaly)) && self.outcome.stop.is_none() {
            self.outcome.stop = Some(FlowStop::because(anomaly.drop_reason()));
        }
    }

    /// Tells of a packet that is dropped. One that only would be, in monitor mode, is told by the alert or
    /// the anomaly that it is about.
    pub(super) fn emit_drop(&mut self, reason: DropReason, rule: Option<String>, rejected: bool) {
        // A shortage of memory is no rule's opinion: it drops where monitoring only, too.
        let short = reason == DropReason::FlowMemcap;
        if !self.enforces() && !short {
            return;
        }
        if self.settings.config.flow_events {
            self.outcome.notes.dropped = Some((reason, rule.clone()));
        }
        if self.withholds() && !short || !self.admits_drop(reason) {
            self.shared.counters.events_suppressed += 1;
            return;
        }
        let segment = self.segment.map(Segment::header_facts);
        let header = segment.or(self.datagram.map(Datagram::header_facts)).unwrap_or_default();
        let facts = DropFacts { rule, reason, rejected, resets: None, header };
        self.emit(EventKind::Drop(facts), self.from, None, None);
    }

    /// True if a drop is told: one for an anomaly only where that was, since anybody can send such packets.
    fn admits_drop(&mut self, reason: DropReason) -> bool {
        match reason {
            DropReason::Rules | DropReason::Policy => true,
            DropReason::FlowMemcap => self.shared.quotas.no_room.admit(self.packet.now).is_some(),
            DropReason::StreamError | DropReason::DecodeError | DropReason::AppLayerError => {
                self.told.iter().any(|anomaly| anomaly.drop_reason() == reason)
            }
        }
    }

    pub(super) fn emit_anomaly(&mut self, facts: AnomalyFacts) {
        self.emit(EventKind::Anomaly(facts), self.from, None, None);
    }

    pub(super) fn emit(
        &mut self,
        kind: EventKind,
        from: Option<Side>,
        protocol: Option<Protocol>,
        transaction: Option<u32>,
    ) {
        if matches!(kind, EventKind::Alert(_)) && self.withholds() {
            self.withhold(WithheldAlert { client: self.flow.client(), kind, from, protocol, transaction });
            return;
        }
        if matches!(kind, EventKind::Application(_)) && self.withholds() {
            let now = self.packet.now;
            if !self.withheld.is_empty()
                || self.shared.quotas.of(Anomaly::UnconfirmedMatch).admit(now).is_none()
            {
                self.shared.counters.events_suppressed += 1;
                return;
            }
        }
        if let EventKind::Application(said) = &kind {
            self.outcome.recognised = Some(said.protocol());
        }
        let packet = self.packet;
        let notes = &mut self.outcome.notes;
        notes.protocol = protocol.or(notes.protocol);
        notes.alerted |= matches!(kind, EventKind::Alert(_));
        let flow = FlowContext {
            id: self.flow.id(),
            transport: self.flow.transport(),
            endpoints: self.flow.endpoints(),
            from,
            interface: packet.interface.map(str::to_owned),
            vlan: packet.vlan.to_vec(),
            packet_number: packet.packet_number,
            transaction,
            protocol,
            established: Some(self.flow.is_established()),
            midstream: self.flow.is_midstream(),
        };
        let source = self.settings.config.source;
        self.sink.emit(Event { timestamp: packet.now, source, flow: Some(flow), kind });
    }
}
