//! Judges the package that a banner names by an advisory.

use super::super::debian::PackageRevision;
use super::super::kex_marker::KexMarker;
use super::package::{DpkgVersion, PackageVersion, released};
use super::package_advisory::Advisory;
use super::release_advisory::{PackageStatus, ReleaseAdvisory, ReleaseFixState};
use crate::banner::SshBanner;
use crate::event::{AdvisoryVerdict, VerdictFacts};

/// The part of a package's identity that a banner shows.
#[derive(Debug, Clone, Copy)]
pub(in crate::rules) enum ShownPackage<'v> {
    /// Distribution and revision.
    Package(PackageRevision<'v>),
    /// The distribution alone, as `nginx/1.22.1 (Debian)` does.
    Distribution(&'v [u8]),
    /// Only upstream's version.
    Nothing,
}

/// The advisory's verdict about a banner, with the reason.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::rules) struct AdvisoryFinding<'r> {
    advisory: &'r Advisory,
    ground: VerdictReason,
    /// The release's line that decided.
    line: Option<&'r ReleaseAdvisory>,
    /// Upstream's version with the fix.
    upstream_fix: Option<&'r str>,
    /// The marker of the key exchange that decided.
    marker: Option<KexMarker>,
    /// The evidence that the marker contradicts.
    against: Option<ContradictedEvidence>,
}

/// Evidence that a marker contradicts.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ContradictedEvidence {
    /// The verdict by the identification.
    Identification(VerdictReason),
    /// Another marker of the key exchange.
    Marker(KexMarker),
}

/// The reason of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VerdictReason {
    /// The data list the package.
    Listed,
    /// The line has a fix, and the package is older.
    BelowFix,
    /// The line has no fix.
    Open,
    /// The package is at least the line's fix.
    Fixed,
    /// The line never had the weakness.
    NotAffected,
    /// The package's release began with a version that was fixed.
    Inherited,
    /// Upstream's version is later than the fixed one.
    LaterUpstream,
    /// The data cover the package's release and do not list the package.
    NotListed,
    /// Upstream's version does not have the weakness.
    UpstreamUnaffected,
    /// Upstream's version has the weakness, but its builder may have patched it.
    UpstreamAffected,
    /// The data do not list the package.
    Unlisted,
    /// The banner does not show the package's revision.
    Hidden,
    /// The line has no fix, and the package is newer than the data.
    NewerThanData,
    /// The distribution has not said whether the line is affected.
    Undetermined,
    /// The data do not know the package's release.
    UnknownRelease,
    /// The data do not say whether so old a package already had the weakness.
    PerhapsEarlier,
    /// The package is a third-party build.
    Rebuilt,
    /// Two releases that share the package disagree.
    Contradiction,
    /// The key exchange offers something that came with the fix.
    Marked,
    /// The key exchange offers something that has the weakness.
    MarkedAffected,
    /// The key exchange contradicts other evidence.
    Contradicted,
}

impl VerdictReason {
    const fn verdict(self) -> AdvisoryVerdict {
        match self {
            Self::Listed | Self::BelowFix | Self::Open | Self::MarkedAffected => AdvisoryVerdict::Affected,
            Self::Fixed
            | Self::Marked
            | Self::NotAffected
            | Self::NotListed
            | Self::Inherited
            | Self::LaterUpstream
            | Self::UpstreamUnaffected => AdvisoryVerdict::Fixed,
            Self::Hidden
            | Self::UpstreamAffected
            | Self::Unlisted
            | Self::NewerThanData
            | Self::Undetermined
            | Self::UnknownRelease
            | Self::PerhapsEarlier
            | Self::Rebuilt
            | Self::Contradiction
            | Self::Contradicted => AdvisoryVerdict::Unknown,
        }
    }
}

impl AdvisoryFinding<'_> {
    /// Returns the verdict.
    pub(in crate::rules) const fn verdict(&self) -> AdvisoryVerdict {
        self.ground.verdict()
    }

    /// Returns true if a blocking rule blocks.
    pub(in crate::rules) const fn blocks(&self) -> bool {
        match self.verdict() {
            AdvisoryVerdict::Affected => true,
            AdvisoryVerdict::Unknown => self.advisory.block_unknown,
            AdvisoryVerdict::Fixed => false,
        }
    }

    /// Returns the verdict with its evidence, for events.
    pub(in crate::rules) fn facts(&self) -> VerdictFacts {
        VerdictFacts {
            verdict: self.verdict(),
            reason: self.reason(),
            fixed: self.fix().map(PackageVersion::text).or(self.upstream_fix).map(str::to_owned),
            source: self.advisory.source.clone(),
            date: Some(self.advisory.date.clone()).filter(|date| !date.is_empty()),
            marker: self.marker.map(KexMarker::name),
        }
    }

    /// Returns true if the key exchange of this side can settle an unknown verdict or contradict a
    /// known one.
    pub(in crate::rules) fn may_be_told(&self, banner: &SshBanner<'_>) -> bool {
        self.fixed_markers().chain(self.affected_markers()).any(|marker| marker.fits(banner))
    }

    /// Returns the finding, changed by the markers of the key exchange. If markers contradict the
    /// identification, or each other, the verdict is unknown.
    pub(in crate::rules) fn weighed(self, seen: &[KexMarker]) -> Self {
        let fixing = self.fixed_markers().find(|marker| seen.contains(marker));
        let affecting = self.affected_markers().find(|marker| seen.contains(marker));
        let told = matches!(self.verdict(), AdvisoryVerdict::Fixed | AdvisoryVerdict::Affected);
        let (ground, marker, against) = match (fixing, affecting) {
            (Some(fixing), Some(affecting)) => {
                (VerdictReason::Contradicted, fixing, Some(ContradictedEvidence::Marker(affecting)))
            }
            (Some(marker), None) | (None, Some(marker)) if told => {
                (VerdictReason::Contradicted, marker, Some(ContradictedEvidence::Identification(self.ground)))
            }
            (Some(marker), None) => (VerdictReason::Marked, marker, None),
            (None, Some(marker)) => (VerdictReason::MarkedAffected, marker, None),
            (None, None) => return self,
        };
        Self { ground, marker: Some(marker), against, ..self }
    }

    /// Returns the markers of the fix that can change the verdict. Markers of packages count only
    /// if the identification leaves the verdict unknown.
    fn fixed_markers(&self) -> impl Iterator<Item = KexMarker> + '_ {
        let verdict = self.verdict();
        let adds = move |marker: &KexMarker| match verdict {
            AdvisoryVerdict::Unknown => true,
            AdvisoryVerdict::Affected => !marker.is_of_packages(),
            AdvisoryVerdict::Fixed => false,
        };
        self.advisory.fixed_if.iter().copied().filter(adds)
    }

    /// Returns the markers of the weakness that can change the verdict.
    fn affected_markers(&self) -> impl Iterator<Item = KexMarker> + '_ {
        let verdict = self.verdict();
        let adds = move |marker: &KexMarker| match verdict {
            AdvisoryVerdict::Unknown => true,
            AdvisoryVerdict::Fixed => !marker.is_of_packages(),
            AdvisoryVerdict::Affected => false,
        };
        self.advisory.affected_if.iter().copied().filter(adds)
    }

    /// Returns the fixed version, of the package's own release if that is known.
    fn fix(&self) -> Option<&PackageVersion> {
        self.line.and_then(ReleaseAdvisory::fix)
    }

    /// Returns the reason in one line.
    pub(in crate::rules) fn reason(&self) -> String {
        self.reason_of(self.ground)
    }

    fn reason_of(&self, ground: VerdictReason) -> String {
        let line = self.line.map_or_else(|| "the distribution".to_owned(), ToString::to_string);
        let unfixed = || format!("no fix is known for {line}");
        let fixed = self.fix().map_or_else(unfixed, |fix| format!("{line} is fixed from {fix} on"));
        match ground {
            VerdictReason::Listed => format!("the data list the package as affected; {fixed}"),
            VerdictReason::BelowFix => fixed,
            VerdictReason::Open => format!("{line} has no fix"),
            VerdictReason::Fixed => format!("the package has the fix of {line}: {fixed}"),
            VerdictReason::NotAffected => format!("{line} is not affected"),
            VerdictReason::NotListed => format!("{line} was known and is not among those that are affected"),
            VerdictReason::Unlisted => format!("the data do not list the package; {fixed}"),
            VerdictReason::UpstreamUnaffected => "upstream's version does not have the weakness".to_owned(),
            VerdictReason::UpstreamAffected => match self.upstream_fix {
                Some(fix) => {
                    format!(
                        "upstream fixed it in {fix}; the builder of an earlier version may have fixed it, too"
                    )
                }
                None => "upstream's version has the weakness; the builder may have fixed it".to_owned(),
            },
            VerdictReason::Inherited => format!("its release began with a fixed package: {fixed}"),
            VerdictReason::LaterUpstream => {
                format!("upstream's version is later than the fixed one: {fixed}")
            }
            VerdictReason::Hidden => format!("the banner does not show the package's revision; {fixed}"),
            VerdictReason::NewerThanData => {
                format!("the package is newer than the data, in which {line} has no fix")
            }
            VerdictReason::Undetermined => {
                format!("the distribution has not said whether {line} is affected")
            }
            VerdictReason::UnknownRelease => format!("the data do not cover the package's release; {fixed}"),
            VerdictReason::PerhapsEarlier => {
                format!("the data do not say whether so old a package has the weakness; {fixed}")
            }
            VerdictReason::Rebuilt => {
                format!("the package is a third-party build that may have the fix; {fixed}")
            }
            VerdictReason::Marked | VerdictReason::MarkedAffected => {
                self.marker.map_or("", KexMarker::says).to_owned()
            }
            VerdictReason::Contradicted => {
                let denied = match self.against {
                    Some(ContradictedEvidence::Identification(ground)) => self.reason_of(ground),
                    Some(ContradictedEvidence::Marker(marker)) => marker.says().to_owned(),
                    None => String::new(),
                };
                let offered = self.marker.map_or("", KexMarker::says);
                format!("the side {offered}, which contradicts this: {denied}")
            }
            VerdictReason::Contradiction => "releases that share the package disagree about it".to_owned(),
        }
    }
}

impl Advisory {
    /// Returns the finding for a banner with upstream's version `upstream`; none if the data are
    /// about another distribution.
    pub(in crate::rules) fn judge(
        &self,
        upstream: &[u8],
        shown: ShownPackage<'_>,
    ) -> Option<AdvisoryFinding<'_>> {
        let by_lines = self.judge_by_lines(self.respelled(upstream), shown);
        by_lines.or_else(|| self.judge_upstream(upstream))
    }

    fn judge_by_lines(&self, upstream: &[u8], shown: ShownPackage<'_>) -> Option<AdvisoryFinding<'_>> {
        match shown {
            ShownPackage::Package(PackageRevision { distribution, revision }) => {
                let lines = self.lines_of(distribution)?;
                let package = DpkgVersion { upstream, revision }.without_rebuild();
                Some(match distribution.eq_ignore_ascii_case(b"Ubuntu") {
                    true => self.judge_ubuntu(package, &lines),
                    false => self.judge_package(package, &lines),
                })
            }
            ShownPackage::Distribution(name) => {
                Some(self.judge_hidden(upstream, &self.lines_of(name)?, true))
            }
            ShownPackage::Nothing => {
                let lines: Vec<&ReleaseAdvisory> = self.lines.iter().collect();
                // Without a development line, the data cover only the versions that they list.
                let about = |line: &&ReleaseAdvisory| line.is_development() || line.names(upstream);
                lines.iter().any(about).then(|| self.judge_hidden(upstream, &lines, false))
            }
        }
    }

    /// Returns the finding by upstream's own list of affected versions.
    fn judge_upstream(&self, upstream: &[u8]) -> Option<AdvisoryFinding<'_>> {
        let affected = self.upstream.as_ref()?;
        // The data may also list a portable release (`9.7p1`) without its patch level.
        let versions = || [upstream, without_patch_level(upstream)].into_iter();
        let fix = versions().find_map(|version| affected.end_of(version));
        let ground = match versions().any(|version| affected.admits(version)) {
            true => VerdictReason::UpstreamAffected,
            false => VerdictReason::UpstreamUnaffected,
        };
        Some(AdvisoryFinding { upstream_fix: fix, ..self.finding(ground, None) })
    }

    fn respelled<'r>(&'r self, upstream: &'r [u8]) -> &'r [u8] {
        let spelled = self.spelled.iter().find(|(shown, _)| shown.as_bytes() == upstream);
        spelled.map_or(upstream, |(_, package)| package.as_bytes())
    }

    /// Returns the lines of a distribution, if there are any. Raspbian's packages count as
    /// Debian's.
    fn lines_of(&self, distribution: &[u8]) -> Option<Vec<&ReleaseAdvisory>> {
        let raspbian = distribution.eq_ignore_ascii_case(b"Raspbian");
        let name = if raspbian { b"Debian".as_slice() } else { distribution };
        let own = self.lines.iter().filter(|line| line.distribution.as_bytes().eq_ignore_ascii_case(name));
        Some(own.collect::<Vec<_>>()).filter(|lines| !lines.is_empty())
    }

    pub(super) const fn finding<'r>(
        &'r self,
        ground: VerdictReason,
        line: Option<&'r ReleaseAdvisory>,
    ) -> AdvisoryFinding<'r> {
        AdvisoryFinding { advisory: self, ground, line, upstream_fix: None, marker: None, against: None }
    }

    fn judge_package<'r>(
        &'r self,
        package: DpkgVersion<'_>,
        lines: &[&'r ReleaseAdvisory],
    ) -> AdvisoryFinding<'r> {
        let development = lines.iter().copied().find(|line| line.is_development());
        if let Some(update) = package.update() {
            if let Some(line) = lines.iter().find(|line| line.release.as_bytes() == update.release) {
                return self.finding(by_line(line, package), Some(line));
            }
            let began_fixed =
                |line: &ReleaseAdvisory| line.fix().is_some_and(|fix| package.start() >= fix.shown());
            let ground = match development {
                Some(line) if began_fixed(line) => VerdictReason::Inherited,
                _ => VerdictReason::UnknownRelease,
            };
            return self.finding(ground, development);
        }
        let mut began = lines.iter().filter(|line| began_with(line, package));
        if let Some(first) = began.next() {
            let ground = by_line(first, package);
            let agree = began.all(|line| by_line(line, package).verdict() == ground.verdict());
            return self.finding(if agree { ground } else { VerdictReason::Contradiction }, Some(first));
        }
        self.judge_between(package, lines, development)
    }

    /// Judges a package of the development line.
    fn judge_between<'r>(
        &'r self,
        package: DpkgVersion<'_>,
        lines: &[&'r ReleaseAdvisory],
        development: Option<&'r ReleaseAdvisory>,
    ) -> AdvisoryFinding<'r> {
        let Some(line) = development else { return self.finding(VerdictReason::UnknownRelease, None) };
        if lines.iter().all(|line| line.state == ReleaseFixState::Said(PackageStatus::NotAffected)) {
            return self.finding(VerdictReason::NotAffected, Some(line));
        }
        let affected_before =
            || lines.iter().any(|line| affected_start(line).is_some_and(|start| start <= package));
        let ground = match &line.state {
            ReleaseFixState::Fixed(fix) if package >= fix.shown() => VerdictReason::Fixed,
            ReleaseFixState::Fixed(_) | ReleaseFixState::Said(PackageStatus::Open) if !package.is_plain() => {
                VerdictReason::Rebuilt
            }
            ReleaseFixState::Fixed(_) | ReleaseFixState::Said(PackageStatus::Open) if !affected_before() => {
                VerdictReason::PerhapsEarlier
            }
            ReleaseFixState::Fixed(_) => VerdictReason::BelowFix,
            ReleaseFixState::Said(PackageStatus::Open) if is_known(line, package) => VerdictReason::Open,
            ReleaseFixState::Said(PackageStatus::Open) => VerdictReason::NewerThanData,
            ReleaseFixState::Said(PackageStatus::NotAffected | PackageStatus::NotListed) => {
                VerdictReason::PerhapsEarlier
            }
            ReleaseFixState::Said(PackageStatus::Undetermined) => VerdictReason::Undetermined,
        };
        self.finding(ground, Some(line))
    }

    /// Judges a banner without a revision. `named` is true if it names the distribution of these
    /// lines.
    fn judge_hidden<'r>(
        &'r self,
        upstream: &[u8],
        lines: &[&'r ReleaseAdvisory],
        named: bool,
    ) -> AdvisoryFinding<'r> {
        let development = lines.iter().copied().find(|line| line.is_development());
        let shares =
            |version: Option<&PackageVersion>| version.is_some_and(|version| has_upstream(version, upstream));
        let own = lines.iter().copied().find(|line| shares(line.newest.as_ref()));
        if lines.iter().all(|line| line.state == ReleaseFixState::Said(PackageStatus::NotAffected)) {
            return self.finding(VerdictReason::NotAffected, own.or(development));
        }
        if let Some(own) = own.filter(|_| named) {
            match own.state {
                ReleaseFixState::Said(PackageStatus::NotAffected) => {
                    return self.finding(VerdictReason::NotAffected, Some(own));
                }
                ReleaseFixState::Said(PackageStatus::NotListed) => {
                    return self.finding(VerdictReason::NotListed, Some(own));
                }
                ReleaseFixState::Fixed(_) | ReleaseFixState::Said(_) => {}
            }
        }
        let fixed_before = |line: &&ReleaseAdvisory| {
            line.fix().is_some_and(|fix| {
                let fix = DpkgVersion { upstream: released(fix.shown().upstream), revision: b"" };
                DpkgVersion { upstream: released(upstream), revision: b"" } > fix
            })
        };
        if let Some(line) = development.into_iter().chain(own.filter(|_| named)).find(fixed_before) {
            return self.finding(VerdictReason::LaterUpstream, Some(line));
        }
        let fixed_there = lines.iter().copied().find(|line| shares(line.fix()));
        self.finding(VerdictReason::Hidden, fixed_there.or(own).or(development))
    }
}

impl ReleaseAdvisory {
    /// Returns true if the data list a package of this upstream version that has or had the
    /// weakness.
    fn names(&self, upstream: &[u8]) -> bool {
        let unaffected = matches!(
            self.state,
            ReleaseFixState::Said(PackageStatus::NotAffected | PackageStatus::NotListed)
        );
        let newest = self.newest.as_ref().filter(|_| !unaffected);
        let mut versions = self.affected.iter().chain(newest).chain(self.fix());
        versions.any(|version| has_upstream(version, upstream))
    }
}

/// Returns true if a package was built from this upstream version, as far as a banner shows that.
fn has_upstream(version: &PackageVersion, upstream: &[u8]) -> bool {
    let own = released(version.shown().upstream);
    own == upstream || without_patch_level(own) == upstream
}

/// Returns `9.7` for `9.7p1`.
fn without_patch_level(upstream: &[u8]) -> &[u8] {
    let digits = upstream.iter().rev().take_while(|octet| octet.is_ascii_digit()).count();
    let (before, _) = upstream.split_at_checked(upstream.len() - digits).unwrap_or_default();
    before.strip_suffix(b"p").filter(|_| digits > 0).unwrap_or(upstream)
}

/// Judges a package that belongs to this line.
fn by_line(line: &ReleaseAdvisory, package: DpkgVersion<'_>) -> VerdictReason {
    let same_upstream = |other: &PackageVersion| other.shown().upstream == package.upstream;
    match &line.state {
        ReleaseFixState::Said(PackageStatus::NotAffected) => VerdictReason::NotAffected,
        ReleaseFixState::Said(PackageStatus::NotListed) => VerdictReason::Unlisted,
        ReleaseFixState::Said(PackageStatus::Undetermined) => VerdictReason::Undetermined,
        ReleaseFixState::Fixed(fix) if package >= fix.shown() => VerdictReason::Fixed,
        ReleaseFixState::Fixed(_) | ReleaseFixState::Said(PackageStatus::Open) if !package.is_plain() => {
            VerdictReason::Rebuilt
        }
        ReleaseFixState::Fixed(fix) if same_upstream(fix) => VerdictReason::BelowFix,
        ReleaseFixState::Fixed(_) => VerdictReason::PerhapsEarlier,
        ReleaseFixState::Said(PackageStatus::Open) if !is_known(line, package) => {
            VerdictReason::NewerThanData
        }
        ReleaseFixState::Said(PackageStatus::Open) if line.newest.as_ref().is_some_and(same_upstream) => {
            VerdictReason::Open
        }
        ReleaseFixState::Said(PackageStatus::Open) => VerdictReason::PerhapsEarlier,
    }
}

/// Returns true if the release began with exactly this package.
fn began_with(line: &ReleaseAdvisory, package: DpkgVersion<'_>) -> bool {
    line.began().is_some_and(|began| began.shown() == package)
}

/// Returns the package with which a release began, if it had the weakness then.
fn affected_start(line: &ReleaseAdvisory) -> Option<DpkgVersion<'_>> {
    let start = line.newest.as_ref()?.shown().start();
    let affected = match &line.state {
        ReleaseFixState::Fixed(fix) => fix.shown() > start,
        ReleaseFixState::Said(PackageStatus::Open) => true,
        ReleaseFixState::Said(
            PackageStatus::NotAffected | PackageStatus::Undetermined | PackageStatus::NotListed,
        ) => false,
    };
    (affected && !line.is_development()).then_some(start)
}

fn is_known(line: &ReleaseAdvisory, package: DpkgVersion<'_>) -> bool {
    line.newest.as_ref().is_some_and(|newest| package <= newest.shown())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(release: &str, newest: &str, state: ReleaseFixState) -> ReleaseAdvisory {
        let newest = PackageVersion::parse(newest).ok();
        let (distribution, affected) = ("Debian".to_owned(), Vec::new());
        ReleaseAdvisory { distribution, release: release.to_owned(), newest, affected, state }
    }

    fn fixed(version: &str) -> ReleaseFixState {
        ReleaseFixState::Fixed(PackageVersion::parse(version).unwrap())
    }

    fn advisory(lines: Vec<ReleaseAdvisory>) -> Advisory {
        let (source, date, report) = (String::new(), String::new(), Vec::new());
        let (spelled, upstream) = (Vec::new(), None);
        let (fixed_if, affected_if) = (Vec::new(), Vec::new());
        let block_unknown = false;
        Advisory { source, date, report, block_unknown, spelled, lines, upstream, fixed_if, affected_if }
    }

    fn verdict(advisory: &Advisory, upstream: &str, revision: &str) -> AdvisoryVerdict {
        let package = PackageRevision { distribution: b"Debian", revision: revision.as_bytes() };
        advisory.judge(upstream.as_bytes(), ShownPackage::Package(package)).unwrap().verdict()
    }

    #[test]
    fn a_newer_package_brought_into_a_release_is_judged_by_that_release() {
        let advisory = advisory(vec![
            line("12", "2.4.66-1~deb12u2", fixed("2.4.66-1~deb12u2")),
            line("sid", "2.4.66-5", fixed("2.4.66-3")),
        ]);
        for (upstream, revision, expected) in [
            ("2.4.66", "1~deb12u1", AdvisoryVerdict::Affected),
            ("2.4.66", "1~deb12u2", AdvisoryVerdict::Fixed),
            ("2.4.62", "1~deb12u2", AdvisoryVerdict::Unknown),
            // Nobody speaks of the package that it was made of.
            ("2.4.66", "1", AdvisoryVerdict::Unknown),
            ("2.4.66", "3", AdvisoryVerdict::Fixed),
        ] {
            assert_eq!(verdict(&advisory, upstream, revision), expected, "{upstream}-{revision}");
        }
    }

    #[test]
    fn releases_that_contradict_each_other_leave_it_open() {
        let advisory = advisory(vec![
            line("11", "1.0-2+deb11u1", ReleaseFixState::Said(PackageStatus::NotAffected)),
            line("12", "1.0-2+deb12u1", fixed("1.0-2+deb12u1")),
            line("sid", "1.0-4", fixed("1.0-4")),
        ]);
        assert_eq!(verdict(&advisory, "1.0", "2"), AdvisoryVerdict::Unknown);
        assert_eq!(verdict(&advisory, "1.0", "2+deb11u1"), AdvisoryVerdict::Fixed);
    }

    #[test]
    fn where_none_is_affected_a_hidden_package_is_not_either() {
        let advisory =
            advisory(vec![line("sid", "1.0-4", ReleaseFixState::Said(PackageStatus::NotAffected))]);
        let finding = advisory.judge(b"0.9", ShownPackage::Nothing).unwrap();
        assert_eq!((finding.verdict(), finding.blocks()), (AdvisoryVerdict::Fixed, false));
        assert!(advisory.judge(b"0.9", ShownPackage::Distribution(b"Ubuntu")).is_none());
    }

    #[test]
    fn what_banner_and_key_exchange_deny_each_other_is_blocked_as_anything_that_cannot_be_told() {
        let marker = KexMarker::named("strict-kex-server").unwrap();
        let stated = |block_unknown: bool| {
            let lines = vec![line("12", "1.0-2+deb12u3", fixed("1.0-2+deb12u2"))];
            Advisory { affected_if: vec![marker], block_unknown, ..advisory(lines) }
        };
        for block_unknown in [false, true] {
            let advisory = stated(block_unknown);
            let package = PackageRevision { distribution: b"Debian", revision: b"2+deb12u2" };
            let fixed = advisory.judge(b"1.0", ShownPackage::Package(package)).unwrap();
            assert_eq!((fixed.verdict(), fixed.blocks()), (AdvisoryVerdict::Fixed, false));
            let denied = fixed.weighed(&[marker]);
            assert_eq!((denied.verdict(), denied.blocks()), (AdvisoryVerdict::Unknown, block_unknown));
            let hidden = advisory.judge(b"1.0", ShownPackage::Nothing).unwrap();
            assert_eq!((hidden.verdict(), hidden.blocks()), (AdvisoryVerdict::Unknown, block_unknown));
        }
    }

    fn version() -> impl Strategy<Value = (String, String)> {
        ("[12]\\.[0-3]", "[0-3]([+~]deb1[12]u[0-3])?(\\.x)?")
    }

    fn any_line(release: &'static str) -> impl Strategy<Value = ReleaseAdvisory> {
        (version(), version(), 0..4).prop_map(move |(newest, fix, state)| {
            let state = match state {
                0 => ReleaseFixState::Said(PackageStatus::NotAffected),
                1 => ReleaseFixState::Said(PackageStatus::Open),
                2 => ReleaseFixState::Said(PackageStatus::Undetermined),
                _ => fixed(&format!("{}-{}", fix.0, fix.1)),
            };
            line(release, &format!("{}-{}", newest.0, newest.1), state)
        })
    }

    proptest! {
        /// Order of the data decides nothing, and nobody's package is vulnerable from its release's fix on.
        #[test]
        fn the_order_of_releases_does_not_matter(
            (upstream, revision) in version(), one in any_line("11"), two in any_line("12"), sid in any_line("sid"),
        ) {
            let forth = advisory(vec![one.clone(), two.clone(), sid.clone()]);
            let back = advisory(vec![sid, two.clone(), one]);
            prop_assert_eq!(verdict(&forth, &upstream, &revision), verdict(&back, &upstream, &revision));
            let package = DpkgVersion { upstream: upstream.as_bytes(), revision: revision.as_bytes() };
            let own = package.update().is_some_and(|update| update.release == b"12");
            if let Some(fix) = two.fix().filter(|fix| own && package >= fix.shown()) {
                prop_assert_eq!(verdict(&forth, &upstream, &revision), AdvisoryVerdict::Fixed, "{}", fix);
            }
        }

        #[test]
        fn no_banner_panics(upstream in prop::collection::vec(any::<u8>(), 0..12), revision in prop::collection::vec(any::<u8>(), 0..16), sid in any_line("sid")) {
            let advisory = advisory(vec![sid]);
            for shown in [ShownPackage::Nothing, ShownPackage::Distribution(b"debian"), ShownPackage::Package(PackageRevision { distribution: b"Debian", revision: &revision })] {
                let told = advisory.judge(&upstream, shown).map(|finding| finding.facts());
                prop_assert!(told.is_some_and(|told| !told.reason.is_empty()));
            }
        }
    }
}
