//! Policies: the protocols that a port may speak. The first policy whose scope contains the
//! connection decides. A connection in no policy's scope is left to the rules.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::rule::Rule;
use super::scope::RuleScope;
use super::source_file::{SourceFile, TextPosition};
use crate::banner::unread_protocols::OtherProtocol;
use crate::event::{FlowEndpoints, Protocol, RuleAction};
use crate::terms::GreetingProtocol;

/// One validated policy.
#[derive(Debug)]
pub struct Policy {
    pub(super) id: String,
    pub(super) title: Option<String>,
    pub(super) scope: RuleScope,
    pub(super) allow: Vec<PolicyProtocol>,
    pub(super) allow_rules: Vec<AllowRule>,
    pub(super) otherwise: RuleAction,
    pub(super) silent_after: Option<Duration>,
    pub(super) budget: u64,
    pub(super) midstream: bool,
    /// True if it is from a local file: such policies come before those of third-party packs.
    pub(super) local: bool,
    /// The scope in words.
    pub(super) about: String,
    pub(super) file: Arc<str>,
    pub(super) place: TextPosition,
}

/// A protocol that a policy allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyProtocol {
    /// Any protocol: the policy is an exception to those after it.
    Any,
    /// SSH whose both ends begin with their identification.
    Ssh,
    /// HTTP/1.x: a request first, then a response.
    Http,
    /// A protocol whose server sends this greeting.
    Greeting(GreetingProtocol),
    /// A protocol that is not read, recognized by its first bytes.
    Other(OtherProtocol),
}

/// A rule whose matches a policy allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AllowRule {
    pub(super) id: String,
    /// Position in [`RuleSet::rules`](super::RuleSet::rules).
    pub(super) index: usize,
    /// Position of the name in the policy, in bytes of its file.
    pub(super) span: std::ops::Range<usize>,
}

/// Id of the policy with which `--learn` finds connections that no policy could allow.
pub const LEARNING_POLICY: &str = "learn-unlisted";

/// Returns a file with that policy: it allows each named protocol and alerts about the rest.
pub(super) fn learning() -> SourceFile {
    let allowed: Vec<&str> =
        PolicyProtocol::names().into_iter().filter(|name| *name != PolicyProtocol::Any.name()).collect();
    let text = format!(
        "[[policy]]\nid = \"{LEARNING_POLICY}\"\ntitle = \"nothing that a policy can allow\"\n\
         allow = {allowed:?}\notherwise = \"alert\"\n"
    );
    SourceFile::new("--learn", text)
}

/// Default number of bytes of both sides without a decision after which a policy decides.
pub const BUDGET: u64 = 64 << 10;

impl PolicyProtocol {
    /// Names that a policy may use, including those of [`OtherProtocol`].
    pub fn names() -> Vec<&'static str> {
        let read =
            ["any", "ssh", "http"].into_iter().chain(GreetingProtocol::all().map(GreetingProtocol::name));
        read.chain(OtherProtocol::all().map(OtherProtocol::name)).collect()
    }

    /// Returns the allowed protocol of that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "any" => Some(Self::Any),
            "ssh" => Some(Self::Ssh),
            "http" => Some(Self::Http),
            _ => GreetingProtocol::named(name)
                .map(Self::Greeting)
                .or_else(|| OtherProtocol::named(name).map(Self::Other)),
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

    /// True if it allows everything that a rule about `protocol` could match.
    pub(super) fn includes(self, protocol: Protocol) -> bool {
        match (self, protocol) {
            (Self::Any, _) | (Self::Ssh, Protocol::Ssh) | (Self::Http, Protocol::Http) => true,
            (Self::Greeting(one), Protocol::Greeting(other)) => one == other,
            (Self::Other(name), Protocol::Tls) => name == OtherProtocol::TLS,
            _ => false,
        }
    }
}

impl Policy {
    /// The id in events, metrics and messages.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// One line for a person.
    pub fn title(&self) -> String {
        self.title.clone().unwrap_or_else(|| format!("only {}{}", self.allows(), self.about))
    }

    /// The protocols that it allows.
    pub fn allow(&self) -> &[PolicyProtocol] {
        &self.allow
    }

    /// The rules whose matches it allows: their positions and ids.
    pub fn allow_rules(&self) -> impl Iterator<Item = (usize, &str)> {
        self.allow_rules.iter().map(|rule| (rule.index, rule.id.as_str()))
    }

    /// The action for anything else.
    pub const fn otherwise(&self) -> RuleAction {
        self.otherwise
    }

    /// Time for which both sides may be silent after the handshake.
    pub const fn silent_after(&self) -> Option<Duration> {
        self.silent_after
    }

    /// Number of bytes of both sides after which a connection that is not known to be allowed is
    /// refused.
    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// True if connections whose beginning was missed are judged by the first bytes that are seen.
    pub const fn judges_midstream(&self) -> bool {
        self.midstream
    }

    /// The file that defines it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The policy's position in that file.
    pub const fn place(&self) -> TextPosition {
        self.place
    }

    /// Everything that it allows, for a person: `ssh, rule openssh-current`.
    pub fn allows(&self) -> String {
        let protocols = self.allow.iter().map(|allowed| allowed.name().to_owned());
        let rules = self.allow_rules.iter().map(|rule| format!("rule {}", rule.id));
        let all: Vec<String> = protocols.chain(rules).collect();
        if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
    }

    /// The scope in words: ` to port 22 from 192.0.2.0/24`, or nothing.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// True if a connection is in its scope.
    pub fn is_about(&self, ends: &FlowEndpoints) -> bool {
        self.scope.source.admits(Some(ends.client.address))
            && self.scope.destination.admits(Some(ends.server.address))
            && self.scope.port.admits(Some(ends.server.port))
    }

    /// True if it allows any protocol.
    pub fn allows_any(&self) -> bool {
        self.allow.contains(&PolicyProtocol::Any)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` ({}:{})", self.id, self.file, self.place)
    }
}

impl Rule {
    /// Returns the protocol that a connection must have for the rule to match; none if its protocol
    /// is not read.
    pub const fn shape(&self) -> Option<PolicyProtocol> {
        match self.protocol {
            Protocol::Ssh => Some(PolicyProtocol::Ssh),
            Protocol::Http => Some(PolicyProtocol::Http),
            Protocol::Tls => Some(PolicyProtocol::Other(OtherProtocol::TLS)),
            Protocol::Greeting(greeting) => Some(PolicyProtocol::Greeting(greeting)),
            Protocol::Other => None,
        }
    }
}
