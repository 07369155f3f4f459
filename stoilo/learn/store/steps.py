"""One step of an optimiser at a shard, in the order that was declared.

All that a step needs lies in its cell: value, the optimiser's state, and the gradients that
came before their turn. So one transaction keeps them, a cell may move to another shard, and
how keys are dealt out changes no bit.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from stoilo.core.errors import UsageError
from stoilo.learn.core.states import State
from stoilo.learn.core.tensors import Array
from stoilo.learn.store.protocol import Cell, Change, Push, ShardOptimizer, Slot

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
