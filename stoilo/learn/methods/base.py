"""What all methods have in common: the newest version, and an account of each answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stoilo.learn.core.orders import Order, Plain, Reply, Snapshot, State, Update
from stoilo.learn.core.states import (
    join_states,
    load_snapshot,
    read_int,
    read_keys,
    read_table,
    save_snapshot,
    select,
)


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


class MethodBase(ABC):
    """A `stoilo.learn.core.orders.Method` whose rules a subclass brings.

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
        # A ray starts from a version that is not the newest yet: never below 0.
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


class Ledger:
    """The keys of one round."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._waiting = list(keys)
        self._out: dict[str, int] = {}  # copies; the oldest first
        self._done: list[str] = []

    @property
    def size(self) -> int:
        """How many keys the round has."""
        return len(self._waiting) + len(self._out) + len(self._done)

    @property
    def answered(self) -> int:
        """How many keys are answered."""
        return len(self._done)

    @property
    def outstanding(self) -> tuple[str, ...]:
        """Keys that are out, the oldest first."""
        return tuple(self._out)

    def draw(self, room: int) -> list[str]:
        """Return at most `room` keys to give out now."""
        drawn, self._waiting = (
            self._waiting[: max(room, 0)],
            self._waiting[max(room, 0) :],
        )
        self._out |= dict.fromkeys(drawn, 1)
        return drawn

    def draw_backups(self, room: int, share: float, copies: int = 2) -> list[str]:
        """Return the oldest keys that are out, near the round's end, to give out again.

        Args:
            room: at most so many.
            share: only when not more than this share of the round is unanswered.
            copies: most copies of one key, the first included.
        """
        if self._waiting or len(self._out) > share * self.size:
            return []
        # The oldest first: most likely their hosts are slow or gone.
        oldest = [key for key, out in self._out.items() if out < copies]
        drawn = oldest[: max(room, 0)]
        for key in drawn:
            self._out[key] += 1
        return drawn

    def draw_all(self, room: int, share: float) -> list[str]:
        """Return keys to give out now and, with a share, then backup copies."""
        keys = self.draw(room)
        return keys + self.draw_backups(room - len(keys), share) if share else keys

    def answer(self, key: str) -> bool:
        """Note an answer; return whether it is the first to a key of this round."""
        if self._out.pop(key, 0) == 0:
            return False
        self._done.append(key)
        return True

    def lose(self, key: str) -> None:
        """Note that one copy is lost; the key waits again when none is left."""
        if key not in self._out:
            return
        self._out[key] -= 1
        if self._out[key] == 0:
            del self._out[key]
            # To the back: a key that fails again and again must not hold up the others.
            self._waiting.append(key)

    def save(self) -> State:
        """Return the round as plain data."""
        plain: dict[str, Plain] = {
            "waiting": list(self._waiting),
            "out": [*self._out],  # their order is their age: a table may lose it
            "copies": dict(self._out),
            "done": list(self._done),
        }
        return State({}, plain)

    @classmethod
    def load(cls, state: State) -> Ledger:
        """Return the round that `save` gave."""
        plain = state.plain
        ledger = cls(read_keys(plain, "waiting"))
        copies = read_table(plain, "copies")
        ledger._out = {key: read_int(copies, key) for key in read_keys(plain, "out")}
        ledger._done = read_keys(plain, "done")
        return ledger
