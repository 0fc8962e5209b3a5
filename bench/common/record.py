"""The folder that a run leaves behind: every value as CSV, tables in Markdown, a picture in PNG."""

import csv
import datetime
import itertools
import os
import pathlib
import platform
import sys

from .commands import ROOT, said


class Record:
    """A folder of results; every value is on disk as soon as it is known."""

    def __init__(self, folder, name, columns, add=False):
        """With `add` the folder's earlier values stay, and are in `earlier`."""
        today = datetime.date.today().isoformat()
        self.folder = pathlib.Path(folder) if folder else ROOT / "bench/runs" / f"{today}-{name}"
        self.folder.mkdir(parents=True, exist_ok=True)
        values = self.folder / "values.csv"
        add = add and values.exists()
        self.earlier = list(csv.reader(values.read_text(encoding="utf-8").splitlines()))[1:] if add else []
        self._file = open(values, "a" if add else "w", newline="", encoding="utf-8")
        self._rows = csv.writer(self._file)
        if not add:
            self.row(*columns)

    def earlier_head(self):
        """What is said above the earlier values of how they were measured."""
        if not self.earlier:
            return []
        lines = (self.folder / "README.md").read_text(encoding="utf-8").splitlines()
        return [line for line in itertools.takewhile(lambda line: not line.startswith("## "), lines)
                if line.startswith("- ")]

    def row(self, *values):
        """Takes one row."""
        self._rows.writerow(values)
        self._file.flush()

    def finish(self, lines, plot=None):
        """Writes the text, and the picture where `plot(path)` draws one; returns the text."""
        self._file.close()
        text = "\n".join(lines).rstrip() + "\n"
        (self.folder / "README.md").write_text(text, encoding="utf-8")
        try:
            if plot:
                plot(self.folder / "figures.png")
        except ImportError:
            print("no picture: Debian's python3-matplotlib is missing", file=sys.stderr)
        return text


def head(program, *versions, seed=None, commit=None):
    """The lines above every result: what was run, of which commit, with what, where and when."""
    # What other runs left behind changes nothing of this one.
    changes = said("git", "status", "--porcelain", "--untracked-files=no", "--", ":!bench/runs")
    dirty = " with uncommitted changes" if changes else ""
    order = f" (order seed {seed})" if seed is not None else ""
    lines = [
        f"# Measured by {program}",
        "",
        f"- command: `{' '.join([program, *sys.argv[1:]])}`{order}",
        f"- commit: {commit or said('git', 'rev-parse', '--short=12', 'HEAD')}{dirty}",
        f"- kernel: {platform.release()}",
        f"- CPU: {os.cpu_count()} × {processor()}",
    ]
    if versions:
        lines.append(f"- with: {', '.join(versions)}")
    lines.append(f"- started: {datetime.datetime.now().isoformat(timespec='minutes')}, load {load()}")
    return lines


def processor():
    """The processor's name."""
    with open("/proc/cpuinfo", encoding="ascii") as lines:
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def load():
    """The load averages of the last 1, 5 and 15 minutes."""
    return " ".join(f"{load:.2f}" for load in os.getloadavg())
