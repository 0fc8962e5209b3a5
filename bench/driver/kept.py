"""Requests over kept-alive connections: an nginx with a long page and a short one, asked by ab."""

import pathlib
import re
import subprocess
import tempfile
import time

PORT = 8080
# Requests of a connection.
REQUESTS = 1000
# Ports of clients whose connections are not kept.
REUSED_PORTS = (40_000, 40_255)
PAGES = {"long": 1 << 20, "short": 1 << 10}
CONFIGURATION = """daemon off; master_process off; pid {folder}/pid; error_log stderr;
events {{}}
http {{
  access_log off; sendfile on; keepalive_requests {requests}; {folders}
  server {{ listen {port}; root {folder}; }}
}}
"""
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


class KeptServer:
    """An nginx that answers a thousand requests a connection."""

    def __init__(self, network):
        self._network = network
        self._folder = tempfile.TemporaryDirectory()
        self._process = None

    def __enter__(self):
        folder = pathlib.Path(self._folder.name)
        for name, length in PAGES.items():
            (folder / name).write_bytes(b"x" * length)
        folders = " ".join(f"{name}_temp_path {folder}/{name};" for name in TEMPORARY)
        text = CONFIGURATION.format(folder=folder, folders=folders, port=PORT, requests=REQUESTS)
        (folder / "nginx.conf").write_text(text, encoding="utf-8")
        self._process = self._network.start(self._network.server, "nginx", "-c", folder / "nginx.conf",
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while not self._network.inside(self._network.server, "ss", "-Hltn", f"sport = :{PORT}"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("nginx did not start")
            time.sleep(0.02)
        return self

    def __exit__(self, *_error):
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()

    def ask(self, page, seconds):
        """Requests a second, each connection kept for a thousand of them; one that fails is an error."""
        told, text = self._ab(page, seconds, "-k")
        if told["Keep-Alive requests"] < 0.99 * told["Complete requests"]:
            raise RuntimeError(text)
        return told["Requests per second"]

    def ask_from_reused_ports(self, page, seconds):
        """Requests a second and the slowest in ms, each over a connection of its own from one of few ports."""
        low, high = REUSED_PORTS
        self._network.inside(self._network.client, "sysctl", "-qw", f"net.ipv4.ip_local_port_range={low} {high}")
        told, text = self._ab(page, seconds)
        slowest = re.search(r"100%\s+(\d+) \(longest request\)", text)
        return told["Requests per second"], float(slowest[1])

    def _ab(self, page, seconds, *words):
        """Figures of ab by their names, and its text; a request that fails is an error."""
        url = f"http://{self._network.addresses[0]}:{PORT}/{page}"
        text = self._network.inside(self._network.client, "ab", "-q", "-c", 4, "-t", seconds, "-n", 10_000_000, *words, url)
        told = {name: float(value) for name, value in re.findall(r"^([A-Za-z -]+):\s+(\d+(?:\.\d+)?)\b", text, re.MULTILINE)
                if name.endswith(("requests", "second"))}
        if told["Failed requests"] or not told["Complete requests"]:
            raise RuntimeError(text)
        return told, text
