//! Rules: reads TOML files into validated, compiled rules and judges banners by them.
//!
//! This module owns the rule format, its diagnostics, the order of versions, and the matcher. It
//! reads no socket, no packet and no clock. It decides only which rules match; the caller decides
//! what a match leads to.
//!
//! # Order of evaluation
//!
//! 1. Rules with `action = "accept"` come first, then all others. Within both groups the order is
//!    that of the `--rules` arguments, of the file names in a directory (bytewise), and of the
//!    lines of a file.
//! 2. The first accept rule that matches ends the evaluation. Nothing else is reported for that
//!    banner.
//! 3. Otherwise every rule that matches is reported, in order; a drop does not hide an alert.
//!
//! # Policies
//!
//! A policy decides which protocols a port may speak. The engine asks it before the rules. The
//! first policy whose scope contains the connection applies; policies of local files come before
//! all others. If the policy allows the protocol, the rules still judge the banner. If it does not,
//! no accept rule overrides it. Rules with `action = "allow"` have no effect of their own; policies
//! name them.
//!
//! # Where a version comes from
//!
//! The version comes from the first group named `version` that took part in a match, in the order
//! of the fields of `match`. If there is none and the rule asks about `product`, `vendor`,
//! `product_version`, `cpe` or `os`, it comes from the fingerprint.

pub mod advisory;
mod alert;
mod banner_view;
mod candidate_index;
mod debian;
mod diagnostic;
mod early_head;
mod evaluate_early_head;
mod evaluate_policy_rule;
mod evaluate_rule;
mod example;
mod explain;
mod field;
mod find_rule_files;
pub mod fingerprint;
mod host_name;
pub mod kex_marker;
pub mod limits;
mod lint;
mod list_file;
mod load_rules;
mod match_threshold;
mod pattern;
mod pattern_literals;
mod policy;
mod policy_check;
mod policy_set;
mod predict_block;
mod probe_request;
mod read;
mod rule;
mod rule_change;
mod rule_file_drift;
mod rule_match;
mod rule_needs;
mod rule_override;
mod rule_set;
mod scope;
mod selection;
mod source_file;
mod suggest;
#[cfg(test)]
mod tests;
pub mod text_source;
pub mod toml_nesting;
mod version;
mod version_ranges;

pub use alert::AlertContext;
pub use banner_view::{BannerContext, BannerStage};
pub use diagnostic::{DiagnosticLevel, LoadError, RuleDiagnostic};
pub use early_head::EarlyHeadParts;
pub use evaluate_policy_rule::PolicyRuleResult;
pub use example::RuleExample;
pub use explain::{ExampleResult, RuleExplanation};
pub use field::BannerSender;
pub use load_rules::LoadedRules;
pub use match_threshold::MatchHistory;
pub use policy::{LEARNING_POLICY, Policy, PolicyProtocol};
pub use probe_request::ProbeRequest;
pub use rule::{PacketMark, Rule};
pub use rule_file_drift::RuleFileDrift;
pub use rule_match::RuleMatch;
pub use rule_needs::{BODY_OCTETS, RuleNeeds};
pub use rule_set::RuleSet;
pub use scope::{AssumedConnection, parse_network};
pub use selection::{ProfileFilter, RuleSelection};
pub use text_source::TextSource;
pub use version::VersionRequirement;
