"""How fast this computer is, measured once and kept: BOINC's ``p_fpops``.

A BOINC client measures Whetstone in compiled code; the compiled floating point that every
Python has is `math.dist`. It is a claim like any other number of a host: projects clamp it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from stoilo.core.errors import InternalError
from stoilo.executor.ledger import replace_file

__all__ = ["Benchmark", "measure_fpops", "read_benchmark"]

NAME: Final = "benchmark.json"
MAX_BYTES: Final = 4096
COORDINATES: Final = 20_000
OPERATIONS: Final = 20
"""Of one coordinate in `math.dist`: difference, scaling, a compensated square and sum."""

ROUNDS: Final = 10
SLOWEST: Final = 1e6
FASTEST: Final = 1e12


class Benchmark(msgspec.Struct, frozen=True):
    """What was measured: FLOP/s of one processor."""

    fpops: float


def measure_fpops(clock: Callable[[], float] = time.perf_counter) -> float:
    """Return floating-point operations a second of one processor; takes some ms.

    The best of some rounds: what disturbs a round only makes it slower.

    Args:
        clock: s; one that stands still gives the fastest believed.
    """
    point = [number / COORDINATES for number in range(COORDINATES)]
    other = point[::-1]
    best = math.inf
    for _ in range(ROUNDS):
        began = clock()
        math.dist(point, other)
        best = min(best, clock() - began)
    fpops = COORDINATES * OPERATIONS / best if best > 0 else FASTEST
    return min(max(fpops, SLOWEST), FASTEST)


def read_benchmark(
    directory: Path, measure: Callable[[], float] = measure_fpops
) -> float:
    """Return what was measured here once, measured now where nothing is kept, FLOP/s."""
    try:
        with (directory / NAME).open("rb") as file:
            known = msgspec.json.decode(file.read(MAX_BYTES), type=Benchmark)
        if SLOWEST <= known.fpops <= FASTEST:
            return known.fpops
    except (OSError, msgspec.MsgspecError):
        pass
    measured = Benchmark(measure())
    try:
        replace_file(directory / NAME, msgspec.json.encode(measured))
    except InternalError:  # a full disk: measured again at the next start
        pass
    return measured.fpops
