"""A server behind TLS."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time

from common.commands import run, said

CONFIGURATION = """daemon off; worker_processes 1; worker_rlimit_nofile 20000;
pid {folder}/pid; error_log {folder}/errors;
events {{ worker_connections 10000; }}
http {{
  access_log off; ssl_certificate {folder}/certificate; ssl_certificate_key {folder}/key; ssl_protocols {version};
  ssl_session_tickets off; ssl_session_cache off; {folders}
  server {{ {listens} location / {{ return 200 "hello"; }} }}
}}
"""
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


class TlsServer:
    """An nginx with a certificate of its own."""

    def __init__(self, network, version, ports=(443,)):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "365",
            "-subj", "/CN=www.example", "-keyout", self.folder / "key", "-out", self.folder / "certificate")
        folders = " ".join(f"{name}_temp_path {self.folder}/{name};" for name in TEMPORARY)
        listens = " ".join(f"listen {port} ssl backlog=8192;" for port in ports)
        text = CONFIGURATION.format(folder=self.folder, version=version, folders=folders, listens=listens)
        (self.folder / "nginx.conf").write_text(text, encoding="utf-8")
        words = network.words(network.server, "nginx", "-c", self.folder / "nginx.conf")
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        deadline = time.monotonic() + 10
        while not self._workers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit((self.folder / "errors").read_text(encoding="utf-8"))
            time.sleep(0.05)
        return self

    def __exit__(self, *_error):
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        self._folder.cleanup()

    def _workers(self):
        return said("pgrep", "-P", self._process.pid).split()

    def seconds(self):
        """Processor time of the worker so far."""
        fields = [pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split() for pid in self._workers()]
        return sum(int(line[13]) + int(line[14]) for line in fields) / os.sysconf("SC_CLK_TCK")
