"""What a benchmark reports, and how it is drawn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Row", "median_seconds", "paired_seconds", "seconds_once"]

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        name: what was measured.
        ours: our median, in `unit`.
        peer_name: what it is measured against, empty if nothing.
        peer: the peer's median in the same run, in `unit`.
        unit: for example ``ms`` or ``1/s``.
        ratio: ours/peer, or peer/ours where `ratio_of` says so.
        ratio_of: how the ratio is formed, in words.
        target: what design §10 asks for, in words.
        met: whether this run reached it; None where there is no target.
    """

    name: str
    ours: float
    unit: str
    peer_name: str = ""
    peer: float | None = None
    ratio: float | None = None
    ratio_of: str = ""
    target: str = ""
    met: bool | None = None


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def seconds_once(work: Callable[[], ResultT]) -> tuple[float, ResultT]:
    """Return the time of one call without warm-up, s, and what it returned."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def median_seconds(work: Callable[[], object], runs: int = 9) -> float:
    """Return the median time of `runs` calls after one warm-up, s."""
    work()
    return statistics.median(_timed(work) for _ in range(runs))


def paired_seconds(
    ours: Callable[[], object], peer: Callable[[], object], runs: int = 9
) -> tuple[float, float]:
    """Return both medians from alternating runs, so that drift hits both alike, s."""
    ours()
    peer()
    pairs = [(_timed(ours), _timed(peer)) for _ in range(runs)]
    mine, theirs = zip(*pairs, strict=True)
    return statistics.median(mine), statistics.median(theirs)
