"""Two throw-away network namespaces, joined by a line with a delay, and commands run inside them."""

import contextlib
import ctypes
import os
import pathlib
import socket
import subprocess
import time

from common.commands import ROOT, run

CLIENT = "192.0.2.1"
SERVER = "198.51.100.1"
CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def build_delay_line(folder):
    """Compiles the forwarder; returns the program."""
    program = pathlib.Path(folder) / "delay"
    run(os.environ.get("CC", "cc"), "-O2", "-Wall", "-Wextra", "-std=gnu11", "-o", program, ROOT / "bench/delay.c")
    return program


@contextlib.contextmanager
def inside(name):
    """What is started meanwhile runs in the namespace; no helper program stands between."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    away = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        _setns(away)
        yield
    finally:
        _setns(home)
        os.close(away)
        os.close(home)


def _setns(descriptor):
    if _libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Network:
    """A client's and a server's network. Without delay the client's commands run in the server's,
    over loopback; with it they run in their own, behind the delay line."""

    def __init__(self, delay_line):
        self.delay_line = delay_line
        self.server = f"bw-ask-{os.getpid()}-server"
        self.client = f"bw-ask-{os.getpid()}-client"
        self.forwarder = None

    def __enter__(self):
        for name in (self.server, self.client):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", self.server, "address", "add", f"{SERVER}/32", "dev", "lo")
        return self

    def __exit__(self, *_error):
        self.straighten()
        for name in (self.client, self.server):
            subprocess.run(["ip", "netns", "delete", name], check=False)

    def bend(self, milliseconds):
        """Puts the delay line between the two: so many milliseconds there and back."""
        self.forwarder = subprocess.Popen(
            [self.delay_line, f"/run/netns/{self.client}", f"/run/netns/{self.server}",
             str(milliseconds * 500), "line"], stdout=subprocess.PIPE, text=True)
        if self.forwarder.stdout.readline() != "ready\n":
            raise RuntimeError("the delay line did not start")
        run("ip", "-n", self.client, "address", "add", f"{CLIENT}/32", "dev", "line")
        run("ip", "-n", self.client, "route", "add", SERVER, "dev", "line", "src", CLIENT)
        run("ip", "-n", self.server, "route", "add", CLIENT, "dev", "line", "src", SERVER)

    def straighten(self):
        """Takes the delay line away; returns what it says of itself."""
        if self.forwarder is None:
            return ""
        self.forwarder.terminate()
        said = self.forwarder.communicate()[0].strip()
        self.forwarder = None
        return said

    def measure(self, port):
        """How long 200 connects took, in milliseconds, sorted."""
        namespace, address = self.where()
        times = []
        with inside(namespace):
            for _ in range(200):
                with socket.socket() as one:
                    started = time.perf_counter()
                    one.connect((address, port))
                    times.append((time.perf_counter() - started) * 1000)
        return sorted(times)

    def where(self):
        """The namespace of the client's commands, and the server's address seen from it."""
        return (self.server, "127.0.0.1") if self.forwarder is None else (self.client, SERVER)
