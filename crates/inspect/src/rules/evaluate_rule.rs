//! Judges one rule against one banner; if it does not match, gives the reason.
//!
//! `evaluate` and `explain` call the same function, so an explanation always agrees with the
//! result.

use std::cell::RefCell;
use std::sync::Arc;

use super::advisory::{AdvisoryFinding, ShownPackage};
use super::banner_view::{BannerContext, BannerStage, BannerView};
use super::debian::{FixedPackage, PackageRevision};
use super::field::BannerField;
use super::pattern::{PatternId, RulePattern};
use super::probe_request::ProbeRequest;
use super::rule::{FieldTest, Rule, RuleCondition};
use super::scope::AssumedConnection;
use crate::banner::{Banner, RequestHead, SshBanner, same_name};
use crate::event::{OverrideFacts, Timestamp};

/// The groups that a matching rule captured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CapturedGroups<'v> {
    pub(super) product: Option<&'v [u8]>,
    pub(super) version: Option<&'v [u8]>,
    pub(super) distribution: Option<&'v [u8]>,
    pub(super) revision: Option<&'v [u8]>,
}

/// A rule that matches: the captured groups and the advisory's finding.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct MatchDetails<'r, 'v> {
    pub(super) captured: CapturedGroups<'v>,
    /// The field of the first condition, and the value that it matched.
    pub(super) matched: Option<(&'r BannerField, &'v [u8])>,
    pub(super) finding: Option<AdvisoryFinding<'r>>,
}

/// The reason why a rule does not match.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum MismatchReason<'r, 'v> {
    /// The rule is about another protocol.
    Protocol,
    /// The rule is about the other side's banners.
    Sender,
    /// By an override with an end, another form of the rule is in force now.
    NotNow,
    /// The rule is judged at another stage, or the data that it needs never came.
    Stage,
    /// The client's address is not in scope.
    Source,
    /// The server's address is not in scope.
    Destination,
    /// The server's port is not in scope.
    Port,
    /// An override exempts the client or the server.
    Exempt,
    /// The response does not answer the rule's request.
    Request(&'r ProbeRequest),
    /// A header field is present that must be absent.
    Present(&'r str),
    /// A required header field is missing.
    Absent(&'r str),
    /// The banner lacks a field that `match` is about.
    NoField(&'r RuleCondition),
    /// No value of the field matches.
    NoMatch(&'r RuleCondition),
    /// A field of `unless` matches.
    Unless(&'r RuleCondition),
    /// The certificate is valid for longer.
    Valid,
    /// None of the matched parts captures a version.
    NoVersion,
    /// The version does not fit the rule's requirement.
    Version(&'v [u8]),
    /// The distribution has fixed the package.
    Fixed(&'r FixedPackage, PackageRevision<'v>),
    /// The advisory is about another distribution's packages.
    Distribution,
    /// The rule does not report this verdict of its advisory.
    Unreported(AdvisoryFinding<'r>),
}

/// The parts of a rule's scope that are tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScopeCheck {
    /// All.
    Yes,
    /// All but exemptions.
    Unexempted,
    /// All but addresses and port, which examples do not have.
    No,
}

#[cfg(test)]
thread_local! {
    /// Number of rules that this thread has judged, for tests of a banner's cost.
    pub(super) static JUDGED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Judges one rule.
pub(super) fn judge<'r: 'v, 'v>(
    rule: &'r Rule,
    patterns: &'r [RulePattern],
    view: &'v BannerView<'_>,
    memo: &PatternMemo<'v>,
    scoped: ScopeCheck,
) -> Result<MatchDetails<'r, 'v>, MismatchReason<'r, 'v>> {
    #[cfg(test)]
    JUDGED.set(JUDGED.get() + 1);
    if rule.protocol != view.banner.protocol() {
        return Err(MismatchReason::Protocol);
    }
    if !rule.from.includes(view.banner.from()) {
        return Err(MismatchReason::Sender);
    }
    // The cheap tests come first; patterns run last.
    stage(rule, view)?;
    match scoped {
        ScopeCheck::Yes => in_scope(rule, view.context)?,
        ScopeCheck::Unexempted => scope(rule, view.context)?,
        ScopeCheck::No => {}
    }
    if let Some(probe) = &rule.request
        && !view.context.request.is_some_and(|request| answers(probe, request))
    {
        return Err(MismatchReason::Request(probe));
    }
    headers(rule, view)?;
    let (mut captured, mut matched) = (CapturedGroups::default(), None);
    for condition in &rule.all {
        let (found, value) = run(condition, patterns, view, memo)?;
        captured = captured.or(found);
        matched = matched.or(Some((&condition.field, value)));
    }
    // A pattern of `unless` captures nothing: the version has to come from `match`.
    for condition in &rule.unless {
        if run(condition, patterns, view, memo).is_ok() {
            return Err(MismatchReason::Unless(condition));
        }
    }
    if rule.expires_within.is_some_and(|within| !view.expires_within(within)) {
        return Err(MismatchReason::Valid);
    }
    captured = with_fingerprint(rule, captured, view);
    version(rule, captured, view)?;
    Ok(MatchDetails { captured, matched, finding: advised(rule, captured, view)? })
}

/// Tests the stage: rules about data after the head are judged once that data was seen.
fn stage<'r, 'v>(rule: &Rule, view: &BannerView<'_>) -> Result<(), MismatchReason<'r, 'v>> {
    let later = rule.later;
    let wanted = match view.context.stage {
        BannerStage::Whole => true,
        BannerStage::Head => !later,
        // The key exchange can change an advisory's verdict, so such a rule is judged again with it.
        BannerStage::Rest => {
            later || matches!(view.banner, Banner::Ssh(banner) if may_be_marked(rule, banner))
        }
        // The rest of the head may still hold the field that must be absent, or the exception.
        BannerStage::Part => !later && rule.absent.is_empty() && rule.unless.is_empty(),
    };
    let seen = !later
        || match view.banner {
            Banner::Ssh(_) => view.kex().is_some(),
            Banner::Tls(banner) => banner.facts.certificate().is_some(),
            _ => true,
        };
    if wanted && seen { Ok(()) } else { Err(MismatchReason::Stage) }
}

impl Rule {
    /// Returns true if the rule applies to the context's addresses and port.
    pub fn is_in_scope(&self, context: &BannerContext<'_>) -> bool {
        in_scope(self, context).is_ok()
    }

    /// The override that exempts the connection, if one does.
    pub(super) fn exemption(&self, context: &BannerContext<'_>) -> Option<&Arc<OverrideFacts>> {
        self.scope.exemption(context.source, context.destination, context.now)
    }
}

fn in_scope<'r, 'v>(rule: &Rule, context: &BannerContext<'_>) -> Result<(), MismatchReason<'r, 'v>> {
    scope(rule, context)?;
    match rule.exemption(context) {
        Some(_) => Err(MismatchReason::Exempt),
        None => Ok(()),
    }
}

fn scope<'r, 'v>(rule: &Rule, context: &BannerContext<'_>) -> Result<(), MismatchReason<'r, 'v>> {
    if !rule.validity.includes(context.now) {
        return Err(MismatchReason::NotNow);
    }
    if !rule.scope.source.admits(context.source) {
        return Err(MismatchReason::Source);
    }
    if !rule.scope.destination.admits(context.destination) {
        return Err(MismatchReason::Destination);
    }
    if !rule.scope.port.admits(context.port) {
        return Err(MismatchReason::Port);
    }
    Ok(())
}

/// Tests the scope with the known addresses and port only. Overrides that had expired when the
/// rules were loaded exempt nothing.
pub(super) fn scope_as_told<'r, 'v>(
    rule: &Rule,
    ends: AssumedConnection,
) -> Result<(), MismatchReason<'r, 'v>> {
    if ends.source.is_some() && !rule.scope.source.admits(ends.source) {
        return Err(MismatchReason::Source);
    }
    if ends.destination.is_some() && !rule.scope.destination.admits(ends.destination) {
        return Err(MismatchReason::Destination);
    }
    if ends.port.is_some() && !rule.scope.port.admits(ends.port) {
        return Err(MismatchReason::Port);
    }
    match rule.scope.exemption(ends.source, ends.destination, Timestamp::default()) {
        Some(_) => Err(MismatchReason::Exempt),
        None => Ok(()),
    }
}

fn headers<'r, 'v>(rule: &'r Rule, view: &BannerView<'_>) -> Result<(), MismatchReason<'r, 'v>> {
    let has = |name: &String| {
        view.headers().is_some_and(|headers| headers.iter().any(|header| same_name(header.name, name)))
    };
    if let Some(name) = rule.absent.iter().find(|name| has(name)) {
        return Err(MismatchReason::Present(name));
    }
    match rule.present.iter().find(|name| !has(name)) {
        Some(name) => Err(MismatchReason::Absent(name)),
        None => Ok(()),
    }
}

/// Returns true if `request` is the rule's request: method, path and header fields. The query is
/// compared only if the rule's path has one.
fn answers(probe: &ProbeRequest, request: &RequestHead<'_>) -> bool {
    let same_path = || {
        let target = origin_form(request.url);
        let end = target.iter().position(|octet| *octet == b'#').unwrap_or(target.len());
        let target = target.get(..end).unwrap_or_default();
        let (path, query) = split_query(target);
        let (wanted_path, wanted_query) = split_query(probe.path.as_bytes());
        decoded(path).eq(decoded(wanted_path)) && (wanted_query.is_none() || wanted_query == query)
    };
    let same_header =
        |(name, value): &(String, String)| request.headers.all(name).any(|sent| sent == value.as_bytes());
    request.method == probe.method.as_bytes() && same_path() && probe.headers.iter().all(same_header)
}

/// Returns the path of an absolute-form target (`http://host/path`), RFC 9112 section 3.2.
fn origin_form(url: &[u8]) -> &[u8] {
    let scheme = [b"http://".as_slice(), b"https://"]
        .into_iter()
        .find(|scheme| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    let Some(behind) = scheme.and_then(|scheme| url.get(scheme.len()..)) else { return url };
    let slash = behind.iter().position(|octet| *octet == b'/');
    slash.and_then(|at| behind.get(at..)).unwrap_or(b"/")
}

fn split_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    match target.iter().position(|octet| *octet == b'?') {
        Some(at) => (target.get(..at).unwrap_or_default(), target.get(at + 1..)),
        None => (target, None),
    }
}

/// Returns a path's bytes with `%2d` and the like decoded, so that `/server%2dstatus` does not
/// evade a rule.
fn decoded(path: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut rest = path;
    std::iter::from_fn(move || {
        let (first, behind) = rest.split_first()?;
        let hexadecimal = |at: usize| behind.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        if let (b'%', Some(high), Some(low)) = (first, hexadecimal(0), hexadecimal(1)) {
            rest = behind.get(2..).unwrap_or_default();
            return u8::try_from(high * 16 + low).ok();
        }
        rest = behind;
        Some(*first)
    })
}

/// Tries a condition on every value of its field. Returns the captures of the first match, and its
/// value.
fn run<'r, 'v>(
    condition: &'r RuleCondition,
    patterns: &'r [RulePattern],
    view: &'v BannerView<'_>,
    memo: &PatternMemo<'v>,
) -> Result<(CapturedGroups<'v>, &'v [u8]), MismatchReason<'r, 'v>>
where
    'r: 'v,
{
    let mut seen = false;
    for value in view.values(&condition.field) {
        seen = true;
        match &condition.test {
            FieldTest::Values(list) if list.entries.contains(value) => {
                return Ok((CapturedGroups::default(), value));
            }
            FieldTest::Values(_) => {}
            FieldTest::Patterns(ids) => {
                if let Some(captured) = ids.iter().find_map(|id| memo.capture(*id, patterns, value)) {
                    return Ok((captured, value));
                }
            }
        }
    }
    Err(if seen { MismatchReason::NoMatch(condition) } else { MismatchReason::NoField(condition) })
}

/// The last results of patterns, so that a pattern that many rules share runs once for a banner.
#[derive(Default)]
pub(super) struct PatternMemo<'v>(RefCell<[Option<Remembered<'v>>; MEMO_SLOTS]>);

/// A pattern, the value that it was tried on, and the result.
type Remembered<'v> = (PatternId, &'v [u8], Option<CapturedGroups<'v>>);

/// Number of remembered results. A pattern's number selects its slot.
const MEMO_SLOTS: usize = 16;

impl<'v> PatternMemo<'v> {
    /// Returns the pattern's captures if it matches `value`.
    pub(super) fn capture(
        &self,
        id: PatternId,
        patterns: &[RulePattern],
        value: &'v [u8],
    ) -> Option<CapturedGroups<'v>> {
        let mut slots = self.0.borrow_mut();
        let Some(slot) = slots.get_mut(id.index() % MEMO_SLOTS) else { return capture(id, patterns, value) };
        // Comparing pointers is enough and cheap: a banner's fields do not move while it is judged.
        if let Some((known, on, captured)) = *slot
            && known == id
            && std::ptr::eq(on, value)
        {
            return captured;
        }
        let captured = capture(id, patterns, value);
        *slot = Some((id, value, captured));
        captured
    }
}

/// Runs one pattern over one value.
fn capture<'v>(id: PatternId, patterns: &[RulePattern], value: &'v [u8]) -> Option<CapturedGroups<'v>> {
    let pattern = patterns.get(id.index())?;
    if !pattern.has_known_group() {
        return pattern.is_match(value).then(CapturedGroups::default);
    }
    let captures = pattern.captures(value)?;
    let [product, version, distribution, revision] =
        captures.map(|group| group.filter(|text| !text.is_empty()));
    Some(CapturedGroups { product, version, distribution, revision })
}

impl CapturedGroups<'_> {
    /// Keeps earlier captures and fills the missing ones from `later`.
    fn or(self, later: Self) -> Self {
        Self {
            product: self.product.or(later.product),
            version: self.version.or(later.version),
            distribution: self.distribution.or(later.distribution),
            revision: self.revision.or(later.revision),
        }
    }
}

/// Takes product and version from the fingerprint if the rule is about one and no pattern captured
/// them.
fn with_fingerprint<'v>(
    rule: &Rule,
    captured: CapturedGroups<'v>,
    view: &'v BannerView<'_>,
) -> CapturedGroups<'v> {
    if !rule.fingerprint {
        return captured;
    }
    let product = view.values(&BannerField::Product).next();
    let version = view.values(&BannerField::ProductVersion).next();
    captured.or(CapturedGroups { product, version, ..CapturedGroups::default() })
}

/// Compares version and package of the banner with the rule's.
fn version<'r, 'v>(
    rule: &'r Rule,
    captured: CapturedGroups<'v>,
    view: &'v BannerView<'_>,
) -> Result<(), MismatchReason<'r, 'v>> {
    if let Some(requirement) = &rule.version {
        let version = captured.version.ok_or(MismatchReason::NoVersion)?;
        if !requirement.admits(version) {
            return Err(MismatchReason::Version(version));
        }
    }
    if rule.fixed_in.is_empty() {
        return Ok(());
    }
    let Some(package) = package(captured, view) else { return Ok(()) };
    match rule.fixed_in.iter().find(|fixed| fixed.covers(captured.version, package)) {
        Some(fixed) => Err(MismatchReason::Fixed(fixed, package)),
        None => Ok(()),
    }
}

/// Returns the advisory's finding about the package that the banner names.
fn advised<'r, 'v>(
    rule: &'r Rule,
    captured: CapturedGroups<'v>,
    view: &'v BannerView<'_>,
) -> Result<Option<AdvisoryFinding<'r>>, MismatchReason<'r, 'v>> {
    let Some(advisory) = &rule.advisory else { return Ok(None) };
    let version = captured.version.ok_or(MismatchReason::NoVersion)?;
    let shown = match (package(captured, view), captured.distribution) {
        (Some(package), _) => ShownPackage::Package(package),
        (None, Some(distribution)) => ShownPackage::Distribution(distribution),
        (None, None) => ShownPackage::Nothing,
    };
    let finding = weighed(rule, advisory.judge(version, shown).ok_or(MismatchReason::Distribution)?, view)?;
    if advisory.reports(finding.verdict()) {
        Ok(Some(finding))
    } else {
        Err(MismatchReason::Unreported(finding))
    }
}

/// Returns true if the KEXINIT of a side may decide what the rule's advisory leaves open.
fn may_be_marked(rule: &Rule, banner: &SshBanner<'_>) -> bool {
    rule.advisory.as_ref().is_some_and(|advisory| advisory.may_be_marked(banner))
}

/// Weighs a finding with the KEXINIT's markers. If they can change it, the finding waits for the
/// KEXINIT or for its certain absence; any other finding is returned at once.
fn weighed<'r, 'v>(
    rule: &Rule,
    finding: AdvisoryFinding<'r>,
    view: &'v BannerView<'_>,
) -> Result<AdvisoryFinding<'r>, MismatchReason<'r, 'v>> {
    let open = matches!(view.banner, Banner::Ssh(banner) if finding.may_be_told(banner));
    match view.context.stage {
        BannerStage::Head | BannerStage::Part if open => Err(MismatchReason::Stage),
        BannerStage::Rest if !open && !rule.later => Err(MismatchReason::Stage),
        _ if open => Ok(finding.weighed(view.markers())),
        _ => Ok(finding),
    }
}

/// True if a banner that `rule` matches names a distribution's package.
pub(super) fn names_package(rule: &Rule, patterns: &[RulePattern], view: &BannerView<'_>) -> bool {
    let memo = PatternMemo::default();
    let found = judge(rule, patterns, view, &memo, ScopeCheck::No);
    found.is_ok_and(|found| package(found.captured, view).is_some())
}

/// The distribution's package that the banner names.
fn package<'v>(captured: CapturedGroups<'v>, view: &'v BannerView<'_>) -> Option<PackageRevision<'v>> {
    if let Some(revision) = captured.revision {
        return Some(match captured.distribution {
            Some(distribution) => PackageRevision { distribution, revision },
            None => PackageRevision::guess(revision),
        });
    }
    PackageRevision::find(view.values(&BannerField::Comments).next()?)
}
