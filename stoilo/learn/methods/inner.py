"""Inner optimisers that go on from round to round, though no volunteer remembers anything.

The state of a data part's optimiser comes back with the answer and goes out with the part's
next order, stacked under each parameter. It was a volunteer's to write, so that it is made
sound before it is used: then no state can move a parameter further than an honest one could.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from stoilo.learn.methods.plans import LocalWork
from stoilo.learn.methods.states import join_states, read_int, read_table, select
from stoilo.learn.tensors import Array, Tensors
from stoilo.learn.work import Order, Plain, Reply, Snapshot, State

__all__ = ["InnerStates", "make_sound"]

_FIRST, _SECOND = 0.9, 0.999  # the kernels' betas
MOST_RATIO = (1.0 - _FIRST) / math.sqrt((1.0 - _SECOND) * (1.0 - _FIRST**2 / _SECOND))
"""AdamW's largest ``|first| / √second``, whatever the gradients (Cauchy, Schwarz)."""


class InnerStates:
    """The optimiser of each data part; nothing when the local work keeps none.

    Attributes:
        stride: by how much a round moves the version: an order with a state of its own
            starts from a version of its own, between those of two rounds.
    """

    def __init__(self, local: LocalWork, parts: int) -> None:
        self._local = local
        self.stride = parts + 1 if local.keep else 1
        self._rows: dict[str, Tensors] = {}
        self._made: dict[str, int] = {}

    def count_steps(self, part: int) -> int:
        """Return how many steps a part's optimiser has seen."""
        return self._made.get(str(part), 0)

    def attach(self, part: int, now: Snapshot) -> Snapshot:
        """Return what the part's order starts from: parameters and state, stacked."""
        if not self._local.keep:
            return now
        held = self._rows.get(str(part))
        count = self._local.count_rows() - 1
        stacked = {
            name: np.stack(
                [array, *(held[name] if held else np.zeros((count, *array.shape)))]
            ).astype(array.dtype)
            for name, array in now.parameters.items()
        }
        return Snapshot(now.version + 1 + part, stacked, now.buffers)

    def take(self, order: Order, reply: Reply) -> Reply:
        """Keep the state that an answer brings; return the answer without it."""
        if not self._local.keep:
            return reply
        part = str(order.part)
        rows = {name: array[1:] for name, array in reply.tensors.items()}
        is_adamw = self._local.optimizer == "adamw"
        self._rows[part] = make_sound(rows) if is_adamw else rows
        self._made[part] = self.count_steps(order.part) + int(
            str(order.settings["steps"])
        )
        parameters = {name: array[0] for name, array in reply.tensors.items()}
        return replace(reply, tensors=parameters)

    def save(self) -> State:
        """Return all states, each array as it is held."""
        made: dict[str, Plain] = dict(self._made)
        rows = {part: State(held, {}) for part, held in self._rows.items()}
        return join_states(rows=join_states(**rows), made=State({}, made))

    def load(self, state: State) -> None:
        """Take up saved states."""
        rows, made = select(state, "rows"), read_table(state.plain, "made")
        self._rows = {part: dict(select(rows, part).tensors) for part in rows.plain}
        self._made = {part: read_int(made, part) for part in made}


def make_sound(rows: Tensors) -> Mapping[str, Array]:
    """Return AdamW's two moments (2, …) as some gradients could have left them."""
    found = {}
    for name, (first, second) in rows.items():
        squares = np.maximum(second, 0.0)
        most = MOST_RATIO * np.sqrt(squares)
        found[name] = np.stack([np.clip(first, -most, most), squares])
    return found
