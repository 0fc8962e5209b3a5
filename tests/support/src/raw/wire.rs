//! Raw sockets in a network of namespaces: raw ends on one side of a router, real ones on the other.

use std::collections::HashMap;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use super::end::{AnyEnd, Medium, RawEnd, Role};
use crate::{Application, Namespace, Talk};

/// All protocols, as a packet socket takes it: network byte order (`ETH_P_ALL`).
const EVERY_PROTOCOL: i32 = 0x0003_u16.to_be() as i32;

/// `IPPROTO_RAW`: packets with the header that they bring.
const HEADERS_INCLUDED: i32 = 255;

/// Raw ends — router — one more hop — real ends, IPv4 and IPv6.
///
/// The raw ends' addresses belong to no kernel, so that none answers in their name. The link to the
/// real ends takes packets of 1,280 octets, that of the router 1,500.
#[derive(Debug)]
pub struct Battlefield {
    raw: Namespace,
    /// Where the guard belongs.
    pub router: Namespace,
    hop: Namespace,
    /// Where the real ends are.
    pub real: Namespace,
    sockets: Arc<Sockets>,
    inboxes: Arc<Inboxes>,
    next_flow: AtomicU32,
    is_over: Arc<AtomicBool>,
    dispatcher: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Sockets {
    v4: Socket,
    v6: Socket,
}

type Inboxes = Mutex<HashMap<SocketAddr, Sender<Vec<u8>>>>;

impl Battlefield {
    /// Four networks, wired up and routed.
    ///
    /// # Panics
    /// When networks or raw sockets cannot be made.
    #[expect(clippy::new_without_default, reason = "making kernel objects is nothing by default")]
    pub fn new() -> Self {
        let [raw, router, hop, real] = std::array::from_fn(|_| Namespace::new());
        for namespace in [&raw, &router, &hop, &real] {
            namespace.set("ipv6/conf/default/accept_dad", "0");
        }
        for namespace in [&router, &hop] {
            namespace.set("ipv4/ip_forward", "1");
            namespace.set("ipv6/conf/all/forwarding", "1");
        }
        join(
            [(&router, "left", "192.0.2.1/24", "2001:db8:1::1/64")],
            &raw,
            "192.0.2.2/24",
            "2001:db8:1::2/64",
        );
        join(
            [(&router, "right", "198.51.100.1/25", "2001:db8:4::1/64")],
            &hop,
            "198.51.100.2/25",
            "2001:db8:4::2/64",
        );
        join(
            [(&hop, "far", "198.51.100.129/25", "2001:db8:2::1/64")],
            &real,
            "198.51.100.130/25",
            "2001:db8:2::2/64",
        );
        for route in ["203.0.113.0/24 via 192.0.2.2", "198.51.100.128/25 via 198.51.100.2"] {
            router.run(&format!("ip route add {route}"));
        }
        for route in ["2001:db8:3::/64 via 2001:db8:1::2", "2001:db8:2::/64 via 2001:db8:4::2"] {
            router.run(&format!("ip -6 route add {route}"));
        }
        hop.run("ip link set far mtu 1280");
        real.run("ip link set eth0 mtu 1280");

        let (sockets, taps) = raw.inside(|| (Sockets::new(), tap()));
        let (inboxes, is_over) = (Arc::new(Inboxes::default()), Arc::new(AtomicBool::new(false)));
        let dispatcher = {
            let (inboxes, is_over) = (Arc::clone(&inboxes), Arc::clone(&is_over));
            std::thread::spawn(move || dispatch(taps, &inboxes, &is_over))
        };
        Self {
            raw,
            router,
            hop,
            real,
            sockets: Arc::new(sockets),
            inboxes,
            next_flow: AtomicU32::new(0),
            is_over,
            dispatcher: Some(dispatcher),
        }
    }

    /// Address of the real ends.
    pub fn real_address(v6: bool) -> IpAddr {
        if v6 {
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2))
        } else {
            IpAddr::V4(Ipv4Addr::new(198, 51, 100, 130))
        }
    }

    /// A raw end and the real application that it will talk with.
    pub fn pair(&self, role: Role, v6: bool, talk: Talk) -> (AnyEnd<'static>, Application) {
        self.pair_by(Protocol::TCP, role, v6, talk)
    }

    /// As [`Battlefield::pair`], with an application whose socket speaks this protocol.
    ///
    /// # Panics
    /// When a socket cannot be had.
    pub fn pair_by(
        &self,
        protocol: Protocol,
        role: Role,
        v6: bool,
        talk: Talk,
    ) -> (AnyEnd<'static>, Application) {
        let wire = self.wire(v6);
        let (local, real) = (wire.local, Self::real_address(v6));
        let start = 1_000_000 + u32::from(local.port()) * 77;
        let wire: Box<dyn Medium> = Box::new(wire);
        match role {
            Role::Client => {
                let application = Application::serve(&self.real, real, protocol, talk);
                let remote = application.address;
                (RawEnd::new(wire, role, local, remote, start), application)
            }
            Role::Server => {
                let application = Application::connect(&self.real, real, local, protocol, talk);
                let remote = application.address;
                (RawEnd::new(wire, role, local, remote, start), application)
            }
        }
    }

    /// A raw address and port of its own.
    fn wire(&self, v6: bool) -> Wire {
        let number = self.next_flow.fetch_add(1, Ordering::Relaxed);
        let host = u8::try_from(number % 250 + 1).expect("below 251");
        let port = u16::try_from(10_000 + number / 250 % 50_000).expect("below 60,000");
        let address = if v6 {
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, host.into()))
        } else {
            IpAddr::V4(Ipv4Addr::new(203, 0, 113, host))
        };
        let local = SocketAddr::new(address, port);
        let (sender, inbox) = channel();
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner).insert(local, sender);
        Wire { local, inbox, sockets: Arc::clone(&self.sockets), inboxes: Arc::clone(&self.inboxes) }
    }

    /// The raw ends' namespace, whose own address (192.0.2.2) is free for ordinary sockets.
    pub fn raw_namespace(&self) -> &Namespace {
        &self.raw
    }

    /// The namespace of the hop behind the router.
    pub fn hop(&self) -> &Namespace {
        &self.hop
    }

    /// Sends a packet that belongs to no raw end.
    pub fn inject(&self, packet: &[u8]) {
        // A buffer that is full loses a packet, as a link would.
        let _ = self.sockets.send(packet);
    }
}

impl Drop for Battlefield {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(dispatcher) = self.dispatcher.take() {
            // It panics only with the test.
            let _ = dispatcher.join();
        }
    }
}

/// Joins a router's new interface and `end`, whose way out it becomes.
fn join(
    [(router, name, v4, v6)]: [(&Namespace, &str, &str, &str); 1],
    end: &Namespace,
    end_v4: &str,
    end_v6: &str,
) {
    router.run(&format!("ip link add {name} type veth peer name eth0 netns {}", end.id()));
    for (namespace, interface, v4, v6) in [(router, name, v4, v6), (end, "eth0", end_v4, end_v6)] {
        namespace.run(&format!("ip address add {v4} dev {interface}"));
        namespace.run(&format!("ip address add {v6} dev {interface} nodad"));
        namespace.run(&format!("ip link set {interface} up"));
    }
    for (family, gateway) in [("-4", v4), ("-6", v6)] {
        let address = gateway.split('/').next().unwrap_or(gateway);
        end.run(&format!("ip {family} route add default via {address}"));
    }
}

impl Sockets {
    fn new() -> Self {
        let open = |domain| Socket::new(domain, Type::RAW, Some(Protocol::from(HEADERS_INCLUDED)));
        let v4 = open(Domain::IPV4).expect("a raw socket needs CAP_NET_RAW");
        v4.set_header_included_v4(true).expect("it is raw");
        let v6 = open(Domain::IPV6).expect("a raw socket needs CAP_NET_RAW");
        v6.set_header_included_v6(true).expect("it is raw");
        Self { v4, v6 }
    }

    fn send(&self, packet: &[u8]) -> std::io::Result<usize> {
        if packet[0] >> 4 == 4 {
            let address: [u8; 4] = packet[16..20].try_into().expect("four octets");
            return self.v4.send_to(packet, &SocketAddr::from((address, 0)).into());
        }
        let address: [u8; 16] = packet[24..40].try_into().expect("sixteen octets");
        self.v6.send_to(packet, &SocketAddr::from((address, 0)).into())
    }
}

/// Sees every packet of this thread's network, from the IP header on.
fn tap() -> Socket {
    let tap = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(EVERY_PROTOCOL)));
    let tap = tap.expect("a packet socket needs CAP_NET_RAW");
    tap.set_recv_buffer_size(8 << 20).expect("a socket");
    tap.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
    tap
}

/// Brings packets to the end that each is for.
fn dispatch(mut tap: Socket, inboxes: &Inboxes, is_over: &AtomicBool) {
    let mut buffer = vec![0; 1 << 17];
    while !is_over.load(Ordering::Relaxed) {
        let Ok(length) = tap.read(&mut buffer) else { continue };
        let packet = &buffer[..length];
        let Some(destination) = destination(packet) else { continue };
        let inboxes = inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inbox) = inboxes.get(&destination) {
            // An end that is gone needs nothing.
            let _ = inbox.send(packet.to_vec());
        }
    }
}

/// Where a TCP packet without extension headers goes.
fn destination(packet: &[u8]) -> Option<SocketAddr> {
    let (address, tcp): (IpAddr, usize) = match packet.first()? >> 4 {
        4 => {
            let octets: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            (octets.into(), usize::from(packet[0] & 15) * 4)
        }
        6 => {
            let octets: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            (octets.into(), 40)
        }
        _ => return None,
    };
    let port = packet.get(tcp + 2..tcp + 4)?;
    Some(SocketAddr::new(address, u16::from_be_bytes([port[0], port[1]])))
}

/// Packets of one raw end by raw sockets.
#[derive(Debug)]
pub struct Wire {
    local: SocketAddr,
    inbox: Receiver<Vec<u8>>,
    sockets: Arc<Sockets>,
    inboxes: Arc<Inboxes>,
}

impl Medium for Wire {
    fn transmit(&mut self, packet: &[u8]) {
        // A packet that this host's own IP refuses to send is one that never arrives.
        let _ = self.sockets.send(packet);
    }

    fn receive(&mut self, wait: Duration) -> Option<Vec<u8>> {
        self.inbox.recv_timeout(wait).ok()
    }

    fn pause(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.local);
    }
}
