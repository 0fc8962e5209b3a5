//! Flags and value parsers that several subcommands share.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use ipnet::IpNet;

use super::CommandFailure;
use crate::banner::disclosure::{DisclosureLimits, SecretMasking};
use crate::database::DatabaseLocation;
use crate::engine::{AnomalyAction, AnomalyPolicy, EnforceOnly, HttpInspect};
use crate::inventory::{
    ChangeReporting, NotificationReceiver, RecordConfig, SpillConfig, own_name, parse_age, parse_url,
};
use crate::output::csv::CsvFormat;
use crate::output::eve::{EveFormat, EveOptions};
use crate::output::text::{ColourMode, TextFormat};
use crate::output::{self, OutputDestination};
use crate::rules::fingerprint::FingerprintSet;
use crate::rules::parse_network;
use crate::terms::{GreetingProtocol, Protocol, Severity};

/// Parses `3s`, `500ms` or `1m 30s`.
pub(super) fn duration(text: &str) -> anyhow::Result<Duration> {
    let signed: jiff::SignedDuration =
        text.parse().map_err(|_| anyhow!("must be a time with its unit, as in 3s or 500ms"))?;
    match Duration::try_from(signed) {
        Ok(duration) if duration >= Duration::from_millis(1) => Ok(duration),
        _ => bail!("must be at least 1ms"),
    }
}

/// Parses the value of a flag that names a network or an address.
pub(super) fn network(text: &str) -> anyhow::Result<IpNet> {
    parse_network(text)
        .ok_or_else(|| anyhow!("must be a network or an address, as in 192.0.2.0/24 or 2001:db8::1"))
}

/// Parses the value of a flag that names an address.
pub(super) fn address(text: &str) -> anyhow::Result<IpAddr> {
    text.parse().map_err(|_| anyhow!("must be an address, as in 192.0.2.7 or 2001:db8::7"))
}

/// Parses the value of a flag that names an address and a port.
pub(super) fn endpoint(text: &str) -> anyhow::Result<SocketAddr> {
    text.parse().map_err(|_| anyhow!("must be an address and a port, as in 192.0.2.7:7777 or [::]:7777"))
}

/// Parses the number of a record.
pub(super) fn number(text: &str) -> anyhow::Result<i64> {
    text.parse().map_err(|_| anyhow!("must be a number, as in 7"))
}

/// Parses the value of a flag that names an output file.
pub(super) fn output_file(text: &str) -> anyhow::Result<PathBuf> {
    match text {
        "" => bail!("must be a file"),
        "-" => bail!("leave out this flag to write to stdout; for a file of that name pass ./-"),
        path => Ok(path.into()),
    }
}

/// Returns the file of `--output-all BASE` with this ending.
pub(super) fn with_ending(base: &Path, ending: &str) -> PathBuf {
    let mut name = base.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// Checks that the output file is not one of the inputs.
pub(super) fn check_output<'p>(
    output: Option<&Path>,
    inputs: impl IntoIterator<Item = &'p Path>,
) -> Result<(), CommandFailure> {
    // Device and inode identify a file: two paths may name the same one through links.
    let identity = |path: &Path| {
        let file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some((file.dev(), file.ino()))
    };
    let Some((output, own)) = output.and_then(|path| Some((path, identity(path)?))) else { return Ok(()) };
    if inputs.into_iter().any(|input| identity(input) == Some(own)) {
        return Err(CommandFailure::Usage(anyhow!(
            "{}: is both input and output; choose another output file",
            output.display()
        )));
    }
    Ok(())
}

/// Parser for a flag that names a protocol.
pub(super) fn protocol() -> impl TypedValueParser<Value = Protocol> {
    PossibleValuesParser::new(Protocol::all().map(Protocol::name))
        .try_map(|name| Protocol::named(&name).ok_or("no such protocol"))
}

/// Parser for a flag that names a greeting protocol.
pub(super) fn greeting() -> impl TypedValueParser<Value = GreetingProtocol> {
    PossibleValuesParser::new(GreetingProtocol::all().map(GreetingProtocol::name))
        .try_map(|name| GreetingProtocol::named(&name).ok_or("no such protocol"))
}

/// Parses an address to listen on. A port alone, as `8642` or `:8642`, is one of loopback.
pub(super) fn listen_address(text: &str) -> anyhow::Result<SocketAddr> {
    match text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
        Ok(port) => Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        Err(_) => text.parse().map_err(|_| {
            anyhow!("expected an address and a port, as 192.0.2.1:8642, or a port alone for 127.0.0.1")
        }),
    }
}

/// Parser for a flag that names a severity.
pub(super) fn severity() -> impl TypedValueParser<Value = Severity> {
    PossibleValuesParser::new(Severity::ALL.map(Severity::name))
        .try_map(|name| Severity::named(&name).ok_or("no such severity"))
}

/// Default inventory of the commands that read one: that of the packaged service.
pub(super) const INVENTORY_FILE: &str = "/var/lib/bannerwall/inventory.db";

/// Parser for a flag that locates an inventory.
pub(super) fn inventory_place() -> impl TypedValueParser<Value = DatabaseLocation> {
    PlaceParser
}

/// Parser for an inventory's location. Its errors do not repeat the value, which may hold a password.
#[derive(Debug, Clone, Copy)]
struct PlaceParser;

impl TypedValueParser for PlaceParser {
    type Value = DatabaseLocation;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<DatabaseLocation, clap::Error> {
        DatabaseLocation::parse(value.to_owned()).map_err(|error| {
            let flag = argument.and_then(clap::Arg::get_long).unwrap_or("inventory");
            let text = format!("invalid value for '--{flag}': {error}\n");
            clap::Error::raw(clap::error::ErrorKind::ValueValidation, text).with_cmd(command)
        })
    }
}

/// Lower limit of an inventory's size, in bytes.
const SMALLEST: u64 = 16 << 20;

/// Lower limit of a spill folder's size, in bytes: some of the largest batches fit into it.
const SMALLEST_SPILL: u64 = 4 << 20;

fn inventory_size(text: &str) -> Result<u64, &'static str> {
    let octets = size(text)?;
    if octets < SMALLEST { Err("must be at least 16MiB") } else { Ok(octets) }
}

fn spill_size(text: &str) -> Result<u64, &'static str> {
    let octets = size(text)?;
    if octets < SMALLEST_SPILL { Err("must be at least 4MiB") } else { Ok(octets) }
}

/// Parses a size with its unit: `500MiB`, `2GiB`.
fn size(text: &str) -> Result<u64, &'static str> {
    const UNITS: [(&str, u32); 3] = [("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let read = |(unit, shift): &(&str, u32)| {
        let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        number.checked_mul(1 << shift)
    };
    UNITS.iter().find_map(read).ok_or("must be a size with its unit, as in 500MiB or 2GiB")
}

/// `--inventory FILE|URL` and the flags that go with it.
#[derive(Debug, Clone, Args)]
pub(super) struct InventoryFlags {
    /// Record hosts, services, clients, banners, findings and changes in FILE (SQLite, created if missing) or
    /// in a PostgreSQL database (`postgresql://user@host/database`).
    #[arg(long, value_name = "FILE|URL", help_heading = "Inventory", value_parser = inventory_place())]
    inventory: Option<DatabaseLocation>,
    /// Name of this sensor in the inventory [default: the host's name].
    #[arg(long, value_name = "NAME", requires = "inventory", help_heading = "Inventory")]
    sensor: Option<String>,
    /// Delete records from the inventory that were not seen for this time (90d).
    #[arg(long, value_name = "TIME", requires = "inventory", help_heading = "Inventory", value_parser = parse_age)]
    keep: Option<Duration>,
    /// Keep the file below SIZE (500MiB, 2GiB; at least 16MiB). The inventory deletes gone records first,
    /// then those unseen for longest.
    #[arg(long, value_name = "SIZE", requires = "inventory", help_heading = "Inventory", value_parser = inventory_size)]
    inventory_max_size: Option<u64>,
    /// Mark a server as gone if it was not seen for this time (7d), in addition to servers that refused a
    /// connection.
    #[arg(long, value_name = "TIME", requires = "inventory", help_heading = "Inventory", value_parser = parse_age)]
    gone_after: Option<Duration>,
    /// Keep batches of a fleet's sensor in FOLDER until the server has them. The sensor then survives hours
    /// without the server, and starts without it. Use one folder for each process and sensor.
    #[arg(long, value_name = "FOLDER", requires = "inventory", help_heading = "Inventory")]
    spill: Option<PathBuf>,
    /// With --spill: limit of its size on disk (64MiB, 2GiB; at least 4MiB). If it is full, the sensor drops
    /// the oldest batches, counts them, and reports them to the server.
    #[arg(long, value_name = "SIZE", requires = "spill", help_heading = "Inventory", default_value = "256MiB",
          value_parser = spill_size)]
    spill_size: u64,
    #[command(flatten)]
    telling: TellingFlags,
}

/// Destinations of the inventory's changes.
#[derive(Debug, Clone, Args)]
struct TellingFlags {
    /// Emit the inventory's changes as events, too: new hosts, services and clients, changed banners and key
    /// exchanges, findings that appear or disappear, services that are gone or back.
    #[arg(long, requires = "inventory", help_heading = "Inventory")]
    change_events: bool,
    /// Report changes only once the inventory has this age (7d).
    #[arg(long, value_name = "TIME", requires = "inventory", help_heading = "Inventory", value_parser = parse_age)]
    learn_for: Option<Duration>,
    /// Post changes to URL (http or https) as JSON.
    #[arg(long, value_name = "URL", requires = "inventory", help_heading = "Inventory", value_parser = parse_url)]
    notify: Vec<NotificationReceiver>,
    /// Run COMMAND in a shell, with the same JSON on its standard input. It has no capabilities. If root
    /// starts bannerwall, it runs as the user `bannerwall`, or as `nobody` if that user is missing.
    #[arg(long, value_name = "COMMAND", requires = "inventory", help_heading = "Inventory")]
    notify_command: Vec<String>,
}

impl TellingFlags {
    fn telling(&self) -> ChangeReporting {
        let commands = self.notify_command.iter().cloned().map(NotificationReceiver::Command);
        ChangeReporting {
            as_events: self.change_events,
            receivers: self.notify.iter().cloned().chain(commands).collect(),
            learn_for: self.learn_for,
        }
    }
}

impl InventoryFlags {
    /// Returns the value of `--inventory`.
    pub(super) fn place(&self) -> Option<&DatabaseLocation> {
        self.inventory.as_ref()
    }

    /// True if the inventory is in a PostgreSQL server.
    pub(super) fn is_of_server(&self) -> bool {
        matches!(self.inventory, Some(DatabaseLocation::Server(_)))
    }

    /// Returns the path of `--inventory`, if it is a file.
    pub(super) fn path(&self) -> Option<&Path> {
        self.inventory.as_ref().and_then(DatabaseLocation::file)
    }

    /// Returns the files to write: the inventory's file, and one in the folder of `--spill`.
    pub(super) fn writes(&self) -> impl Iterator<Item = PathBuf> {
        let spill = self.spill().filter(|_| self.is_of_server()).map(|spill| spill.file());
        self.path().map(Path::to_owned).into_iter().chain(spill)
    }

    fn spill(&self) -> Option<SpillConfig> {
        let folder = self.spill.clone()?;
        Some(SpillConfig { folder, size: self.spill_size, succeeds: false })
    }

    /// Returns the configuration of the inventory, if there is one; `about` names the observed traffic.
    pub(super) fn config(&self, about: String) -> Option<RecordConfig> {
        let sensor = self.sensor.clone().unwrap_or_else(own_name);
        let telling = self.telling.telling();
        self.inventory.clone().map(|place| RecordConfig {
            place,
            sensor,
            is_named: self.sensor.is_some(),
            about,
            keep: self.keep,
            gone_after: self.gone_after,
            max_size: self.inventory_max_size,
            spill: self.spill(),
            telling,
        })
    }
}

/// `--fingerprints PATH`.
#[derive(Debug, Clone, Args)]
pub(super) struct FingerprintsFlag {
    /// Fingerprint file or folder: adds products, vendors, versions and CPEs to events.
    #[arg(id = "fingerprints", long = "fingerprints", value_name = "PATH")]
    pub(super) path: Option<PathBuf>,
}

impl FingerprintsFlag {
    /// Loads the fingerprints, if the flag was given.
    ///
    /// # Errors
    ///
    /// The fingerprints are unreadable or invalid. The message names the file and line.
    pub(super) fn load(&self) -> Result<Option<Arc<FingerprintSet>>, CommandFailure> {
        let loaded = self.path.as_deref().map(FingerprintSet::load).transpose();
        Ok(loaded.map_err(CommandFailure::usage)?.map(Arc::new))
    }
}

/// `--enforce-only NETS|N%`.
#[derive(Debug, Clone, Args)]
pub(super) struct EnforceOnlyFlag {
    /// With --enforce: block only in flows with an end in these networks (192.0.2.0/24), or only in this
    /// share of flows (10%). The guard only alerts in all others.
    #[arg(long, value_name = "NETS|N%", requires = "enforce", help_heading = "Verdicts")]
    enforce_only: Option<EnforceOnly>,
}

impl EnforceOnlyFlag {
    /// Returns the flows to enforce.
    pub(super) fn only(&self) -> EnforceOnly {
        self.enforce_only.clone().unwrap_or_default()
    }
}

/// `--on-anomaly POLICY`.
#[derive(Debug, Clone, Args)]
pub(super) struct OnAnomalyFlag {
    /// Action of --enforce for traffic that could mislead an inspector: alert, drop, or a list of classes and
    /// names that changes the default (`tcp=alert,banner=drop,urgent_data=alert`).
    ///
    /// Classes: packet (headers, checksums, fragments), tcp (segments that receivers ignore or read
    /// differently), budget (a banner without end), banner (malformed HTTP and SSH). By default the guard
    /// drops packet, tcp and budget, since no honest software sends such traffic, and reports banner. Without
    /// --enforce it reports everything. It always drops bytes that differ from bytes it passed before at the
    /// same position.
    #[arg(long = "on-anomaly", value_name = "POLICY", help_heading = "Verdicts")]
    policy: Option<AnomalyPolicy>,
}

impl OnAnomalyFlag {
    /// True if the flag was given.
    pub(super) fn is_given(&self) -> bool {
        self.policy.is_some()
    }

    /// Returns the policy. Without the flag, a guard that does not enforce only alerts.
    pub(super) fn policy(&self, enforce: bool) -> AnomalyPolicy {
        let default =
            || if enforce { AnomalyPolicy::default() } else { AnomalyPolicy::all(AnomalyAction::Alert) };
        self.policy.unwrap_or_else(default)
    }
}

/// `--http-inspect`: inspected part of a persistent HTTP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum HttpExtent {
    /// The first transaction decides the connection.
    First,
    /// Every request, and the first response. Later responses pass in the kernel, unseen by rules.
    Requests,
    /// Every transaction.
    All,
    /// Selected by the rules in force: requests if they block only requests, all if they block anything else,
    /// too, and otherwise the first.
    Auto,
}

impl From<HttpExtent> for HttpInspect {
    fn from(flag: HttpExtent) -> Self {
        match flag {
            HttpExtent::First => Self::First,
            HttpExtent::Requests => Self::Requests,
            HttpExtent::All => Self::All,
            HttpExtent::Auto => Self::Auto,
        }
    }
}

/// `--log-headers`: form of HTTP header fields in events.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct LogHeadersFlag {
    /// HTTP header fields in events: masked (all, with credentials such as Authorization, cookies, API keys
    /// and tokens hidden, also in URLs), all (as sent), or none. Rules always see everything.
    #[arg(long = "log-headers", value_name = "WHAT", default_value = "masked")]
    log_headers: LogHeaders,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogHeaders {
    /// All fields as sent, with credentials.
    All,
    /// All fields, with credentials masked.
    Masked,
    /// No lists of fields. EVE's own fields stay, masked.
    None,
}

impl LogHeadersFlag {
    /// True if the flag changes the default.
    pub(super) fn is_given(self) -> bool {
        self.log_headers != LogHeaders::Masked
    }

    /// Returns the disclosure of secrets in events.
    pub(super) fn disclosure(self) -> DisclosureLimits {
        let secrets = match self.log_headers {
            LogHeaders::All => SecretMasking::Shown,
            LogHeaders::Masked | LogHeaders::None => SecretMasking::Masked,
        };
        DisclosureLimits { secrets, ..DisclosureLimits::default() }
    }

    /// True if events have EVE's lists of header fields.
    pub(super) fn lists(self) -> bool {
        self.log_headers != LogHeaders::None
    }
}

/// `--format` with one text form for a person and two forms for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum FormatName {
    /// Readable lines for a person.
    Text,
    /// One JSON object a line, with EVE's names for events.
    Json,
    /// Comma-separated values with a header.
    Csv,
}

impl FormatName {
    /// Returns the format of events. Colours are used only on a terminal.
    pub(super) fn events(
        self,
        eve: EveOptions,
        destination: &OutputDestination,
    ) -> Box<dyn output::OutputFormat> {
        match (self, destination) {
            (Self::Json, _) => Box::new(EveFormat(eve)),
            (Self::Csv, _) => Box::new(CsvFormat),
            (Self::Text, OutputDestination::Stdout) => {
                Box::new(TextFormat::new(ColourMode::for_stream(&std::io::stdout())))
            }
            (Self::Text, _) => Box::new(TextFormat::new(ColourMode::Never)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_loopback() {
        let loopback: SocketAddr = "127.0.0.1:8643".parse().unwrap();
        for text in ["8643", ":8643", "127.0.0.1:8643"] {
            assert_eq!(listen_address(text).unwrap(), loopback, "{text}");
        }
        assert_eq!(listen_address("[::]:1").unwrap(), "[::]:1".parse().unwrap());
        assert!(["70000", "localhost", "192.0.2.1", ""].iter().all(|text| listen_address(text).is_err()));
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("3s").unwrap(), Duration::from_secs(3));
        assert_eq!(duration("500ms").unwrap(), Duration::from_millis(500));
        assert!(["3", "", "-1s", "0s", "soon"].iter().all(|text| duration(text).is_err()));
    }
}
