"""Copies of each piece of work, for whatever method: compared, or the first one counts.

An order of the method goes out once for each owner of its block, as tasks of their own
(``e0/s3/p7@1/n2`` is copy 1, of node 2). It counts when `agree` answers are the same; one
that differs from them is named, and a further node computes the block. What is out for
`timeout_s` goes out once more (the rescue); after a second time a method that waits for it
ends with an error, while one that waits for nobody goes on and is given the copy again.

Two copies are checked by each other only where different computers answer them: nothing
here keeps one computer from getting both. Where that matters, a server's own redundancy
(``CreateOptions(min_quorum=2)``) gives out copies to different ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from stoilo.core.errors import InternalError, UsageError
from stoilo.learn.core.assignments import Assignment
from stoilo.learn.core.orders import (
    Method,
    Order,
    OrderRow,
    Reply,
    Snapshot,
    Update,
)
from stoilo.learn.core.states import State, Stateful
from stoilo.learn.kernels import checks

LOGGER = logging.getLogger(__name__)
FURTHER = 3  # nodes beyond a block's owners that are asked before it is given up


class Wrapped(Method, Protocol):
    """A method, and what tells it from others."""

    settings: Any


@dataclass(slots=True)
class _Work:
    """A piece of work that the method has ordered."""

    row: OrderRow  # the order, without the version
    due: int  # copies that are still to go out
    asked: int = 1  # how often the method ordered it
    given: int = 0  # copies that went out
    out: list[str] = field(default_factory=list)  # their keys
    replies: dict[str, Reply] = field(default_factory=dict)
    rescued: bool = False
    late: bool = False  # whether it holds up nothing any more


class Copied(Stateful):
    """A `Method` whose every order is computed by the owners of its block.

    Attributes:
        method: what is trained by; its data part k is block k of the assignment.
        disputes: keys of answers that stood alone against an agreement, the newest last.
    """

    kept = Stateful.kept | {
        "_works": dict[str, _Work],
        "_bases": dict[str, Snapshot],
        "_epoch": int,
        "disputes": list[str],
    }
    parts = ("method",)

    def __init__(
        self,
        method: Wrapped,
        assignment: Assignment,
        *,
        agree: int = 1,  # equal answers that a block needs to count
        timeout_s: float | None = None,
        waits: bool = True,  # whether the method stands still without an answer
    ) -> None:
        if not 1 <= agree <= assignment.redundancy:
            raise UsageError(
                "STO-T040",
                f"{agree} answers of {assignment.redundancy} cannot agree",
                hint="1 ≤ agree ≤ redundancy",
            )
        self.method, self.assignment = method, assignment
        self.agree, self.timeout_s, self.waits = agree, timeout_s, waits
        self.disputes: list[str] = []
        self._works: dict[str, _Work] = {}
        self._bases: dict[str, Snapshot] = {}  # versions that open works start from
        self._epoch = 0
        self._now: float | None = None
        self._since: dict[str, float] = {}  # when a work's last copy went out, s

    @property
    def settings(self) -> dict[str, object]:
        """What a checkpoint knows the training by."""
        return {
            "method": type(self.method).__name__,
            "of it": self.method.settings,
            "owners": self.assignment.owners,
            "agree": self.agree,
        }

    @property
    def optimizer(self) -> object:
        """The method's; None where it has none."""
        return getattr(self.method, "optimizer", None)

    @property
    def schedule(self) -> object:
        """The method's."""
        return getattr(self.method, "schedule", None)

    @property
    def snapshot(self) -> Snapshot:
        """The newest version of the parameters."""
        return self.method.snapshot

    @property
    def finished(self) -> bool:
        """Whether the method is finished."""
        return self.method.finished

    def next_orders(self, room: int) -> Sequence[Order]:
        """Return at most `room` copies: of what is open first, then of new orders."""
        orders = [] if self.finished else self._draw(room)
        while len(orders) < room and not self.finished:
            copies = self.assignment.redundancy
            fresh = self.method.next_orders(max(1, (room - len(orders)) // copies))
            for order in fresh:
                self._open(order)
            orders += self._draw(room - len(orders))
            if not fresh:
                break
        return orders

    def _open(self, order: Order) -> None:
        version = str(order.snapshot.version)
        self._bases.setdefault(version, order.snapshot)
        if order.key in self._works:  # a backup of the method's own
            self._works[order.key].due += 1
            self._works[order.key].asked += 1
        else:
            owners = self.assignment.owners[order.part]
            self._works[order.key] = _Work(OrderRow.of(order), len(owners))

    def _draw(self, room: int) -> list[Order]:
        found: list[Order] = []
        for name, work in self._works.items():
            ring = self.assignment.order_of(work.row.part)
            while work.due and len(found) < room:
                key = f"{name}@{work.given}/n{ring[work.given % len(ring)]}"
                found.append(work.row.open(self._bases[str(work.row.version)], key))
                work.out.append(key)
                work.due, work.given = work.due - 1, work.given + 1
                if self._now is not None:
                    self._since[name] = self._now
        return found

    def take(self, order: Order, reply: Reply) -> Update:
        """Count the work once enough copies agree; a copy that waits for others does not."""
        work = self._works.get(order.work)
        if work is None or order.key not in work.out:
            return self._wait(order, reply)
        work.out.remove(order.key)
        work.replies[order.key] = reply
        same = [k for k, one in work.replies.items() if are_same(order, one, reply)]
        if len(same) < self.agree:
            self._ask_further(order.work, work)
            return self._wait(order, reply)
        return self._settle(order, work, sorted(same))

    def _wait(self, order: Order, reply: Reply) -> Update:
        return Update(
            key=order.key,
            version=self.snapshot.version,
            applied=False,
            loss=reply.loss_sum / reply.samples,
            samples=reply.samples,
            staleness=self.snapshot.version - reply.version,
            epoch=self._epoch,
        )

    def _ask_further(self, name: str, work: _Work) -> None:
        under_way = len(work.out) + work.due
        known, plain = list(work.replies.values()), self._plain(name, work)
        best = max(sum(are_same(plain, a, b) for b in known) for a in known)
        if best + under_way >= self.agree:
            return
        most = len(self.assignment.owners[work.row.part]) + FURTHER
        if len(work.replies) >= most:
            raise InternalError(
                "STO-T021", f"{most} answers to {name} differ from each other"
            )
        work.due += 1

    def _settle(self, order: Order, work: _Work, same: list[str]) -> Update:
        wrong = sorted(set(work.replies) - set(same))
        for key in wrong:
            LOGGER.warning("the answer %s differs from %s", key, ", ".join(same))
        self.disputes += wrong
        # By key, not by arrival: answers that differ in a last bit leave the same bits.
        reply = work.replies[same[0]]
        plain = self._plain(order.work, work)
        self._close(order.work)
        update = self.method.take(plain, reply)
        self._epoch = update.epoch
        unneeded = [*work.out, *self._keys_of(update.given_up)]
        for name in update.given_up:
            self._close(name)
        for name in set(update.late) & self._works.keys():
            self._works[name].late = True
        late = tuple(self._keys_of(update.late))
        return replace(update, key=order.key, late=late, given_up=tuple(unneeded))

    def _plain(self, name: str, work: _Work) -> Order:
        return work.row.open(self._bases[str(work.row.version)], name)

    def _keys_of(self, names: Sequence[str]) -> list[str]:
        return [key for n in names if n in self._works for key in self._works[n].out]

    def _close(self, name: str) -> None:
        self._works.pop(name, None)
        self._since.pop(name, None)
        needed = {str(work.row.version) for work in self._works.values()}
        self._bases = {v: base for v, base in self._bases.items() if v in needed}

    def lose(self, order: Order) -> None:
        """Give the copy out again, or, if it was the only one, the work back to the method."""
        work = self._works.get(order.work)
        if work is None or order.key not in work.out:
            return
        work.out.remove(order.key)
        if work.out or work.due or work.replies:
            work.due += 1
            return
        plain = self._plain(order.work, work)
        self._close(order.work)
        for _ in range(work.asked):
            self.method.lose(plain)

    def note_time(self, now_s: float) -> None:
        """Give out again what is out for too long.

        Raises:
            InternalError: ``STO-T021`` when that was in vain and the method waits for it.
        """
        self._now = now_s
        self.method.note_time(now_s)
        if self.timeout_s is None:
            return
        for name, work in self._works.items():
            if not work.out or work.late:
                continue
            if now_s - self._since.setdefault(name, now_s) < self.timeout_s:
                continue
            if work.rescued and self.waits:
                raise InternalError(
                    "STO-T021",
                    f"no answer to {name} in {self.timeout_s:g} s, nor after its rescue",
                )
            # One at most is out beside the first ones: a dead place is not flooded.
            fresh = len(work.out) <= len(self.assignment.owners[work.row.part])
            work.due += fresh and not work.due
            work.rescued, self._since[name] = True, now_s

    def next_alarm(self) -> float | None:
        """Return when the next work has been out for too long."""
        inner = self.method.next_alarm()
        if self.timeout_s is None:
            return inner
        own = [
            self._since[name] + self.timeout_s
            for name, work in self._works.items()
            if work.out and not work.late and name in self._since
        ]
        return min([*own, *([] if inner is None else [inner])], default=None)

    def note_saved(self) -> None:
        """Pass it on."""
        self.method.note_saved()

    def load(self, state: State) -> None:
        """Go on from a saved state; times begin anew, as the backend's clock does."""
        super().load(state)
        self._since = {}


def are_same(order: Order, one: Reply, other: Reply) -> bool:
    """Say whether two answers to one order are equal: parameters and coded sums bit for bit.

    Plain sums of gradients may differ as two processors do. Buffers are bounded on arrival,
    each by itself, and not compared.
    """
    told: Any = order.settings.get("transport")
    alike: Callable[..., bool] = checks.are_alike
    if not order.gives_parameters and told is None:
        return alike(_as_dict(one), _as_dict(other))
    left, right = one.tensors, other.tensors
    is_equal = left.keys() == right.keys() and one.loss_sum == other.loss_sum
    return is_equal and all(np.array_equal(a, right[name]) for name, a in left.items())


def _as_dict(reply: Reply) -> dict[str, object]:
    names = ("version", "samples", "correct", "loss_sum", "tensors")
    return {**{name: getattr(reply, name) for name in names}, "buffers": {}}
