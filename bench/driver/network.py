"""Throw-away network namespaces: one for loopback, two for a veth pair, three for a router."""

import itertools
import os
import subprocess

from common.commands import run

# Where servers answer. Connections a second are spread over all of them: one pair of addresses runs
# out of ports within seconds.
SPREAD = 32
_numbers = itertools.count()


class Network:
    """A client's and a server's side, and where the firewall is: on the server's, or on a router between both."""

    # What the router's interfaces are called: towards the client, and towards the server.
    INTERFACES = ("near", "far")

    def __init__(self, where):
        self.where = where
        self.server = f"bw-bench-{os.getpid()}-{next(_numbers)}"
        self.client = self.server if where == "loopback" else f"{self.server}-client"
        self.gate = f"{self.server}-gate" if where == "router" else self.server
        prefix = "127.0.1." if where == "loopback" else "198.51.100."
        self.addresses = [f"{prefix}{host}" for host in range(1, SPREAD + 1)]
        # Over loopback every packet passes INPUT once; over veth each direction has its own hook.
        self.hooks = {"loopback": ["INPUT"], "veth": ["INPUT", "OUTPUT"], "router": ["FORWARD"]}[where]

    def __enter__(self):
        for name in dict.fromkeys([self.server, self.client, self.gate]):
            run("ip", "netns", "add", name)
            self.inside(name, "ip", "link", "set", "lo", "up")
            # A client's FIN that waits in a queue is lost if the kernel has looked up its socket before. The guard's own
            # hook sets this; plain rules need it, too.
            self.inside(name, "sysctl", "-qw", "net.ipv4.tcp_early_demux=0", "net.ipv4.ip_local_port_range=1024 65535",
                        "net.ipv4.ip_local_reserved_ports=2222,5201,8888",
                        "net.core.somaxconn=4096", "net.ipv4.tcp_max_syn_backlog=4096")
        if self.where == "veth":
            self._wire("192.0.2", (self.server, "bench"), (self.client, "bench"))
            self.inside(self.client, "ip", "route", "add", "198.51.100.0/24", "via", "192.0.2.1")
        elif self.where == "router":
            self._route()
        if self.where != "loopback":
            self.inside(self.server, "ip", "route", "add", "local", "198.51.100.0/24", "dev", "lo")
        return self

    def __exit__(self, *_error):
        for name in dict.fromkeys([self.client, self.gate, self.server]):
            subprocess.run(["ip", "netns", "delete", name], check=False)

    def _wire(self, prefix, one, other):
        """Joins two namespaces; each end is a namespace with the name of its interface."""
        run("ip", "link", "add", one[1], "netns", one[0], "type", "veth", "peer", "name", other[1], "netns", other[0])
        for host, (name, interface) in enumerate((one, other), start=1):
            self.inside(name, "ip", "address", "add", f"{prefix}.{host}/24", "dev", interface)
            self.inside(name, "ip", "link", "set", interface, "up")

    def _route(self):
        near, far = self.INTERFACES
        self._wire("192.0.2", (self.gate, near), (self.client, "bench"))
        self._wire("203.0.113", (self.gate, far), (self.server, "bench"))
        self.inside(self.gate, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        self.inside(self.gate, "ip", "route", "add", "198.51.100.0/24", "via", "203.0.113.2")
        self.inside(self.client, "ip", "route", "add", "default", "via", "192.0.2.1")
        self.inside(self.server, "ip", "route", "add", "default", "via", "203.0.113.1")

    @staticmethod
    def words(name, *words):
        """A command line that runs inside the namespace `name`."""
        return ["ip", "netns", "exec", name, *map(str, words)]

    def inside(self, name, *words, **options):
        """Runs a command inside the namespace `name`; returns its output."""
        return run(*self.words(name, *words), **options)

    def start(self, name, *words, **options):
        """Starts a command inside the namespace `name`."""
        return subprocess.Popen(self.words(name, *words), text=True, **options)
