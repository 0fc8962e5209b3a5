//! One run: opens everything, starts a thread for each direction, and stops.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::device::{self, DeviceRead, HEADER, PendingChecksums, TunDevice};
use super::inspection::{self, TunnelInspector};
use super::key_agreement::NoiseSessions;
use super::link_settings::LinkSetting;
use super::packet_counters::DirectionCounters;
use super::peer_socket::PeerSocket;
use super::reassembly::PacketReassembler;
use super::receiver::{AgreementCounter, TunnelReceiver};
use super::sender::{PieceProtection, TunnelSender};
use super::train_switch::{LossTally, TrainSwitch};
use super::{PathProtection, TunnelConfig, TunnelError};
use crate::diagnostics::{log_line, several};
use crate::guard::{CarriedVerdict, CarrierGuard, EventOutput, EventReader, InspectionConfig};
use crate::metrics::{
    MetricsEndpoint, MetricsRegistry, ProgramHealth, TunnelDirection, TunnelDrop as Reason, TunnelMetrics,
};
use crate::privileges::{self, FILES};

/// Size of the buffers: for the longest packet with its header, or the longest train.
const LONGEST: usize = 1 << 17;

/// Interval of checks of the path MTU, which may have grown, and of the keys' age.
const LOOK: Duration = Duration::from_millis(250);

/// Message to the main thread.
enum TunnelMessage {
    /// Stop the run (SIGINT, SIGTERM).
    Stop,
    /// Reload the rules, and reopen the event files (SIGHUP, SIGUSR1, SIGUSR2).
    Reload,
    /// A direction has stopped: the device is gone, an error, or a panic (`None`).
    Ended(Option<Result<(), TunnelError>>),
}

/// Carries packets until a signal stops the run or the device is deleted. Prints `ready` on stderr once
/// packets pass.
///
/// # Errors
///
/// A needed resource is missing or fails.
pub fn run(
    config: &TunnelConfig,
    outputs: Vec<EventOutput>,
    readers: Vec<Box<dyn EventReader>>,
) -> Result<(), TunnelError> {
    let cover = cover(config)?;
    let registry = MetricsRegistry::new()?;
    let metrics = TunnelMetrics::new(&registry)?;
    let health = Arc::new(ProgramHealth::default());
    let (sender, messages) = unbounded();
    let signals = signals()?;
    let carrier = Arc::new(PeerSocket::open(config.local, config.peer, config.offload)?);
    let device = Arc::new(TunDevice::open(&config.device, config.offload)?);
    let mtu = settle(config, &cover, &carrier, &device)?;
    CarrierGuard::prepare(&readers)?;
    // All sockets and devices are open; only rules and event files of other users may be needed later.
    privileges::keep_for_good(if config.guard.is_some() { FILES } else { CapabilitySet::empty() })?;
    let start = |config: &InspectionConfig| CarrierGuard::start(config.clone(), outputs, readers, &registry);
    let guard = config.guard.as_ref().map(start).transpose()?;
    forward_signals(signals, sender.clone())?;
    let show = |shown| MetricsEndpoint::start(shown, registry, Arc::clone(&health));
    let _endpoint = config.metrics.as_ref().map(show).transpose()?;
    let guarded = || {
        let inspector = guard.as_ref().map(CarrierGuard::inspector);
        inspector.map(|inspector| TunnelInspector { inspector, interface: device.name().to_owned() })
    };
    let account = |way| DirectionCounters::new(metrics.clone(), way);
    let outlet = |way| TunnelSender::new(Arc::clone(&carrier), cover.clone(), account(way));
    let trains = Arc::new(TrainSwitch::new(&device, metrics.super_packets.clone()));
    let outward = OutboundLoop {
        device: Arc::clone(&device),
        carrier: Arc::clone(&carrier),
        account: account(TunnelDirection::Sent),
        outlet: outlet(TunnelDirection::Sent),
        guard: guarded(),
    };
    spawn("to-peer", &sender, move || outward.run())?;
    let inlet = TunnelReceiver {
        carrier: Arc::clone(&carrier),
        device: Arc::clone(&device),
        cover: cover.clone(),
        account: account(TunnelDirection::Received),
        assembly: PacketReassembler::default(),
        opened: vec![0; LONGEST],
        outlet: outlet(TunnelDirection::Sent),
        agreed: AgreementCounter(metrics.handshakes.clone()),
        tally: LossTally::default(),
        trains: Arc::clone(&trains),
        guard: guarded(),
    };
    spawn("from-peer", &sender, move || receive_all(inlet))?;
    health.set_ready(true);
    announce(config, &device, &cover, &mtu, guard.as_ref());
    let watch = PeriodicWork {
        carrier: &carrier,
        cover: &cover,
        metrics: &metrics,
        trains: &trains,
        guard: guard.as_ref(),
    };
    let outcome = watch.run(&messages, &device);
    health.set_ready(false);
    finish(guard, &metrics);
    outcome
}

/// Stops the guard, and prints the summary. The other threads wait in calls that end only with the process;
/// they hold no unwritten data.
fn finish(guard: Option<CarrierGuard>, metrics: &TunnelMetrics) {
    if let Some(guard) = guard {
        guard.finish();
    }
    log_line(summary(metrics));
}

/// Returns the protection of packets.
fn cover(config: &TunnelConfig) -> Result<PieceProtection, TunnelError> {
    Ok(match config.protection {
        PathProtection::Loopback if !config.peer.ip().to_canonical().is_loopback() => {
            return Err(TunnelError::Plain(config.peer));
        }
        PathProtection::Loopback | PathProtection::Plain => PieceProtection::plain(),
        PathProtection::Keys(keys) => PieceProtection::Noise(Arc::new(NoiseSessions::new(keys)?)),
    })
}

/// Reports that packets pass, and the settings.
fn announce(
    config: &TunnelConfig,
    device: &TunDevice,
    cover: &PieceProtection,
    mtu: &str,
    carrier_guard: Option<&CarrierGuard>,
) {
    log_line(format_args!(
        "ready: {} {} ({mtu}), {} to {}, {}, {}",
        device.name(),
        if device.is_ours() { "made" } else { "taken over" },
        config.local,
        config.peer,
        if matches!(cover, PieceProtection::Noise(_)) { "sealed" } else { "plain" },
        if config.offload { "super-packets" } else { "packet by packet" },
    ));
    if let (Some(guard), Some(inspection)) = (carrier_guard, &config.guard) {
        let how = match inspection.engine.enforce {
            true => format!("enforcing{}", inspection.engine.enforce_only),
            false => "monitoring only".to_owned(),
        };
        log_line(format_args!("guard: {}, {how}", several(guard.rule_count(), "rule")));
    }
}

/// Sets the device's sizes for the path to the peer, and returns its MTU for the report.
fn settle(
    config: &TunnelConfig,
    cover: &PieceProtection,
    carrier: &PeerSocket,
    device: &TunDevice,
) -> Result<String, TunnelError> {
    let room = carrier.each().saturating_sub(cover.overhead());
    let header = if config.offload { HEADER } else { 0 };
    // The creator of an existing device has chosen its MTU; 65,535 is the limit of a tun device.
    let chosen = config.mtu.map(usize::from);
    let mtu = chosen.or_else(|| device.is_ours().then(|| room.saturating_sub(header).min(65_535)));
    if let Some(mtu) = mtu {
        device.set(LinkSetting::Mtu, mtu).map_err(TunnelError::Mtu)?;
    }
    if config.offload {
        // A train carries this much. Without the permission, longer packets need two calls.
        let longest = room * carrier.at_once(carrier.each()) - HEADER;
        if device.set(LinkSetting::SuperPacket, longest.min(65_535)).is_err() {
            log_line("bannerwall: cannot set the device's gso_max_size: the longest packets need two calls");
        }
    }
    Ok(mtu.map_or_else(|| "MTU unchanged".to_owned(), |mtu| format!("MTU {mtu}")))
}

/// Sending direction: from the device to the peer.
struct OutboundLoop {
    device: Arc<TunDevice>,
    carrier: Arc<PeerSocket>,
    account: DirectionCounters,
    outlet: TunnelSender,
    /// Inspector of packets, if there is one.
    guard: Option<TunnelInspector>,
}

impl OutboundLoop {
    fn run(mut self) -> Result<(), TunnelError> {
        let mut buffer = vec![0; LONGEST];
        loop {
            let read = self.device.read(&mut buffer);
            let fault = |source| TunnelError::Device { name: self.device.name().to_owned(), source };
            let DeviceRead::Octets(length) = read.map_err(fault)? else { return Ok(()) };
            self.forward(buffer.get(..length).unwrap_or_default());
        }
    }

    fn forward(&mut self, read: &[u8]) {
        let octets = if self.device.has_super_packets() { device::without_idle_header(read) } else { read };
        let mut parts = [IoSlice::new(octets)];
        if self.carrier.is_own(device::packet(octets)) {
            return self.account.packet(&parts).discard(Reason::Loop);
        }
        let written;
        let fate = match &self.guard {
            None => CarriedVerdict::Pass,
            Some(guard) => {
                // The kernel passes on the header of a virtual machine, which may request other checksums.
                match PendingChecksums::of(&parts) {
                    PendingChecksums::Usual => {}
                    PendingChecksums::Other(octets) => {
                        written = octets;
                        parts = [IoSlice::new(&written)];
                    }
                    PendingChecksums::Unfit => return self.account.packet(&parts).discard(Reason::Malformed),
                }
                guard.judge_sent(&parts, &self.device, &mut self.outlet)
            }
        };
        let patched = match fate {
            CarriedVerdict::Pass => return self.outlet.send(self.account.packet(&parts)),
            CarriedVerdict::Stop => None,
            CarriedVerdict::Patch(patch) => inspection::patched(&parts, &patch),
        };
        match patched {
            None => self.account.packet(&parts).discard(Reason::Judged),
            Some(patched) => self.outlet.send(self.account.packet(&[IoSlice::new(&patched)])),
        }
    }
}

/// Receives from the peer until an error.
fn receive_all(mut inlet: TunnelReceiver) -> Result<(), TunnelError> {
    let mut buffer = vec![0; LONGEST];
    loop {
        inlet.receive(&mut buffer).map_err(TunnelError::Socket)?;
    }
}

/// Periodic work of the main thread.
struct PeriodicWork<'a> {
    carrier: &'a PeerSocket,
    cover: &'a PieceProtection,
    metrics: &'a TunnelMetrics,
    trains: &'a TrainSwitch,
    guard: Option<&'a CarrierGuard>,
}

impl PeriodicWork<'_> {
    fn run(&self, messages: &Receiver<TunnelMessage>, device: &TunDevice) -> Result<(), TunnelError> {
        loop {
            self.look();
            self.trains.tick(device, Instant::now());
            match messages.recv_timeout(LOOK) {
                Ok(TunnelMessage::Stop) => return Ok(()),
                Ok(TunnelMessage::Reload) => self.guard.map_or((), CarrierGuard::reload),
                Ok(TunnelMessage::Ended(Some(Ok(())))) => {
                    log_line(format_args!("bannerwall: device {} was deleted", device.name()));
                    return Ok(());
                }
                Ok(TunnelMessage::Ended(Some(Err(error)))) => return Err(error),
                Ok(TunnelMessage::Ended(None)) => return Err(TunnelError::Failed),
                Err(_) => {}
            }
        }
    }

    fn look(&self) {
        // Without a route the MTU is unknown; a later check may succeed.
        if let Ok(path) = self.carrier.look_at_path() {
            self.metrics.path_mtu.set(i64::try_from(path).unwrap_or(i64::MAX));
        }
        if let PieceProtection::Noise(noise) = self.cover
            && let Some(initiation) = noise.tick(Instant::now(), SystemTime::now())
        {
            // A lost initiation needs no retry here: the next one follows.
            let _ = self.carrier.send_one(&initiation);
        }
        if let Some(guard) = self.guard {
            guard.tick();
        }
    }
}

/// Reports the end of a direction to the main thread, also after a panic.
struct DirectionExitNotifier {
    outcome: Option<Result<(), TunnelError>>,
    sender: Sender<TunnelMessage>,
}

impl Drop for DirectionExitNotifier {
    fn drop(&mut self) {
        // The main thread is gone only at the end of the process.
        let _ = self.sender.send(TunnelMessage::Ended(self.outcome.take()));
    }
}

fn spawn(
    name: &'static str,
    sender: &Sender<TunnelMessage>,
    work: impl FnOnce() -> Result<(), TunnelError> + Send + 'static,
) -> Result<(), TunnelError> {
    let sender = sender.clone();
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        privileges::give_up_all(name);
        let mut farewell = DirectionExitNotifier { outcome: None, sender };
        farewell.outcome = Some(work());
    })?;
    Ok(())
}

/// Registers the signals; early ones are queued until the start is complete.
fn signals() -> Result<Signals, TunnelError> {
    Ok(Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])?)
}

/// Forwards signals from a thread. It starts after the confinement, which it would not inherit before.
fn forward_signals(mut signals: Signals, sender: Sender<TunnelMessage>) -> Result<(), TunnelError> {
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        privileges::give_up_all("signals");
        for signal in signals.forever() {
            let message =
                if matches!(signal, SIGINT | SIGTERM) { TunnelMessage::Stop } else { TunnelMessage::Reload };
            // At the very end the receiver is gone.
            let _ = sender.send(message);
        }
    })?;
    Ok(())
}

fn summary(metrics: &TunnelMetrics) -> String {
    let count = |way: TunnelDirection| (metrics.packets(way).get(), metrics.octets(way).get());
    let ((sent, sent_octets), (received, received_octets)) =
        (count(TunnelDirection::Sent), count(TunnelDirection::Received));
    let dropped: Vec<String> = Reason::ALL
        .iter()
        .map(|reason| (reason.name(), metrics.dropped(*reason).get()))
        .filter(|(_, times)| *times > 0)
        .map(|(name, times)| format!("{times} {name}"))
        .collect();
    let dropped = if dropped.is_empty() { "none".to_owned() } else { dropped.join(", ") };
    format!(
        "sent: packets {sent}, bytes {sent_octets}; received: packets {received}, bytes {received_octets}; dropped: {dropped}"
    )
}
