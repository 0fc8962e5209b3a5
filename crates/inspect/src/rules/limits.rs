//! Bounds of a rule file's cost, all in one place. A hostile file causes a diagnostic, never a hang
//! or exhausted memory.

/// Number of bytes of one rule file.
pub const FILE_OCTETS: u64 = 16 << 20;

/// Number of bytes of one list file.
pub(super) const LIST_OCTETS: u64 = 64 << 20;

/// Number of bytes of one fingerprint file, or of one of Recog's.
pub const FINGERPRINT_OCTETS: u64 = 64 << 20;

/// Entries of one list.
pub(super) const LIST_ENTRIES: usize = 1_000_000;

/// Rules of one rule set, over all its files.
pub const RULES: usize = 100_000;

/// Overrides of one rule set, over all local files.
pub(super) const OVERRIDES: usize = 10_000;

/// Policies of one rule set, over all its files.
pub(super) const POLICIES: usize = 10_000;

/// Pairs of policies that `rules check` compares.
pub(super) const POLICY_PAIRS: usize = 1_000_000;

/// Files of one rule set.
pub(super) const FILES: usize = 4_096;

/// Number of bytes of one pattern's text.
pub const PATTERN_OCTETS: usize = 8 << 10;

/// Nested groups of one pattern.
pub const PATTERN_NESTING: u32 = 64;

/// Number of bytes of one pattern's compiled program.
pub(super) const PROGRAM_OCTETS: usize = 256 << 10;

/// Work units of all patterns together: roughly the bytes that compiling them writes.
pub(super) const ALL_PROGRAMS: usize = 192 << 20;

/// Number of bytes of the lazily built automaton of one pattern, for each thread that runs it.
pub(super) const LAZY_AUTOMATON_OCTETS: usize = 256 << 10;

/// Number of bytes of an id, title, category, reference or header name.
pub const NAME_OCTETS: usize = 1 << 10;

/// Diagnostics that one load keeps; more are only counted.
pub(super) const DIAGNOSTICS: usize = 200;

/// Pairs of an accept rule and another rule that `rules check` compares.
pub(super) const SHADOW_PAIRS: usize = 2_000_000;

/// `times` of a rule's `count`.
pub(super) const COUNT_TIMES: u32 = 10_000;

/// `within` of a rule's `count`, seconds: 30 days.
pub(super) const COUNT_SECONDS: u64 = 30 * 24 * 3_600;
