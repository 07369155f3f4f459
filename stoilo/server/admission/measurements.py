"""What finished tasks took, kept for the next ones of the same source or level.

One sample a workunit, written in the transaction that gives its task the outcome: a crash
neither loses nor doubles it. Keys are digests, so nothing of a task can be read from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from sqlalchemy import delete, insert, update

from stoilo.core.digests import content_digest
from stoilo.server.admission.estimates import (
    Demand,
    Measurement,
    add_sample,
    estimate_fpops,
    sample_of,
)
from stoilo.server.db import schema
from stoilo.server.db.bulk import select_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sqlalchemy import Connection

    from stoilo.server.db.records import TaskSpec
    from stoilo.server.engines.interface import ReceivedResult

__all__ = ["Samples", "demand_of", "load_samples", "note_measured"]

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
        """Return `rsc_fpops_est` of a task's copy, FLOP."""
        source, level = (self._known.get(key, ()) for key in _keys(spec))
        return estimate_fpops(demand, source, level)


def demand_of(spec: TaskSpec, input_bytes: int = 0, unpacked_bytes: int = 0) -> Demand:
    """Return what one copy of a task may use."""
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
    """Keep what the valid copies of a finished workunit took, if any says so."""
    copies = [Measurement(result.cpu_s, result.flops) for result in valid]
    sample = sample_of(copies, demand_of(spec))
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
    return {subject: _SAMPLES.decode(samples) for subject, samples in rows}


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
