"""What scanners are let loose on: a namespace in which all of 127.0.0.0/8 refuses, answers or is silent."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from asking.network import build_delay_line
from common.commands import RELEASE, run

from .network import Network

TICKS = os.sysconf("SC_CLK_TCK")
# Where our own server answers; examples/banners connects there too.
SSH_PORT = 2222
HTTP_PORT = 80
CLOSED_PORT = 81
SILENT_PORT = 82
# Seconds that the server is measured alone.
ALONE = 2


class Scene:
    """A namespace with at most one server, and what a scan of it should find."""

    mode = "connect"
    port = CLOSED_PORT
    found = "refused"

    def __init__(self):
        self.network = Network("loopback")
        # Where scanners run.
        self.namespace = self.network.server
        self.server = None

    def __enter__(self):
        self.network.__enter__()
        # Many connections wait to be accepted at once; every scanner gets the same long queue.
        self.network.inside(self.network.server, "sysctl", "-qw", "net.core.somaxconn=65535",
                            "net.ipv4.tcp_max_syn_backlog=65535", "net.ipv4.ip_local_reserved_ports=2222")
        self.prepare()
        return self

    def __exit__(self, *error):
        if self.server:
            self.server.terminate()
            self.server.wait()
        self.network.__exit__(*error)

    def prepare(self):
        """Starts what answers."""

    def server_cpu(self):
        """CPU seconds of the server and its children so far."""
        if not self.server:
            return 0.0
        return sum(_cpu(process) for process in [self.server.pid, *_children(self.server.pid)])

    def start(self, *words, **options):
        """Starts a scanner."""
        return self.network.start(self.namespace, *words, **options)

    def _listen(self, *words):
        self.server = self.network.start(self.network.server, *words, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not self.network.inside(self.network.server, "ss", "-Hltn", f"sport = :{self.port}"):
            if time.monotonic() > deadline or self.server.poll() is not None:
                raise RuntimeError(f"{words[0]} does not listen on port {self.port}")
            time.sleep(0.02)


class Closed(Scene):
    """Every port refuses."""


class Silent(Scene):
    """Nobody answers: packets are dropped."""

    port = SILENT_PORT
    found = "timed out"

    def prepare(self):
        self.network.inside(self.network.server, "iptables", "-A", "INPUT", "-p", "tcp",
                            "--dport", SILENT_PORT, "-j", "DROP")


class Ssh(Scene):
    """Every address greets with an SSH identification."""

    mode = "ssh"
    port = SSH_PORT
    found = "banner"

    def prepare(self):
        self._listen(RELEASE / "examples/answers", SSH_PORT)


class FarSsh(Ssh):
    """The same, with scanners in a namespace of their own, behind a line of 20 ms there and back."""

    ONE_WAY = 10_000
    HERE = "192.0.2.1"
    # What the lines of all runs said of themselves: packets passed, dropped, and by how many µs the latest was late.
    said = []

    def prepare(self):
        super().prepare()
        self.folder = tempfile.TemporaryDirectory()
        near, self.namespace = self.network.server, f"{self.network.server}-far"
        run("ip", "netns", "add", self.namespace)
        line = build_delay_line(self.folder.name)
        self.line = subprocess.Popen(
            [line, f"/run/netns/{self.namespace}", f"/run/netns/{near}", str(self.ONE_WAY), "line"],
            stdout=subprocess.PIPE, text=True)
        if self.line.stdout.readline() != "ready\n":
            raise RuntimeError("the delay line did not start")
        for name in (self.namespace, near):
            # A burst must not overrun the device's own queue, whose drops the line would not see.
            run("ip", "-n", name, "link", "set", "line", "txqueuelen", "65536")
            # 127.0.0.0/8 is not loopback's alone here: the same subnets as in the other scenes are far away.
            self.network.inside(name, "sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65535",
                                "net.ipv4.conf.line.route_localnet=1", "net.ipv4.conf.line.rp_filter=0",
                                "net.ipv4.conf.all.rp_filter=0")
        run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        run("ip", "-n", self.namespace, "address", "delete", "127.0.0.1/8", "dev", "lo")
        run("ip", "-n", self.namespace, "address", "add", f"{self.HERE}/32", "dev", "line")
        run("ip", "-n", self.namespace, "route", "add", "127.0.0.0/8", "dev", "line", "src", self.HERE)
        run("ip", "-n", near, "route", "add", self.HERE, "dev", "line")

    def __exit__(self, *error):
        self.line.terminate()
        self.said.append(tuple(map(int, re.findall(r"\d+", self.line.communicate()[0]))))
        run("ip", "netns", "delete", self.namespace)
        super().__exit__(*error)
        self.folder.cleanup()

    @classmethod
    def remarks(cls):
        """What the lines of all runs did, if there were any."""
        if not cls.said:
            return []
        passed, dropped, late = zip(*cls.said)
        return [f"ssh at 20 ms: the forwarder (bench/delay.c) passed {sum(passed):,} packets, dropped {sum(dropped):,}, "
                f"latest {max(late):,} µs late; it shares the two processors with scanner and server"]


class Http(Scene):
    """nginx answers on every address, by one worker."""

    mode = "http"
    port = HTTP_PORT
    found = "answer"

    def prepare(self):
        self.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.folder.name)
        configuration = path / "nginx.conf"
        temporary = "".join(f"{kind}_temp_path {path}/{kind};\n"
                            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        configuration.write_text(
            f"daemon off; worker_processes 1; worker_rlimit_nofile 65535; pid {path}/pid; error_log /dev/null;\n"
            f"events {{ worker_connections 65000; }}\nhttp {{ access_log off;\n{temporary}"
            f"server {{ listen {HTTP_PORT} backlog=65535; location / {{ return 200 'hello'; }} }} }}\n",
            encoding="utf-8")
        self._listen(shutil.which("nginx") or "/usr/sbin/nginx", "-e", "/dev/null", "-c", configuration)

    def __exit__(self, *error):
        super().__exit__(*error)
        self.folder.cleanup()


SCENES = {"closed": Closed, "ssh": Ssh, "ssh-20ms": FarSsh, "http": Http, "silent": Silent}


def measure_server():
    """What our server can do when nobody but a simple client is there; a sentence about it."""
    with Ssh() as scene:
        before = scene.server_cpu()
        words = scene.network.words(scene.network.server, RELEASE / "examples/banners", "connect", ALONE,
                                    *scene.network.addresses)
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        cpu = scene.server_cpu() - before
    rate = float(re.match(r"[\d.]+", done.stdout).group())
    each = cpu / max(rate * ALONE, 1)
    return (f"our SSH server alone (bench/answers.rs, one thread), under the blocking client of bench/banners.rs: "
            f"{rate:,.0f} connections a second, {each * 1e6:.1f} µs of CPU each, so {1 / each:,.0f} a second on a core "
            f"of its own")


def _cpu(process):
    try:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def _children(process):
    try:
        text = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(word) for word in text.split()]
