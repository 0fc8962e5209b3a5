"""The servers that are asked, each with the same pages, and one that stalls once."""

import contextlib
import pathlib
import subprocess
import sys
import time

from common.commands import run

from .network import inside

PAGES = 400
PORTS = {"nginx": 8001, "apache": 8002, "python": 8003, "paced": 8004, "paced, stalls once": 8005}
NAMES = {"nginx": "nginx", "apache": "Apache, default settings", "python": "Python http.server"}

NGINX = """daemon off; pid {folder}/nginx.pid; error_log stderr; worker_processes 1;
events {{ }}
http {{ access_log off; client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2;
  fastcgi_temp_path {folder}/t3; uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{ listen {port} backlog=511; root {folder}/pages; }} }}
"""
APACHE = """ServerName bench
Listen {port}
PidFile {folder}/apache.pid
ErrorLog /dev/null
DefaultRuntimeDir {folder}
DocumentRoot {folder}/pages
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule mime_module /usr/lib/apache2/modules/mod_mime.so
TypesConfig /etc/mime.types
"""


def page(number):
    """The path of a page."""
    return f"/page-{number}.html"


def write_pages(folder):
    """Small pages, as those are that scans ask for."""
    pages = pathlib.Path(folder) / "pages"
    pages.mkdir()
    for number in range(1, PAGES + 1):
        text = f"<!doctype html><title>Page {number}</title><p>This is page {number} and no other.\n"
        (pages / page(number)[1:]).write_text(text, encoding="ascii")
    for path in (pathlib.Path(folder), pages):
        path.chmod(0o755)


def _commands(folder):
    for name, text in (("nginx", NGINX), ("apache", APACHE)):
        path = pathlib.Path(folder) / f"{name}.conf"
        path.write_text(text.format(folder=folder, port=PORTS[name]), encoding="ascii")
    paced = [sys.executable, pathlib.Path(__file__).with_name("paced.py")]
    return {
        "nginx": ["/usr/sbin/nginx", "-e", "stderr", "-p", folder, "-c", f"{folder}/nginx.conf"],
        "apache": ["/usr/sbin/apache2", "-D", "FOREGROUND", "-f", f"{folder}/apache.conf"],
        "python": [sys.executable, "-m", "http.server", "--directory", f"{folder}/pages", str(PORTS["python"])],
        "paced": [*paced, str(PORTS["paced"])],
        "paced, stalls once": [*paced, str(PORTS["paced, stalls once"]), "--stall"],
    }


@contextlib.contextmanager
def serving(network, folder, names):
    """Runs servers in the server's network."""
    processes = []
    try:
        with inside(network.server):
            for name, words in _commands(folder).items():
                if name in names:
                    processes.append(subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL,
                                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for name in names:
            _wait(network, PORTS[name])
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def _wait(network, port):
    for _ in range(500):
        with inside(network.server):
            if run("ss", "-Hltn", f"sport = :{port}"):
                return
        time.sleep(0.02)
    raise RuntimeError(f"nothing listens on port {port}")
