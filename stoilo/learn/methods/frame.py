"""What all methods have in common: the newest version, and an account of each answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stoilo.learn.methods.states import (
    join_states,
    load_snapshot,
    save_snapshot,
    select,
)
from stoilo.learn.work import Order, Reply, Snapshot, State, Update

__all__ = ["Frame", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an answer did to a method.

    Attributes:
        applied: whether it counted.
        epoch: number of the epoch that it belongs to, from 0.
        ended: whether that epoch is complete now.
        late: keys of orders that are out and hold up nothing any more.
        given_up: keys of orders that are out and whose answers would not count.
    """

    applied: bool
    epoch: int
    ended: bool = False
    late: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()


class Frame(ABC):
    """A `stoilo.learn.work.Method` whose rules a subclass brings.

    It says which keys are to be given out (`_draw`), what a key's order is (`_order`), what
    an answer does (`_count`), and which states beside the newest version are its own.
    """

    def __init__(self, start: Snapshot) -> None:
        self._snapshot = start

    @property
    def snapshot(self) -> Snapshot:
        """The newest version."""
        return self._snapshot

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether nothing is left to be ordered; what is still out no longer matters."""

    def next_orders(self, room: int) -> Sequence[Order]:
        """Return at most `room` further orders; none when it must wait for replies."""
        if self.finished:
            return []
        return [self._order(key) for key in self._draw(room)]

    def take(self, order: Order, reply: Reply) -> Update:
        """Let the first answer to an order count, unless it comes too late."""
        staleness = max(0, self._snapshot.version - reply.version)
        outcome = self._count(order, reply, staleness)
        return Update(
            key=order.key,
            version=self._snapshot.version,
            applied=outcome.applied,
            loss=reply.loss_sum / reply.samples,
            samples=reply.samples,
            staleness=staleness,
            epoch=outcome.epoch,
            epoch_ended=outcome.ended,
            late=outcome.late,
            given_up=outcome.given_up,
        )

    @abstractmethod
    def lose(self, order: Order) -> None:
        """Give the order's work out again, unless it no longer matters."""

    def save(self) -> State:
        """Return the newest version and the method's own states."""
        return join_states(now=save_snapshot(self._snapshot), **self._save())

    def load(self, state: State) -> None:
        """Go on from a saved state.

        Raises:
            UsageError: ``STO-T041`` when it is of another method or model.
        """
        self._snapshot = load_snapshot(select(state, "now"), self._snapshot)
        self._load(state)

    @abstractmethod
    def _draw(self, room: int) -> Sequence[str]:
        """Return the keys of what goes out now."""

    @abstractmethod
    def _order(self, key: str) -> Order:
        """Return the order of a key that was drawn."""

    @abstractmethod
    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:
        """Let an answer count; `staleness` in versions."""

    @abstractmethod
    def _save(self) -> Mapping[str, State]:
        """Return the method's own states by name."""

    @abstractmethod
    def _load(self, state: State) -> None:
        """Take up what `_save` gave; the newest version is there already."""
