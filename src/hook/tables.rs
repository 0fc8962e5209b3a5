//! One iptables program, asked and told through the `iptables` crate.
//!
//! Every call waits for the lock that other iptables programs hold (`--wait`).

use std::process::Output;

use iptables::IPTables;
use iptables::error::IptablesError;

use super::plan::TABLE;
use super::{Family, HookError, Variant};

/// The iptables of one address family and variant.
pub(super) struct Tables {
    family: Family,
    variant: Variant,
    program: IPTables,
}

impl Tables {
    /// The program that `variant` names, with [`Variant::System`] resolved to what it stands for.
    pub(super) fn open(family: Family, variant: Variant) -> Result<Self, HookError> {
        if variant != Variant::System {
            return Ok(Self::named(family, variant));
        }
        let program = iptables::new(family == Family::V6)
            .map_err(|error| cannot_run(family.program(variant), &*error))?;
        let mut tables = Self { family, variant, program };
        let version = tables.execute("--version")?;
        tables.variant = if version.contains("nf_tables") { Variant::Nft } else { Variant::Legacy };
        Ok(tables)
    }

    /// The program that says in its name which variant it is; those know `-C` and `--wait`.
    fn named(family: Family, variant: Variant) -> Self {
        let cmd = family.program(variant);
        let program = IPTables { cmd, has_check: true, has_wait: true, is_numeric: true };
        Self { family, variant, program }
    }

    /// The other variant, where its program is installed and, so that no kernel table is made by
    /// merely asking, where the kernel has such a table already.
    pub(super) fn other(&self) -> Option<Self> {
        let variant = match self.variant {
            Variant::Legacy => Variant::Nft,
            Variant::Nft | Variant::System => Variant::Legacy,
        };
        if variant == Variant::Legacy && !legacy_table_exists(self.family) {
            return None;
        }
        let other = Self::named(self.family, variant);
        other.execute("--version").is_ok().then_some(other)
    }

    pub(super) fn family(&self) -> Family {
        self.family
    }

    pub(super) fn variant(&self) -> Variant {
        self.variant
    }

    /// Every chain and rule of our table as `iptables -S` prints them.
    pub(super) fn list(&self) -> Result<Listing, HookError> {
        self.execute("-S").map(|text| Listing { lines: text.lines().map(str::to_owned).collect() })
    }

    /// The rules of a chain with their counters (`-c PACKETS OCTETS`).
    pub(super) fn list_counters(&self, chain: &str) -> Result<Listing, HookError> {
        self.execute(&format!("-v -S {chain}"))
            .map(|text| Listing { lines: text.lines().map(str::to_owned).collect() })
    }

    pub(super) fn append(&self, chain: &str, rule: &str) -> Result<(), HookError> {
        self.execute(&format!("-A {chain} {rule}")).map(drop)
    }

    pub(super) fn replace(&self, chain: &str, position: usize, rule: &str) -> Result<(), HookError> {
        self.execute(&format!("-R {chain} {position} {rule}")).map(drop)
    }

    pub(super) fn delete(&self, chain: &str, rule: &str) -> Result<(), HookError> {
        self.execute(&format!("-D {chain} {rule}")).map(drop)
    }

    pub(super) fn delete_at(&self, chain: &str, position: usize) -> Result<(), HookError> {
        self.execute(&format!("-D {chain} {position}")).map(drop)
    }

    pub(super) fn new_chain(&self, chain: &str) -> Result<(), HookError> {
        self.execute(&format!("-N {chain}")).map(drop)
    }

    pub(super) fn flush_chain(&self, chain: &str) -> Result<(), HookError> {
        self.execute(&format!("-F {chain}")).map(drop)
    }

    pub(super) fn delete_chain(&self, chain: &str) -> Result<(), HookError> {
        self.execute(&format!("-X {chain}")).map(drop)
    }

    /// Runs one command and gives its stdout; a failure carries the command and iptables' own words.
    fn execute(&self, command: &str) -> Result<String, HookError> {
        let output =
            self.program.execute(TABLE, command).map_err(|error| cannot_run(self.program.cmd, &*error))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(self.failure(command, output))
    }

    fn failure(&self, command: &str, output: Output) -> HookError {
        let IptablesError { code, msg } = IptablesError::from(output);
        let command = format!("{} -t {TABLE} {command}", self.program.cmd);
        let message = msg.split_whitespace().collect::<Vec<_>>().join(" ");
        // Exit status 4 is "resource problem", which a busy chain gives too.
        if message.contains("ermission denied") || message.contains("must be root") {
            return HookError::NotPermitted { command, message };
        }
        if message.contains("ddress family not supported") {
            return HookError::NoFamily { family: self.family, message };
        }
        HookError::Refused { command, code, message }
    }
}

fn cannot_run(program: &'static str, error: &dyn std::error::Error) -> HookError {
    HookError::Program { program, message: error.to_string() }
}

/// Whether the legacy kernel interface has our table already (read without making it).
fn legacy_table_exists(family: Family) -> bool {
    let names = match family {
        Family::V4 => "/proc/net/ip_tables_names",
        Family::V6 => "/proc/net/ip6_tables_names",
    };
    std::fs::read_to_string(names).is_ok_and(|text| text.lines().any(|name| name == TABLE))
}

/// What `iptables -S` printed.
pub(super) struct Listing {
    lines: Vec<String>,
}

impl Listing {
    pub(super) fn has_chain(&self, chain: &str) -> bool {
        self.lines.iter().any(|line| line.strip_prefix("-N ") == Some(chain))
    }

    /// The rules of a chain in order, without `-A CHAIN`.
    pub(super) fn rules<'a>(&'a self, chain: &'a str) -> impl Iterator<Item = &'a str> {
        self.lines
            .iter()
            .filter_map(move |line| line.strip_prefix("-A ")?.strip_prefix(chain)?.strip_prefix(' '))
    }

    /// Whole lines of rules that lead to `chain` from outside of `within`.
    pub(super) fn references<'a>(
        &'a self,
        chain: &'a str,
        within: &'a [&str],
    ) -> impl Iterator<Item = &'a str> {
        self.lines.iter().map(String::as_str).filter(move |line| {
            let mut words = line.split(' ').skip_while(|word| !matches!(*word, "-j" | "-g")).skip(1);
            let from = line.split(' ').nth(1).unwrap_or_default();
            words.next() == Some(chain) && !within.contains(&from)
        })
    }
}

#[cfg(test)]
impl Listing {
    pub(super) fn from_text(text: &str) -> Self {
        Self { lines: text.lines().map(str::to_owned).collect() }
    }
}
