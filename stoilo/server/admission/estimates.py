"""What a result costs: work estimated from measured runs, bounds from admitted limits. Pure.

BOINC divides work (FLOP) by the speed of a host (FLOP/s): `rsc_fpops_est` becomes the
expected time, `rsc_fpops_bound` the time after which a client aborts the task by itself.
The estimate is the median of what valid results of the same source took, else of the same
level, else a guess from the limits. Hosts report their own times and speeds, so a sample
is clamped to what the limits allow, a workunit gives one sample however many results it
had, and no report reaches the bound: that comes from the limits alone, so that a client
never ends an honest run before our own limits do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from sqlalchemy import delete, insert, update

from stoilo.core.digests import content_digest
from stoilo.executor.verifier.workunit import largest_result
from stoilo.server.db import schema
from stoilo.server.db.bulk import select_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from stoilo.core.limits import RunLimits
    from stoilo.server.db.records import TaskSpec
    from stoilo.server.engines.interface import ReceivedResult


REFERENCE_FLOPS: Final = 1e9
"""Speed of a host that says none, FLOP/s; a client without benchmarks assumes the same."""

SLOWEST_CLAIM: Final = 2.5e8
FASTEST_CLAIM: Final = 1e10
"""What a host's own benchmark counts for, FLOP/s; one core gives 10^9 to 10^10."""

FASTEST_FLOPS: Final = 1e12
"""No host is faster, FLOP/s: even there the bound is longer than our own limits."""

LEAST_FPOPS: Final = 1e8  # of a result: fetching and verifying it costs as much
START_S: Final = 3600
"""Longest time before a task begins (unpacking its runtime on a slow disk), s."""

GUESSED_SHARE: Final = 0.1
"""Part of the processor limit that an unknown task is taken to use."""

SAMPLES_KEPT: Final = 15
MARGIN: Final = 10.0  # `rsc_fpops_bound` is at least that many times the estimate
MIB: Final = 1024 * 1024
RUNTIME_MEMORY_BYTES: Final = 256 * MIB
"""What verifier and warm runtime hold beside the task, whose limit does not count them."""

SLOT_BYTES: Final = 64 * MIB
"""For what else lies in a slot: links, init_data.xml, stderr.txt, checkpoints."""

Claim = tuple[float, float]
"""What a host says of a valid result: processor time, s, and speed, FLOP/s; 0: nothing."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one result may use."""

    limits: RunLimits  # in force for one run
    runs: int = 1  # calls in it, at least 1
    input_bytes: int = 0  # of all its input files
    # of the runtime's tree, which lies beside the slots; 0 for none
    unpacked_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """BOINC's bounds of a workunit: FLOP and bytes."""

    fpops: float
    memory_bytes: int
    disk_bytes: int


def sample_of(claims: Iterable[Claim], demand: Demand) -> float | None:
    """Return what one run of a finished workunit took, FLOP; None where nobody says.

    The lower median of its valid results: a liar among them needs half of them.
    """
    works = [
        _work(*claim, demand) for claim in claims if math.isfinite(math.prod(claim))
    ]
    known = [work for work in works if work > 0]
    return _median(known) if known else None


def _work(cpu_s: float, flops: float, demand: Demand) -> float:
    """Return a result's work for one run, FLOP, within what the limits allow."""
    flops = flops if flops > 0 else REFERENCE_FLOPS
    flops = min(max(flops, SLOWEST_CLAIM), FASTEST_CLAIM)
    most = float(demand.limits.cpu_s) * demand.runs
    return min(max(cpu_s, 0.0), most) * flops / demand.runs


def add_sample(samples: Sequence[float], sample: float) -> tuple[float, ...]:
    """Return the newest `SAMPLES_KEPT` samples, oldest first."""
    return (*samples, sample)[-SAMPLES_KEPT:]


def estimate_fpops(
    demand: Demand, source: Sequence[float] = (), level: Sequence[float] = ()
) -> float:
    """Return `rsc_fpops_est` of a result, FLOP.

    Args:
        demand: of the result.
        source: samples of the same task module and entry.
        level: samples of its level, asked only where `source` is empty.
    """
    known, guess = source or level, demand.limits.cpu_s * GUESSED_SHARE
    run = _median(known) if known else guess * REFERENCE_FLOPS
    most = bounds_of(demand).fpops / MARGIN
    return min(max(run * demand.runs, LEAST_FPOPS), most)


def _median(samples: Sequence[float]) -> float:
    """Return the lower median."""
    return sorted(samples)[(len(samples) - 1) // 2]


def bounds_of(demand: Demand) -> Bounds:
    """Return what a client holds a result to.

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


_TABLE = schema.measurement
_SAMPLES = msgspec.msgpack.Decoder(tuple[float, ...])
KEPT_S: Final = 90 * 86_400
"""A source that nobody has run for so long is measured anew, s."""


class Samples:
    """Samples of some sources and levels, to estimate tasks from."""

    def __init__(self, known: Mapping[str, tuple[float, ...]]) -> None:
        self._known = known

    def knows(self, spec: TaskSpec) -> bool:
        """Whether this source has run before."""
        return _source(spec) in self._known

    def estimate(self, spec: TaskSpec, demand: Demand) -> float:
        """Return `rsc_fpops_est` of a task's result, FLOP."""
        source, level = (self._known.get(key, ()) for key in _keys(spec))
        return estimate_fpops(demand, source, level)


def demand_of(spec: TaskSpec, input_bytes: int = 0, unpacked_bytes: int = 0) -> Demand:
    """Return what one result of a task may use."""
    runs = max(1, spec.map_items)
    return Demand(spec.limits, runs, input_bytes, unpacked_bytes)


def load_samples(connection: Connection, specs: Iterable[TaskSpec]) -> Samples:
    """Return the samples that estimates of `specs` need."""
    wanted = {key for spec in specs for key in _keys(spec)}
    return Samples(_load(connection, wanted))


def note_measured(
    connection: Connection,
    spec: TaskSpec,
    valid: Iterable[ReceivedResult],
    now: int,
) -> None:
    """Keep what the valid results of a finished workunit took, if any says so."""
    claims = [(result.cpu_s, result.flops) for result in valid]
    sample = sample_of(claims, demand_of(spec))
    if sample is None:
        return
    known = _load(connection, _keys(spec))
    for key in _keys(spec):
        _store(connection, key, add_sample(known.get(key, ()), sample), now)


def _load(
    connection: Connection, keys: Collection[str]
) -> dict[str, tuple[float, ...]]:
    columns = [_TABLE.c.subject, _TABLE.c.samples]
    rows = select_in(connection, columns, _TABLE.c.subject, keys)
    return {row.subject: _SAMPLES.decode(row.samples) for row in rows}


def _store(
    connection: Connection, key: str, samples: tuple[float, ...], now: int
) -> None:
    values = {"samples": msgspec.msgpack.encode(samples), "updated_at": now}
    changed = connection.execute(
        update(_TABLE).where(_TABLE.c.subject == key).values(**values)
    )
    if not changed.rowcount:
        old = _TABLE.c.updated_at < now - KEPT_S
        connection.execute(delete(_TABLE).where(old))
        connection.execute(insert(_TABLE).values(subject=key, **values))


def _keys(spec: TaskSpec) -> tuple[str, str]:
    """Return the keys of a task's source and of its level."""
    return _source(spec), content_digest(f"level\0{spec.level}".encode())


def _source(spec: TaskSpec) -> str:
    return content_digest(f"source\0{spec.task_module}\0{spec.entry}".encode())
