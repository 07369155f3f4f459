"""Update functions and optimisers: what may be done to a value, by name.

A push names a function and brings a change: the new value is ``function(value, change)``.
Functions must commute (``f(f(v, a), b) == f(f(v, b), a)``), for replies come in any order,
and must not change their arguments in place. They are captured and judged by the gate like
any task, the built-in ones too, and called in the researcher's own process; a shard's file
remembers the digest of each one's source, so that no other function of that name goes on.

An optimiser steps in the order that was declared. All that a step needs lies in its cell:
value, the optimiser's state, and the gradients that came before their turn. So one
transaction keeps them, a cell may move, and how keys are dealt out changes no bit.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from stoilo.client.capture.modules import capture_calls
from stoilo.core.digests import content_digest
from stoilo.core.errors import PolicyRefusal, UsageError
from stoilo.core.types import Severity
from stoilo.learn.core.states import State
from stoilo.learn.core.tensors import Array
from stoilo.learn.store.protocol import Cell, Change, Push, ShardOptimizer, Slot
from stoilo.learn.store.values import Value, check_kind, encode
from stoilo.policies.gate import GateRequest, judge


def add(value: float, change: float) -> float:
    """Return the sum; of arrays, entry by entry."""
    return value + change


def largest(value: float, change: float) -> float:
    """Return the larger; of arrays, entry by entry."""
    found: float = np.maximum(value, change)
    return found


def count(value: dict[str, float], change: dict[str, float]) -> dict[str, float]:
    """Return the counts of both together."""
    found = dict(value)
    for name, number in change.items():
        found[name] = found.get(name, 0) + number
    return found


def merge(value: dict[str, float], change: dict[str, float]) -> dict[str, float]:
    """Return the names of both; where both have one, the larger number."""
    found = dict(value)
    for name, number in change.items():
        found[name] = max(found.get(name, number), number)
    return found


def tick(value: dict[str, float], change: dict[str, float]) -> dict[str, float]:
    """Return a vector clock after events; see `stoilo.learn.store.clock.SharedClock`.

    Clocks by worker, the time, which never goes back, under no name. An event is the clock
    that a worker has reached (infinite: it has finished), -1 where it joins, or -2 - c where
    it is given up at clock c; what does not follow from its present clock changes nothing.
    """
    found, endless = dict(value), float("inf")
    for worker, number in change.items():
        clock = found.get(worker, endless)
        if number == -1 and clock == endless:
            found[worker] = found[""]
        elif number == -2 - clock:
            del found[worker]
        elif worker in found and number in (clock + 1, endless):
            found[worker] = number
    slowest = min([found[worker] for worker in found if worker], default=endless)
    if slowest < endless:
        found[""] = max(found[""], slowest)
    return found


LEVELS = frozenset({"pure", "numeric"})  # what an update function may need at most


@dataclass(frozen=True, slots=True)
class Probe:
    """A value and two changes on which a function must show that it commutes."""

    value: Any
    one: Any
    other: Any


@dataclass(frozen=True, slots=True)
class UpdateFunction:
    """A registered function."""

    name: str  # how pushes call it
    apply: Callable[[Any, Any], Any]  # ``(value, change) -> value``
    digest: str  # of the captured source
    level: str  # lowest level that admits it
    source: str  # as captured: what a shard's own process runs
    entry: str  # the function of `source` that takes ``{"args": […], "kwargs": {}}``


def register(
    name: str, function: Callable[[Any, Any], Any], probe: Probe
) -> UpdateFunction:
    """Return `function` under `name` when gate and probe let it pass.

    Raises:
        PolicyRefusal: ``STO-T070``, the gate refuses the source or it needs a higher
            level than `LEVELS`.
        UsageError: ``STO-T070``, it does not commute on the probe or changes it;
            ``STO-C001`` … where it cannot be captured.
    """
    captured = capture_calls(function, [{"args": [], "kwargs": {}}], spread=True)
    return _admitted(name, function, probe, captured.task_module, captured.entry)


def _admitted(
    name: str,
    function: Callable[[Any, Any], Any],
    probe: Probe,
    source: str,
    entry: str,
) -> UpdateFunction:
    # The gate, though it runs here: a server of the project is no way around it.
    level = judge_function(name, source, entry)
    _check_commutes(name, function, probe)
    digest = content_digest(source.encode())
    return UpdateFunction(name, function, digest, level, source, entry)


def judge_function(name: str, source: str, entry: str) -> str:
    """Return the lowest level that admits a function, or raise ``STO-T070``."""
    verdict = judge(GateRequest(source.encode(), entry=entry))
    if not verdict.admitted or verdict.lowest_level not in LEVELS:
        errors = [f for f in verdict.findings if f.severity is Severity.ERROR]
        why = errors[0].message if errors else f"needs level {verdict.lowest_level}"
        raise PolicyRefusal("STO-T070", f"update function {name[:40]!r}: {why}")
    return verdict.lowest_level


def _check_commutes(
    name: str, function: Callable[[Any, Any], Any], probe: Probe
) -> None:
    before = _bytes_of(probe)
    one_first = function(function(probe.value, probe.one), probe.other)
    other_first = function(function(probe.value, probe.other), probe.one)
    if not _same(one_first, other_first) or _bytes_of(probe) != before:
        raise UsageError(
            "STO-T070",
            f"update function {name[:40]!r} depends on the order of its changes, "
            "or changes its arguments",
        )


def _bytes_of(probe: Probe) -> list[bytes]:
    values = (probe.value, probe.one, probe.other)
    for value in values:
        check_kind(value)
    return [encode(value) for value in values]


def _same(one: Value, other: Value) -> bool:
    if isinstance(one, dict) or isinstance(other, dict):
        return one == other
    return bool(np.allclose(one, other, rtol=1e-9, atol=1e-12, equal_nan=True))


_COUNTS = Probe({"a": 1}, {"a": 2, "b": 1}, {"a": 3, "c": 4})
# What capture would write, had it not to refuse stoilo's own modules.
_MODULE = """import numpy as np


{source}

def run_task(call):
    return {function}(*call["args"], **call["kwargs"])
"""
_BUILT_IN: Mapping[str, tuple[Callable[[Any, Any], Any], Probe]] = {
    "add": (add, Probe(1.0, 2.0, 3.0)),
    "max": (largest, Probe(1.0, 2.0, 3.0)),
    "count": (count, _COUNTS),
    "merge": (merge, _COUNTS),
    "tick": (tick, Probe({"": 0, "a": 0, "b": 0}, {"a": 1}, {"b": 1})),
}


@functools.cache
def built_in() -> Mapping[str, UpdateFunction]:
    """Return the functions that every server knows: judged and probed like any other."""
    found = {}
    for name, (function, probe) in _BUILT_IN.items():
        text = _MODULE.format(
            source=inspect.getsource(function), function=function.__name__
        )
        found[name] = _admitted(name, function, probe, text, "run_task")
    return found


def check_value(name: str, before: Value, after: object) -> Value:
    """Return what function `name` made of `before` when it is a value of that kind.

    Arrays keep their type.

    Raises:
        UsageError: ``STO-T068``, it is no value, or an array of another shape.
    """
    if isinstance(after, np.generic) and not isinstance(before, np.ndarray):
        after = after.item()
    if isinstance(before, np.ndarray):
        found = np.asarray(after)
        if found.shape == before.shape:
            return found.astype(before.dtype, copy=False)
    elif isinstance(before, dict) == isinstance(after, dict) and isinstance(
        after, int | float | dict
    ):
        return after
    raise UsageError(
        "STO-T068",
        f"{name[:40]!r} made {type(after).__name__} of {type(before).__name__}, "
        "or changed a shape",
    )


_KEY = "w"  # what an optimiser calls the one value that it moves


def advance(optimizer: ShardOptimizer, cell: Cell, change: Change, push: Push) -> Cell:
    """Return a cell with one more push: the steps whose turn has come are made.

    Raises:
        UsageError: ``STO-T068``, no gradient of that value; ``STO-T074``, another optimiser
            moves it, or the push has no place in the order.
    """
    slot = cell.slot or Slot(optimizer.name)
    if slot.name != optimizer.name:
        raise _misplaced(f"{change.key[:60]!r} is moved by {slot.name[:40]!r}")
    value, given = cell.value, change.change
    if not (
        isinstance(value, np.ndarray)
        and isinstance(given, np.ndarray)
        and given.shape == value.shape
    ):
        raise UsageError("STO-T068", f"no gradient of {change.key[:60]!r}")
    if not optimizer.order:
        return _step(optimizer, replace(cell, slot=slot), given, change.factor)
    if push.sequence != cell.marks.get(push.source, -1) + 1:
        raise _misplaced(f"{push.source[:40]!r} leaves a clock out")
    slot = _queue(optimizer, slot, push, (given, change.factor))
    return _catch_up(optimizer, replace(cell, slot=slot))


def _queue(
    optimizer: ShardOptimizer, slot: Slot, push: Push, item: tuple[Array, float]
) -> Slot:
    run, _, worker = push.source.rpartition("/")
    if run != slot.run:
        if slot.waiting:
            raise _misplaced(f"pushes of run {slot.run[:40]!r} still wait")
        slot = replace(slot, run=run, turn=0)
    if worker not in optimizer.order:
        raise _misplaced(f"{worker[:40]!r} is not among the workers")
    return replace(slot, waiting={**slot.waiting, f"{push.sequence}/{worker}": item})


def _catch_up(optimizer: ShardOptimizer, cell: Cell) -> Cell:
    """Make all steps whose turn it is."""
    while (slot := cell.slot) is not None:
        clock, place = divmod(slot.turn, len(optimizer.order))
        key = f"{clock}/{optimizer.order[place]}"
        if key not in slot.waiting:
            break
        gradient, factor = slot.waiting[key]
        left = {name: one for name, one in slot.waiting.items() if name != key}
        slot = replace(slot, waiting=left, turn=slot.turn + 1)
        cell = _step(optimizer, replace(cell, slot=slot), gradient, factor)
    return cell


def _step(
    optimizer: ShardOptimizer, cell: Cell, gradient: Array, factor: float
) -> Cell:
    slot, moving = cell.slot or Slot(optimizer.name), optimizer.make()
    rate = moving.rate
    if slot.plain:
        moving.load(State(slot.tensors, slot.plain))
    moving.rate = rate * factor
    value = moving.step({_KEY: np.asarray(cell.value)}, {_KEY: gradient})[_KEY]
    state = moving.save()
    slot = replace(slot, tensors=dict(state.tensors), plain=dict(state.plain))
    return replace(cell, value=value, slot=slot)


def _misplaced(why: str) -> UsageError:
    return UsageError("STO-T074", f"a push to an optimiser: {why}")
