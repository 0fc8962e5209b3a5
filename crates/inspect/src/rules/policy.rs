//! Policies: what may be spoken to a port at all. The first one that a connection is in the scope of
//! decides; a connection in the scope of none is left to the rules.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use ahash::AHashMap;

use super::judge::{Memo, Miss, Scoped, judge};
use super::scope::{PortRule, Scope};
use super::text::{Place, SourceFile};
use super::view::{Context, View};
use super::{Rule, RuleSet};
use crate::banner::Banner;
use crate::banner::other::Name;
use crate::event::{Action, Endpoints, Protocol};
use crate::terms::Greeting;

/// One validated policy.
#[derive(Debug)]
pub struct Policy {
    pub(super) id: String,
    pub(super) title: Option<String>,
    pub(super) scope: Scope,
    pub(super) allow: Vec<Allowed>,
    pub(super) allow_rules: Vec<AllowRule>,
    pub(super) otherwise: Action,
    pub(super) silent_after: Option<Duration>,
    pub(super) budget: u64,
    pub(super) midstream: bool,
    /// A local file holds it: it stands before all that come with rules.
    pub(super) local: bool,
    /// What was said of its scope, for people.
    pub(super) about: String,
    pub(super) file: Arc<str>,
    pub(super) place: Place,
}

/// What a policy lets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Allowed {
    /// Whatever it is: the policy is an exception to those behind it.
    Any,
    /// SSH whose two ends begin with their identification.
    Ssh,
    /// HTTP/1.x: a request first, then an answer.
    Http,
    /// A server that greets like this.
    Greeting(Greeting),
    /// What is not read, by its first octets.
    Other(Name),
}

/// A rule whose matches a policy lets pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AllowRule {
    pub(super) id: String,
    /// Its position in [`RuleSet::rules`].
    pub(super) index: usize,
    /// Where the policy names it, in octets of its file.
    pub(super) span: std::ops::Range<usize>,
}

/// What a rule that a policy names says of a banner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opinion {
    /// It matches.
    Matches,
    /// It does not.
    Differs,
    /// It is not about this banner, or about what comes later.
    Silent,
}

/// Name of the policy by which `--learn` finds connections that no policy could allow.
pub const LEARNING_POLICY: &str = "learn-unlisted";

/// Returns a file with that policy: it allows each protocol that has a name, and alerts of the rest.
pub(super) fn learning() -> SourceFile {
    let allowed: Vec<&str> =
        Allowed::names().into_iter().filter(|name| *name != Allowed::Any.name()).collect();
    let text = format!(
        "[[policy]]\nid = \"{LEARNING_POLICY}\"\ntitle = \"nothing that a policy can allow\"\n\
         allow = {allowed:?}\notherwise = \"alert\"\n"
    );
    SourceFile::new("--learn", text)
}

/// What a policy does about octets of both sides that come to no decision, unless it says otherwise.
pub const BUDGET: u64 = 64 << 10;

impl Allowed {
    /// Names that a policy may use, beside those of [`Name`].
    pub fn names() -> Vec<&'static str> {
        let read = ["any", "ssh", "http"].into_iter().chain(Greeting::all().map(Greeting::name));
        read.chain(Name::all().map(Name::name)).collect()
    }

    /// What is allowed by that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "any" => Some(Self::Any),
            "ssh" => Some(Self::Ssh),
            "http" => Some(Self::Http),
            _ => Greeting::named(name).map(Self::Greeting).or_else(|| Name::named(name).map(Self::Other)),
        }
    }

    /// The name in policies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Ssh => "ssh",
            Self::Http => "http",
            Self::Greeting(greeting) => greeting.name(),
            Self::Other(name) => name.name(),
        }
    }

    /// True if it lets pass all that a rule about `protocol` could match.
    pub(super) fn includes(self, protocol: Protocol) -> bool {
        match (self, protocol) {
            (Self::Any, _) | (Self::Ssh, Protocol::Ssh) | (Self::Http, Protocol::Http) => true,
            (Self::Greeting(one), Protocol::Greeting(other)) => one == other,
            (Self::Other(name), Protocol::Tls) => name == Name::TLS,
            _ => false,
        }
    }
}

impl Policy {
    /// The name by which events, metrics and people call it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// One line for a person.
    pub fn title(&self) -> String {
        self.title.clone().unwrap_or_else(|| format!("only {}{}", self.allows(), self.about))
    }

    /// The protocols that it lets pass.
    pub fn allow(&self) -> &[Allowed] {
        &self.allow
    }

    /// The rules whose matches it lets pass: their positions, and ids.
    pub fn allow_rules(&self) -> impl Iterator<Item = (usize, &str)> {
        self.allow_rules.iter().map(|rule| (rule.index, rule.id.as_str()))
    }

    /// What becomes of anything else.
    pub const fn otherwise(&self) -> Action {
        self.otherwise
    }

    /// Time for which both sides may be silent from the handshake on.
    pub const fn silent_after(&self) -> Option<Duration> {
        self.silent_after
    }

    /// Octets of both sides after which a connection that is not known to be allowed is not.
    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// True if connections whose beginning was not seen are judged by what of them is seen first.
    pub const fn judges_midstream(&self) -> bool {
        self.midstream
    }

    /// The file that holds it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Where it stands in that file.
    pub const fn place(&self) -> Place {
        self.place
    }

    /// Everything that it lets pass, for a person: `ssh, rule openssh-current`.
    pub fn allows(&self) -> String {
        let protocols = self.allow.iter().map(|allowed| allowed.name().to_owned());
        let rules = self.allow_rules.iter().map(|rule| format!("rule {}", rule.id));
        let all: Vec<String> = protocols.chain(rules).collect();
        if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
    }

    /// What it is about, for a person: ` to port 22 from 192.0.2.0/24`, or nothing.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// True if a connection is what it is about.
    pub fn is_about(&self, ends: &Endpoints) -> bool {
        self.scope.source.admits(Some(ends.client.address))
            && self.scope.destination.admits(Some(ends.server.address))
            && self.scope.port.admits(Some(ends.server.port))
    }

    /// True if a connection that it is about may be anything.
    pub fn allows_any(&self) -> bool {
        self.allow.contains(&Allowed::Any)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` ({}:{})", self.id, self.file, self.place)
    }
}

/// The policies of a set, in the order in which they are asked.
#[derive(Debug, Default)]
pub(super) struct Policies {
    all: Vec<Arc<Policy>>,
    /// Those about a few ports, by each of them.
    by_port: AHashMap<u16, Vec<u32>>,
    /// Those about many.
    wide: Vec<u32>,
    /// Some do not wait for ever until somebody speaks.
    impatient: bool,
}

/// Policies about more ports than this are asked for every connection.
const FEW_PORTS: usize = 64;

impl Policies {
    pub(super) fn new(mut policies: Vec<Policy>) -> Self {
        policies.sort_by_key(|policy| !policy.local);
        let impatient = policies.iter().any(|policy| policy.silent_after.is_some());
        let mut index = Self { impatient, ..Self::default() };
        for (number, policy) in (0..).zip(&policies) {
            match few_ports(&policy.scope.port) {
                Some(ports) => {
                    for port in ports {
                        index.by_port.entry(port).or_default().push(number);
                    }
                }
                None => index.wide.push(number),
            }
        }
        Self { all: policies.into_iter().map(Arc::new).collect(), ..index }
    }

    pub(super) fn all(&self) -> &[Arc<Policy>] {
        &self.all
    }

    fn find(&self, ends: &Endpoints) -> Option<&Arc<Policy>> {
        if self.all.is_empty() {
            return None;
        }
        let narrow = self.by_port.get(&ends.server.port).map_or(&[][..], Vec::as_slice);
        let first = |numbers: &[u32]| {
            let policy = |number: &u32| self.all.get(usize::try_from(*number).ok()?);
            numbers.iter().copied().find(|number| policy(number).is_some_and(|policy| policy.is_about(ends)))
        };
        let number = first(narrow).into_iter().chain(first(&self.wide)).min()?;
        self.all.get(usize::try_from(number).ok()?)
    }
}

/// The ports that are admitted, where these are few.
fn few_ports(rule: &PortRule) -> Option<Vec<u16>> {
    let count = |range: &RangeInclusive<u16>| usize::from(range.end() - range.start()) + 1;
    if rule.within.is_empty() || rule.within.iter().map(count).sum::<usize>() > FEW_PORTS {
        return None;
    }
    let mut ports: Vec<u16> = rule.within.iter().flat_map(Clone::clone).collect();
    ports.retain(|port| rule.admits(Some(*port)));
    ports.sort_unstable();
    ports.dedup();
    Some(ports)
}

impl RuleSet {
    /// The policies in the order in which they are asked.
    pub fn policies(&self) -> &[Arc<Policy>] {
        self.policies.all()
    }

    /// True if a policy says what becomes of connections in which nobody says anything.
    pub fn has_impatient_policies(&self) -> bool {
        self.policies.impatient
    }

    /// The policy that decides about a connection.
    pub fn policy(&self, ends: &Endpoints) -> Option<&Arc<Policy>> {
        self.policies.find(ends)
    }

    /// What a rule that a policy names says of a banner; one that is gone says that it differs.
    pub fn opinion(&self, (index, id): (usize, &str), banner: &Banner<'_>, context: &Context<'_>) -> Opinion {
        let is_meant = |rule: &&Rule| rule.id == id && rule.validity.includes(context.now);
        let at = self.rules.get(index).filter(is_meant);
        let Some(rule) = at.or_else(|| self.rules.iter().find(is_meant)) else {
            return Opinion::Differs;
        };
        let view = View::new(banner, context);
        match judge(rule, &self.patterns, &view, &Memo::default(), Scoped::Yes) {
            Ok(_) => Opinion::Matches,
            Err(Miss::Protocol | Miss::Sender | Miss::Stage) => Opinion::Silent,
            Err(_) => Opinion::Differs,
        }
    }
}

impl Rule {
    /// What a connection must be for the rule to have a chance; of what is not read, anything.
    pub const fn shape(&self) -> Option<Allowed> {
        match self.protocol {
            Protocol::Ssh => Some(Allowed::Ssh),
            Protocol::Http => Some(Allowed::Http),
            Protocol::Tls => Some(Allowed::Other(Name::TLS)),
            Protocol::Greeting(greeting) => Some(Allowed::Greeting(greeting)),
            Protocol::Other => None,
        }
    }
}
