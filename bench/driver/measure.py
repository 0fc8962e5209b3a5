"""What is measured, and by which program."""

import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import time

from common.commands import RELEASE, ROOT, run

from .kept import PAGES, KeptServer
from .nginx import TlsServer

ETHR = os.environ.get("ETHR") or shutil.which("ethr") or "ethr"
# Parallel clients of the connection test, each with a server address of its own.
CLIENTS = 4
# Seconds after which a client that hangs is given up: its run has failed.
LIMIT = 60
# Where examples/banners serves.
BANNER_PORT = 2222
# Where nginx answers in TLS.
TLS_PORTS = range(8000, 8250)
_UNITS = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1}


def throughput(network, seconds):
    """ethr, one TCP stream: bits a second."""
    with _ethr_server(network):
        text = _ethr(network, network.addresses[0], "-t", "b", "-d", f"{seconds}s", "-dp", 2)
    return {"throughput, Gbit/s": statistics.fmean(_rates(text)) / 1e9}


def iperf(network, seconds):
    """iperf3, one TCP stream: bits a second as received."""
    server = network.start(network.server, "iperf3", "-s", "-1", stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    try:
        _wait_for_listener(network, 5201)
        text = network.inside(network.client, "iperf3", "-J", "-c", network.addresses[0], "-t", seconds)
    finally:
        server.terminate()
        server.wait()
    end = json.loads(text)["end"]
    return {"throughput, Gbit/s": end["sum_received"]["bits_per_second"] / 1e9,
            "retransmissions": end["sum_sent"]["retransmits"]}


def latency(network, seconds):
    """ethr, request and response of one octet over one connection: seconds."""
    with _ethr_server(network):
        text = _ethr(network, network.addresses[0], "-t", "l", "-d", f"{seconds}s", "-g", 0, "-i", 1000)
    # Avg Min 50% 90% 95% 99% 99.9% 99.99% Max; one line every thousand round trips.
    lines = [re.findall(r"([\d.]+)(ns|us|µs|ms|s)\b", line) for line in text.splitlines()]
    rows = [[float(value) * _SECONDS[unit] * 1e6 for value, unit in line] for line in lines if len(line) == 9]
    if not rows:
        raise RuntimeError(f"ethr measured nothing: {text}")
    middle = [statistics.median(column) for column in zip(*rows)]
    return {"round trip mean, µs": statistics.fmean(row[0] for row in rows),
            "round trip p50, µs": middle[2], "round trip p99, µs": middle[5]}


def connections(network, seconds):
    """ethr, new connections a second, over several server addresses at once."""
    with _ethr_server(network):
        clients = [
            network.start(network.client, ETHR, "-c", address, "-t", "c", "-d", f"{seconds}s", "-no",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for address in network.addresses[:CLIENTS]
        ]
        texts = [client.communicate()[0] for client in clients]
    return {"connections": sum(statistics.fmean(_rates(text)) for text in texts)}


def banners(network, seconds):
    """Our own client and server: connections a second that exchange SSH identifications and end."""
    program = RELEASE / "examples/banners"
    server = network.start(network.server, program, "serve", stdout=subprocess.DEVNULL)
    try:
        _wait_for_listener(network, BANNER_PORT)
        text = network.inside(network.client, program, "connect", seconds, *network.addresses)
    finally:
        server.terminate()
        server.wait()
    return {"connections": float(text.split()[0])}


def tls(network, _seconds):
    """Our own scanner and an nginx: TLS handshakes a second, each with a server name; all of them or none count."""
    with TlsServer(network, "TLSv1.3", TLS_PORTS):
        words = [RELEASE / "bannerwall", "scan", "tls", "--sni", "www.example", "--rules", ROOT / "rules/greetings.toml", "--no-local",
                 "--ports", f"{TLS_PORTS[0]}-{TLS_PORTS[-1]}", "--format", "json", "--output", "/dev/null",
                 *network.addresses]
        told = run("sh", "-c", '"$@" 2>&1', "sh", *network.words(network.client, *words))
    whole, rate = re.search(rf"open {len(network.addresses) * len(TLS_PORTS)},", told), re.search(r"(\d+) targets a sec", told)
    if not whole:
        raise RuntimeError(f"not every target was answered: {told}")
    return {"connections": float(rate[1])}


def kept_long(network, seconds):
    """ab and nginx, pages of a MiB over kept-alive connections: bits a second."""
    with KeptServer(network) as server:
        return {"throughput, Gbit/s": server.ask("long", seconds) * PAGES["long"] * 8 / 1e9}


def kept_short(network, seconds):
    """The same with pages of a KiB: requests a second."""
    with KeptServer(network) as server:
        return {"requests a second": server.ask("short", seconds)}


def reused_ports(network, seconds):
    """ab and nginx, pages of a KiB over connections of their own from 256 ports: requests a second, and the slowest."""
    with KeptServer(network) as server:
        rate, slowest = server.ask_from_reused_ports("short", seconds)
        return {"requests a second": rate, "slowest request, ms": slowest}


TESTS = {"throughput": throughput, "iperf": iperf, "latency": latency, "banners": banners,
         "tls": tls, "connections": connections, "kept-long": kept_long, "kept-short": kept_short,
         "reused-ports": reused_ports}

# What is measured unless told otherwise.
DEFAULT = [name for name in TESTS if not name.startswith(("kept", "reused"))]


class _ethr_server:
    def __init__(self, network):
        self.network = network

    def __enter__(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 1 << 18)), hard))
        self.process = self.network.start(self.network.server, ETHR, "-s", "-no",
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _wait_for_listener(self.network, 8888)

    def __exit__(self, *_error):
        self.process.kill()
        self.process.wait()


def _wait_for_listener(network, port):
    deadline = time.monotonic() + LIMIT
    while not network.inside(network.server, "ss", "-Hltn", f"sport = :{port}"):
        if time.monotonic() > deadline:
            raise RuntimeError(f"nobody listens on port {port}")
        time.sleep(0.02)


def _ethr(network, address, *words):
    words = network.words(network.client, ETHR, "-c", address, "-no", *words)
    return run("timeout", "--signal=KILL", LIMIT, *words)


def _rates(text):
    rates = re.findall(r"sec\s+([\d.]+[KMGT]?)\s*$", text, re.MULTILINE)
    if not rates:
        raise RuntimeError(f"ethr measured nothing: {text}")
    return [_number(rate) for rate in rates]


def _number(text):
    unit = text[-1] if text[-1] in _UNITS else ""
    return float(text.removesuffix(unit) if unit else text) * _UNITS[unit]
