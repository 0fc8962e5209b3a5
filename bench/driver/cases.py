"""The firewalls that are compared, and what each of them used and lost."""

import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from common.commands import RELEASE, ROOT

from .network import Network

BASELINE = ROOT / "bench/baseline/bin"
QUEUE = 0
METRICS = "127.0.0.1:9464"
READY_SECONDS = 30


@dataclasses.dataclass
class Usage:
    """CPU seconds and packets up to now, or between two moments."""

    cpu: float = 0.0
    packets: int = 0
    lost: int = 0
    # Forwarded below netfilter, brought up to date each second.
    bypassed: int = 0

    def __sub__(self, earlier):
        return Usage(*(now - before for now, before in zip(dataclasses.astuple(self), dataclasses.astuple(earlier))))

    def costs(self, connections, elapsed):
        """What each packet and connection cost, as metrics."""
        costs = {"firewall CPU, cores": self.cpu / elapsed} if self.cpu else {}
        if self.packets:
            costs["firewall CPU a packet, µs"] = self.cpu / self.packets * 1e6
            costs["packets queued"] = self.packets
            costs["packets lost"] = self.lost
        if self.bypassed:
            costs["packets below netfilter"] = self.bypassed
        if connections and self.cpu:
            costs["firewall CPU a connection, µs"] = self.cpu / (connections * elapsed) * 1e6
        return costs


class Firewall:
    """A running firewall program and its rules; both may be absent."""

    def __init__(self, network, process=None, plain_rules=False, metrics=None):
        self.network = network
        self.process = process
        self.metrics = metrics
        if plain_rules:
            for hook in network.hooks:
                self._iptables("-A", hook, "-p", "tcp", "-j", "NFQUEUE", "--queue-num", QUEUE)

    def _iptables(self, *words):
        return self.network.inside(self.network.gate, "iptables", "-t", "mangle", *words)

    def usage(self):
        """CPU time of the program, packets it was given, and packets that it should have been given."""
        if self.process is None:
            return Usage()
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks = int(fields[11]) + int(fields[12])
        table = self.network.inside(self.network.gate, "cat", "/proc/net/netfilter/nfnetlink_queue")
        counts = [list(map(int, line.split())) for line in table.splitlines()]
        queued = sum(row[7] for row in counts)
        dropped = sum(row[5] + row[6] for row in counts)
        listing = self._iptables("-nvxL")
        reached = sum(int(line.split()[0]) for line in listing.splitlines() if re.search(r"\bNFQUEUE\b", line))
        # What reached the rule and was never numbered went by uninspected or was dropped; what was
        # numbered and not delivered is among `dropped`.
        return Usage(ticks / os.sysconf("SC_CLK_TCK"), queued, max(reached - queued, 0) + dropped, self._bypassed())

    def _bypassed(self):
        if self.metrics is None:
            return 0
        text = self.network.inside(self.network.gate, "curl", "-s", f"http://{self.metrics}/metrics")
        return int(re.search(r"^bannerwall_bypass_packets_total (\d+)", text, re.MULTILINE)[1])


@dataclasses.dataclass
class Case:
    """One thing to compare: a name, and the command of its program if it has one; `{folder}` there is one of its own."""

    name: str
    command: list = dataclasses.field(default_factory=list)
    hook: bool = False
    # Rules of the chains that packets meet, without a program.
    rules: list = dataclasses.field(default_factory=list)
    # Where it can be had; everywhere if nothing is said.
    where: tuple = ()
    # Files of its folder, and what it says once packets are judged.
    files: dict = dataclasses.field(default_factory=dict)
    ready: str = "ready"
    # Why it can't be had here.
    missing: str | None = None

    @contextlib.contextmanager
    def firewall(self, network, plain_rules=True):
        """Starts the program, waits until it is ready, and ends it with SIGTERM.

        Without a hook of its own, and unless told otherwise, plain rules lead every packet to it.
        """
        if not self.command:
            for hook in network.hooks if self.rules else []:
                network.inside(network.gate, "iptables", "-t", "mangle", "-A", hook, *self.rules)
            yield Firewall(network)
            return
        with tempfile.TemporaryFile("w+") as log, tempfile.TemporaryDirectory() as folder:
            words = [str(word).replace("{folder}", folder) for word in self.command]
            for name, text in self.files.items():
                pathlib.Path(folder, name).write_text(text.format(folder=folder), encoding="utf-8")
            if self.hook:
                words += ["--hook", ",".join(hook.lower() for hook in network.hooks)]
            process = network.start(network.gate, *words, stdout=subprocess.DEVNULL, stderr=log)
            try:
                _wait_until_ready(process, log, self)
                metrics = METRICS if METRICS in words else None
                yield Firewall(network, process, plain_rules and not self.hook, metrics)
            finally:
                network.inside(network.gate, "iptables", "-t", "mangle", "-F")
                process.send_signal(signal.SIGTERM)
                process.wait(READY_SECONDS)


def _wait_until_ready(process, log, case):
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        log.seek(0)
        if case.ready in log.read():
            return
        time.sleep(0.02)
    log.seek(0)
    raise RuntimeError(f"{case.name} did not get ready: {log.read()}")


def guard(*options):
    """The guard with the shipped rules and a log that nobody keeps."""
    return [RELEASE / "bannerwall", "guard", "--rules", ROOT / "rules", "--queue", QUEUE,
            "--events", "/dev/null", *options]


CASES = {
    "none": Case("no rule"),
    "paper": Case("paper.c", [BASELINE / "paper", QUEUE]),
    "tuned": Case("tuned.c", [BASELINE / "tuned", QUEUE]),
    "guard-nfq": Case("guard, nfq crate, every packet", guard("--backend", "nfq", "--no-offload")),
    "guard": Case("guard, every packet", guard("--no-offload")),
    "offload": Case("guard, offload", guard(), hook=True),
    "tracking": Case("connection tracking, no rule", rules=["-m", "conntrack", "--ctstate", "UNTRACKED", "-j", "RETURN"]),
    "bypass": Case("guard, tc bypass", guard("--bypass", f"tc:{','.join(Network.INTERFACES)}", "--metrics", METRICS), hook=True,
                   where=("router",)),
    "inventory": Case("guard, every packet, inventory", guard("--no-offload", "--inventory", "{folder}/inventory")),
    "enforce": Case("guard, offload, enforcing", guard("--enforce"), hook=True),
    "http-first-monitor": Case("guard, first request, monitoring", guard("--http-inspect", "first"), hook=True),
    "http-first": Case("guard, first request", guard("--enforce", "--http-inspect", "first"), hook=True),
    "http-direction": Case("guard, every request, responses released", guard("--enforce", "--http-inspect", "requests"), hook=True),
    "http-queued": Case("guard, every request, every packet",
                        guard("--enforce", "--http-inspect", "all", "--no-offload"), hook=True),
    "source-nfq": Case("source alone, nfq crate", [RELEASE / "examples/accept", QUEUE, "nfq"]),
    "source": Case("source alone", [RELEASE / "examples/accept", QUEUE, "libnetfilter_queue"]),
}
DEFAULT = ["none", "paper", "tuned", "guard-nfq", "guard", "offload"]
