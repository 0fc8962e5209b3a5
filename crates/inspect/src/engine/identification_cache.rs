//! SSH identification lines that were seen before, and what is known of them: the same few lines come
//! again with every connection.
//!
//! What a line is called and whether any rule is about it does not depend on who sends it to whom, so
//! that it is worked out once. Which rules take effect is never answered from here.

use std::sync::Arc;

use super::dialogue::KnownIdentification;
use crate::banner::{Banner, KnownLines, SshBanner, ssh};
use crate::event::{Side, SshSide};
use crate::rules::fingerprint::FingerprintSet;
use crate::rules::{BannerContext, BannerStage, RuleSet};

/// Lines that are remembered.
#[derive(Debug, Default)]
pub(super) struct IdentificationCache {
    client: KnownLines<KnownIdentification>,
    server: KnownLines<KnownIdentification>,
}

impl IdentificationCache {
    /// Returns what is known of an identification line by itself, without a KEXINIT.
    pub(super) fn identify(
        &mut self,
        from: Side,
        line: &[u8],
        rules: &RuleSet,
        fingerprints: Option<&FingerprintSet>,
    ) -> KnownIdentification {
        let lines = match from {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        };
        let known = || look_up(from, line, rules, fingerprints);
        lines.with_cached(line, known, KnownIdentification::clone)
    }

    /// Forgets all: other rules are in force.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

fn look_up(
    from: Side,
    line: &[u8],
    rules: &RuleSet,
    fingerprints: Option<&FingerprintSet>,
) -> KnownIdentification {
    let (identification, _) = ssh::parse_line(line);
    let banner = SshBanner { from, identification, kex: None };
    let mut side = SshSide::from(&banner);
    side.fingerprint = fingerprints.and_then(|known| known.ssh(side.software_version.as_bytes()));
    let context = BannerContext {
        product: side.fingerprint.as_ref(),
        stage: BannerStage::Whole,
        ..BannerContext::default()
    };
    let indifferent = rules.evaluate_anywhere(&Banner::Ssh(banner), &context).is_empty();
    KnownIdentification { side: Arc::new(side), indifferent }
}
