//! The iptables programs of one address family: read and change the whole table at once.
//!
//! `iptables-save` lists rules and counters in one call. `iptables-restore --noflush` applies any number of
//! changes as one transaction, so no packet ever meets half a hook. A call takes some 4 ms, ten times less
//! than a command for each rule. A restore waits up to five seconds for the lock that iptables programs
//! share.

use std::path::Path;

use super::program_calls::{IptablesCall, IptablesProgram, ProgramOutput};
use super::programs::ProgramRunner;
use super::rule_text::TABLE;
use super::table_listing::TableListing;
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
}
