//! Flags and their values that several subcommands have in common.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use ipnet::IpNet;

use super::Failure;
use crate::banner::disclosure::{Disclosure, Secrets};
use crate::engine::{AnomalyAction, AnomalyPolicy, EnforceOnly, HttpInspect};
use crate::inventory::{Place, Receiver, RecordConfig, SpillConfig, Telling, parse_age, parse_url};
use crate::output::csv::Csv;
use crate::output::eve::{Eve, EveOptions};
use crate::output::text::{Colour, Text};
use crate::output::{self, Destination};
use crate::rules::fingerprint::Fingerprints;
use crate::rules::parse_network;
use crate::terms::{Greeting, Protocol};

/// `3s`, `500ms`, `1m 30s`.
pub(super) fn duration(text: &str) -> anyhow::Result<Duration> {
    let signed: jiff::SignedDuration =
        text.parse().map_err(|_| anyhow!("a time with its unit, as in 3s or 500ms"))?;
    match Duration::try_from(signed) {
        Ok(duration) if duration >= Duration::from_millis(1) => Ok(duration),
        _ => bail!("at least 1ms"),
    }
}

/// The value of a flag that names a network or an address.
pub(super) fn network(text: &str) -> anyhow::Result<IpNet> {
    parse_network(text).ok_or_else(|| anyhow!("a network or an address, as in 192.0.2.0/24 or 2001:db8::1"))
}

/// The value of a flag that names a file to write.
pub(super) fn output_file(text: &str) -> anyhow::Result<PathBuf> {
    match text {
        "" => bail!("a file"),
        "-" => bail!("without this flag it goes to stdout; a file of that name is ./-"),
        path => Ok(path.into()),
    }
}

/// Whether a file that will be written is none of those that are read.
pub(super) fn check_output<'p>(
    output: Option<&Path>,
    inputs: impl IntoIterator<Item = &'p Path>,
) -> Result<(), Failure> {
    let identity = |path: &Path| {
        let file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some((file.dev(), file.ino()))
    };
    let Some((output, own)) = output.and_then(|path| Some((path, identity(path)?))) else { return Ok(()) };
    if inputs.into_iter().any(|input| identity(input) == Some(own)) {
        return Err(Failure::Usage(anyhow!("{}: would be read and written over", output.display())));
    }
    Ok(())
}

/// The value of a flag that names a protocol.
pub(super) fn protocol() -> impl TypedValueParser<Value = Protocol> {
    PossibleValuesParser::new(Protocol::all().map(Protocol::name))
        .try_map(|name| Protocol::named(&name).ok_or("no such protocol"))
}

/// The value of a flag that names a protocol of greetings.
pub(super) fn greeting() -> impl TypedValueParser<Value = Greeting> {
    PossibleValuesParser::new(Greeting::all().map(Greeting::name))
        .try_map(|name| Greeting::named(&name).ok_or("no such protocol"))
}

/// The value of a flag that says where an inventory is.
pub(super) fn inventory_place() -> impl TypedValueParser<Value = Place> {
    PlaceParser
}

/// Reads a place, and does not repeat one that is none: a password may stand in it.
#[derive(Debug, Clone, Copy)]
struct PlaceParser;

impl TypedValueParser for PlaceParser {
    type Value = Place;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Place, clap::Error> {
        Place::parse(value.to_owned()).map_err(|error| {
            let flag = argument.and_then(clap::Arg::get_long).unwrap_or("inventory");
            let text = format!("invalid value for '--{flag}': {error}\n");
            clap::Error::raw(clap::error::ErrorKind::ValueValidation, text).with_cmd(command)
        })
    }
}

/// The smallest inventory that can be asked for, in octets.
const SMALLEST: u64 = 16 << 20;

/// The smallest folder of batches, in octets: some of the largest fit into it.
const SMALLEST_SPILL: u64 = 4 << 20;

fn inventory_size(text: &str) -> Result<u64, &'static str> {
    let octets = size(text)?;
    if octets < SMALLEST { Err("at least 16MiB are needed") } else { Ok(octets) }
}

fn spill_size(text: &str) -> Result<u64, &'static str> {
    let octets = size(text)?;
    if octets < SMALLEST_SPILL { Err("at least 4MiB are needed") } else { Ok(octets) }
}

/// A size with its unit: `500MiB`, `2GiB`.
fn size(text: &str) -> Result<u64, &'static str> {
    const UNITS: [(&str, u32); 3] = [("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let read = |(unit, shift): &(&str, u32)| {
        let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        number.checked_mul(1 << shift)
    };
    UNITS.iter().find_map(read).ok_or("a size with its unit, as in 500MiB or 2GiB")
}

/// `--inventory FILE`, and how the runs that write it are told apart.
#[derive(Debug, Clone, Args)]
pub(super) struct InventoryFlags {
    /// Keep in FILE (SQLite, made where there is none) or in a PostgreSQL database
    /// (`postgresql://user@host/database`) what is seen: hosts, services, clients, what they say, since when,
    /// what rules tell of them, and what changes.
    #[arg(long, value_name = "FILE|URL", help_heading = "Inventory", value_parser = inventory_place())]
    inventory: Option<Place>,
    /// The name that the inventory has for this place of observation [default: the host's name].
    #[arg(long, value_name = "NAME", requires = "inventory", help_heading = "Inventory")]
    sensor: Option<String>,
    /// Take out of the inventory what was not seen for so long (90d).
    #[arg(long, value_name = "TIME", requires = "inventory", help_heading = "Inventory", value_parser = parse_age)]
    keep: Option<Duration>,
    /// Keep the file below SIZE (500MiB, 2GiB; at least 16MiB): what is gone and what was not seen for
    /// longest goes first.
    #[arg(long, value_name = "SIZE", requires = "inventory", help_heading = "Inventory", value_parser = inventory_size)]
    inventory_max_size: Option<u64>,
    /// Know a server as gone that was not seen for so long (7d), beside those that were asked and refused.
    #[arg(long, value_name = "TIME", requires = "inventory", help_heading = "Inventory", value_parser = parse_age)]
    gone_after: Option<Duration>,
    /// Keep what a sensor of a fleet sends in FOLDER until the server has it: hours without the server, and a
    /// start without it, cost octets alone. A folder for each process and sensor.
    #[arg(long, value_name = "FOLDER", requires = "inventory", help_heading = "Inventory")]
    spill: Option<PathBuf>,
    /// With --spill: the octets of the disk that it may take (64MiB, 2GiB; at least 4MiB). The oldest goes
    /// first, is counted, and told to the server.
    #[arg(long, value_name = "SIZE", requires = "spill", help_heading = "Inventory", default_value = "256MiB",
          value_parser = spill_size)]
    spill_size: u64,
    #[command(flatten)]
    telling: TellingFlags,
}

/// Where what changes in the inventory is told.
#[derive(Debug, Clone, Args)]
struct TellingFlags {
    /// Tell what changes in the inventory as events, too: new hosts, services and clients, other banners and
    /// key exchanges, findings that appear or are gone, services that are gone or back.
    #[arg(long, requires = "inventory", help_heading = "Inventory")]
    change_events: bool,
    /// Tell changes only once the inventory is so old (7d).
    #[arg(long, value_name = "TIME", requires = "inventory", help_heading = "Inventory", value_parser = parse_age)]
    learn_for: Option<Duration>,
    /// Post changes to URL (http or https) as JSON.
    #[arg(long, value_name = "URL", requires = "inventory", help_heading = "Inventory", value_parser = parse_url)]
    notify: Vec<Receiver>,
    /// Run COMMAND by a shell, with the same JSON on its standard input.
    #[arg(long, value_name = "COMMAND", requires = "inventory", help_heading = "Inventory")]
    notify_command: Vec<String>,
}

impl TellingFlags {
    fn telling(&self) -> Telling {
        let commands = self.notify_command.iter().cloned().map(Receiver::Command);
        Telling {
            as_events: self.change_events,
            receivers: self.notify.iter().cloned().chain(commands).collect(),
            learn_for: self.learn_for,
        }
    }
}

impl InventoryFlags {
    /// True if somebody is to be notified.
    pub(super) fn notifies(&self) -> bool {
        !self.telling.telling().receivers.is_empty()
    }

    /// The value of `--inventory`.
    pub(super) fn place(&self) -> Option<&Place> {
        self.inventory.as_ref()
    }

    /// True if the inventory is a server's.
    pub(super) fn is_of_server(&self) -> bool {
        matches!(self.inventory, Some(Place::Server(_)))
    }

    /// The file of `--inventory`, where it is one.
    pub(super) fn path(&self) -> Option<&Path> {
        self.inventory.as_ref().and_then(Place::file)
    }

    /// What is written: the file of `--inventory`, where it is one, and one in the folder of `--spill`.
    pub(super) fn writes(&self) -> impl Iterator<Item = PathBuf> {
        let spill = self.spill().filter(|_| self.is_of_server()).map(|spill| spill.file());
        self.path().map(Path::to_owned).into_iter().chain(spill)
    }

    fn spill(&self) -> Option<SpillConfig> {
        let folder = self.spill.clone()?;
        Some(SpillConfig { folder, size: self.spill_size, succeeds: false })
    }

    /// The inventory to keep, if any; `about` says what is seen.
    pub(super) fn config(&self, about: String) -> Option<RecordConfig> {
        let own_name = || rustix::system::uname().nodename().to_string_lossy().into_owned();
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
    /// Fingerprint file or folder: names products, vendors, versions and CPEs in events.
    #[arg(id = "fingerprints", long = "fingerprints", value_name = "PATH")]
    pub(super) path: Option<PathBuf>,
}

impl FingerprintsFlag {
    /// Loads the fingerprints, where some were named.
    ///
    /// # Errors
    ///
    /// They cannot be read, or are refused: the message names file and place.
    pub(super) fn load(&self) -> Result<Option<Arc<Fingerprints>>, Failure> {
        let loaded = self.path.as_deref().map(Fingerprints::load).transpose();
        Ok(loaded.map_err(Failure::usage)?.map(Arc::new))
    }
}

/// `--enforce-only NETS|N%`.
#[derive(Debug, Clone, Args)]
pub(super) struct EnforceOnlyFlag {
    /// With --enforce: block only in flows with an end in these networks (192.0.2.0/24), or only in this
    /// share of flows (10%), and alert in all others.
    #[arg(long, value_name = "NETS|N%", requires = "enforce", help_heading = "Verdicts")]
    enforce_only: Option<EnforceOnly>,
}

impl EnforceOnlyFlag {
    /// The flows that are enforced.
    pub(super) fn only(&self) -> EnforceOnly {
        self.enforce_only.clone().unwrap_or_default()
    }
}

/// `--on-anomaly POLICY`.
#[derive(Debug, Clone, Args)]
pub(super) struct OnAnomalyFlag {
    /// What --enforce does about traffic that an inspector could be misled with: alert, drop, or a list
    /// of classes and names (`tcp=alert,banner=drop,urgent_data=alert`) that changes the default.
    ///
    /// Classes are packet (headers, checksums, fragments), tcp (what receivers ignore or read
    /// otherwise), budget (a banner without end) and banner (crooked HTTP and SSH). By default what no
    /// honest software sends is dropped (packet, tcp, budget), and banner is reported. Without
    /// --enforce all is reported. Octets that differ from those that were let through before at the
    /// same place are dropped whatever is said here.
    #[arg(long = "on-anomaly", value_name = "POLICY", help_heading = "Verdicts")]
    policy: Option<AnomalyPolicy>,
}

impl OnAnomalyFlag {
    /// True if it was said.
    pub(super) fn is_given(&self) -> bool {
        self.policy.is_some()
    }

    /// The policy; without one a monitor reports everything.
    pub(super) fn policy(&self, enforce: bool) -> AnomalyPolicy {
        let default =
            || if enforce { AnomalyPolicy::default() } else { AnomalyPolicy::all(AnomalyAction::Alert) };
        self.policy.unwrap_or_else(default)
    }
}

/// `--http-inspect`: how much of a kept-alive HTTP connection is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum HttpExtent {
    /// The first transaction decides the connection.
    First,
    /// Every request, and the first response: later ones pass in the kernel, and no rule sees them.
    Requests,
    /// Every transaction.
    All,
    /// Requests where rules in force block those alone, all where they block others, too, else the first.
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

/// `--log-headers`: what events show of HTTP header fields.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct LogHeadersFlag {
    /// What events show of HTTP header fields: all of them with credentials masked (Authorization, cookies,
    /// API keys, tokens, also in URLs), all as they were sent, or none. Rules see everything.
    #[arg(long = "log-headers", value_name = "WHAT", default_value = "masked")]
    log_headers: LogHeaders,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogHeaders {
    /// As they were sent, credentials too.
    All,
    /// With credentials masked.
    Masked,
    /// No lists of fields; what EVE has names for stays, masked.
    None,
}

impl LogHeadersFlag {
    /// True if something else than the default was said.
    pub(super) fn is_given(self) -> bool {
        self.log_headers != LogHeaders::Masked
    }

    /// How much of messages events show.
    pub(super) fn disclosure(self) -> Disclosure {
        let secrets = match self.log_headers {
            LogHeaders::All => Secrets::Shown,
            LogHeaders::Masked | LogHeaders::None => Secrets::Masked,
        };
        Disclosure { secrets, ..Disclosure::default() }
    }

    /// True if EVE's lists of header fields are written.
    pub(super) fn lists(self) -> bool {
        self.log_headers != LogHeaders::None
    }
}

/// `--format` of what has text for a person and two forms for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum FormatName {
    /// Readable lines for a person.
    Text,
    /// One JSON object a line; events have EVE's names.
    Json,
    /// Comma-separated, with a header.
    Csv,
}

impl FormatName {
    /// How events are written; colours only where a terminal is the destination.
    pub(super) fn events(self, eve: EveOptions, destination: &Destination) -> Box<dyn output::Format> {
        match (self, destination) {
            (Self::Json, _) => Box::new(Eve(eve)),
            (Self::Csv, _) => Box::new(Csv),
            (Self::Text, Destination::Stdout) => {
                Box::new(Text { colour: Colour::for_stream(&std::io::stdout()) })
            }
            (Self::Text, _) => Box::new(Text { colour: Colour::Never }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("3s").unwrap(), Duration::from_secs(3));
        assert_eq!(duration("500ms").unwrap(), Duration::from_millis(500));
        assert!(["3", "", "-1s", "0s", "soon"].iter().all(|text| duration(text).is_err()));
    }
}
