//! SSH identification lines that came before, and what is told of them: most servers of a network say
//! one of a few.
//!
//! What a line is called and which rules match it does not depend on where it comes from, so that its
//! facts and alerts are made once and shared by the events of all targets. Which of these rules take
//! effect does: addresses and port are asked for each target.

use std::sync::Arc;

use hashbrown::HashMap;

use super::judge::Judge;
use crate::banner::SshBanner;
use crate::event::{AlertFacts, SshFacts};

/// Lines that are remembered: more kinds of software than most networks have. Beyond, all are
/// forgotten, so that ever new ones make nothing slower than it would be without.
const LINES: usize = 256;
/// The longest line that is remembered, in octets: RFC 4253 section 4.2 allows no longer one.
const LONGEST: usize = 255;

/// Lines that are remembered.
#[derive(Debug, Default)]
pub(super) struct Familiar(HashMap<Vec<u8>, Known, ahash::RandomState>);

/// What is told of a line.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// What it is.
    pub(super) facts: Arc<SshFacts>,
    /// Rules that match it wherever it comes from, by their positions and in order, with the alert of
    /// each; none for one that accepts.
    pub(super) matches: Vec<(usize, Option<Arc<AlertFacts>>)>,
}

impl Familiar {
    /// Tells `use_it` what is known of an identification.
    pub(super) fn know(&mut self, banner: &SshBanner<'_>, judge: &Judge, use_it: impl FnOnce(&Known)) {
        let line = banner.identification.line;
        // A KEXINIT is its host's own.
        if line.len() > LONGEST || banner.kex.is_some() {
            return use_it(&judge.know(banner));
        }
        if self.0.len() >= LINES && !self.0.contains_key(line) {
            self.0.clear();
        }
        use_it(self.0.entry_ref(line).or_insert_with(|| judge.know(banner)));
    }
}
