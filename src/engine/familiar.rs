//! SSH identification lines that were seen before, and what is known of them: the same few lines come
//! again with every connection.
//!
//! What a line is called and whether any rule is about it does not depend on who sends it to whom, so
//! that it is worked out once. Which rules take effect is never answered from here.

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
    pub(super) side: SshSide,
    /// Whether no rule matches it, whatever the addresses and the port.
    pub(super) indifferent: bool,
}

impl Familiar {
    /// What is known of an identification by itself, without a KEXINIT.
    pub(super) fn know(
        &mut self,
        banner: &SshBanner<'_>,
        rules: &RuleSet,
        fingerprints: Option<&Fingerprints>,
    ) -> Known {
        let line = banner.identification.line;
        let lines = match banner.from {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        };
        lines.know(line, || Known::new(banner, rules, fingerprints), Known::clone)
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
        Self { side, indifferent }
    }
}
