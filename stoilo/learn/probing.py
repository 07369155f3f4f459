"""A look at an order before anybody is trusted with it: a few samples, computed here.

It tells how large an honest answer can be, so that the very first answers of a run are
bounded like later ones (`stoilo.learn.robust` compares with a median, and at the beginning
there is none), and how long a sample takes.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from stoilo.learn.data import Part
from stoilo.learn.models import Model
from stoilo.learn.robust import safe_norm
from stoilo.learn.tensors import Tensors, add, forms_of
from stoilo.learn.transport import receive
from stoilo.learn.turns import take_turn
from stoilo.learn.work import Order, Plain

__all__ = ["Look", "expect_norm", "look_at", "measure_seconds", "runs_here"]

LOOKS = 4
"""How many small batches are looked at."""
WIDTH = 2
"""Samples of each: one alone is no batch for BatchNorm."""
MEASURED = 32
"""Samples of the batch that is timed."""


@dataclass(frozen=True, slots=True)
class Look:
    """What answers computed here were like.

    Attributes:
        norm: about the largest norm per sample of an honest answer; None: unknown.
        lacking: names of parameters that had no gradient in one of them at least.
        moves: buffer → about the largest norm of its change.
    """

    norm: float | None = None
    lacking: frozenset[str] = frozenset()
    moves: Mapping[str, float] = field(default_factory=dict)


def look_at(model: Model, order: Order, part: Part) -> Look:
    """Return what honest answers to orders like `order` are like.

    Generous: small batches' gradients are longer than large ones', and local steps are
    counted as if all went the same way. An empty look where nothing can be said, also
    when the researcher's function fails: volunteers will report that.
    """
    rows = _choose(order, part)
    looks = np.array_split(rows, min(LOOKS, max(1, len(rows) // WIDTH)))
    try:
        found = [_look(model, order, part, look[:WIDTH]) for look in looks]
    except Exception:  # noqa: BLE001 - the researcher's own code: volunteers report it
        return Look()
    largest = max(look.norm or 0.0 for look in found)
    return Look(
        largest if math.isfinite(largest) and largest > 0.0 else None,
        frozenset().union(*(look.lacking for look in found)),
        {name: max(look.moves[name] for look in found) for name in found[0].moves},
    )


def expect_norm(model: Model, order: Order, part: Part) -> float | None:
    """Return about the largest norm per sample of an honest answer to `order`."""
    return look_at(model, order, part).norm


def runs_here(model: Model, order: Order, part: Part) -> bool:
    """Return whether the whole order can be computed here: a volunteer says it cannot."""
    rows = tuple(_choose(order, part).tolist())
    try:
        _compute(model, replace(order, rows=rows), part)
    except Exception:  # noqa: BLE001 - the researcher's own code: so the volunteer is right
        return False
    return True


def measure_seconds(model: Model, order: Order, part: Part) -> float:
    """Return how long one sample of `order` takes on this computer, s.

    Raises:
        Exception: what the researcher's function raises.
    """
    rows = _choose(order, part)[:MEASURED]
    small = _shrink(order, rows)
    _compute(model, small, part)  # the first call also loads and allocates
    began = time.perf_counter()
    _compute(model, small, part)
    return (time.perf_counter() - began) / len(rows)


def _choose(order: Order, part: Part) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    rows = range(len(part)) if order.rows is None else order.rows
    return np.asarray(rows, np.int64)


def _look(model: Model, order: Order, part: Part, rows: np.ndarray) -> Look:
    raw = _compute(model, _shrink(order, rows), part)
    tensors, base = raw["tensors"], order.snapshot.parameters
    lacking = frozenset(base).difference(tensors) if _gives_gradients(order) else ()
    return Look(
        _norm(order, tensors, len(rows)),
        frozenset(lacking),
        _moves(order, raw["buffers"]),
    )


def _norm(order: Order, tensors: Tensors, samples: int) -> float:
    if order.kernel != "local_steps":
        return safe_norm(tensors) / samples
    base = order.snapshot.parameters
    moved = add(tensors, base, -1.0) if _gives_parameters(order) else tensors
    return safe_norm(moved) * _count_steps(order.settings) / order.samples


def _moves(order: Order, buffers: Tensors) -> dict[str, float]:
    """Return how far each buffer went, times the steps that are ordered."""
    steps = order.settings.get("steps", 1)
    times = float(steps) if isinstance(steps, int) else 1.0
    base = order.snapshot.buffers
    return {
        name: times * safe_norm({name: array.astype(np.float64) - base[name]})
        for name, array in buffers.items()
        if np.issubdtype(array.dtype, np.floating)
    }


def _gives_gradients(order: Order) -> bool:
    return order.kernel == "gradient" or order.settings.get("give") == "sum"


def _gives_parameters(order: Order) -> bool:
    return order.settings.get("give") == "parameters"


def _count_steps(settings: Mapping[str, Plain]) -> float:
    """Return for how many steps of a start without momentum the order's steps count."""
    steps, momentum = settings.get("steps", 1), settings.get("momentum", 0.0)
    if not isinstance(steps, int) or not isinstance(momentum, (int, float)):
        return 1.0
    held = settings.get("give") == "parameters" and 0.0 <= momentum < 1.0
    return steps / (1.0 - momentum) if held else float(steps)


def _shrink(order: Order, rows: np.ndarray) -> Order:
    """Return the order for so few samples, in one step."""
    settings = {**order.settings}
    if order.kernel == "local_steps":
        settings |= {"steps": 1, "batch": 0}
    return replace(
        order, rows=tuple(rows.tolist()), samples=len(rows), settings=settings
    )


def _compute(model: Model, order: Order, part: Part) -> dict[str, Tensors]:
    """Return what would arrive of a volunteer; the caller's objects stay as they are."""
    rows = list(order.rows or ())  # only these are copied: a part may be large
    small = part.take(rows)
    kwargs = {
        **model.constants(),
        "parameters": dict(order.snapshot.parameters),
        "buffers": dict(order.snapshot.buffers),
        "data": {"x": small.x, "y": small.y},
        "rows": None,
        "settings": dict(order.settings),
        "version": order.snapshot.version,
    }
    with take_turn(model.level):
        answer = model.kernel(order.kernel)(copy.deepcopy(kwargs))
    arrived = receive(answer, order, forms_of(order.snapshot.parameters))
    return cast("dict[str, Tensors]", arrived)
