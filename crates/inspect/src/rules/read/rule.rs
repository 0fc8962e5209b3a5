//! Reads one `[[rule]]` table.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde_spanned::Spanned;
use toml::de::DeValue;

use super::super::advisory::Advisory;
use super::super::debian::FixedPackage;
use super::super::example::RuleExample;
use super::super::field::{BannerField, BannerSender, header_name};
use super::super::pattern::{PatternTable, REVISION, VERSION};
use super::super::probe_request::ProbeRequest;
use super::super::rule::MatchThreshold;
use super::super::rule::{FieldTest, PacketMark, Rule, RuleCondition};
use super::super::rule_change::RuleValidity;
use super::super::version::VersionRequirement;
use super::toml_value::{Entry, SpannedText, ValueReader};
use super::{DeclaredLists, PackSettings, RuleSetDraft, advisory, conditions, rule_values, scope};
use crate::event::{Protocol, RuleAction, Severity};

/// Function that reads a key's value into `RuleParts`.
type Take = fn(&mut RuleParts, &mut ValueReader<'_>, &Entry<'_, '_>, &mut conditions::ConditionContext<'_>);

/// Keys that are read first: they decide which fields exist, and name the rule in diagnostics.
const IDENTITY: &[(&str, Take)] = &[
    ("id", |parts, reader, (_, _, value), _| parts.id = rule_values::identifier(reader, value)),
    ("protocol", |parts, reader, (_, _, value), _| parts.protocol = rule_values::protocol(reader, value)),
    ("from", |parts, reader, (key, _, value), _| parts.from = reader.name(key, value, SENDERS)),
    ("action", |parts, reader, (key, _, value), _| parts.action = reader.name(key, value, ACTIONS)),
];

/// All other keys.
const KEYS: &[(&str, Take)] = &[
    ("title", |parts, reader, (key, _, value), _| parts.title = rule_values::line(reader, key, value)),
    ("match", |parts, reader, (key, _, value), context| {
        parts.all = conditions::read(reader, key, value, context);
    }),
    ("unless", |parts, reader, (key, _, value), context| {
        parts.unless = conditions::read(reader, key, value, context);
    }),
    ("absent", |parts, reader, (key, _, value), _| parts.absent = parts.header_names(reader, key, value)),
    ("present", |parts, reader, (key, _, value), _| parts.present = parts.header_names(reader, key, value)),
    ("version", |parts, reader, (key, _, value), _| {
        parts.version = rule_values::requirement(reader, key, value);
    }),
    ("fixed_in", |parts, reader, (_, _, value), _| parts.fixed_in = rule_values::fixed_in(reader, value)),
    ("advisory", |parts, reader, (_, span, value), _| {
        parts.advisory = advisory::read(reader, value).map(|advisory| (advisory, span.clone()));
    }),
    ("mark", |parts, reader, (_, span, value), _| {
        parts.mark = rule_values::mark(reader, value).map(|mark| (mark, span.clone()));
    }),
    ("ban", |parts, reader, (key, span, value), _| {
        parts.ban = rule_values::duration(reader, key, value).map(|ban| (ban, span.clone()));
    }),
    ("severity", |parts, reader, (key, _, value), _| parts.severity = reader.name(key, value, SEVERITIES)),
    ("category", |parts, reader, (key, _, value), _| parts.category = rule_values::line(reader, key, value)),
    ("references", |parts, reader, (key, _, value), _| {
        parts.references = rule_values::lines(reader, key, value);
    }),
    ("tags", |parts, reader, (key, _, value), _| parts.tags = Some(rule_values::labels(reader, key, value))),
    ("profiles", |parts, reader, (key, _, value), _| {
        parts.profiles = Some(rule_values::labels(reader, key, value));
    }),
    ("certain", |parts, reader, (key, _, value), _| parts.certain = rule_values::line(reader, key, value)),
    ("request", |parts, reader, (_, span, value), _| {
        parts.request = rule_values::request(reader, value).map(|request| (request, span.clone()));
    }),
    ("source", |parts, reader, (key, _, value), context| {
        parts.scope.source = scope::addresses(reader, key, value, context.lists);
    }),
    ("destination", |parts, reader, (key, _, value), context| {
        parts.scope.destination = scope::addresses(reader, key, value, context.lists);
    }),
    ("port", |parts, reader, (_, _, value), _| parts.scope.port = scope::ports(reader, value)),
    ("expires_within", |parts, reader, (key, span, value), _| {
        parts.expires_within = rule_values::duration(reader, key, value).map(|within| (within, span.clone()));
    }),
    ("count", |parts, reader, (_, _, value), _| parts.count = rule_values::count(reader, value)),
    ("examples", |parts, reader, (key, _, value), _| {
        parts.examples = parts.read_examples(reader, key, value);
    }),
    ("counterexamples", |parts, reader, (key, _, value), _| {
        parts.counterexamples = parts.read_examples(reader, key, value);
    }),
];

const SENDERS: &[(&str, BannerSender)] =
    &[("server", BannerSender::Server), ("client", BannerSender::Client), ("either", BannerSender::Either)];

pub(super) const ACTIONS: &[(&str, RuleAction)] = &[
    ("alert", RuleAction::Alert),
    ("drop", RuleAction::Drop),
    ("reject", RuleAction::Reject),
    ("ban", RuleAction::Ban),
    ("mark", RuleAction::Mark),
    ("accept", RuleAction::Accept),
    ("allow", RuleAction::Allow),
];

pub(super) const SEVERITIES: &[(&str, Severity)] = &[
    ("info", Severity::Info),
    ("low", Severity::Low),
    ("medium", Severity::Medium),
    ("high", Severity::High),
    ("critical", Severity::Critical),
];

/// The parts of a rule that were read so far: only keys that were given and valid.
#[derive(Default)]
struct RuleParts {
    id: Option<SpannedText>,
    title: Option<SpannedText>,
    protocol: Option<Protocol>,
    from: Option<BannerSender>,
    action: Option<RuleAction>,
    mark: Option<(PacketMark, Range<usize>)>,
    ban: Option<(Duration, Range<usize>)>,
    severity: Option<Severity>,
    category: Option<SpannedText>,
    references: Vec<SpannedText>,
    tags: Option<Vec<String>>,
    profiles: Option<Vec<String>>,
    certain: Option<SpannedText>,
    request: Option<(ProbeRequest, Range<usize>)>,
    all: Vec<RuleCondition>,
    unless: Vec<RuleCondition>,
    absent: Vec<String>,
    present: Vec<String>,
    version: Option<(VersionRequirement, Range<usize>)>,
    fixed_in: Vec<(FixedPackage, Range<usize>)>,
    advisory: Option<(Advisory, Range<usize>)>,
    scope: super::super::scope::RuleScope,
    expires_within: Option<(Duration, Range<usize>)>,
    count: Option<MatchThreshold>,
    examples: Vec<RuleExample>,
    counterexamples: Vec<RuleExample>,
}

/// Reads one rule; none if it has a fault.
pub(super) fn read(
    reader: &mut ValueReader<'_>,
    table: &Spanned<DeValue<'_>>,
    end: usize,
    (file, pack): (&Arc<str>, &PackSettings),
    lists: &mut DeclaredLists,
    draft: &mut RuleSetDraft,
) -> Option<Rule> {
    let errors = reader.report.errors();
    let entries = reader.table("rule", table)?;
    let whole = reader.is_whole(&(table.span().start..end));
    let mut parts = RuleParts::default();
    // The id comes first, so that all later diagnostics name the rule. The other keys of `IDENTITY`
    // decide which fields exist.
    for entry in &entries {
        parts.read_entry(IDENTITY, reader, entry, lists, &mut draft.patterns);
    }
    if let Some(id) = &parts.id {
        reader.rule = Some(id.value.clone());
        let (place, _, _) = reader.source.locate(id.span.start);
        if let Some(before) = draft.claim(&id.value, format!("{file}:{place}")) {
            let message = format!("the id `{}` was given before, at {before}", id.value);
            reader.error(&id.span, message);
        }
    }
    let given: Vec<&str> = entries.iter().map(|(key, _, _)| *key).collect();
    if !given.contains(&"from") {
        // Without a known protocol, neither side is known to speak first.
        let either = parts.protocol == Some(Protocol::Other);
        parts.from = Some(if either { BannerSender::Either } else { BannerSender::Server });
    }
    let known = || IDENTITY.iter().chain(KEYS).map(|(known, _)| *known);
    for entry in &entries {
        parts.read_entry(KEYS, reader, entry, lists, &mut draft.patterns);
        let (key, span, _) = entry;
        if known().all(|known| known != *key) {
            reader.unknown_key(span, key, "a rule", known());
        }
    }
    parts.check(reader, &table.span(), &given, whole, &draft.patterns);
    if reader.report.errors() > errors || !whole {
        return None;
    }
    parts.finish(reader, &table.span(), (file, pack), draft.rules.len())
}

impl RuleParts {
    /// Reads a value if its key is in the table.
    fn read_entry(
        &mut self,
        table: &[(&str, Take)],
        reader: &mut ValueReader<'_>,
        entry: &Entry<'_, '_>,
        lists: &mut DeclaredLists,
        patterns: &mut PatternTable,
    ) {
        let sender = self.from;
        let mut context = conditions::ConditionContext { protocol: self.protocol, sender, lists, patterns };
        if let Some((_, take)) = table.iter().find(|(known, _)| *known == entry.0) {
            take(self, reader, entry, &mut context);
        }
    }

    fn header_names(
        &self,
        reader: &mut ValueReader<'_>,
        key: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Vec<String> {
        if let Some(other) = self.protocol.filter(|protocol| *protocol != Protocol::Http) {
            let message = format!("`{key}` is about HTTP header fields; {} has none", other.title());
            reader.error(&value.span(), message);
            return Vec::new();
        }
        let mut names = Vec::new();
        for text in reader.texts(key, value) {
            match header_name(&text.value) {
                Some(name) => names.push(name),
                None => reader.error(&text.span, "not the name of a header field"),
            }
        }
        names
    }

    fn read_examples(
        &self,
        reader: &mut ValueReader<'_>,
        key: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Vec<RuleExample> {
        let Some(protocol) = self.protocol else { return Vec::new() };
        super::examples::read(reader, key, value, protocol, self.from.unwrap_or(BannerSender::Server))
    }

    /// Checks keys against each other.
    fn check(
        &self,
        reader: &mut ValueReader<'_>,
        header: &Range<usize>,
        given: &[&str],
        whole: bool,
        patterns: &PatternTable,
    ) {
        if whole {
            for key in ["id", "protocol", "action"].iter().filter(|key| !given.contains(key)) {
                reader.error(header, format!("the rule has no `{key}`"));
            }
            let about = ["match", "absent", "present", "source", "destination", "port", "expires_within"];
            if !given.iter().any(|key| about.contains(key)) {
                let message = "the rule would match every banner";
                let help = "say what it is about: `match.FIELD = 'PATTERN'`, `absent`, `present`, `source`, `destination` or `port`";
                reader.error_with_help(header, message, help);
            }
        }
        if let (Some(about @ Protocol::Greeting(_)), Some(BannerSender::Client)) = (self.protocol, self.from)
        {
            let message = format!("only a server greets: {} has no `from = \"client\"`", about.title());
            reader.error(header, message);
        }
        if let Some((_, span)) = &self.expires_within
            && (self.protocol != Some(Protocol::Tls) || self.from != Some(BannerSender::Server))
        {
            reader.error(span, "`expires_within` is about the certificate of a TLS server");
        }
        self.check_action(reader, header, given);
        self.check_request(reader);
        self.check_versions(reader, patterns);
    }

    fn check_action(&self, reader: &mut ValueReader<'_>, header: &Range<usize>, given: &[&str]) {
        match (self.action, &self.mark) {
            (Some(RuleAction::Mark), None) if !given.contains(&"mark") => {
                let help = "for instance `mark = \"0x1/0xff\"`";
                reader.error_with_help(header, "the action `mark` needs the value to set: `mark`", help);
            }
            (Some(action), Some((_, span))) if action != RuleAction::Mark => {
                reader
                    .error(span, format!("`mark` belongs to the action `mark`, not to `{}`", action.name()));
            }
            _ => {}
        }
        if let (Some(action), Some((_, span))) = (self.action, &self.ban)
            && action != RuleAction::Ban
        {
            reader.error(span, format!("`ban` belongs to the action `ban`, not to `{}`", action.name()));
        }
    }

    fn check_request(&self, reader: &mut ValueReader<'_>) {
        let Some((_, span)) = &self.request else { return };
        if let Some(other) = self.protocol.filter(|protocol| *protocol != Protocol::Http) {
            let message = format!("`request` is what a scan asks an HTTP server; {} has none", other.title());
            reader.error(span, message);
        } else if self.from.is_some_and(|sender| sender != BannerSender::Server) {
            reader.error(span, "`request` belongs to rules about the server's answer: `from = \"server\"`");
        }
    }

    fn check_versions(&self, reader: &mut ValueReader<'_>, patterns: &PatternTable) {
        // A faulty `match` does not show what it would have captured.
        if self.all.is_empty() && reader.report.errors() > 0 {
            return;
        }
        let captures = |group| captures(&self.all, patterns, group);
        let fingerprint = self.all.iter().any(|condition| condition.field.is_fingerprint());
        let versioned = captures(VERSION) || fingerprint;
        let help =
            r"name the part of the pattern that is the version: `^OpenSSH_(?<version>\d+\.\d+(p\d+)?)`";
        if let Some((requirement, span)) = &self.version {
            if !versioned {
                reader.error_with_help(span, "no pattern captures the banner's version", help);
            }
            if !requirement.is_satisfiable() {
                reader.warn(
                    span,
                    "no version can be all of this, so the rule never matches",
                    "separate alternatives with `||`",
                );
            }
        }
        if let Some((advisory, span)) = &self.advisory {
            if advisory.asks_markers() && self.protocol.is_some_and(|protocol| protocol != Protocol::Ssh) {
                reader.error(
                    span,
                    "markers exist only in SSH's key exchange; the rule is about another protocol",
                );
            }
            if !versioned {
                reader.error_with_help(span, "no pattern captures the banner's version", help);
            }
            if let Some(action) =
                self.action.filter(|action| matches!(action, RuleAction::Accept | RuleAction::Allow))
            {
                let message = format!("an advisory finds weaknesses: `{}` does not fit", action.name());
                reader.error(span, message);
            }
        }
        for (fixed, span) in &self.fixed_in {
            if fixed.has_upstream() && !versioned {
                reader.error_with_help(span, "no pattern captures the banner's upstream version", help);
            }
            if !fixed.has_upstream() && !fixed.is_release() {
                let help = "write the upstream version before it: `9.7p1 Debian-7`";
                reader.warn(span, "the revision does not say which release it belongs to", help);
            }
        }
        if let Some((_, span)) = self.fixed_in.first()
            && self.protocol.is_some_and(|protocol| protocol != Protocol::Ssh)
            && !captures(REVISION)
        {
            let help = r"name the part of a pattern that is the package's revision: `^PHP/(?<version>[\d.]+)-(?<revision>\S+)`";
            reader.error_with_help(span, "no pattern captures the banner's package revision", help);
        }
    }

    fn finish(
        self,
        reader: &ValueReader<'_>,
        header: &Range<usize>,
        (file, pack): (&Arc<str>, &PackSettings),
        index: usize,
    ) -> Option<Rule> {
        let id = self.id?.value;
        let (place, _, _) = reader.source.locate(header.start);
        let fields = || self.all.iter().chain(&self.unless).map(|condition| &condition.field);
        let later = self.expires_within.is_some() || fields().any(BannerField::comes_later);
        let fingerprint = fields().any(BannerField::is_fingerprint);
        Some(Rule {
            later,
            fingerprint,
            index,
            title: self.title.map_or_else(|| id.clone(), |title| title.value),
            id,
            protocol: self.protocol?,
            from: self.from.unwrap_or(BannerSender::Server),
            action: self.action?,
            mark: self.mark.map(|(mark, _)| mark),
            ban: self.ban.map(|(ban, _)| ban),
            severity: self.severity.unwrap_or(Severity::Medium),
            category: self.category.map(|category| category.value).unwrap_or_default(),
            references: self.references.into_iter().map(|reference| reference.value).collect(),
            tags: pack.tags.iter().cloned().chain(self.tags.unwrap_or_default()).collect(),
            profiles: self.profiles.unwrap_or_else(|| pack.profiles.clone()),
            certain: self.certain.map(|reason| reason.value),
            off: None,
            changes: Vec::new(),
            weakened_by: None,
            validity: RuleValidity::default(),
            request: self.request.map(|(request, _)| request),
            all: self.all,
            unless: self.unless,
            absent: self.absent,
            present: self.present,
            version: self.version.map(|(requirement, _)| requirement),
            fixed_in: self.fixed_in.into_iter().map(|(fixed, _)| fixed).collect(),
            bounds: self.advisory.as_ref().and_then(|(advisory, _)| advisory.bounds()),
            advisory: self.advisory.map(|(advisory, _)| advisory),
            scope: self.scope,
            expires_within: self.expires_within.map(|(within, _)| within),
            count: self.count,
            examples: self.examples,
            counterexamples: self.counterexamples,
            file: file.clone(),
            place,
        })
    }
}

/// True if a pattern of `match` has the named group.
fn captures(conditions: &[RuleCondition], patterns: &PatternTable, group: &str) -> bool {
    conditions.iter().any(|condition| match &condition.test {
        FieldTest::Patterns(ids) => {
            ids.iter().any(|id| patterns.get(*id).is_some_and(|pattern| pattern.has_group(group)))
        }
        FieldTest::Values(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_stands_in_the_reference() {
        let keys = IDENTITY.iter().chain(KEYS).map(|(key, _)| *key);
        bannerwall_test_support::reference::assert_named("reference/rules.md", keys);
        bannerwall_test_support::reference::assert_named(
            "reference/rules.md",
            ACTIONS.iter().map(|(name, _)| *name),
        );
        bannerwall_test_support::reference::assert_named(
            "reference/rules.md",
            SEVERITIES.iter().map(|(name, _)| *name),
        );
    }
}
