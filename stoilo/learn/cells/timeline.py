"""What each stage of a pipeline did when: as a trace that browsers open, and as a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from stoilo.core.errors import UsageError
from stoilo.learn.core.picture import Box, Shape, Text, paint_png

Kind: TypeAlias = Literal["F", "B", "wait", "sync"]

_COLOURS = {"F": "#4a90d9", "B": "#e8963c", "wait": "#ddd", "sync": "#5a9e4b"}
_NAMES = {"F": "forward", "B": "backward", "wait": "wait", "sync": "sync"}


@dataclass(frozen=True)
class Span:
    """What one replica of a stage did without a break.

    Attributes:
        kind: forward, backward, waiting for a neighbour, or adding gradients up.
        begin_s: by a clock that all of them share, s.
    """

    stage: int
    kind: Kind
    batch: int
    begin_s: float
    end_s: float
    replica: int = 0


def measure_utilisation(spans: Sequence[Span]) -> float:
    """Return the share of time, from the first begin to the last end, that is computing."""
    begin, end = _check(spans)
    busy = sum(one.end_s - one.begin_s for one in spans if one.kind in {"F", "B"})
    return busy / ((end - begin) * len(_list_rows(spans)))


def render_trace(spans: Sequence[Span]) -> str:
    """Return spans in the Trace Event Format: for Perfetto or ``chrome://tracing``.

    A stage is a process there, a replica a thread; each span is a complete event (``X``)
    with begin and duration in µs.
    """
    begin, _ = _check(spans)
    rows = _list_rows(spans)
    named = [
        *(_name("process", f"stage {stage}", stage, 0) for stage in dict(rows)),
        *(
            _name("thread", f"replica {replica}", stage, replica)
            for stage, replica in rows
        ),
    ]
    events = [
        {
            "name": f"{one.kind} {one.batch}",
            "cat": _NAMES[one.kind],
            "ph": "X",
            "ts": (one.begin_s - begin) * 1e6,
            "dur": (one.end_s - one.begin_s) * 1e6,
            "pid": one.stage,
            "tid": one.replica,
            "args": {"batch": one.batch},
        }
        for one in spans
    ]
    return json.dumps({"traceEvents": [*named, *events], "displayTimeUnit": "ms"})


def _name(of: str, name: str, stage: int, replica: int) -> dict[str, object]:
    place = {"pid": stage, "tid": replica}
    return {"name": f"{of}_name", "ph": "M", **place, "args": {"name": name}}


def draw_timeline(spans: Sequence[Span], width: int = 1000) -> bytes:
    """Return a PNG: a row for each replica of each stage, batches by their number.

    Raises:
        UsageError: ``STO-T040``: there are no spans, or one ends before it begins;
            ``STO-U002``: pillow is missing.
    """
    begin, end = _check(spans)
    rows = {row: 30 + 26 * number for number, row in enumerate(_list_rows(spans))}
    left = 90
    per_s = (width - left - 10) / (end - begin)
    high = 56 + 26 * len(rows)
    shapes: list[Shape] = [
        Text(4, top + 15, f"stage {stage}" + (f" · {replica}" if replica else ""))
        for (stage, replica), top in rows.items()
    ]
    # Waits lie below: what was computed is never hidden by them.
    for one in sorted(spans, key=lambda span: span.kind != "wait"):
        x, top = left + (one.begin_s - begin) * per_s, rows[one.stage, one.replica]
        wide = (one.end_s - one.begin_s) * per_s
        shapes.append(Box(x, top, max(wide - 0.5, 0.5), 22, _COLOURS[one.kind]))
        words = str(one.batch)
        if one.kind in {"F", "B"} and wide > 8 * len(words):
            shapes.append(Text(x + 2, top + 15, words, "#fff"))
    for number, (kind, colour) in enumerate(_COLOURS.items()):
        shapes.append(Box(left + 110 * number, 8, 12, 12, colour))
        shapes.append(Text(left + 16 + 110 * number, 18, _NAMES[kind]))
    shapes.append(Text(left, high - 8, "0 s"))
    shapes.append(Text(width - 10, high - 8, f"{end - begin:.4g} s", ends=True))
    return paint_png(shapes, width, high)


def _list_rows(spans: Sequence[Span]) -> list[tuple[int, int]]:
    return sorted({(one.stage, one.replica) for one in spans})


def _check(spans: Sequence[Span]) -> tuple[float, float]:
    """Return first begin and last end, s; raises ``STO-T040``."""
    begin = min((one.begin_s for one in spans), default=0.0)
    end = max((one.end_s for one in spans), default=0.0)
    backwards = any(not one.begin_s <= one.end_s for one in spans)
    if backwards or not end > begin:
        raise UsageError(
            "STO-T040", "a timeline needs spans, each with begin before end"
        )
    return begin, end
