"""Programs as methods: rounds of all parts, or parts that are some rounds apart (SSP, ASP).

Sums of programs are exact, so that no answer is cut to a usual size. One that is far larger
than the others' is asked for once more, as another task, and counts when a second is like it:
a lie then has to be told twice in the same way.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Order, Reply, Snapshot
from stoilo.learn.core.states import Stateful
from stoilo.learn.core.tensors import Array, Tensors, safe_norm
from stoilo.learn.kernels import checks
from stoilo.learn.methods.base import Outcome, Piece, derive_order_seed
from stoilo.learn.methods.ssp import Clocked, iteration_of
from stoilo.learn.methods.synchronous import (
    Synchronous,
    SynchronousSettings,
    sum_gradients,
)
from stoilo.learn.store.clock import VectorClock
from stoilo.learn.store.functions import UpdateFunction

Key = TypeVar("Key", str, int)


@dataclass(frozen=True)
class Algorithm:
    """What a program is, wherever it runs.

    Attributes:
        start: name → array of doubles: what is looked for, and room for what parts add.
        kernel: ``(parameters, x, y) -> (loss, name → array)``; travels as source. The
            arrays have names and shapes of `start`, not necessarily all of them.
        step: ``(parameters, what all parts added) -> what changes``; runs here.
        rounds: how often.
        update: puts two parts' arrays together, zeros being neutral; their sum when None.
        own: ``(number of a part, its samples) -> name → array``: what the part keeps from
            round to round beside `start`; the kernel gets it and returns it, changed.
        check: ``(what the kernel got, what it gave) -> whether that can be``: answers that
            cannot are never used.
        is_lenient: whether a step may be made of parts that are some rounds apart: where
            nothing changes any more, it makes no difference.
    """

    start: Tensors
    kernel: Callable[..., tuple[float, Tensors]]
    step: Callable[[Tensors, Tensors], Tensors]
    rounds: int = 1
    update: UpdateFunction | None = None
    own: Callable[[int, int], dict[str, Array]] = lambda _, __: {}
    check: Callable[[Tensors, Tensors], bool] = lambda _, __: True
    is_lenient: bool = False

    def check_lenient(self) -> None:
        """Refuse a program whose steps need whole rounds; raises ``STO-T040``."""
        if not self.is_lenient or self.update is not None:
            raise UsageError(
                "STO-T040",
                "this program's steps are made of whole rounds: staleness must be 0",
                hint="k-means, PageRank, topics and the lasso by consensus may have one",
            )

    def fold(self, replies: Sequence[Reply]) -> dict[str, Array]:
        """Return what parts added, put together."""
        if self.update is None:
            return sum_gradients(replies)
        found = {
            name: [r.tensors[name] for r in replies] for name in replies[0].tensors
        }
        # Where nobody adds anything the function may not fit the array at all.
        return {
            name: functools.reduce(self.update.apply, arrays)
            if any(array.any() for array in arrays)
            else arrays[0]
            for name, arrays in found.items()
        }

    def begin(self, parts: Sequence[int]) -> dict[int, dict[str, Array]]:
        """Return what parts of so many samples keep at first."""
        return {index: self.own(index, size) for index, size in enumerate(parts)}

    def part(self, found: Tensors) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return what a part keeps of its answer, and what it adds."""
        added = {name: array for name, array in found.items() if name in self.start}
        return {n: a for n, a in found.items() if n not in added}, added


# An answer so many times as large as its round's usual one is asked for again.
FAR = 3.0


def find_far(replies: Mapping[Key, Reply]) -> set[Key]:
    """Return whose answers have an array far larger than usual, by the sample.

    As `rules.Clip` bounds them, each array on its own; of fewer than three answers none is
    usual.
    """
    usual = statistics.median(reply.samples for reply in replies.values())
    far: set[Key] = set()
    for name in next(iter(replies.values())).tensors if len(replies) > 2 else ():  # noqa: PLR2004 - a median of two is no majority
        sizes = {key: safe_norm({name: r.tensors[name]}) for key, r in replies.items()}
        means = [sizes[key] / reply.samples for key, reply in replies.items()]
        most = FAR * statistics.median(means)
        far |= {
            key
            for key, size in sizes.items()
            if 0.0 < most * max(replies[key].samples, usual) < size
        }
    return far


class _Doubts(Stateful):
    """Answers that wait for a second one like them."""

    kept = Stateful.kept | {"_held": dict[str, Reply], "_asked": dict[str, int]}

    def __init__(self) -> None:
        self._held: dict[str, Reply] = {}
        self._asked: dict[str, int] = {}

    def mark(self, order: Order, own: Tensors) -> Order:
        """Return the order with the part's own arrays; asked again, as another task."""
        again = self._asked.get(order.key)
        settings = {**order.settings, "again": again} if again else order.settings
        return replace(order, settings=settings, own=own)

    def confirms(self, key: str, reply: Reply) -> bool:
        """Return whether an answer is like the one before, and keep it if not."""
        near: Callable[..., bool] = checks.are_near
        before = self._held.get(key)
        if before is not None and near(before.tensors, reply.tensors):
            return True
        self._held[key] = reply
        self.ask(key)
        return False

    def ask(self, key: str) -> None:
        """Note that a piece of work is to be done again."""
        self._asked[key] = self._asked.get(key, 0) + 1

    def forget(self, keys: Iterable[str]) -> None:
        """Note that pieces of work are done."""
        for key in keys:
            self._held.pop(key, None)
            self._asked.pop(key, None)


class Rounds(Synchronous):
    """A program round by round; what is far from the others counts when confirmed."""

    kept = Synchronous.kept | {"_own": dict[int, dict[str, Array]]}
    parts = (*Synchronous.parts, "_doubts")

    def __init__(
        self, program: Algorithm, start: Snapshot, parts: Sequence[int]
    ) -> None:
        settings = SynchronousSettings(program.rounds, reduction="sum")
        super().__init__(start, parts, _Step(program), settings, combine=program.fold)
        self._program, self._doubts = program, _Doubts()
        self._own = program.begin(parts)

    def _order(self, key: str) -> Order:
        order = super()._order(key)
        return self._doubts.mark(order, self._own[order.part])

    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:
        if self._program.check(order.arrays, reply.tensors):
            return super()._count(order, reply, staleness)
        self._doubts.ask(order.key)
        self.lose(order)
        return Outcome(applied=False, epoch=self._epoch)

    def _advance(self) -> bool:
        if self._ledger.answered < self._ledger.size:
            return False
        for key in sorted(find_far(self._replies)):
            if not self._doubts.confirms(key, self._replies[key]):
                del self._replies[key]
                self._ledger.reopen(key)
        self._doubts.forget(self._replies if self._is_whole else ())
        return super()._advance()

    @property
    def _is_whole(self) -> bool:
        return len(self._replies) == self._ledger.size

    def _apply(self) -> None:
        for key, reply in self._replies.items():
            kept, added = self._program.part(reply.tensors)
            self._replies[key] = replace(reply, tensors=added)
            self._own[self._pieces[key].part] = kept
        super()._apply()


class Apart(Clocked):
    """A program whose parts may be some rounds apart: a worker of the clock each.

    Each part counts with its newest answer; a step is made of all with every answer that
    comes, once all have answered.
    """

    kept = Clocked.kept | {
        "_own": dict[int, dict[str, Array]],
        "_newest": dict[int, Reply],
    }
    parts = (*Clocked.parts, "_doubts")

    def __init__(
        self,
        program: Algorithm,
        start: Snapshot,
        parts: Sequence[int],
        staleness: int | None,
    ) -> None:
        clock = VectorClock(staleness)
        plan = {"rounds": program.rounds, "chunks": 1}
        super().__init__(start, parts, clock, **plan, staged=False)
        self._program, self._doubts = program, _Doubts()
        self._newest: dict[int, Reply] = {}
        self._own = program.begin(parts)

    def _order(self, key: str) -> Order:
        part, _ = iteration_of(key)
        piece = Piece(part, self._parts[part])
        order = piece.order(key, self._snapshot, derive_order_seed(0, key))
        return self._doubts.mark(order, self._own[part])

    def _count(self, order: Order, reply: Reply, staleness: int) -> Outcome:
        if self._is_sound(order, reply):
            return super()._count(order, reply, staleness)
        self.lose(order)
        return Outcome(applied=False, epoch=iteration_of(order.key)[1])

    def _is_sound(self, order: Order, reply: Reply) -> bool:
        if not self._program.check(order.arrays, reply.tensors):
            self._doubts.ask(order.key)
            return False
        _, added = self._program.part(reply.tensors)
        newest = {**self._newest, order.part: replace(reply, tensors=added)}
        is_far = order.part in find_far(newest)
        return not is_far or self._doubts.confirms(order.key, reply)

    def _change(self, order: Order, reply: Reply) -> Reply:
        self._doubts.forget([order.key])
        self._own[order.part], added = self._program.part(reply.tensors)
        return replace(reply, tensors=added)

    def _apply(self, changes: Mapping[int, Reply], iteration: int) -> None:  # noqa: ARG002 - the newest of all count
        self._newest |= changes
        if len(self._newest) < len(self._parts):
            return
        sums = self._program.fold([self._newest[part] for part in sorted(self._newest)])
        here, version = self._snapshot.parameters, self._snapshot.version + 1
        self._snapshot = Snapshot(version, _Step(self._program).step(here, sums))


class _Step(Stateful):
    """A program's step in the place of an optimiser's; all state is in the parameters."""

    rate = 1.0

    def __init__(self, program: Algorithm) -> None:
        self._program = program

    def step(self, parameters: Tensors, gradient: Tensors) -> dict[str, Array]:
        """Return the parameters after a round."""
        return {**parameters, **self._program.step(parameters, gradient)}
