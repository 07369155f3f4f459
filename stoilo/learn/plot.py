"""A curve as text, for terminals and logs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

__all__ = ["draw_curve"]

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def draw_curve(values: Sequence[float], width: int = 60, height: int = 6) -> list[str]:
    """Return `height` lines of at most `width` columns; values that are not finite are gaps.

    With more values than columns, a column shows the mean of its values.
    """
    means = _shorten(values, width)
    finite = [mean for mean in means if math.isfinite(mean)]
    if not finite:
        return []
    low, span = min(finite), max(finite) - min(finite)
    heights = [_height(mean, low, span, height) for mean in means]
    rows = ("".join(_cell(h, row) for h in heights) for row in range(height))
    return list(rows)[::-1]


def _shorten(values: Sequence[float], width: int) -> list[float]:
    """Return at most `width` means of neighbours."""
    count = max(1, min(len(values), width))
    edges = [column * len(values) // count for column in range(count + 1)]
    groups = [values[a:b] for a, b in itertools.pairwise(edges)]
    return [_mean([value for value in g if math.isfinite(value)]) for g in groups]


def _mean(values: Sequence[float]) -> float:
    return sum(value / len(values) for value in values) if values else math.nan


def _height(mean: float, low: float, span: float, height: int) -> int:
    """Return how many eighths of a line a column is high; the lowest value has one."""
    if not math.isfinite(mean):
        return 0
    share = (mean - low) / span if 0.0 < span < math.inf else 0.0
    return 1 + round(share * (8 * height - 1))


def _cell(eighths: int, row: int) -> str:
    return _EIGHTHS[max(0, min(8, eighths - 8 * row))]
