//! Connections a second in which both sides send an SSH identification: what an inspecting firewall
//! has to keep up with, which connections without a word do not show. No shipped rule matches them.
//!
//! usage: `banners serve` or `banners connect SECONDS ADDRESS...`, which prints the rate.

use std::env;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

const PORT: u16 = 2222;
const THREADS: usize = 4;
const SERVER: &[u8] = b"SSH-2.0-OpenSSH_9.9p1 Debian-3\r\n";
const CLIENT: &[u8] = b"SSH-2.0-OpenSSH_10.0p2 Debian-7\r\n";
/// A connection that takes longer has lost a packet and is not counted.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["serve"] => serve(),
        ["connect", seconds, addresses @ ..] if !addresses.is_empty() => {
            let seconds = Duration::from_secs(seconds.parse().context("SECONDS is a number")?);
            let addresses = addresses.iter().map(|text| text.parse()).collect::<Result<Vec<IpAddr>, _>>()?;
            let rate = connect(&addresses, seconds);
            println!("{rate:.1} connections a second");
            Ok(())
        }
        _ => bail!("usage: banners serve | banners connect SECONDS ADDRESS..."),
    }
}

fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    thread::scope(|scope| {
        for _thread in 0..THREADS {
            scope.spawn(|| {
                for stream in listener.incoming().flatten() {
                    // A client that went away is the client's to count.
                    let _ = exchange(stream, SERVER, CLIENT.len());
                }
            });
        }
    });
    Ok(())
}

/// Connects from several threads for `time`; returns whole exchanges a second.
fn connect(addresses: &[IpAddr], time: Duration) -> f64 {
    let start = Instant::now();
    let whole: u32 = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|offset| scope.spawn(move || exchanges(addresses, offset, start + time)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
    });
    f64::from(whole) / start.elapsed().as_secs_f64()
}

fn exchanges(addresses: &[IpAddr], offset: usize, deadline: Instant) -> u32 {
    let mut whole = 0;
    for address in addresses.iter().cycle().skip(offset) {
        if Instant::now() >= deadline {
            break;
        }
        let connection = TcpStream::connect_timeout(&SocketAddr::new(*address, PORT), PATIENCE);
        whole += u32::from(connection.and_then(|stream| exchange(stream, CLIENT, SERVER.len())).is_ok());
    }
    whole
}

/// Sends our line and reads the other side's.
fn exchange(mut stream: TcpStream, line: &[u8], expected: usize) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(line)?;
    let mut buffer = [0; 64];
    stream.read_exact(buffer.get_mut(..expected).unwrap_or_default())
}
