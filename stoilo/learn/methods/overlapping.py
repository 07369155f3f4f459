"""Double buffering: computing of one step while the answers to another travel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stoilo.learn.core.orders import Order, Reply, Snapshot
from stoilo.learn.methods.base import Ledger, Piece
from stoilo.learn.methods.synchronous import Synchronous


class DoubleBuffered(Synchronous):
    """Two steps at once: the tasks of the next go out while this one's are collected.

    A step's tasks start from the parameters before the last update; the first two from the
    first version. It is the serial rule of gradients that come one step late, bit for bit:
    the first batch applies nothing while the second is computed, the last one is flushed.
    """

    kept = Synchronous.kept | {"_before": Snapshot, "_early": dict[str, Reply]}
    parts = (*Synchronous.parts, "_next")
    _before: Snapshot  # what the present step's tasks start from
    _early: dict[str, Reply]  # answers to the next step
    _next: Ledger

    def lose(self, order: Order) -> None:
        """Order it again, unless its step is over."""
        super().lose(order)
        self._next.lose(order.key)

    def _draw(self, room: int) -> Sequence[str]:
        keys = super()._draw(room)
        return [*keys, *self._next.draw(room - len(keys))]

    def _accept(self, key: str, reply: Reply) -> bool:
        if self._next.answer(key):
            self._early[key] = reply
            return True
        return super()._accept(key, reply)

    def _plan_open(self) -> Mapping[str, Piece]:
        place = self._epoch, self._step
        return {**self._plan(*place), **self._plan(*self._follow(*place))}

    def _begin(self) -> None:
        place = self._epoch, self._step
        if self._steps:
            # What was the next step is the present one, with the answers that it has.
            self._ledger, self._replies = self._next, self._early
        else:
            self._ledger = Ledger(self._plan(*place))
            self._before = self._snapshot
        self._early = {}
        self._next = Ledger(self._plan(*self._follow(*place)))
        self._pieces = self._plan_open()

    def _base_of(self, key: str) -> Snapshot:
        is_present = key.startswith(f"e{self._epoch}/s{self._step}/")
        return self._before if is_present else self._snapshot

    def _apply(self) -> None:
        now = self._snapshot
        super()._apply()
        self._before = now
