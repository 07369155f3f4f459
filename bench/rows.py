"""What a benchmark reports, and how it is drawn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self, TypeVar

__all__ = [
    "Row",
    "interleaved_medians",
    "median_seconds",
    "paired_seconds",
    "seconds_once",
]

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
        others: further peers by name, each as a ratio to `peer`; None: it cannot do it.
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
    others: dict[str, float | None] = field(default_factory=dict)

    @classmethod
    def of_mean(
        cls,
        name: str,
        mean: float,
        target: float | None = None,
        others: Mapping[str, float | None] | None = None,
    ) -> Self:
        """Return the row of a geometric mean of ratios to plain CPython."""
        return cls(
            name=name,
            ours=mean,
            unit="x",
            peer_name="plain",
            peer=1.0,
            ratio=mean,
            ratio_of="of plain",
            target=f"≤ {target}" if target else "",
            met=mean <= target if target else None,
            others=dict(others or {}),
        )


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


def _rounds(
    work: Mapping[str, Callable[[], object]], runs: int
) -> dict[str, list[float]]:
    """Time each in turn, `runs` times after one warm-up, so that drift hits all alike."""
    for one in work.values():
        one()
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(runs):
        for name, one in work.items():
            times[name].append(_timed(one))
    return times


def interleaved_medians(
    work: Mapping[str, Callable[[], object]], runs: int
) -> dict[str, float]:
    """Return each one's median time, s."""
    return {
        name: statistics.median(times) for name, times in _rounds(work, runs).items()
    }


def paired_seconds(
    ours: Callable[[], object], peer: Callable[[], object], runs: int = 9
) -> tuple[float, float]:
    """Return both medians from alternating runs, so that drift hits both alike, s."""
    medians = interleaved_medians({"ours": ours, "peer": peer}, runs)
    return medians["ours"], medians["peer"]
