"""Prometheus' text format, written: a handful of lines, so no library is needed for it.

Source: "Exposition formats", text format 0.0.4. Pure: samples in, bytes out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

MOST_SERIES: Final = 100
"""Series that one metric may have; more are left out, and said to be."""

_LONGEST_LABEL: Final = 64


class Kind(StrEnum):
    """What a metric's numbers mean."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of the catalogue."""

    name: str  # with its unit
    kind: Kind  # what the numbers mean
    help: str  # one line
    # names of its labels; their values come from lists of ours only
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Distribution:
    """Observations sorted into buckets."""

    bounds: tuple[float, ...]  # upper bounds, ascending, without infinity
    # observations of each bucket alone; the last is beyond all bounds
    counts: tuple[int, ...]
    total: float  # sum of the observations


@dataclass(frozen=True, slots=True)
class Sample:
    """One series' value; `labels` in the order of its metric's."""

    metric: str
    value: float | Distribution
    labels: tuple[str, ...] = ()


def render_metrics(metrics: Sequence[Metric], samples: Iterable[Sample]) -> bytes:
    """Return the text of all samples, in the catalogue's order.

    Raises:
        InternalError: ``STO-B061`` for a sample that the catalogue does not know.
    """
    known = {metric.name: metric for metric in metrics}
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        metric = known.get(sample.metric)
        if metric is None or len(metric.labels) != len(sample.labels):
            raise InternalError("STO-B061", f"no such metric: {sample.metric}")
        found.setdefault(sample.metric, []).append(sample)
    lines: list[str] = []
    for metric in metrics:
        if metric.name in found:
            lines += _family(metric, found[metric.name])
    return ("\n".join(lines) + "\n").encode()


def _family(metric: Metric, samples: Sequence[Sample]) -> Iterator[str]:
    yield f"# HELP {metric.name} {_escape(metric.help)}"
    yield f"# TYPE {metric.name} {metric.kind}"
    if len(samples) > MOST_SERIES:
        yield f"# {len(samples) - MOST_SERIES} series are left out"
    for sample in samples[:MOST_SERIES]:
        pairs = tuple(zip(metric.labels, sample.labels, strict=True))
        if isinstance(sample.value, Distribution):
            yield from _histogram(metric.name, pairs, sample.value)
        else:
            yield f"{metric.name}{_labels(pairs)} {_number(sample.value)}"


def _histogram(
    name: str, pairs: tuple[tuple[str, str], ...], value: Distribution
) -> Iterator[str]:
    seen = 0
    for bound, count in zip((*value.bounds, math.inf), value.counts, strict=True):
        seen += count
        yield f"{name}_bucket{_labels((*pairs, ('le', _number(bound))))} {seen}"
    yield f"{name}_sum{_labels(pairs)} {_number(value.total)}"
    yield f"{name}_count{_labels(pairs)} {seen}"


def _labels(pairs: Sequence[tuple[str, str]]) -> str:
    if not pairs:
        return ""
    inner = ",".join(
        f'{name}="{_escape(value[:_LONGEST_LABEL], quote=True)}"'
        for name, value in pairs
    )
    return f"{{{inner}}}"


def _escape(text: str, *, quote: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if float(value).is_integer() else repr(float(value))
