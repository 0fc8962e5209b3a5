"""Results of one run: CSV as measured, tables in Markdown, a plot in PNG."""

import collections
import platform
import random
import statistics

from common.commands import said
from common.record import Record, head

from .asks import ASKS, METHODS
from .servers import NAMES

SERIAL = ["curl, serial, new connections", "bannerwall --no-pipeline"]
LIMITS = [("bannerwall", 130), ("bannerwall --host-connections 4", 75)]


class Run:
    """Collects what was measured; every value is on disk as soon as it is known."""

    def __init__(self, folder, seed, commit):
        self.seed = seed if seed is not None else random.randrange(1 << 32)
        self.record = Record(folder, "pipeline",
                             ["delay ms", "server", "askers", "method", "round", "ms", "answers", "asked"])
        self.head = [*head("bench/pipeline", *_versions(), seed=self.seed, commit=commit),
                     "- every time is that of the whole program, its start included, but for nmap's (its library call "
                     "alone)"]
        self.values = collections.defaultdict(list)
        self.missing = collections.Counter()
        self.lines = []

    def add(self, delay, server, name, method, number, elapsed, answers):
        """Takes one value. A run that missed answers is reported as such and counts for nothing else."""
        asked = sum(len(pages) for pages in ASKS[name])
        self.record.row(delay, server, name, method, number, f"{elapsed:.2f}", answers, asked)
        if answers == asked:
            self.values[(delay, server, name, method)].append(elapsed)
        else:
            self.missing[(delay, server, name, method)] += 1

    def line(self, delay, times):
        """Takes how long connects took before anything else was measured."""
        middle, late = statistics.median(times), times[len(times) * 99 // 100]
        self.lines.append(f"- {_delay(delay)}: a connect took {middle:.2f} ms (median of {len(times)}; "
                          f"least {times[0]:.2f}, 99 in 100 within {late:.2f})")

    def said(self, delay, text):
        """Takes what the delay line said of itself at its end."""
        if text:
            self.lines.append(f"- {_delay(delay)}: the forwarder {text}")

    def finish(self):
        """Writes the tables and the picture; tells where they are."""
        text = [*self.head, *self.lines, "", *_targets(self.values), *self._tables(), *_stalls(self.values)]
        if self.missing:
            text += ["## Runs that missed answers (not in the figures)", ""]
            text += [f"- {_delay(delay)}, {server}, {name}, {method}: {count}"
                     for (delay, server, name, method), count in self.missing.items()]
        self.record.finish(text, lambda path: _plot(self.values, path))
        return self.record.folder

    def _tables(self):
        for delay, server in dict.fromkeys(key[:2] for key in self.values if key[1] in NAMES):
            yield from (f"## {NAMES[server]}, {_delay(delay)}: median ms (least–most)", "")
            yield f"| | {' | '.join(ASKS)} |"
            yield "|---" * (len(ASKS) + 1) + "|"
            for method in METHODS:
                cells = [_cell(self.values.get((delay, server, name, method))) for name in ASKS]
                if any(cells):
                    yield f"| {method} | {' | '.join(cells)} |"
            yield ""


def _delay(delay):
    return "no delay" if delay == 0 else f"{delay} ms"


def _cell(values):
    if not values:
        return ""
    middle = statistics.median(values)
    if len(values) == 1:
        return f"{middle:,.0f}"
    digits = 1 if middle < 100 else 0
    return f"{middle:,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


def _targets(values):
    """What was to be reached, beside what was."""
    yield from ("## Targets", "", "| what | limit | measured (median) | |", "|---|---|---|---|")

    def middle(*key):
        return statistics.median(values[key]) if values.get(key) else None

    def row(what, limit, measured):
        verdict = "holds" if measured <= limit else f"missed by {(measured / limit - 1) * 100:.0f} %"
        return f"| {what} | {limit:.1f} | {measured:.1f} | {verdict} |"

    for method, limit in LIMITS:
        measured = middle(20, "nginx", "1 × 320", method)
        if measured is not None:
            yield row(f"{method}, 320 requests to nginx at 20 ms, ms", limit, measured)
    for delay in dict.fromkeys(key[0] for key in values):
        for name in ASKS:
            measured = middle(delay, "python", name, "bannerwall")
            serial = [middle(delay, "python", name, method) for method in SERIAL]
            if measured is not None and None not in serial:
                yield row(f"http.server, {name}, {_delay(delay)}: ms, against the best serial + 5 %",
                          min(serial) * 1.05, measured)
        for name in ASKS:
            never, once = (middle(delay, server, name, "bannerwall") for server in ("paced", "paced, stalls once"))
            if never and once:
                yield row(f"a stall at the 100th of {name}, {_delay(delay)}: × never stalled", 1.3, once / never)
    yield ""


def _stalls(values):
    keys = [key for key in values if key[1].startswith("paced")]
    if not keys:
        return
    yield from ("## A server that takes 2 ms for each answer: median ms (least–most)", "")
    yield from ("| | | never stalls | stalls once, behind 100 answers |", "|---|---|---|---|")
    for delay, name in dict.fromkeys((key[0], key[2]) for key in keys):
        cells = [_cell(values.get((delay, server, name, "bannerwall"))) for server in ("paced", "paced, stalls once")]
        yield f"| {name} | {_delay(delay)} | {' | '.join(cells)} |"
    yield ""


def _versions():
    """Of all that is measured beside bannerwall."""
    return [said("curl", "--version").split(" (")[0], said("nmap", "--version").split(" (")[0],
            said("/usr/sbin/nginx", "-v"), said("/usr/sbin/apache2", "-v").splitlines()[0],
            f"Python {platform.python_version()}"]


def _plot(values, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = list(dict.fromkeys(key[:2] for key in values if key[1] in NAMES))
    delays = list(dict.fromkeys(delay for delay, _ in panels))
    figure, grid = pyplot.subplots(len(delays), len(NAMES), figsize=(6 * len(NAMES), 4.5 * len(delays)), squeeze=False)
    for row, delay in zip(grid, delays):
        for axes, server in zip(row, NAMES):
            for method in METHODS:
                points = [(name, statistics.median(values[(delay, server, name, method)])) for name in ASKS
                          if values.get((delay, server, name, method))]
                if points:
                    axes.plot(*zip(*points), marker="o", markersize=4, linewidth=1, label=method)
            axes.set_yscale("log")
            axes.set_title(f"{NAMES[server]}, {_delay(delay)}", fontsize=10)
            axes.set_ylabel("ms")
            axes.grid(True, which="both", alpha=0.25)
            axes.tick_params(labelsize=8)
    grid[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
