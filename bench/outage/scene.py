"""Client, router and server in network namespaces of their own, and a guard on the router."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from common.commands import RELEASE, ROOT, run

PROGRAM = pathlib.Path(os.environ.get("BANNERWALL", RELEASE / "bannerwall"))
LOAD = pathlib.Path(__file__).with_name("load.py")
SERVER = "198.51.100.2"


class Line:
    """The three namespaces, with a server that greets."""

    def __init__(self):
        self.name = f"bw-outage-{os.getpid()}"

    def __enter__(self):
        for part in ("client", "router", "server"):
            run("ip", "netns", "add", f"{self.name}-{part}")
            self.inside(part, "ip", "link", "set", "lo", "up")
        self.inside("router", "sysctl", "-qw", "net.ipv4.ip_forward=1")
        for end, net in (("client", "192.0.2"), ("server", "198.51.100")):
            run("ip", "link", "add", end, "netns", f"{self.name}-router", "type", "veth",
                "peer", "name", "eth0", "netns", f"{self.name}-{end}")
            for place, device, host in (("router", end, 1), (end, "eth0", 2)):
                self.inside(place, "ip", "address", "add", f"{net}.{host}/24", "dev", device)
                self.inside(place, "ip", "link", "set", device, "up")
            self.inside(end, "ip", "route", "add", "default", "via", f"{net}.1")
        self.server = self.start("server", sys.executable, LOAD, "serve", SERVER, stdout=subprocess.PIPE)
        self.server.stdout.readline()
        # Shows us the router's /proc/net.
        self.anchor = self.start("router", "sleep", "infinity")
        return self

    def __exit__(self, *_error):
        for process in (self.server, self.anchor):
            process.kill()
            process.wait()
        for part in ("client", "router", "server"):
            subprocess.run(["ip", "netns", "delete", f"{self.name}-{part}"], check=False)

    def words(self, part, *words):
        return ["ip", "netns", "exec", f"{self.name}-{part}", *map(str, words)]

    def inside(self, part, *words):
        return run(*self.words(part, *words))

    def start(self, part, *words, **options):
        return subprocess.Popen(self.words(part, *words), text=True, **options)

    def load(self, rate, seconds):
        """Starts so many connections a second."""
        return self.start("client", sys.executable, LOAD, "connect", rate, seconds, SERVER,
                          stdout=subprocess.PIPE)


class Guard:
    """A guard on the router, whose events go to a file."""

    def __init__(self, line, *flags):
        self.folder = tempfile.TemporaryDirectory()
        self.line, self.flags = line, flags
        self.events = pathlib.Path(self.folder.name) / "events.json"
        self.process = None
        self.uninspected = 0

    def start(self):
        """Starts it and waits until it is ready; tells how long that took."""
        started = time.perf_counter()
        self.process = self.line.start(
            "router", PROGRAM, "guard", "--rules", ROOT / "rules", "--events", self.events,
            "--metrics", "127.0.0.1:9464", *self.flags, stderr=subprocess.PIPE)
        for text in self.process.stderr:
            if text.startswith("ready:"):
                break
        else:
            raise SystemExit("the guard did not start")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        return time.perf_counter() - started

    def send(self, number):
        self.process.send_signal(number)

    def stop(self, number=signal.SIGTERM):
        """Ends it; tells how long that took."""
        self.uninspected += self.metric("bannerwall_uninspected_packets_total") or 0
        started = time.perf_counter()
        self.send(number)
        self.process.wait()
        return time.perf_counter() - started

    def metrics(self):
        return self.line.inside("router", "curl", "--silent", "http://127.0.0.1:9464/metrics")

    def metric(self, name):
        """A metric without labels, where it is shown."""
        found = re.search(rf"^{name} (\S+)$", self.metrics(), re.MULTILINE)
        return int(float(found[1])) if found else None

    def queue(self):
        """The kernel's line about the queue: number, owner, waiting, ...; none while it is not bound."""
        path = f"/proc/{self.line.anchor.pid}/net/netfilter/nfnetlink_queue"
        with open(path, encoding="ascii") as lines:
            return next((list(map(int, text.split())) for text in lines), None)

    def seen(self):
        """The numbers of the connections whose client was seen."""
        numbers = set()
        for text in self.events.read_text(encoding="utf-8").splitlines():
            event = json.loads(text)
            if event["event_type"] == "ssh":
                name = event["ssh"].get("client", {}).get("software_version", "")
                if name.startswith("load_"):
                    numbers.add(int(name.removeprefix("load_")))
        return numbers


def outcome(load, guard):
    """What became of the connections: how many, failed, slow, the 99th percentile, unseen."""
    results = json.loads(load.communicate()[0])
    took = sorted(seconds for _, seconds in results if seconds is not None)
    unseen = {number for number, seconds in results if seconds is not None} - guard.seen()
    return {
        "connections": len(results),
        "failed": sum(seconds is None for _, seconds in results),
        "slow": sum(seconds > 0.9 for seconds in took),
        "p99_s": took[int(len(took) * 0.99)] if took else None,
        "longest_s": took[-1] if took else None,
        "unseen": len(unseen),
    }
