"""The scanners that are compared: how each is told to do the same work, and what it says it found."""

import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import typing

from common.commands import RELEASE, ROOT

# As in the article behind the scan.
ARTICLE = ["--min-hostgroup", "65536", "--max-retries", "0", "--host-timeout", "3s", "--max-scan-delay", "0",
           "-n", "-Pn", "-sT"]
# Its huge host groups cost nmap far more than they bring.
TUNED = ["-T5", "--min-hostgroup", "1024", "--max-hostgroup", "1024", "--max-retries", "0", "-n", "-Pn", "-sT"]
# Rules that need requests of their own: the comparison is about one `GET /` a host.
ASKS = {"http-exposed.toml"}
SCRIPTS = {"ssh": ["--script", "banner"], "http": ["--script", "http-server-header"]}
REMARKS = ["masscan is not among them: it has its own TCP stack, wants Ethernet and refuses the loopback device",
           "nmap reads banners by its scripts `banner` and `http-server-header`; bannerwall judges them meanwhile by "
           "all shipped rules, but for those that ask more than `GET /`",
           "how long silence is waited for: bannerwall `--connect-timeout 1s`, nmap as its flags say"]


@dataclasses.dataclass
class Scanner:
    """A scanner: its command line for a scene and subnet, and how to read what it found."""

    name: str
    program: str
    command: typing.Callable
    found: typing.Callable
    stdin: typing.Callable = None

    def is_here(self):
        """Whether the program can be run."""
        return shutil.which(self.program) is not None

    def run(self, scene, size, limit):
        """Scans once; gives what it took and found."""
        with tempfile.TemporaryDirectory() as folder:
            words = self.command(scene, 32 - (size.bit_length() - 1), pathlib.Path(folder))
            server = scene.server_cpu()
            with open(pathlib.Path(folder) / "said", "w+", encoding="utf-8", errors="replace") as said:
                started = time.monotonic()
                process = scene.start(self.program, *words, stdin=self._input(size, folder), stdout=said,
                                      stderr=subprocess.STDOUT)
                usage, memory, ended = _wait(process, limit)
                wall = time.monotonic() - started
                said.seek(0)
                found = 0 if not ended else self.found(scene, said.read(), pathlib.Path(folder))
        result = {"wall, s": wall, "CPU, s": usage.ru_utime + usage.ru_stime}
        if memory:
            # Else it was over before anybody could look.
            result["memory, MiB"] = memory / 1024
        if ended:
            result |= {"CPU a target, µs": result["CPU, s"] / size * 1e6, "told, %": 100 * found / size}
        else:
            result["given up"] = 1
        if scene.server:
            result["server busy, %"] = 100 * (scene.server_cpu() - server) / wall
        return result

    def _input(self, size, folder):
        if not self.stdin:
            return subprocess.DEVNULL
        targets = pathlib.Path(folder) / "targets"
        targets.write_text(self.stdin(size), encoding="ascii")
        return open(targets, "rb")


def _wait(process, limit):
    """Waits for a process, ends it at the limit; its usage, its most memory in KiB, and whether it ended itself.

    What wait4 tells of memory holds this program's own, from before the exec.
    """
    most = [0]
    over = threading.Event()

    def watch():
        while not over.wait(0.01):
            try:
                status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
            except OSError:
                return
            peak = re.search(r"VmHWM:\s+(\d+)", status)
            if peak and not re.match(r"Name:\s+(ip|python3)\n", status):
                most[0] = max(most[0], int(peak.group(1)))

    watcher = threading.Thread(target=watch)
    killer = threading.Timer(limit, lambda: process.send_signal(signal.SIGKILL))
    watcher.start()
    killer.start()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    killer.cancel()
    over.set()
    watcher.join()
    return usage, most[0], process.returncode != -signal.SIGKILL


def _bannerwall(threads):
    def command(scene, prefix, folder):
        words = ["scan", scene.mode, f"127.0.0.0/{prefix}", "-p", scene.port, "--rate", "max", "--threads", threads,
                 "--progress", "never", "--connect-timeout", "1s", "-o", folder / "results"]
        if scene.mode == "connect":
            return words
        return [*words, *(f"--rules={path}" for path in sorted((ROOT / "rules").glob("*.toml"))
                          if scene.mode == "ssh" or path.name not in ASKS)]

    def found(scene, said, _folder):
        summary = said.strip().splitlines()[-1]
        name = scene.found if scene.mode == "connect" else "open"
        count = int(re.search(rf"\b{name} (\d+)", summary).group(1))
        without = re.search(r"\(but ([^)]*)\)", summary)
        return count - sum(map(int, re.findall(r"\d+", without.group(1) if without else "")))

    return command, found


def _nmap(flags):
    def command(scene, prefix, folder):
        return [*flags, "-p", scene.port, *SCRIPTS.get(scene.mode, []), "-oN", folder / "normal", "-oG",
                folder / "grepable", f"127.0.0.0/{prefix}"]

    def found(scene, _said, folder):
        normal = (folder / "normal").read_text(encoding="utf-8", errors="replace")
        match scene.mode:
            case "ssh":
                return len(re.findall(r"banner: SSH-", normal))
            case "http":
                return len(re.findall(r"http-server-header:", normal))
        state = {"refused": "closed", "timed out": "filtered"}[scene.found]
        return (folder / "grepable").read_text(encoding="utf-8").count(f"/{state}/")

    return command, found


def _zgrab2():
    def command(scene, _prefix, folder):
        module = {"ssh": "banner", "http": "http"}.get(scene.mode, "banner")
        return [module, "--port", scene.port, "--senders", 5000, "--timeout", "1s", "--output-file", folder / "out"]

    def found(scene, _said, folder):
        text = (folder / "out").read_text(encoding="utf-8", errors="replace")
        status = {"refused": "connection-refused", "timed out": "connection-timeout"}.get(scene.found, "success")
        return text.count(f'"status":"{status}"')

    return command, found


def _naabu():
    def command(scene, prefix, folder):
        return ["-host", f"127.0.0.0/{prefix}", "-p", scene.port, "-s", "c", "-c", 15000, "-rate", 1000000,
                "-timeout", 1000, "-retries", 1, "-silent", "-o", folder / "out"]

    def found(scene, _said, folder):
        # It names open ports only, and reads no banners.
        out = folder / "out"
        return len(out.read_text(encoding="utf-8").splitlines()) if out.exists() else 0

    return command, found


def _addresses(size):
    return "".join(f"127.0.{number >> 8}.{number & 255}\n" for number in range(size))


BANNERWALL = str(RELEASE / "bannerwall")
SCANNERS = {
    "bannerwall": Scanner("bannerwall, 1 thread", BANNERWALL, *_bannerwall(1)),
    "bannerwall-2": Scanner("bannerwall, 2 threads", BANNERWALL, *_bannerwall(2)),
    "nmap-article": Scanner("nmap, the article's flags", "nmap", *_nmap(ARTICLE)),
    "nmap-tuned": Scanner("nmap, tuned", "nmap", *_nmap(TUNED)),
    "zgrab2": Scanner("zgrab2", "zgrab2", *_zgrab2(), stdin=_addresses),
    "naabu": Scanner("naabu", "naabu", *_naabu()),
}
