"""Whether a training method goes on from a checkpoint as if nothing had happened."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stoilo.learn.core.orders import Method, Order, Update
from stoilo.learn.core.states import State
from tests.support.learning import Answer

__all__ = ["Drive", "store"]


def store(state: State) -> State:
    """Return the state as a checkpoint gives it back: JSON's types, arrays by name.

    The arrays that were given become read-only: whoever changes one in place, which a
    checkpoint would not see, fails.
    """
    for array in state.tensors.values():
        array.flags.writeable = False
    tensors = {name: state.tensors[name].copy() for name in sorted(state.tensors)}
    return State(tensors, json.loads(json.dumps(state.plain)))


@dataclass(slots=True)
class Drive:
    """A method with some orders in flight, driven by a list of choices.

    Attributes:
        method: what is driven.
        answer: the volunteers.
        room: most orders in flight.
        flying: orders in flight, the driver's own knowledge.
        updates: what the answers did.
    """

    method: Method
    answer: Answer
    room: int = 3
    flying: list[Order] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)

    def turn(self, choice: int) -> None:
        """Fill the room; then answer, or for every fifth choice lose, one order."""
        if self.method.finished:
            return
        self.flying += self.method.next_orders(self.room - len(self.flying))
        order = self.flying.pop(choice % len(self.flying))
        if order.key in self.answered:
            return
        if choice % 5 == 0:
            self.method.lose(order)
            return
        self.answered.add(order.key)
        self.updates.append(self.method.take(order, self.answer(order)))

    def resume(self, fresh: Callable[[], Method]) -> Drive:
        """Return a drive from the checkpoint of this one, with a method made anew."""
        method = fresh()
        method.load(store(self.method.save()))
        known = set(self.answered)
        return Drive(method, self.answer, self.room, list(self.flying), [], known)

    def run(self, choices: Sequence[int]) -> list[Update]:
        """Take all turns; return the updates that they made."""
        start = len(self.updates)
        for choice in choices:
            self.turn(choice)
        return self.updates[start:]
