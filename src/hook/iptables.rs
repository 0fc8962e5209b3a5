//! The iptables programs of one address family: read and change the whole table at once.
//!
//! `iptables-save` lists rules and counters in one call. `iptables-restore --noflush` applies any number of
//! changes as one transaction, so no packet ever meets half a hook. A call takes some 4 ms, ten times less
//! than a command for each rule. A restore waits up to five seconds for the lock that iptables programs
//! share.

use std::path::Path;

use super::programs::{IptablesCall, IptablesProgram, ProgramOutput, ProgramRunner};
use super::rule_text::TABLE;
use super::{HookError, IpFamily, IptablesVariant};

/// iptables of one address family and variant.
#[derive(Debug, Clone)]
pub(super) struct IptablesInstance {
    family: IpFamily,
    /// Actual variant, never [`IptablesVariant::System`].
    variant: IptablesVariant,
    /// Variant in the programs' names.
    named: IptablesVariant,
    programs: ProgramRunner,
}

impl IptablesInstance {
    /// Opens the programs of `variant`, and resolves [`IptablesVariant::System`].
    pub(super) fn open(
        family: IpFamily,
        variant: IptablesVariant,
        programs: &ProgramRunner,
    ) -> Result<Self, HookError> {
        let mut tables = Self { family, variant, named: variant, programs: programs.clone() };
        if variant == IptablesVariant::System {
            // `iptables` is a link to either variant, and only the version text shows to which.
            let is_nft = tables.execute(IptablesProgram::Version, &[])?.contains("nf_tables");
            tables.variant = if is_nft { IptablesVariant::Nft } else { IptablesVariant::Legacy };
        }
        Ok(tables)
    }

    /// Returns the other variant, if its program is installed and its kernel table exists. A query must not
    /// create a kernel table. If the table's existence is hidden, the module's is enough.
    pub(super) fn other(&self) -> Option<Self> {
        let variant = match self.variant {
            IptablesVariant::Legacy => IptablesVariant::Nft,
            IptablesVariant::Nft | IptablesVariant::System => IptablesVariant::Legacy,
        };
        if variant == IptablesVariant::Legacy && !legacy_table_exists(self.family) {
            return None;
        }
        let other = Self { family: self.family, variant, named: variant, programs: self.programs.clone() };
        other.execute(IptablesProgram::Version, &[]).is_ok().then_some(other)
    }

    pub(super) fn family(&self) -> IpFamily {
        self.family
    }

    pub(super) fn variant(&self) -> IptablesVariant {
        self.variant
    }

    /// Returns every chain and rule of the table with the counters.
    pub(super) fn list(&self) -> Result<TableListing, HookError> {
        self.execute(IptablesProgram::Save, &[]).map(|text| TableListing::read(&text))
    }

    /// Applies all changes (lines of `iptables-restore`) or none.
    pub(super) fn apply(&self, changes: &[String]) -> Result<(), HookError> {
        self.execute(IptablesProgram::Restore, changes).map(drop)
    }

    /// Runs a program and returns its stdout; an error has the command and iptables' message.
    fn execute(&self, program: IptablesProgram, changes: &[String]) -> Result<String, HookError> {
        let call =
            IptablesCall { family: self.family, variant: self.named, program, changes: changes.to_vec() };
        let ended = self.programs.call(&call).map_err(|error| HookError::Program {
            family: self.family,
            program: call.name(),
            message: error.to_string(),
        })?;
        if ended.code == Some(0) { Ok(ended.stdout) } else { Err(self.failure(call.command(), &ended)) }
    }

    fn failure(&self, command: String, ended: &ProgramOutput) -> HookError {
        let message = ended.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        // Before the test of permissions: the message about the lock contains those words, too.
        if message.contains("lock file") {
            return HookError::Lock { command, message };
        }
        // Exit status 4 means "resource problem", which a busy chain causes, too, so the message decides.
        if message.contains("ermission denied") || message.contains("must be root") {
            return HookError::NotPermitted { command, message };
        }
        if message.contains("ddress family not supported") {
            return HookError::NoFamily { family: self.family, message };
        }
        HookError::Refused { command, code: ended.code.unwrap_or(-1), message }
    }
}

/// True if the legacy kernel interface already has the table; reading the list does not create it. If the
/// list is hidden from this user, a possible table counts as existing: a hook must not stay behind.
fn legacy_table_exists(family: IpFamily) -> bool {
    let (names, modules) = match family {
        IpFamily::V4 => ("/proc/thread-self/net/ip_tables_names", ["ip_tables", "iptable_mangle"]),
        IpFamily::V6 => ("/proc/thread-self/net/ip6_tables_names", ["ip6_tables", "ip6table_mangle"]),
    };
    match std::fs::read_to_string(names) {
        Ok(text) => text.lines().any(|name| name == TABLE),
        Err(error) => {
            error.kind() == std::io::ErrorKind::PermissionDenied
                && may_be_loaded(Path::new("/sys/module"), modules)
        }
    }
}

/// True if a table may exist without readable names. Its module is loaded, or may be part of the kernel,
/// since the interface it depends on is. Querying a missing table would create it, in the path of every
/// packet.
fn may_be_loaded(modules: &Path, [interface, table]: [&str; 2]) -> bool {
    !modules.join(interface).exists() || modules.join(table).exists()
}

/// Content of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TableListing {
    chains: Vec<String>,
    rules: Vec<CountedRule>,
}

/// Rule with its packet counter.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CountedRule {
    chain: String,
    /// Text without `-A CHAIN`.
    text: String,
    packets: u64,
}

impl TableListing {
    /// Parses the output of `iptables-save -c`: `:CHAIN POLICY [0:0]` and `[PACKETS:BYTES] -A CHAIN RULE`.
    pub(super) fn read(text: &str) -> Self {
        let mut listing = Self::default();
        for line in text.lines() {
            if let Some(chain) = line.strip_prefix(':') {
                listing.chains.extend(chain.split(' ').next().map(str::to_owned));
                continue;
            }
            let (packets, line) = match line.strip_prefix('[').and_then(|line| line.split_once("] ")) {
                Some((counted, line)) => (counted.split(':').next().and_then(|text| text.parse().ok()), line),
                None => (None, line),
            };
            let Some((chain, rule)) = line.strip_prefix("-A ").and_then(|rule| rule.split_once(' ')) else {
                continue;
            };
            listing.rules.push(CountedRule {
                chain: chain.to_owned(),
                text: rule.to_owned(),
                packets: packets.unwrap_or(0),
            });
        }
        listing
    }

    pub(super) fn has_chain(&self, chain: &str) -> bool {
        self.chains.iter().any(|there| there == chain)
    }

    /// Returns the rules of a chain in order, without `-A CHAIN`.
    pub(super) fn rules<'a>(&'a self, chain: &'a str) -> impl DoubleEndedIterator<Item = &'a str> {
        self.rules.iter().filter(move |rule| rule.chain == chain).map(|rule| rule.text.as_str())
    }

    /// Returns the rules of a chain with their packet counters.
    pub(super) fn counted<'a>(&'a self, chain: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        self.rules
            .iter()
            .filter(move |rule| rule.chain == chain)
            .map(|rule| (rule.text.as_str(), rule.packets))
    }

    /// Returns rules, as iptables accepts them, that lead to `chain` from outside of the chains `within`,
    /// except for `known`.
    pub(super) fn references<'a>(
        &'a self,
        chain: &'a str,
        within: &'a [&str],
        known: &'a [(&'static str, String)],
    ) -> impl Iterator<Item = String> {
        let leads = move |rule: &&CountedRule| {
            let mut words = rule.text.split(' ').skip_while(|word| !matches!(*word, "-j" | "-g")).skip(1);
            words.next() == Some(chain)
                && !within.contains(&rule.chain.as_str())
                && !known.iter().any(|(base, jump)| *base == rule.chain && *jump == rule.text)
        };
        self.rules.iter().filter(leads).map(|rule| format!("-A {} {}", rule.chain, rule.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_whose_name_is_kept_back_is_asked_for_only_where_its_module_is() {
        let modules = tempfile::tempdir().unwrap();
        let may_be = || may_be_loaded(modules.path(), ["ip_tables", "iptable_mangle"]);
        assert!(may_be(), "both may be part of the kernel");
        std::fs::create_dir(modules.path().join("ip_tables")).unwrap();
        assert!(!may_be(), "nothing has loaded it");
        std::fs::create_dir(modules.path().join("iptable_mangle")).unwrap();
        assert!(may_be());
    }

    #[test]
    fn a_saved_table_is_read_with_its_counters() {
        let listing = TableListing::read(
            "# Generated by iptables-save\n*mangle\n:INPUT ACCEPT [5:300]\n:OURS - [0:0]\n\
             [7:420] -A INPUT -p tcp -j OURS\n[3:180] -A OURS -j DROP\nCOMMIT\n",
        );
        assert!(listing.has_chain("OURS") && !listing.has_chain("OUR"));
        assert_eq!(listing.rules("INPUT").collect::<Vec<_>>(), ["-p tcp -j OURS"]);
        assert_eq!(listing.counted("OURS").collect::<Vec<_>>(), [("-j DROP", 3)]);
        let known = [("INPUT", "-p tcp -j OURS".to_owned())];
        assert_eq!(listing.references("OURS", &["OURS"], &known).count(), 0);
        let foreign: Vec<String> = listing.references("OURS", &[], &[]).collect();
        assert_eq!(foreign, ["-A INPUT -p tcp -j OURS"]);
    }
}
