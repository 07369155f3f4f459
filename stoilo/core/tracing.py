"""Spans from submit to result, for programs that have set up OpenTelemetry (extra `otel`).

Without its API, or without a provider, nothing is recorded and nothing is sent. A task's
context travels as W3C ``traceparent`` in gRPC metadata; a server keeps it in memory only:
it is in no database and no log, and a restart forgets it.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

trace: Any
try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import (
        TraceContextTextMapPropagator,
    )
except ModuleNotFoundError:
    trace = None

HEADER: Final = "traceparent"  # of a call for one task
MANY_HEADER: Final = (
    "stoilo-traceparents"  # of many, with commas: gRPC keeps one of HEADER
)
HEADER_CHARS: Final = 55  # of version 00; W3C Trace Context §3.2
MOST_SENT: Final = 64  # contexts of one call: all headers together have 8 KiB
MOST_KEPT: Final = 10_000  # tasks whose context a server remembers

_of_task: OrderedDict[str, str] = OrderedDict()


@contextlib.contextmanager
def span(name: str, parent: str = "", **attributes: str | int) -> Iterator[None]:
    """Record a span while the block runs; its parent is `parent`, else the present one."""
    options = {"context": _read(parent), "attributes": _named(attributes)}
    started = trace and _tracer().start_as_current_span(name, **options)
    with started or contextlib.nullcontext():
        yield


def note(**attributes: str | int) -> None:
    """Add attributes to the present span."""
    if trace is not None:
        trace.get_current_span().set_attributes(_named(attributes))


def present() -> str:
    """Return the present span as a ``traceparent``; empty without one."""
    carrier: dict[str, str] = {}
    if trace is not None:
        TraceContextTextMapPropagator().inject(carrier)
    return carrier.get(HEADER, "")


def record(name: str, task_id: str, began_ns: int, **attributes: str | int) -> None:
    """Record what has just ended for a task whose context is remembered."""
    parent = _of_task.get(task_id, "")
    if trace is not None and parent:
        told = _named({"task_id": task_id, **attributes})
        _tracer().start_span(
            name, context=_read(parent), start_time=began_ns, attributes=told
        ).end()


def headers(traces: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call for tasks with these contexts; none unless all have."""
    if not traces or not all(traces):
        return ()
    return ((HEADER if len(traces) == 1 else MANY_HEADER, ",".join(traces)),)


def begin(
    metadata: Iterable[Sequence[Any]] | None, task_ids: Sequence[str], began_ns: int
) -> None:
    """Record that a server has taken tasks; keep the contexts that their call brought.

    An empty id stands for a refused task. The oldest contexts are forgotten.
    """
    if trace is None:
        return
    name = HEADER if len(task_ids) == 1 else MANY_HEADER
    told = [str(value) for key, value in metadata or () if key == name]
    parents = told[0].split(",") if told else []
    if len(parents) != len(task_ids) or {*map(len, parents)} != {HEADER_CHARS}:
        return
    for task_id, parent in zip(task_ids, parents, strict=True):
        if task_id:
            _of_task[task_id] = parent
            record("stoilo.admit", task_id, began_ns)
    while len(_of_task) > MOST_KEPT:
        _of_task.popitem(last=False)


def _tracer() -> Any:  # noqa: ANN401 - the package may be missing
    return trace.get_tracer("stoilo")


def _read(parent: str) -> Any:  # noqa: ANN401 - same
    given = trace and parent
    return TraceContextTextMapPropagator().extract({HEADER: parent}) if given else None


def _named(attributes: dict[str, str | int]) -> dict[str, str | int]:
    return {f"stoilo.{key}": value for key, value in attributes.items()}
