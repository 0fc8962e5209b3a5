"""Commands that the benchmarks give, and what they cost."""

import dataclasses
import os
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RELEASE = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"


def run(*words, **options):
    """Runs a command and insists that it succeeds; returns its output."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stdout}{done.stderr}")
    return done.stdout


def said(*words):
    """What a command says in the repository's folder, whether it succeeds or not; nginx tells its version on stderr."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, cwd=ROOT)
    return (done.stdout or done.stderr).strip()


@dataclasses.dataclass
class Usage:
    """What a process took: wall and processor time in seconds, and the most memory in MiB."""

    wall: float
    cpu: float
    memory: float


def measured(*words):
    """Runs a command whose output goes nowhere, insists that it succeeds, and tells what the kernel counted."""
    words = [str(word) for word in words]
    started = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}")
    return Usage(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
