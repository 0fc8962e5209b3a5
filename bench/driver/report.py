"""Results of one run: CSV as measured, tables in Markdown, box plots in PNG."""

import collections
import itertools
import os
import platform
import statistics

from common.commands import said
from common.record import Record, head, load

from . import figures

REFERENCE = "tuned.c"
UNITS = {"connections": "connections a second"}


class Run:
    """Collects what was measured; every value is on disk as soon as it is known."""

    def __init__(self, folder, seed, add=False):
        """With `add` the values that the folder has already stay."""
        self.record = Record(folder, f"{os.cpu_count()}cpu-{platform.machine()}",
                             ["where", "test", "case", "round", "metric", "value"], add)
        title, blank, *lines = head("bench/run", said("iptables", "--version"), seed=seed)
        earlier = self.record.earlier_head()
        self.head = [title, blank, *earlier, *[line for line in lines if line not in earlier]]
        self.values = collections.defaultdict(lambda: collections.defaultdict(list))
        for where, test, case, _round, metric, value in self.record.earlier:
            self.values[(where, test, metric)][case].append(float(value))
        self.rounds_before = max((int(row[3]) for row in self.record.earlier), default=0)

    def add(self, where, test, case, round_number, metric, value):
        """Takes one value."""
        self.record.row(where, test, case, round_number, metric, value)
        self.values[(where, test, metric)][case].append(value)

    def finish(self):
        """Writes the tables and the picture; tells where they are."""
        lines = [*self.head, f"- load at the end: {load()}", "", *_sections(self.values)]
        self.record.finish(lines, lambda path: _plot(self.values, path))
        return self.record.folder


class ScanRun:
    """What bench/scan collects: every value is on disk as soon as it is known."""

    FIGURES = ["wall, s", "CPU, s", "CPU a target, µs", "memory, MiB", "told, %", "server busy, %"]

    def __init__(self, folder, seed):
        self.record = Record(folder, "scan", ["scene", "targets", "scanner", "round", "metric", "value"])
        self.head = head("bench/scan", seed=seed)
        self.values = collections.defaultdict(lambda: collections.defaultdict(list))
        self.remarks = []

    def remark(self, *sentences):
        """Takes what a reader must know beside the figures."""
        self.remarks += sentences

    def add(self, scene, size, scanner, round_number, metric, value):
        """Takes one value."""
        self.record.row(scene, size, scanner, round_number, metric, value)
        self.values[(scene, size, scanner)][metric].append(value)

    def finish(self):
        """Writes the tables and the picture; tells where they are."""
        lines = [*self.head, f"- load at the end: {load()}", *[f"- {remark}" for remark in self.remarks], ""]
        lines += ["Medians. “told” is the share of targets of which the scanner says the truth (refused, silent, its "
                  "banner); “given up” is a run ended at the limit; subnets that would take longer are left out.", ""]
        for scene in dict.fromkeys(key[0] for key in self.values):
            lines += [f"## {scene}", "", "| targets | scanner | n | " + " | ".join(self.FIGURES) + " |",
                      "|---" * (len(self.FIGURES) + 3) + "|"]
            rows = {key: metrics for key, metrics in self.values.items() if key[0] == scene}
            for (_, size, scanner), metrics in sorted(rows.items(), key=lambda row: row[0][1:]):
                given_up = " (given up)" if "given up" in metrics else ""
                cells = [_short(statistics.median(metrics[name])) if name in metrics else "–" for name in self.FIGURES]
                lines.append(f"| {size:,} | {scanner}{given_up} | {len(metrics['wall, s'])} | " + " | ".join(cells) + " |")
            lines.append("")
        self.record.finish(lines, self._plot)
        return self.record.folder

    def _plot(self, path):
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        scenes = list(dict.fromkeys(key[0] for key in self.values))
        metrics = ["wall, s", "CPU, s", "memory, MiB"]
        figure, grid = pyplot.subplots(len(scenes), len(metrics), figsize=(15, 3.6 * len(scenes)), squeeze=False)
        for scene, row in zip(scenes, grid):
            for metric, axes in zip(metrics, row):
                for scanner in sorted({key[2] for key in self.values if key[0] == scene}):
                    points = sorted((key[1], statistics.median(values[metric])) for key, values in self.values.items()
                                    if key[0] == scene and key[2] == scanner and metric in values
                                    and "given up" not in values)
                    axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=scanner)
                axes.set(xscale="log", yscale="log", xlabel="targets", title=f"{scene}: {metric}")
        grid[0][0].legend(fontsize=7)
        figure.tight_layout()
        figure.savefig(path, dpi=110)
        pyplot.close(figure)


def _is_cost(metric):
    return metric.startswith(("firewall", "packets", "retransmissions", "failed", "resident", "flows"))


def _sections(values):
    """A table with p-values for each figure, then one table of what each test cost."""
    for (where, test, metric), cases in values.items():
        if not _is_cost(metric):
            yield from _figure(f"{test}, {where}: {UNITS.get(metric, metric)}", cases)
    for where, test in dict.fromkeys(key[:2] for key in values):
        metrics = {key[2]: values[key] for key in values if key[:2] == (where, test) and _is_cost(key[2])}
        if metrics:
            yield from _costs(f"{test}, {where}: what it cost (means; sums of lost packets and failed runs)", metrics)


def _figure(title, cases):
    reference = figures.summary(cases[REFERENCE])["mean"] if cases.get(REFERENCE) else None
    yield from (f"## {title}", "")
    yield f"| case | n | mean | min | max | σ | outside 95 % | ÷ {REFERENCE} |"
    yield "|---|---|---|---|---|---|---|---|"
    for case, values in cases.items():
        row = figures.summary(values)
        ratio = f"{row['mean'] / reference:.3f}" if reference else "–"
        numbers = " | ".join(_short(row[name]) for name in ("mean", "min", "max", "σ"))
        yield f"| {case} | {row['n']} | {numbers} | {row['outside 95 %']} | {ratio} |"
    yield ""
    if len(cases) > 1:
        yield from _pairs(cases)


def _costs(title, metrics):
    yield from (f"## {title}", "")
    yield "| case | " + " | ".join(metrics) + " |"
    yield "|---" * (len(metrics) + 1) + "|"
    for case in dict.fromkeys(case for cases in metrics.values() for case in cases):
        cells = []
        for metric, cases in metrics.items():
            values = cases.get(case)
            total = sum if metric in ("packets lost", "failed runs") else statistics.fmean
            cells.append(_short(total(values)) if values else "")
        yield f"| {case} | " + " | ".join(cells) + " |"
    yield ""


def _pairs(cases):
    names = list(cases)
    yield "p-value of each pair (Mann–Whitney, two-sided):"
    yield ""
    yield "| | " + " | ".join(names[1:]) + " |"
    yield "|---" * len(names) + "|"
    for index, first in enumerate(names[:-1]):
        cells = ["" if position <= index else f"{figures.mann_whitney(cases[first], cases[second]):.2g}"
                 for position, second in enumerate(names[1:], start=1)]
        yield f"| {first} | " + " | ".join(cells) + " |"
    yield ""


def _short(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _plot(values, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    keys = [key for key in values if not _is_cost(key[2]) or key[2].startswith(("firewall", "resident,"))]
    if not keys:
        return
    columns = 3
    rows = -(-len(keys) // columns)
    figure, grid = pyplot.subplots(rows, columns, figsize=(6 * columns, 3 * rows), squeeze=False)
    for axes, key in itertools.zip_longest(grid.flat, keys):
        if key is None:
            axes.axis("off")
            continue
        cases = values[key]
        axes.boxplot(list(cases.values()), labels=list(cases), vert=False)
        axes.set_title(f"{key[1]}, {key[0]}: {key[2]}", fontsize=9)
        axes.tick_params(labelsize=7)
        axes.set_xlim(left=0)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
