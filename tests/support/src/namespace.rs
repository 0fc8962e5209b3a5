//! Network namespaces without names: each lives as long as a process of ours in it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::eventually;

/// A network of its own with loopback up.
#[derive(Debug)]
pub struct Namespace {
    /// `cat` on a pipe of ours: it ends when this process ends, however that happens.
    anchor: Child,
}

impl Namespace {
    /// A new, empty network.
    ///
    /// # Panics
    /// When namespaces cannot be made here.
    #[expect(clippy::new_without_default, reason = "making a kernel object is nothing by default")]
    pub fn new() -> Self {
        let mut anchor = Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up && echo up && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare starts");
        let mut line = String::new();
        let stdout = anchor.stdout.as_mut().expect("piped above");
        BufReader::new(stdout).read_line(&mut line).expect("a pipe can be read");
        assert_eq!(line, "up\n", "a network namespace needs root, or user namespaces");
        Self { anchor }
    }

    /// The id of a process inside, as `ip link set … netns` takes it.
    pub fn id(&self) -> u32 {
        self.anchor.id()
    }

    /// A command that runs a copy of `program` as nobody with these capabilities and no others
    /// (`-all,+net_admin`), as a unit with `User=` starts it. The copy is in `folder`: the program's own folder may
    /// be closed to other users.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn command_as_nobody(&self, program: &str, folder: &Path, capabilities: &str) -> Command {
        let copy = folder.join("bannerwall");
        // `cp` has the copy open for writing, not this process: another thread's child would hold it open until
        // its exec, and the kernel refuses to execute it as long (ETXTBSY).
        let copied = Command::new("cp").arg("--remove-destination").arg(program).arg(&copy).status();
        assert!(copied.is_ok_and(|status| status.success()), "there is room");
        let mut command = self.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.args([format!("--inh-caps={capabilities}"), format!("--ambient-caps={capabilities}")]);
        command.arg(copy);
        command
    }

    /// A command that will run inside.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("--net").arg(format!("--target={}", self.id())).arg("--").arg(program);
        command
    }

    /// Runs `program` inside, without the capability to administer networks.
    pub fn command_without_net_admin(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command("setpriv");
        command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin"]).arg(program);
        command
    }

    /// Runs words inside and gives what came of it.
    ///
    /// # Panics
    /// When the program cannot be started.
    pub fn output(&self, words: &str) -> Output {
        let mut words = words.split_whitespace();
        let program = words.next().expect("a program");
        self.command(program).args(words).output().expect("nsenter starts")
    }

    /// Runs words inside and gives their stdout.
    ///
    /// # Panics
    /// When they fail.
    pub fn run(&self, words: &str) -> String {
        let output = self.output(words);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "`{words}` failed: {stderr}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs `action` on a thread that is inside; sockets made there stay inside.
    ///
    /// # Panics
    /// When the thread cannot enter, or `action` panics.
    pub fn inside<R: Send>(&self, action: impl FnOnce() -> R + Send) -> R {
        let path = format!("/proc/{}/ns/net", self.id());
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let network = File::open(path).expect("the namespace is alive");
                move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("the namespace is ours");
                action()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A listening socket inside.
    ///
    /// # Panics
    /// When the address cannot be had.
    pub fn listen(&self, address: impl Into<SocketAddr>) -> TcpListener {
        let address = address.into();
        // Between its fork and its program a process that another test starts holds all that was closed
        // meanwhile.
        eventually(&format!("{address} to be free"), || match self.inside(|| TcpListener::bind(address)) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => None,
            outcome => Some(outcome.unwrap_or_else(|error| panic!("{address}: {error}"))),
        })
    }

    /// A connection from inside.
    ///
    /// # Errors
    /// As [`TcpStream::connect`].
    pub fn connect(&self, address: impl Into<SocketAddr>) -> std::io::Result<TcpStream> {
        let address = address.into();
        self.inside(|| TcpStream::connect(address))
    }

    /// Writes a kernel setting below `/proc/sys/net` of this network.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn set(&self, setting: &str, value: &str) {
        self.inside(|| std::fs::write(format!("/proc/sys/net/{setting}"), value))
            .unwrap_or_else(|error| panic!("{setting}: {error}"));
    }

    /// Packets that wait for a verdict in this network, over all queues.
    ///
    /// # Panics
    /// When the kernel's table cannot be read.
    pub fn waiting_packets(&self) -> u64 {
        self.queue_column(2).iter().sum()
    }

    /// Numbers of the queues that a socket has bound in this network.
    ///
    /// # Panics
    /// When the kernel's table cannot be read.
    pub fn queues(&self) -> Vec<u64> {
        self.queue_column(0)
    }

    /// Packets that were queued in this network so far, over all queues.
    ///
    /// # Panics
    /// When the kernel's table cannot be read.
    pub fn queued_packets(&self) -> u64 {
        self.queue_column(7).iter().sum()
    }

    /// A column of the kernel's table of queues.
    fn queue_column(&self, column: usize) -> Vec<u64> {
        // /proc/self/net would be the process's network, not the thread's.
        let path = "/proc/thread-self/net/netfilter/nfnetlink_queue";
        let table = self.inside(|| std::fs::read_to_string(path)).expect("this kernel has NFQUEUE");
        let number = |line: &str| line.split_whitespace().nth(column)?.parse().ok();
        table.lines().filter_map(number).collect()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Fails only where it has ended already.
        let _ = self.anchor.kill();
        let _ = self.anchor.wait();
    }
}

/// Client — router — server, each in a network of its own, IPv4 and IPv6.
#[derive(Debug)]
pub struct Line {
    /// `192.0.2.2` and `2001:db8:1::2`.
    pub client: Namespace,
    /// Routes between the two.
    pub router: Namespace,
    /// `198.51.100.2` and `2001:db8:2::2`.
    pub server: Namespace,
}

impl Line {
    /// The server's IPv4 address.
    pub const SERVER_V4: &str = "198.51.100.2";
    /// The server's IPv6 address.
    pub const SERVER_V6: &str = "2001:db8:2::2";

    /// Three networks, wired up and routed.
    #[expect(clippy::new_without_default, reason = "making kernel objects is nothing by default")]
    pub fn new() -> Self {
        let line = Self { client: Namespace::new(), router: Namespace::new(), server: Namespace::new() };
        for namespace in [&line.client, &line.router, &line.server] {
            // An address that is still being probed for duplicates answers nobody.
            namespace.set("ipv6/conf/default/accept_dad", "0");
        }
        line.router.set("ipv4/ip_forward", "1");
        line.router.set("ipv6/conf/all/forwarding", "1");
        line.wire(
            "left",
            &line.client,
            ["192.0.2.1/24", "192.0.2.2/24"],
            ["2001:db8:1::1/64", "2001:db8:1::2/64"],
        );
        line.wire(
            "right",
            &line.server,
            ["198.51.100.1/24", "198.51.100.2/24"],
            ["2001:db8:2::1/64", "2001:db8:2::2/64"],
        );
        line
    }

    /// Joins the router (first addresses) and `end` (second addresses), whose way out it becomes.
    fn wire(&self, name: &str, end: &Namespace, v4: [&str; 2], v6: [&str; 2]) {
        self.router.run(&format!("ip link add {name} type veth peer name eth0 netns {}", end.id()));
        for (namespace, interface, side) in [(&self.router, name, 0), (end, "eth0", 1)] {
            namespace.run(&format!("ip address add {} dev {interface}", v4[side]));
            namespace.run(&format!("ip address add {} dev {interface} nodad", v6[side]));
            namespace.run(&format!("ip link set {interface} up"));
        }
        for gateway in [v4[0], v6[0]] {
            let address = gateway.split('/').next().unwrap_or(gateway);
            let family = if address.contains(':') { "-6" } else { "-4" };
            end.run(&format!("ip {family} route add default via {address}"));
        }
    }
}
