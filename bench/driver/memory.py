"""Resident memory of the guard, by how many flows it remembers and how far they got."""

import re
import subprocess
import time

from common.commands import RELEASE

from . import cases
from .network import Network

METRICS = "127.0.0.1:9464"
FLOWS = re.compile(r'^bannerwall_flows\{state="(\w+)"\} (\d+)$', re.MULTILINE)
# Who the packets of examples/flows run to and from.
SERVER = "127.0.2.1"
KINDS = {"opening": "a SYN each", "amid": "half a banner each", "decided": "both banners each"}
# Seconds that the guard's counts may take to be shown.
PATIENCE = 10


def measure(count):
    """Fills a guard's table with `count` flows; yields (case, metric, value)."""
    for kind, words in KINDS.items():
        with Network("loopback") as network:
            case = cases.Case("memory", cases.guard("--no-offload", "--flow-limit", count, "--metrics", METRICS))
            with case.firewall(network, plain_rules=False) as firewall:
                before = resident(firewall)
                lead(network)
                network.inside(network.server, RELEASE / "examples/flows", kind, count, cases.QUEUE)
                flows = remembered(network, count)
                name = f"{count:,} flows, {words}"
                yield name, "resident before, MiB", before
                yield name, "resident, MiB", resident(firewall)
                yield name, "flows remembered", flows


def lead(network):
    """Queues the flows' packets and drops them behind the queue, where the machine would answer them."""
    for direction in ("-d", "-s"):
        words = ["-A", "INPUT", direction, SERVER, "-p", "tcp", "-j"]
        network.inside(network.server, "iptables", "-t", "mangle", *words, "NFQUEUE", "--queue-num", cases.QUEUE)
        network.inside(network.server, "iptables", *words, "DROP")


def resident(firewall):
    """Resident memory in MiB."""
    with open(f"/proc/{firewall.process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def remembered(network, count):
    """Flows in the guard's table as its metrics show them."""
    deadline = time.monotonic() + PATIENCE
    total = 0
    while total < count and time.monotonic() < deadline:
        time.sleep(0.2)
        try:
            text = network.inside(network.server, "curl", "-s", f"http://{METRICS}/metrics")
        except (RuntimeError, subprocess.SubprocessError):
            continue
        total = sum(int(flows) for _state, flows in FLOWS.findall(text))
    return total
