//! SSH identification lines that were seen before, and what is known of them: the same few lines come
//! again with every connection.
//!
//! What a line is called and whether any rule is about it does not depend on who sends it to whom, so
//! that it is worked out once. Which rules take effect is never answered from here.

use std::sync::Arc;

use super::bench::Law;
use crate::banner::{Banner, KnownLines, SshBanner};
use crate::event::{Side, SshSide};
use crate::rules::fingerprint::Fingerprints;
use crate::rules::{Context, RuleSet, Stage};

/// Lines that are remembered.
#[derive(Debug, Default)]
pub(super) struct Familiar {
    client: KnownLines<Known>,
    server: KnownLines<Known>,
}

/// What is known of a line.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// What events show of it.
    pub(super) side: Arc<SshSide>,
    /// True if no rule matches it, whatever the addresses and the port.
    pub(super) indifferent: bool,
}

impl Familiar {
    /// What is known of an identification by itself, without a KEXINIT.
    pub(super) fn know(&mut self, banner: &SshBanner<'_>, law: &Law) -> Known {
        self.look_up(banner, law, Known::clone)
    }

    /// True if no rule matches an identification by itself, whatever the addresses and the port.
    pub(super) fn is_indifferent(&mut self, banner: &SshBanner<'_>, law: &Law) -> bool {
        self.look_up(banner, law, |known| known.indifferent)
    }

    fn look_up<T>(&mut self, banner: &SshBanner<'_>, law: &Law, take: impl Fn(&Known) -> T) -> T {
        let lines = match banner.from {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        };
        let known = || Known::new(banner, &law.rules, law.fingerprints());
        lines.know(banner.identification.line, known, take)
    }

    /// Forgets all: other rules are in force.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

impl Known {
    fn new(banner: &SshBanner<'_>, rules: &RuleSet, fingerprints: Option<&Fingerprints>) -> Self {
        let mut side = SshSide::from(banner);
        side.fingerprint = fingerprints.and_then(|known| known.ssh(side.software_version.as_bytes()));
        let context =
            Context { product: side.fingerprint.as_ref(), stage: Stage::Whole, ..Context::default() };
        let indifferent = rules.evaluate_anywhere(&Banner::Ssh(banner.clone()), &context).is_empty();
        Self { side: Arc::new(side), indifferent }
    }
}
