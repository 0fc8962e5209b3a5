//! Makes flows by the million out of raw packets over loopback, to fill a guard's table: no sockets,
//! no ports run out, nothing answers.
//!
//! usage: `flows KIND COUNT QUEUE`; KIND is `opening` (a SYN each), `amid` (handshake and half a
//! banner) or `decided` (handshake and both banners). Packets run from 127.1.0.0/16 to 127.0.2.1 port
//! 22 and back; whoever calls this leads them to QUEUE and then drops them, so that the machine's own
//! TCP does not answer. The kernel's count of waiting packets sets the pace.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use bannerwall_ffi::queue::KernelCounters;
use bannerwall_inspect::event::Endpoint;
use bannerwall_inspect::packet::TcpFlags;
use bannerwall_inspect::packet::testing::SegmentBuilder;
use socket2::{Domain, Protocol, Socket, Type};

const SERVER: Endpoint = Endpoint { address: IpAddr::V4(Ipv4Addr::new(127, 0, 2, 1)), port: 22 };
const CLIENT_BANNER: &[u8] = b"SSH-2.0-libssh2_1.11.1\r\n";
const SERVER_BANNER: &[u8] = b"SSH-2.0-OpenSSH_9.9p1 Debian-3\r\n";
/// Flows an address.
const PORTS: u32 = 50_000;
/// Packets between looks at the queue, and how many may wait in it.
const STRIDE: u32 = 256;
const WAITING: u64 = 4096;
/// `IPPROTO_RAW`: the IP header is in what is sent.
const RAW: i32 = 255;

/// How far each flow gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Opening,
    Amid,
    Decided,
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, count, queue] = arguments.as_slice() else { bail!("usage: flows KIND COUNT QUEUE") };
    let kind = match kind.as_str() {
        "opening" => Kind::Opening,
        "amid" => Kind::Amid,
        "decided" => Kind::Decided,
        _ => bail!("KIND is opening, amid or decided"),
    };
    let count: u32 = count.parse().context("COUNT is a number")?;
    let queue = queue.parse().context("QUEUE is a number up to 65535")?;
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW)))?;
    for number in 0..count {
        for packet in flow(kind, number)? {
            let destination = destination(&packet)?;
            socket.send_to(&packet, &destination.into())?;
        }
        if number % STRIDE == 0 {
            wait_below(queue, WAITING)?;
        }
    }
    wait_below(queue, 0)
}

/// The packets of one flow, in order.
fn flow(kind: Kind, number: u32) -> anyhow::Result<Vec<Vec<u8>>> {
    let [_, _, high, low] = (number / PORTS).to_be_bytes();
    let port = u16::try_from(10_000 + number % PORTS)?;
    let client = Endpoint { address: Ipv4Addr::new(127, 1, high, low).into(), port };
    let (ours, theirs) = (number, !number);
    let sent = |from, to, sequence, acknowledgement| {
        SegmentBuilder::new(from, to).sequence(sequence).acknowledgement(acknowledgement)
    };
    let opening = sent(client, SERVER, ours, 0).flags(TcpFlags::SYN);
    let mut segments = vec![opening];
    let data = |banner: &[u8]| sent(client, SERVER, ours + 1, theirs.wrapping_add(1)).payload(banner);
    if kind != Kind::Opening {
        segments.push(sent(SERVER, client, theirs, ours + 1).flags(TcpFlags::SYN | TcpFlags::ACK));
        segments.push(sent(client, SERVER, ours + 1, theirs.wrapping_add(1)));
    }
    match kind {
        Kind::Opening => {}
        Kind::Amid => segments.push(data(CLIENT_BANNER.get(..12).unwrap_or_default())),
        Kind::Decided => {
            segments.push(data(CLIENT_BANNER));
            segments.push(sent(SERVER, client, theirs.wrapping_add(1), ours + 1).payload(SERVER_BANNER));
        }
    }
    Ok(segments.iter().map(SegmentBuilder::build).collect())
}

/// Where the IPv4 packet's header says that it goes.
fn destination(packet: &[u8]) -> anyhow::Result<SocketAddr> {
    let octets: [u8; 4] = packet.get(16..20).context("a whole header")?.try_into()?;
    Ok((Ipv4Addr::from(octets), 0).into())
}

/// Waits until no more than `limit` packets wait in the queue.
fn wait_below(queue: u16, limit: u64) -> anyhow::Result<()> {
    loop {
        let counters = KernelCounters::of(queue)?.context("nobody listens on the queue")?;
        if counters.waiting <= limit {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
}
