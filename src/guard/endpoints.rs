//! Everything that a run offers to other processes: its metrics, its control socket, the page, and the socket
//! for a successor.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use crossbeam_channel::Sender;

use super::config::GuardConfig;
use super::control::ControlServer;
use super::event_reader::RunningReader;
use super::forward_request::forward;
use super::own_listeners::OwnListeners;
use super::private_socket::{SocketAccess, UnboundSocket};
use super::takeover::{DescriptorStore, HandoverSocket, METRICS, SuccessorListener, TakeoverSettings};
use super::{GuardError, GuardMessage};
use crate::diagnostics::log_line;
use crate::metrics::{GuardMetrics, MetricsEndpoint, MetricsRegistry, ProgramHealth};
use crate::privileges::UnprivilegedUser;

/// The open endpoints. All of them close when this value is dropped.
#[derive(Debug, Default)]
pub(super) struct GuardEndpoints {
    _endpoint: Option<MetricsEndpoint>,
    _control: Option<ControlServer>,
    heirs: Option<SuccessorListener>,
}

/// Everything that is needed to open a [`GuardEndpoints`].
pub(super) struct PendingEndpoints {
    pub(super) registry: MetricsRegistry,
    pub(super) health: Arc<ProgramHealth>,
    pub(super) metrics: GuardMetrics,
    pub(super) messages: Sender<GuardMessage>,
    /// The metrics listener that the predecessor handed over.
    pub(super) listener: Option<TcpListener>,
    /// The queue sockets, for a successor.
    pub(super) gifts: Vec<HandoverSocket>,
    pub(super) store: Option<DescriptorStore>,
    pub(super) unbound: UnboundSockets,
    /// Receives the addresses of the metrics endpoint and the page.
    pub(super) own_listeners: OwnListeners,
    /// True if a service manager supervises this process.
    pub(super) has_manager: bool,
}

/// The Unix sockets that the configuration asks for, opened before the guard is confined.
#[derive(Default)]
pub(super) struct UnboundSockets {
    control: Option<UnboundSocket>,
    takeover: Option<UnboundSocket>,
}

impl UnboundSockets {
    /// Opens the sockets.
    ///
    /// # Errors
    ///
    /// The system has no free descriptor.
    pub(super) fn open(config: &GuardConfig) -> io::Result<Self> {
        let user = config.user.clone().or_else(UnprivilegedUser::in_place_of_root);
        // The group of root is not a group of the guard.
        let is_root = user.is_none() && rustix::process::geteuid().is_root();
        let access = if is_root { SocketAccess::Owner } else { SocketAccess::Group };
        Ok(Self {
            control: config.control.is_some().then(|| UnboundSocket::open(access)).transpose()?,
            takeover: config
                .takeover
                .is_some()
                .then(|| UnboundSocket::open(SocketAccess::Owner))
                .transpose()?,
        })
    }
}

impl GuardEndpoints {
    /// Stops accepting successors.
    pub(super) fn close_successor_listener(&self) {
        if let Some(heirs) = &self.heirs {
            heirs.close();
        }
    }

    /// Opens what can be opened, and returns the errors of the rest.
    pub(super) fn open(
        config: &GuardConfig,
        facade: PendingEndpoints,
        readers: &mut [Box<dyn RunningReader>],
    ) -> (Self, Vec<GuardError>) {
        let PendingEndpoints {
            registry, health, metrics, messages, listener, mut gifts, store, unbound, ..
        } = facade;
        let (own_listeners, has_manager) = (facade.own_listeners, facade.has_manager);
        let mut failed = Vec::new();
        let endpoint = match (&config.metrics, listener) {
            (Some(shown), Some(listener)) => Some(MetricsEndpoint::resume(shown, listener, registry, health)),
            (Some(shown), None) => Some(MetricsEndpoint::start(shown, registry, health)),
            (None, _) => None,
        };
        let endpoint = endpoint.and_then(|it| it.map_err(|error| failed.push(error.into())).ok());
        // The listener outlives this process, so scrapes find an open port during a takeover.
        if let Some(listener) = endpoint.as_ref().and_then(MetricsEndpoint::listener) {
            if let Some(store) = &store {
                store.keep(METRICS, listener.as_fd());
            }
            gifts.push(HandoverSocket {
                name: METRICS.to_owned(),
                socket: listener.into(),
                marks_connections: false,
            });
        }
        let control = listen(config, unbound.control, messages.clone())
            .map_err(|error| failed.push(error))
            .ok()
            .flatten();
        let mut served: Vec<_> = endpoint.iter().map(MetricsEndpoint::address).collect();
        for reader in readers {
            match reader.open() {
                Ok(address) => served.extend(address),
                Err(error) => failed.push(GuardError::Attached(error)),
            }
        }
        own_listeners.set(served);
        // Last: a successor gets all sockets, so the metrics listener must be among them.
        let heirs = config.takeover.as_ref().zip(unbound.takeover).and_then(|(path, socket)| {
            SuccessorListener::listen(
                (path, socket),
                TakeoverSettings::of(config),
                gifts,
                messages,
                metrics,
                has_manager,
            )
            .map_err(|error| {
                failed.push(GuardError::Takeover { path: path.clone(), why: error.to_string() });
            })
            .ok()
        });
        (Self { _endpoint: endpoint, _control: control, heirs }, failed)
    }
}

/// Makes the control socket. Without the socket at the default path the guard still runs.
fn listen(
    config: &GuardConfig,
    socket: Option<UnboundSocket>,
    messages: Sender<GuardMessage>,
) -> Result<Option<ControlServer>, GuardError> {
    let Some((place, socket)) = config.control.as_ref().zip(socket) else { return Ok(None) };
    match ControlServer::start(&place.path, socket, move |request| forward(&messages, request)) {
        Ok(control) => Ok(Some(control)),
        Err(source) if place.asked => Err(GuardError::Control { path: place.path.clone(), source }),
        Err(error) => {
            let path = place.path.display();
            log_line(format_args!(
                "bannerwall: no control socket, so `bannerwall reload` and `status` find no guard: {path}: {error}"
            ));
            Ok(None)
        }
    }
}
