"""Statistics in plain Python: spread, points outside the 95 % interval, p-values of pairs."""

import functools
import math
import statistics


def summary(values):
    """n, mean, minimum, maximum, σ, and how many values lie outside mean ± 1.96 σ."""
    mean = statistics.fmean(values)
    sigma = statistics.stdev(values) if len(values) > 1 else 0.0
    outside = sum(abs(value - mean) > 1.96 * sigma for value in values)
    return {"n": len(values), "mean": mean, "min": min(values), "max": max(values), "σ": sigma, "outside 95 %": outside}


def mann_whitney(first, second):
    """Two-sided p-value that both samples come from one distribution (Mann–Whitney U).

    Exact where the samples are small and without ties, else by the normal approximation with
    corrections for ties and continuity.
    """
    n, m = len(first), len(second)
    if n == 0 or m == 0:
        return float("nan")
    u = sum((a > b) + (a == b) / 2 for a in first for b in second)
    u = min(u, n * m - u)
    pooled = sorted([*first, *second])
    ties = [pooled.count(value) for value in set(pooled)]
    if max(ties) == 1 and n * m <= 2500:
        below = sum(_ways(n, m, k) for k in range(int(u) + 1))
        return min(1.0, 2 * below / math.comb(n + m, n))
    total = n + m
    variance = n * m / 12 * (total + 1 - sum(t**3 - t for t in ties) / (total * (total - 1)))
    if variance == 0:
        return 1.0
    z = max(0.0, n * m / 2 - u - 0.5) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


@functools.cache
def _ways(n, m, u):
    """Orders of n and m values in which the first sample beats the second u times."""
    if u < 0 or n < 0 or m < 0:
        return 0
    if n == 0 or m == 0:
        return int(u == 0)
    return _ways(n - 1, m, u - m) + _ways(n, m - 1, u)
