"""Flows that iptables' bpf match lets by, by a program that asks a map for them (bench/baseline/known.bpf.c).

No guard has a part in it: what is measured is what such a way could save at best.
"""

import contextlib
import pathlib
import shutil
import subprocess
import tempfile

from common.commands import run

from .cases import BASELINE, Case, Firewall

OBJECT = BASELINE / "known.bpf.o"
# Those of IPv4.
CLIENT = "192.0.2.2"
IS_THERE = shutil.which("bpftool") and OBJECT.exists()
MISSING = None if IS_THERE else "it needs bpftool, and bench/baseline/build with clang and libbpf-dev"


class XtBpf(Case):
    """The match in front of a rule that needs connection tracking; where it `skips` that, already in front of the tracking."""

    def __init__(self, name, skips):
        super().__init__(name, where=("router",), missing=MISSING)
        self.skips = skips

    @contextlib.contextmanager
    def firewall(self, network, plain_rules=True):
        """Loads the program, with all addresses of the network in its map, and puts up the rules."""
        with tempfile.TemporaryDirectory() as folder:
            run("mount", "-t", "bpf", "bpf", folder)
            try:
                self._put_up(network, pathlib.Path(folder))
                yield Firewall(network)
            finally:
                for table in ("raw", "mangle"):
                    network.inside(network.gate, "iptables", "-t", table, "-F")
                subprocess.run(["umount", folder], check=True)

    def _put_up(self, network, folder):
        (folder / "maps").mkdir()
        run("bpftool", "prog", "load", OBJECT, folder / "known", "type", "socket", "pinmaps", folder / "maps")
        for address in network.addresses:
            for pair in ((CLIENT, address), (address, CLIENT)):
                octets = [octet for end in pair for octet in end.split(".")] + ["0"] * 4
                run("bpftool", "map", "update", "pinned", folder / "maps/flows", "key", *octets, "value", *["0"] * 8)
        known = ["-m", "bpf", "--object-pinned", folder / "known"]
        if self.skips:
            network.inside(network.gate, "iptables", "-t", "raw", "-A", "PREROUTING", *known, "-j", "CT", "--notrack")
        network.inside(network.gate, "iptables", "-t", "mangle", "-A", "FORWARD", *known, "-j", "RETURN")
        network.inside(network.gate, "iptables", "-t", "mangle", "-A", "FORWARD",
                       "-m", "connmark", "--mark", "1", "-j", "RETURN")


CASES = {
    "xt-bpf": XtBpf("xt_bpf, connection tracking", False),
    "xt-bpf-notrack": XtBpf("xt_bpf, no connection tracking", True),
}
