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
    if trace is None:
        yield
        return
    with _tracer().start_as_current_span(
        name, context=_read(parent), attributes=_named(attributes)
    ):
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


def remember(task_id: str, parent: str) -> None:
    """Keep the context that a task came with; the oldest is forgotten for it."""
    if parent:
        _of_task[task_id] = parent
        while len(_of_task) > MOST_KEPT:
            _of_task.popitem(last=False)


def headers(traces: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call for tasks with these contexts; none unless all have."""
    if not traces or not all(traces):
        return ()
    return ((HEADER if len(traces) == 1 else MANY_HEADER, ",".join(traces)),)


def contexts(metadata: Iterable[Sequence[Any]] | None, count: int) -> list[str]:
    """Return the context of each of `count` requests of one call, empty where none came."""
    if trace is None:
        return [""] * count
    name = HEADER if count == 1 else MANY_HEADER
    told = [str(value) for key, value in metadata or () if key == name]
    found = told[0].split(",") if told else []
    fit = len(found) == count and all(len(one) == HEADER_CHARS for one in found)
    return found if fit else [""] * count


def _tracer() -> Any:  # noqa: ANN401 - the package may be missing
    return trace.get_tracer("stoilo")


def _read(parent: str) -> Any:  # noqa: ANN401 - same
    if not parent:
        return None
    return TraceContextTextMapPropagator().extract({HEADER: parent})


def _named(attributes: dict[str, str | int]) -> dict[str, str | int]:
    return {f"stoilo.{key}": value for key, value in attributes.items()}
