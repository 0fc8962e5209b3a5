//! One `[[rule]]` table.

use std::ops::Range;
use std::sync::Arc;

use serde_spanned::Spanned;
use toml::de::DeValue;

use super::super::debian::Fixed;
use super::super::example::Example;
use super::super::field::{Field, Sender, header_name};
use super::super::pattern::{Patterns, REVISION, VERSION};
use super::super::rule::{Condition, Mark, ProbeRequest, Rule, Test};
use super::super::threshold::Count;
use super::super::version::Requirement;
use super::value::{Entry, Reader, Text};
use super::{Draft, Lists, Pack, conditions, fields, scope};
use crate::event::{Action, Protocol, Severity};

const KEYS: &[&str] = &[
    "id",
    "title",
    "protocol",
    "from",
    "match",
    "unless",
    "absent",
    "present",
    "version",
    "fixed_in",
    "action",
    "mark",
    "severity",
    "category",
    "references",
    "tags",
    "profiles",
    "certain",
    "request",
    "source",
    "destination",
    "port",
    "count",
    "examples",
    "counterexamples",
];

const SENDERS: &[(&str, Sender)] =
    &[("server", Sender::Server), ("client", Sender::Client), ("either", Sender::Either)];

pub(super) const ACTIONS: &[(&str, Action)] = &[
    ("alert", Action::Alert),
    ("drop", Action::Drop),
    ("reject", Action::Reject),
    ("mark", Action::Mark),
    ("accept", Action::Accept),
];

pub(super) const SEVERITIES: &[(&str, Severity)] = &[
    ("info", Severity::Info),
    ("low", Severity::Low),
    ("medium", Severity::Medium),
    ("high", Severity::High),
    ("critical", Severity::Critical),
];

/// What of a rule was read so far; each value where its key was given and good.
#[derive(Default)]
struct Parts {
    id: Option<Text>,
    title: Option<Text>,
    protocol: Option<Protocol>,
    from: Option<Sender>,
    action: Option<Action>,
    mark: Option<(Mark, Range<usize>)>,
    severity: Option<Severity>,
    category: Option<Text>,
    references: Vec<Text>,
    tags: Option<Vec<String>>,
    profiles: Option<Vec<String>>,
    certain: Option<Text>,
    request: Option<(ProbeRequest, Range<usize>)>,
    all: Vec<Condition>,
    unless: Vec<Condition>,
    absent: Vec<String>,
    present: Vec<String>,
    version: Option<(Requirement, Range<usize>)>,
    fixed_in: Vec<(Fixed, Range<usize>)>,
    scope: super::super::scope::Scope,
    count: Option<Count>,
    examples: Vec<Example>,
    counterexamples: Vec<Example>,
}

/// Reads one rule; none where anything of it is at fault.
pub(super) fn read(
    reader: &mut Reader<'_>,
    table: &Spanned<DeValue<'_>>,
    end: usize,
    (file, pack): (&Arc<str>, &Pack),
    lists: &mut Lists,
    draft: &mut Draft,
) -> Option<Rule> {
    let errors = reader.report.errors();
    let entries = reader.table("rule", table)?;
    let whole = reader.is_whole(&(table.span().start..end));
    let mut parts = Parts::default();
    // The id first, so that all that follows can name the rule; then what decides which fields exist.
    for (key, _, value) in &entries {
        parts.read_identity(reader, key, value);
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
        parts.from = Some(Sender::Server);
    }
    for entry in &entries {
        parts.read_entry(reader, entry, lists, &mut draft.patterns);
    }
    parts.check(reader, &table.span(), &given, whole, &draft.patterns);
    if reader.report.errors() > errors || !whole {
        return None;
    }
    parts.finish(reader, &table.span(), (file, pack), draft.rules.len())
}

impl Parts {
    fn read_identity(&mut self, reader: &mut Reader<'_>, key: &str, value: &Spanned<DeValue<'_>>) {
        match key {
            "id" => self.id = fields::identifier(reader, value),
            "protocol" => self.protocol = fields::protocol(reader, value),
            "from" => self.from = reader.name(key, value, SENDERS),
            "action" => self.action = reader.name(key, value, ACTIONS),
            _ => {}
        }
    }

    fn read_entry(
        &mut self,
        reader: &mut Reader<'_>,
        (key, span, value): &Entry<'_, '_>,
        lists: &mut Lists,
        patterns: &mut Patterns,
    ) {
        let mut context = conditions::Context { protocol: self.protocol, sender: self.from, lists, patterns };
        match *key {
            "id" | "protocol" | "from" | "action" => {}
            "title" => self.title = fields::line(reader, key, value),
            "match" => self.all = conditions::read(reader, key, value, &mut context),
            "unless" => self.unless = conditions::read(reader, key, value, &mut context),
            "absent" => self.absent = self.header_names(reader, key, value),
            "present" => self.present = self.header_names(reader, key, value),
            "version" => self.version = fields::version(reader, value),
            "fixed_in" => self.fixed_in = fields::fixed_in(reader, value),
            "mark" => self.mark = fields::mark(reader, value).map(|mark| (mark, span.clone())),
            "severity" => self.severity = reader.name(key, value, SEVERITIES),
            "category" => self.category = fields::line(reader, key, value),
            "references" => self.references = fields::lines(reader, key, value),
            "tags" => self.tags = Some(fields::labels(reader, key, value)),
            "profiles" => self.profiles = Some(fields::labels(reader, key, value)),
            "certain" => self.certain = fields::line(reader, key, value),
            "request" => self.request = fields::request(reader, value).map(|request| (request, span.clone())),
            "source" => self.scope.source = scope::addresses(reader, key, value, lists),
            "destination" => self.scope.destination = scope::addresses(reader, key, value, lists),
            "port" => self.scope.port = scope::ports(reader, value),
            "count" => self.count = fields::count(reader, value),
            "examples" => self.examples = self.read_examples(reader, key, value),
            "counterexamples" => self.counterexamples = self.read_examples(reader, key, value),
            _ => reader.unknown_key(span, key, "a rule", KEYS.iter().copied()),
        }
    }

    fn header_names(&self, reader: &mut Reader<'_>, key: &str, value: &Spanned<DeValue<'_>>) -> Vec<String> {
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
        reader: &mut Reader<'_>,
        key: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Vec<Example> {
        let Some(protocol) = self.protocol else { return Vec::new() };
        super::examples::read(reader, key, value, protocol, self.from.unwrap_or(Sender::Server))
    }

    /// What keys ask of each other.
    fn check(
        &self,
        reader: &mut Reader<'_>,
        header: &Range<usize>,
        given: &[&str],
        whole: bool,
        patterns: &Patterns,
    ) {
        if whole {
            for key in ["id", "protocol", "action"].iter().filter(|key| !given.contains(key)) {
                reader.error(header, format!("the rule has no `{key}`"));
            }
            let about = ["match", "absent", "present", "source", "destination", "port"];
            if !given.iter().any(|key| about.contains(key)) {
                let message = "the rule would match every banner";
                let help = "say what it is about: `match.FIELD = 'PATTERN'`, `absent`, `present`, `source`, `destination` or `port`";
                reader.error_with_help(header, message, help);
            }
        }
        if let (Some(about @ Protocol::Greeting(_)), Some(Sender::Client)) = (self.protocol, self.from) {
            let message = format!("only a server greets: {} has no `from = \"client\"`", about.title());
            reader.error(header, message);
        }
        self.check_action(reader, header, given);
        self.check_request(reader);
        self.check_versions(reader, patterns);
    }

    fn check_action(&self, reader: &mut Reader<'_>, header: &Range<usize>, given: &[&str]) {
        match (self.action, &self.mark) {
            (Some(Action::Mark), None) if !given.contains(&"mark") => {
                let help = "for instance `mark = \"0x1/0xff\"`";
                reader.error_with_help(header, "the action `mark` needs the value to set: `mark`", help);
            }
            (Some(action), Some((_, span))) if action != Action::Mark => {
                reader
                    .error(span, format!("`mark` belongs to the action `mark`, not to `{}`", action.name()));
            }
            _ => {}
        }
    }

    fn check_request(&self, reader: &mut Reader<'_>) {
        let Some((_, span)) = &self.request else { return };
        if let Some(other) = self.protocol.filter(|protocol| *protocol != Protocol::Http) {
            let message = format!("`request` is what a scan asks an HTTP server; {} has none", other.title());
            reader.error(span, message);
        } else if self.from.is_some_and(|sender| sender != Sender::Server) {
            reader.error(span, "`request` belongs to rules about the server's answer: `from = \"server\"`");
        }
    }

    fn check_versions(&self, reader: &mut Reader<'_>, patterns: &Patterns) {
        // A faulty `match` says nothing about what it would have captured.
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
                reader.error_with_help(span, "nothing says which version the banner has", help);
            }
            if !requirement.is_satisfiable() {
                reader.warn(
                    span,
                    "no version can be all of this, so the rule never matches",
                    "separate alternatives with `||`",
                );
            }
        }
        for (fixed, span) in &self.fixed_in {
            if fixed.has_upstream() && !versioned {
                reader.error_with_help(span, "nothing says which upstream version the banner has", help);
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
            reader.error_with_help(span, "nothing says which package revision the banner has", help);
        }
    }

    fn finish(
        self,
        reader: &Reader<'_>,
        header: &Range<usize>,
        (file, pack): (&Arc<str>, &Pack),
        index: usize,
    ) -> Option<Rule> {
        let id = self.id?.value;
        let (place, _, _) = reader.source.locate(header.start);
        let fields = || self.all.iter().chain(&self.unless).map(|condition| &condition.field);
        let later = fields().any(|field| field.needs_kex() || field.needs_body());
        let fingerprint = fields().any(Field::is_fingerprint);
        Some(Rule {
            later,
            fingerprint,
            index,
            title: self.title.map_or_else(|| id.clone(), |title| title.value),
            id,
            protocol: self.protocol?,
            from: self.from.unwrap_or(Sender::Server),
            action: self.action?,
            mark: self.mark.map(|(mark, _)| mark),
            severity: self.severity.unwrap_or(Severity::Medium),
            category: self.category.map(|category| category.value).unwrap_or_default(),
            references: self.references.into_iter().map(|reference| reference.value).collect(),
            tags: pack.tags.iter().cloned().chain(self.tags.unwrap_or_default()).collect(),
            profiles: self.profiles.unwrap_or_else(|| pack.profiles.clone()),
            certain: self.certain.map(|reason| reason.value),
            off: None,
            changes: Vec::new(),
            request: self.request.map(|(request, _)| request),
            all: self.all,
            unless: self.unless,
            absent: self.absent,
            present: self.present,
            version: self.version.map(|(requirement, _)| requirement),
            fixed_in: self.fixed_in.into_iter().map(|(fixed, _)| fixed).collect(),
            scope: self.scope,
            count: self.count,
            examples: self.examples,
            counterexamples: self.counterexamples,
            file: file.clone(),
            place,
        })
    }
}

/// Whether a pattern of `match` has the named group.
fn captures(conditions: &[Condition], patterns: &Patterns, group: &str) -> bool {
    conditions.iter().any(|condition| match &condition.test {
        Test::Patterns(ids) => {
            ids.iter().any(|id| patterns.get(*id).is_some_and(|pattern| pattern.has_group(group)))
        }
        Test::Values(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_read() {
        // A key that the list names and no arm reads would be taken for unknown.
        let text =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/rules/read/rule.rs")).unwrap();
        for key in KEYS {
            assert!(text.matches(&format!("\"{key}\"")).count() >= 2, "{key}");
        }
    }
}
