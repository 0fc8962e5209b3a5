"""Throw-away network namespaces: one for loopback, two for a veth pair."""

import itertools
import os
import subprocess

from common.commands import run

# Where servers answer. Connections a second are spread over all of them: one pair of addresses runs
# out of ports within seconds.
SPREAD = 32
_numbers = itertools.count()


class Network:
    """A client's and a server's side; the firewall is on the server's."""

    def __init__(self, where):
        self.where = where
        self.server = f"bw-bench-{os.getpid()}-{next(_numbers)}"
        self.client = self.server if where == "loopback" else f"{self.server}-client"
        prefix = "127.0.1." if where == "loopback" else "198.51.100."
        self.addresses = [f"{prefix}{host}" for host in range(1, SPREAD + 1)]
        # Over loopback every packet passes INPUT once; over veth each direction has its own hook.
        self.hooks = ["INPUT"] if where == "loopback" else ["INPUT", "OUTPUT"]

    def __enter__(self):
        for name in dict.fromkeys([self.server, self.client]):
            run("ip", "netns", "add", name)
            self.inside(name, "ip", "link", "set", "lo", "up")
            self.inside(name, "sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65535",
                        "net.ipv4.ip_local_reserved_ports=2222,5201,8888",
                        "net.core.somaxconn=4096", "net.ipv4.tcp_max_syn_backlog=4096")
        if self.where == "veth":
            self._wire()
        return self

    def __exit__(self, *_error):
        for name in dict.fromkeys([self.client, self.server]):
            subprocess.run(["ip", "netns", "delete", name], check=False)

    def _wire(self):
        run("ip", "link", "add", "bench", "netns", self.server, "type", "veth",
            "peer", "name", "bench", "netns", self.client)
        self.inside(self.server, "ip", "address", "add", "192.0.2.1/24", "dev", "bench")
        self.inside(self.client, "ip", "address", "add", "192.0.2.2/24", "dev", "bench")
        for name in (self.server, self.client):
            self.inside(name, "ip", "link", "set", "bench", "up")
        self.inside(self.server, "ip", "route", "add", "local", "198.51.100.0/24", "dev", "lo")
        self.inside(self.client, "ip", "route", "add", "198.51.100.0/24", "via", "192.0.2.1")

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
