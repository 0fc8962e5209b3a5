"""A systemd on the router, with the unit of a package."""

import os
import pathlib
import re
import subprocess
import tempfile
import time

from common.commands import ROOT, run

from .scene import PROGRAM

BOOT = ROOT / "tests/system/boot.sh"
CONFIGURATION = "/etc/bannerwall/guard.toml"
METRICS = "127.0.0.1:9464"
# What the load's clients say of themselves.
FORBIDDEN = """[[rule]]
id = "load"
title = "A client of the load"
protocol = "ssh"
from = "client"
match.software = '^load_'
action = "drop"
severity = "low"
"""
PATIENCE = 90


class Machine:
    """Process 1 of namespaces over a layer of this machine's files, in the router's network; as in tests/system/service.rs."""

    def __init__(self, line):
        self.line = line
        self.layer, self.packages = tempfile.TemporaryDirectory(), tempfile.TemporaryDirectory()
        mounts = (text.split() for text in pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines())
        groups = next(fields[1] for fields in mounts if fields[2] == "cgroup2")
        self.group = pathlib.Path(groups, f"bannerwall-bench-{os.getpid()}")
        self.systemd = None

    def __enter__(self):
        self.group.mkdir()
        package = run(ROOT / "scripts/package", "deb", "--program", PROGRAM, "--compress", "none", "--output",
                      self.packages.name).strip()
        boot = BOOT.read_text(encoding="utf-8")
        # Not by `ip netns exec`, which hides the control groups.
        self.systemd = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{self.line.name}-router", "sh", "-c", 'echo $$ >"$1" && shift && exec "$@"', "sh",
             str(self.group / "cgroup.procs"), "unshare", "--mount", "--propagation=private", "--pid", "--uts", "--ipc",
             "--cgroup", "--fork", "--kill-child", "sh", "-c", boot, "sh", self.layer.name, self.packages.name],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.await_for("systemd", lambda: self.said(
            "test -e /etc/systemd/system/only-this.target && systemctl is-system-running") == "running")
        self.inside(f"dpkg --install /mnt/{pathlib.Path(package).name}")
        self.inside(f"sed -i 's/^hook = .*/hook = [\"forward\"]/' {CONFIGURATION}")
        self.inside(f"printf 'enforce = true\\nmetrics = \"{METRICS}\"\\n' >>{CONFIGURATION}")
        self.inside(f"cat >/etc/bannerwall/rules/load.toml <<'EOF'\n{FORBIDDEN}EOF")
        self.inside("systemctl enable --now bannerwall")
        return self

    def __exit__(self, *_error):
        self.systemd.kill()
        self.systemd.wait()
        for _ in range(200):
            time.sleep(0.02)
            if self._removes_group():
                break

    def _removes_group(self):
        try:
            for folder, _, _ in os.walk(self.group, topdown=False):
                os.rmdir(folder)
        except OSError:
            return False
        return True

    def _words(self, words):
        children = pathlib.Path(f"/proc/{self.systemd.pid}/task/{self.systemd.pid}/children")
        first = (children.read_text(encoding="ascii").split() or ["0"])[0]
        return ["nsenter", "--net", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--target", first, "env", "-i",
                "DEBIAN_FRONTEND=noninteractive", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-c", f"cd / && {words}"]

    def inside(self, words):
        """Runs a command there; returns its output."""
        return run(*self._words(words))

    def said(self, words):
        """The output of a command there, whether it succeeds or not."""
        done = subprocess.run(self._words(words), capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def await_for(self, what, holds):
        """Waits until it is so."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline or self.systemd.poll() is not None:
                raise RuntimeError(f"{what}: {self.said('journalctl --unit bannerwall --lines 40 --output cat')}")
            time.sleep(0.05)

    def guard(self):
        """The guard's process, as it is called there."""
        return self.said("systemctl show bannerwall --property MainPID --value")

    def await_another(self, before):
        """Waits for a guard that is ready and not `before`."""
        shown = "systemctl show bannerwall --property StatusText --value"
        self.await_for("another guard", lambda: self.guard() not in (before, "0") and self.said(shown).startswith("ready"))

    def uninspected(self):
        """Packets that are counted as passed unseen."""
        found = re.search(r"^bannerwall_uninspected_packets_total (\S+)$", self.said(f"curl -s http://{METRICS}/metrics"), re.M)
        return int(float(found[1])) if found else None
