//! Routes to the servers of a URL, and sockets for them. `tokio_postgres` does the same, but does not
//! expose the socket.

use std::io::{Error, Result};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode};

/// The default port.
const USUAL: u16 = 5432;

/// A stream of bytes in both directions.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl ByteStream for TcpStream {}
impl ByteStream for UnixStream {}

/// A connected socket.
pub(super) struct ServerSocket(Box<dyn ByteStream>);

impl AsyncRead for ServerSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for ServerSocket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, octets: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, octets)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// A route to a server.
#[derive(Debug, Clone)]
pub(super) struct ServerRoute {
    end: ServerAddress,
    hostname: String,
}

#[derive(Debug, Clone)]
enum ServerAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Returns all routes to the servers of a URL, in the order of attempts.
///
/// # Errors
/// A name cannot be resolved, and no other leads to an address.
pub(super) async fn routes(config: &Config) -> Result<Vec<ServerRoute>> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    let fits = |length: usize| length <= 1 || length == count;
    if !(hosts.is_empty() || addresses.is_empty() || hosts.len() == addresses.len()) || !fits(ports.len()) {
        let why = "the URL names not as many hosts as addresses or ports";
        return Err(Error::new(std::io::ErrorKind::InvalidInput, why));
    }
    let (mut routes, mut unknown) = (Vec::new(), None);
    for at in 0..count {
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(USUAL);
        let hostname = match hosts.get(at) {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(_)) => String::new(),
            // The certificate has to be valid for the address then.
            None => addresses.get(at).map(ToString::to_string).unwrap_or_default(),
        };
        let tcp = |end| ServerRoute { end: ServerAddress::Tcp(end), hostname: hostname.clone() };
        match (addresses.get(at), hosts.get(at)) {
            (Some(address), _) => routes.push(tcp(SocketAddr::new(*address, port))),
            (None, Some(Host::Unix(folder))) => {
                let end = ServerAddress::Unix(folder.join(format!(".s.PGSQL.{port}")));
                routes.push(ServerRoute { end, hostname });
            }
            (None, _) => match lookup_host((&*hostname, port)).await {
                Ok(known) => routes.extend(known.map(tcp)),
                Err(error) => unknown = Some(error),
            },
        }
    }
    match unknown {
        Some(error) if routes.is_empty() => Err(error),
        _ => {
            if config.get_load_balance_hosts() == LoadBalanceHosts::Random {
                turn(&mut routes);
            }
            Ok(routes)
        }
    }
}

/// Rotates the list to a random start.
fn turn(routes: &mut [ServerRoute]) {
    let octet = ring::rand::generate::<[u8; 1]>(&ring::rand::SystemRandom::new());
    if let (Ok(octet), 2..) = (octet, routes.len()) {
        let [octet] = octet.expose();
        routes.rotate_left(usize::from(octet) % routes.len());
    }
}

impl ServerRoute {
    /// Returns the name that a certificate must have; empty for a local socket.
    pub(super) fn hostname(&self) -> &str {
        &self.hostname
    }

    /// True if the server is on this machine, so that no attacker can be in between.
    pub(super) fn is_local(&self) -> bool {
        match self.end {
            ServerAddress::Tcp(address) => address.ip().to_canonical().is_loopback(),
            ServerAddress::Unix(_) => true,
        }
    }

    /// Returns the settings for the server: without TLS for a local socket, as libpq does with any
    /// `sslmode`.
    pub(super) fn config(&self, config: &Config) -> Config {
        let mut config = config.clone();
        if matches!(self.end, ServerAddress::Unix(_)) {
            config.ssl_mode(SslMode::Disable);
        }
        config
    }

    /// Connects.
    ///
    /// # Errors
    /// No server listens there, or does not accept in time.
    pub(super) async fn open(&self, config: &Config) -> Result<ServerSocket> {
        let patience = config.get_connect_timeout().copied().unwrap_or(Duration::MAX);
        let late = |_| Error::new(std::io::ErrorKind::TimedOut, "the server did not answer in time");
        let octets: Box<dyn ByteStream> = match &self.end {
            ServerAddress::Tcp(address) => {
                let stream =
                    tokio::time::timeout(patience, TcpStream::connect(address)).await.map_err(late)??;
                set(&stream, config)?;
                Box::new(stream)
            }
            ServerAddress::Unix(path) => {
                Box::new(tokio::time::timeout(patience, UnixStream::connect(path)).await.map_err(late)??)
            }
        };
        Ok(ServerSocket(octets))
    }
}

fn set(stream: &TcpStream, config: &Config) -> Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    if let Some(patience) = config.get_tcp_user_timeout() {
        socket.set_tcp_user_timeout(Some(*patience))?;
    }
    if config.get_keepalives() {
        let mut alive = TcpKeepalive::new().with_time(config.get_keepalives_idle());
        if let Some(interval) = config.get_keepalives_interval() {
            alive = alive.with_interval(interval);
        }
        if let Some(retries) = config.get_keepalives_retries() {
            alive = alive.with_retries(retries);
        }
        socket.set_tcp_keepalive(&alive)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(url: &str) -> Result<Vec<String>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let config: Config = url.parse().unwrap();
        let routes = runtime.block_on(routes(&config))?;
        let end = |route: &ServerRoute| match &route.end {
            ServerAddress::Tcp(address) => format!("{address} {}", route.hostname()),
            ServerAddress::Unix(path) => path.display().to_string(),
        };
        Ok(routes.iter().map(end).collect())
    }

    #[test]
    fn only_this_machine_is_local() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (url, is_local) in [
            ("postgresql://127.0.0.9/net", true),
            ("postgresql://[::1]/net", true),
            ("postgresql://[::ffff:127.0.0.1]/net", true),
            ("postgresql:///net?host=/run/a", true),
            ("postgresql://192.0.2.1/net", false),
            ("host=localhost hostaddr=192.0.2.1", false),
        ] {
            let routes = runtime.block_on(routes(&url.parse().unwrap())).unwrap();
            assert_eq!(routes[0].is_local(), is_local, "{url}");
        }
    }

    #[test]
    fn a_url_names_its_ways_in_their_order() {
        for (url, known) in [
            ("postgresql://127.0.0.1/net", &["127.0.0.1:5432 127.0.0.1"][..]),
            ("postgresql:///net?host=/run/a&port=7", &["/run/a/.s.PGSQL.7"]),
            ("postgresql://127.0.0.1:1,[::1]:2/net", &["127.0.0.1:1 127.0.0.1", "[::1]:2 ::1"]),
            ("host=db hostaddr=192.0.2.1 port=3", &["192.0.2.1:3 db"]),
        ] {
            assert_eq!(ends(url).unwrap(), known, "{url}");
        }
        assert!(ends("host=a,b hostaddr=192.0.2.1").is_err());
        assert!(ends("host=127.0.0.1,127.0.0.2 port=1,2,3").is_err());
        let mut turned = ends("host=127.0.0.1,127.0.0.2 load_balance_hosts=random").unwrap();
        turned.sort();
        assert_eq!(turned.len(), 2);
    }
}
