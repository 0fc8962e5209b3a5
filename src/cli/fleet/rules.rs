//! `bannerwall fleet rules`: signs and publishes rules and policies for all guards.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use minisign_verify::PublicKey;

use super::{DatabaseFlag, text};
use crate::cli::inventory::row_writer::{RowOutputFlags, RowWriter};
use crate::cli::rules_from::public_key;
use crate::cli::scan::fleet_scan::packed;
use crate::cli::{CliExitCode, CommandFailure};
use crate::diagnostics::log_line;
use crate::fleet::rules::{LARGEST, PublicKeys, RulePack, SecretKey};
use crate::fleet::{FleetDatabase, RulesPublication};
use crate::output::EscapedText;
use crate::rules::{ProfileFilter, RuleSelection, RuleSet};

/// Flags of `bannerwall fleet rules`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall fleet rules keygen rules.key > rules.pub            # copy rules.pub to every guard
  bannerwall fleet rules publish /etc/bannerwall/rules --key rules.key --percent 10 \\
      --database postgresql://ann@db/net
  bannerwall fleet rules rollout 7 --percent 100 --database postgresql://ann@db/net
  bannerwall fleet rules rollback --to 6 --key rules.key --database postgresql://ann@db/net
  sudo bannerwall guard --hook forward --rules-from postgresql://gw-1@db/net \\
      --rules-key rules.pub")]
pub(super) struct FleetRulesArgs {
    #[command(subcommand)]
    command: FleetRulesCommand,
}

#[derive(Debug, Subcommand)]
enum FleetRulesCommand {
    /// Make a key pair for signing in a new file, and print the public key. Keys of minisign work as well.
    #[command(after_help = "Example:\n  bannerwall fleet rules keygen rules.key > rules.pub")]
    Keygen {
        /// File of the secret key.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        password: KeyPasswordFlag,
    },
    /// Write rules to a file, to sign elsewhere (`minisign -Sm FILE`) and publish later.
    #[command(after_help = "Example:
  bannerwall fleet rules pack /etc/bannerwall/rules --number 7 -o 7.pack
  minisign -S -s rules.key -m 7.pack
  bannerwall fleet rules publish --pack 7.pack --signature 7.pack.minisig \\
      --rules-key rules.pub --database postgresql://ann@db/net")]
    Pack {
        #[command(flatten)]
        texts: RulesToPublish,
        /// Version number; guards accept only higher numbers than their own.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
        number: i64,
        /// The file to write.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Check rules, sign them, and publish them for guards; prints the version's number.
    Publish(PublishArgs),
    /// List the versions, the newest first.
    #[command(after_help = "Example:\n  bannerwall fleet rules list --database postgresql://ann@db/net")]
    List {
        #[command(flatten)]
        database: DatabaseFlag,
        #[command(flatten)]
        output: RowOutputFlags,
    },
    /// Show the files of a version, or the text of one file. This command does not verify the signature.
    #[command(
        after_help = "Example:\n  bannerwall fleet rules show 7 --file 0/ssh.toml --database postgresql://ann@db/net"
    )]
    Show {
        /// Number of the version.
        #[arg(value_name = "N", value_parser = crate::cli::flags::number)]
        serial: i64,
        /// One of its files.
        #[arg(long, value_name = "PATH")]
        file: Option<String>,
        #[command(flatten)]
        database: DatabaseFlag,
    },
    /// Publish a version for more guards. A lower percentage takes no rules away: use `rollback` for that.
    #[command(
        after_help = "Example:\n  bannerwall fleet rules rollout 7 --percent 50 --database postgresql://ann@db/net"
    )]
    Rollout {
        /// Number of the version.
        #[arg(value_name = "N", value_parser = crate::cli::flags::number)]
        serial: i64,
        /// Percentage of sensors.
        #[arg(long, value_name = "P", value_parser = percent())]
        percent: i64,
        #[command(flatten)]
        database: DatabaseFlag,
    },
    /// Publish the rules of an older version as a new one, and print its number.
    #[command(
        after_help = "Example:\n  bannerwall fleet rules rollback --to 6 --key rules.key --database postgresql://ann@db/net"
    )]
    Rollback {
        /// Number of the older version.
        #[arg(long, value_name = "N", value_parser = crate::cli::flags::number)]
        to: i64,
        /// Public keys accepted for the older version, in addition to the current key; can be given several
        /// times.
        #[arg(long, value_name = "KEY|FILE", value_parser = public_key)]
        rules_key: Vec<PublicKey>,
        /// Secret key to sign with.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        #[command(flatten)]
        password: KeyPasswordFlag,
        /// Percentage of sensors that load it.
        #[arg(long, value_name = "P", default_value_t = 100, value_parser = percent())]
        percent: i64,
        #[command(flatten)]
        database: DatabaseFlag,
    },
    /// Show the version of each sensor, since when, and the version that it refused.
    #[command(after_help = "Example:\n  bannerwall fleet rules status --database postgresql://ann@db/net")]
    Status {
        #[command(flatten)]
        database: DatabaseFlag,
        #[command(flatten)]
        output: RowOutputFlags,
    },
}

/// Flags of `publish`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bannerwall fleet rules publish rules/ rules/policies/only-ssh-on-22.toml --key rules.key \\
      --note 'OpenSSH below 9.8' --database postgresql://ann@db/net
  bannerwall fleet rules publish --pack 7.pack --signature 7.pack.minisig \\
      --rules-key rules.pub --database postgresql://ann@db/net")]
struct PublishArgs {
    #[command(flatten)]
    texts: RulesToPublish,
    /// Secret key to sign with.
    #[arg(long, value_name = "FILE", conflicts_with = "signature", required_unless_present = "pack")]
    key: Option<PathBuf>,
    #[command(flatten)]
    password: KeyPasswordFlag,
    /// File that `pack` wrote, instead of rules.
    #[arg(long, value_name = "FILE", requires = "signature", conflicts_with_all = ["rules", "local", "note", "key"])]
    pack: Option<PathBuf>,
    /// Signature of the pack.
    #[arg(long, value_name = "FILE", requires = "pack")]
    signature: Option<PathBuf>,
    /// Public key of the signature.
    #[arg(long, value_name = "KEY|FILE", value_parser = public_key, requires = "pack", required_unless_present = "key")]
    rules_key: Option<PublicKey>,
    /// Percentage of sensors that load it; `rollout` raises it.
    #[arg(long, value_name = "P", default_value_t = 100, value_parser = percent())]
    percent: i64,
    #[command(flatten)]
    database: DatabaseFlag,
}

/// Rules to publish.
#[derive(Debug, Args)]
struct RulesToPublish {
    /// Files of rules and policies, and folders of *.toml files. The lists that they name are included.
    #[arg(value_name = "RULES")]
    rules: Vec<PathBuf>,
    /// Local file or folder, with overrides; can be given several times.
    #[arg(long, value_name = "PATH")]
    local: Vec<PathBuf>,
    /// Note for people.
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
}

/// Password of a secret key.
#[derive(Debug, Args)]
struct KeyPasswordFlag {
    /// File with the key's password on its first line, if the key has one.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

fn percent() -> clap::builder::RangedI64ValueParser<i64> {
    clap::value_parser!(i64).range(0..=100)
}

pub(super) fn run(arguments: &FleetRulesArgs, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    match &arguments.command {
        FleetRulesCommand::Keygen { file, password } => {
            let public = SecretKey::make(file, password.file()).map_err(CommandFailure::usage)?;
            crate::cli::print(public.as_bytes())
        }
        FleetRulesCommand::Pack { texts, number, output } => {
            let (pack, _) = texts.pack(*number, quiet)?;
            let octets = pack.octets().map_err(CommandFailure::usage)?;
            let written = crate::files::replace(output, &octets);
            written
                .with_context(|| format!("cannot write {}", output.display()))
                .map_err(CommandFailure::Usage)?;
            Ok(CliExitCode::Done)
        }
        FleetRulesCommand::Publish(arguments) => publish(arguments, quiet),
        FleetRulesCommand::List { database, output } => {
            let mut rows = RowWriter::start(output, text::RULES)?;
            for version in database.open_server()?.rules()? {
                rows.add(&version, || text::version(&version))?;
            }
            rows.finish()
        }
        FleetRulesCommand::Show { serial, file, database } => show(*serial, file.as_deref(), database),
        FleetRulesCommand::Rollout { serial, percent, database } => {
            database.open_server()?.roll_out(*serial, *percent)?;
            Ok(CliExitCode::Done)
        }
        FleetRulesCommand::Rollback { to, rules_key, key, password, percent, database } => {
            let key = SecretKey::read(key, password.file()).map_err(CommandFailure::usage)?;
            roll_back(*to, rules_key, &key, *percent, &database.open_server()?)
        }
        FleetRulesCommand::Status { database, output } => {
            let mut rows = RowWriter::start(output, text::TAKEN)?;
            for taken in database.open_server()?.sensor_states()? {
                rows.add(&taken, || text::taken(&taken))?;
            }
            rows.finish()
        }
    }
}

impl KeyPasswordFlag {
    fn file(&self) -> Option<&Path> {
        self.password_file.as_deref()
    }
}

impl RulesToPublish {
    /// Reads the rules as `rules check` does, and returns a pack with its number of rules.
    fn pack(&self, version: i64, quiet: bool) -> Result<(RulePack, usize), CommandFailure> {
        if self.rules.is_empty() {
            return Err(CommandFailure::usage(anyhow!("no rules: pass files or folders with rules")));
        }
        let selection = RuleSelection {
            rules: self.rules.clone(),
            local: self.local.clone(),
            complete: true,
            ..RuleSelection::default()
        };
        let loaded = RuleSet::check(&selection).map_err(CommandFailure::usage)?;
        if !quiet {
            loaded.warnings.iter().for_each(|warning| log_line(format_args!("{warning}\n")));
        }
        let pack = RulePack::new(version, self.note.clone(), packed(&loaded.rules, &selection)?);
        let count = checked(&pack)?;
        Ok((pack, count))
    }
}

/// Returns the number of rules that guards load from a pack.
fn checked(pack: &RulePack) -> Result<usize, CommandFailure> {
    let loaded = RuleSet::load(&pack.selection(ProfileFilter::All)).map_err(CommandFailure::usage)?;
    Ok(loaded.rules.rules().len())
}

fn publish(arguments: &PublishArgs, quiet: bool) -> Result<CliExitCode, CommandFailure> {
    let PublishArgs { texts, key, password, pack, signature, rules_key, percent, database } = arguments;
    let publish = |queue: &FleetDatabase, pack: &RulePack, octets, signature, rules| {
        publish_pack(queue, pack, octets, signature, *percent, rules)
    };
    if let (Some(pack), Some(signature)) = (pack, signature) {
        let octets = read(pack, LARGEST)?;
        let signature = String::from_utf8_lossy(&read(signature, 4 << 10)?).into_owned();
        let keys = PublicKeys(rules_key.iter().cloned().collect());
        keys.verify(&octets, &signature).map_err(CommandFailure::usage)?;
        let pack = RulePack::parse(&octets).map_err(CommandFailure::usage)?;
        let count = checked(&pack)?;
        return publish(&database.open_server()?, &pack, octets, signature, count);
    }
    let key = key.as_deref().ok_or_else(|| CommandFailure::usage(anyhow!("pass --key or --pack")))?;
    let key = SecretKey::read(key, password.file()).map_err(CommandFailure::usage)?;
    // The rules are checked first: their errors are reported even if the database is away.
    let (pack, count) = texts.pack(1, quiet)?;
    let queue = database.open_server()?;
    let pack = RulePack::new(queue.next_rules()?, pack.note, pack.files);
    let (octets, signature) = signed(&pack, &key)?;
    publish(&queue, &pack, octets, signature, count)
}

/// Returns a pack's bytes and their signature.
fn signed(pack: &RulePack, key: &SecretKey) -> Result<(Vec<u8>, String), CommandFailure> {
    let octets = pack.octets().map_err(CommandFailure::usage)?;
    let signature = key.sign(&octets, &format!("version {} of the rules", pack.version));
    Ok((octets, signature.map_err(CommandFailure::usage)?))
}

fn publish_pack(
    queue: &FleetDatabase,
    pack: &RulePack,
    octets: Vec<u8>,
    signature: String,
    percent: i64,
    rules: usize,
) -> Result<CliExitCode, CommandFailure> {
    let rules = i64::try_from(rules).unwrap_or(i64::MAX);
    let RulePack { version, note, .. } = pack;
    queue.publish(&RulesPublication {
        serial: *version,
        pack: octets,
        signature,
        percent,
        rules,
        note: note.clone(),
    })?;
    crate::cli::print(format!("{version}\n").as_bytes())
}

fn roll_back(
    to: i64,
    trusted: &[PublicKey],
    key: &SecretKey,
    percent: i64,
    queue: &FleetDatabase,
) -> Result<CliExitCode, CommandFailure> {
    let (octets, signature) = queue.pack(to)?;
    // The database is not trusted: without this check, a changed pack would be signed here.
    let keys = trusted.iter().cloned().chain([key.public().map_err(CommandFailure::usage)?]).collect();
    let verified = PublicKeys(keys).verify(&octets, &signature);
    verified.with_context(|| format!("version {to}")).map_err(CommandFailure::Usage)?;
    let old = RulePack::parse(&octets).map_err(CommandFailure::usage)?;
    // A signed pack of another number would pass the signature check: the table could swap versions.
    if old.version != to {
        return Err(CommandFailure::usage(anyhow!("version {to} was signed as version {}", old.version)));
    }
    let count = checked(&old)?;
    let pack = RulePack::new(queue.next_rules()?, format!("back to version {to}"), old.files);
    let (octets, signature) = signed(&pack, key)?;
    publish_pack(queue, &pack, octets, signature, percent, count)
}

fn show(version: i64, file: Option<&str>, database: &DatabaseFlag) -> Result<CliExitCode, CommandFailure> {
    let (octets, _) = database.open_server()?.pack(version)?;
    let pack = RulePack::parse(&octets).map_err(CommandFailure::usage)?;
    if let Some(path) = file {
        let found = pack.files.iter().find(|file| file.path == path);
        let found =
            found.ok_or_else(|| CommandFailure::usage(anyhow!("version {version} has no file {path:?}")))?;
        return crate::cli::print(found.text.as_bytes());
    }
    let lines =
        pack.files.iter().map(|file| format!("{:>9}  {}\n", file.text.len(), EscapedText(&file.path)));
    crate::cli::print(lines.collect::<String>().as_bytes())
}

fn read(path: &Path, most: usize) -> Result<Vec<u8>, CommandFailure> {
    // Reads one byte more, so that the parser reports a file above the limit.
    let octets = crate::files::read_to(path, most as u64 + 1);
    octets.with_context(|| format!("cannot read {}", path.display())).map_err(CommandFailure::Usage)
}
