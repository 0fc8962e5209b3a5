"""What scanners are let loose on: a namespace in which all of 127.0.0.0/8 refuses, answers or is silent."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from common.commands import RELEASE

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
        """Starts a program in the namespace."""
        return self.network.start(self.network.server, *words, **options)

    def _listen(self, *words):
        self.server = self.start(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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


SCENES = {"closed": Closed, "ssh": Ssh, "http": Http, "silent": Silent}


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
