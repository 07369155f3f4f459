"""What a copy costs: work estimated from measured runs, bounds from admitted limits. Pure.

BOINC divides work (FLOP) by the speed of a host (FLOP/s): `rsc_fpops_est` becomes the
expected time, `rsc_fpops_bound` the time after which a client aborts the task by itself.
The estimate is the median of what valid copies of the same source took, else of the same
level, else a guess from the limits. Hosts report their own times and speeds, so a sample
is clamped to what the limits allow, a workunit gives one sample however many copies it
had, and no report reaches the bound: that comes from the limits alone, so that a client
never ends an honest run before our own limits do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stoilo.executor.verifier.result import largest_result

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stoilo.core.limits import RunLimits

__all__ = [
    "SAMPLES_KEPT",
    "Bounds",
    "Demand",
    "Measurement",
    "add_sample",
    "bounds_of",
    "estimate_fpops",
    "sample_of",
]

REFERENCE_FLOPS: Final = 1e9
"""Speed of a host that says none, FLOP/s; a client without benchmarks assumes the same."""

SLOWEST_CLAIM: Final = 2.5e8
FASTEST_CLAIM: Final = 1e10
"""What a host's own benchmark counts for, FLOP/s; one core gives 10^9 to 10^10."""

FASTEST_FLOPS: Final = 1e12
"""No host is faster, FLOP/s: even there the bound is longer than our own limits."""

LEAST_FPOPS: Final = 1e8
"""Of a copy: fetching and verifying it costs as much."""

START_S: Final = 3600
"""Longest time before a task begins (unpacking its runtime on a slow disk), s."""

GUESSED_SHARE: Final = 0.1
"""Part of the processor limit that an unknown task is taken to use."""

SAMPLES_KEPT: Final = 15
MARGIN: Final = 10.0
"""`rsc_fpops_bound` is at least that many times the estimate."""

MIB: Final = 1024 * 1024
RUNTIME_MEMORY_BYTES: Final = 256 * MIB
"""What verifier and warm runtime hold beside the task, whose limit does not count them."""

SLOT_BYTES: Final = 64 * MIB
"""For what else lies in a slot: links, init_data.xml, stderr.txt, checkpoints."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one copy may use.

    Attributes:
        limits: in force for one run.
        runs: calls in it, at least 1.
        input_bytes: of all its input files.
        unpacked_bytes: of the runtime's tree, which lies beside the slots; 0 for none.
    """

    limits: RunLimits
    runs: int = 1
    input_bytes: int = 0
    unpacked_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a host says that a valid copy took: a claim, not a fact.

    Attributes:
        cpu_s: processor time, s; 0 where it does not say.
        flops: its speed, FLOP/s; 0 where it does not say.
    """

    cpu_s: float
    flops: float = 0.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """BOINC's bounds of a workunit: FLOP and bytes."""

    fpops: float
    memory_bytes: int
    disk_bytes: int


def sample_of(copies: Iterable[Measurement], demand: Demand) -> float | None:
    """Return what one run of a finished workunit took, FLOP; None where nobody says.

    The lower median of its valid copies: a liar among them needs half of them.
    """
    works = sorted(
        _work(copy, demand) for copy in copies if math.isfinite(copy.cpu_s * copy.flops)
    )
    known = [work for work in works if work > 0]
    return known[(len(known) - 1) // 2] if known else None


def _work(copy: Measurement, demand: Demand) -> float:
    """Return a copy's work for one run, FLOP, within what the limits allow."""
    flops = copy.flops if copy.flops > 0 else REFERENCE_FLOPS
    flops = min(max(flops, SLOWEST_CLAIM), FASTEST_CLAIM)
    most = float(demand.limits.cpu_s) * demand.runs
    return min(max(copy.cpu_s, 0.0), most) * flops / demand.runs


def add_sample(samples: Sequence[float], sample: float) -> tuple[float, ...]:
    """Return the newest `SAMPLES_KEPT` samples, oldest first."""
    return (*samples, sample)[-SAMPLES_KEPT:]


def estimate_fpops(
    demand: Demand, source: Sequence[float] = (), level: Sequence[float] = ()
) -> float:
    """Return `rsc_fpops_est` of a copy, FLOP.

    Args:
        demand: of the copy.
        source: samples of the same task module and entry.
        level: samples of its level, asked only where `source` is empty.
    """
    if source:
        run = _median(source)
    elif level:
        run = _median(level)
    else:
        run = demand.limits.cpu_s * GUESSED_SHARE * REFERENCE_FLOPS
    most = bounds_of(demand).fpops / MARGIN
    return min(max(run * demand.runs, LEAST_FPOPS), most)


def _median(samples: Sequence[float]) -> float:
    """Return the lower median."""
    return sorted(samples)[(len(samples) - 1) // 2]


def bounds_of(demand: Demand) -> Bounds:
    """Return what a client holds a copy to.

    Disk: BOINC counts the slot and the result, and sends a task only where all of it
    fits; inputs and runtime lie outside of the slot, and are counted because they must
    fit too. The result is there twice while it is written, beside checkpoints of half its size.
    """
    limits = demand.limits
    longest = max(limits.cpu_s, limits.wall_s) * demand.runs + START_S
    result = largest_result(limits.result_bytes, limits.output_bytes)
    return Bounds(
        fpops=longest * FASTEST_FLOPS,
        memory_bytes=limits.memory_bytes + RUNTIME_MEMORY_BYTES,
        disk_bytes=SLOT_BYTES + 3 * result + demand.input_bytes + demand.unpacked_bytes,
    )
