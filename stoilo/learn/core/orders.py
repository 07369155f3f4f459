"""What a method asks volunteers for, and what comes back: orders, replies, updates.

A method is a pure state machine (`stoilo.learn.methods`): it gives out `Order`s and takes
`Reply`s. `stoilo.learn.driver.run` puts the orders on a backend, checks what comes back
(`stoilo.learn.driver.acceptance`) and hands it over once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from stoilo.core.errors import TrustError
from stoilo.learn.core.states import Plain, State
from stoilo.learn.core.tensors import Array, Form, Tensors


@dataclass(frozen=True, slots=True)
class Published:
    """Parameters as blobs that the project has already: none of their bytes come from here."""

    blobs: tuple[
        tuple[str, int], ...
    ]  # digest and size, bytes; each holds arrays by key
    keys: tuple[str, ...]  # in this order they are the parameters, one after the other
    forms: Mapping[str, tuple[str, tuple[int, ...]]]  # of the parameters, by name

    @property
    def means(self) -> dict[str, object]:
        """What a kernel is told (`stoilo.learn.kernels.encoding.arrive`)."""
        forms = {n: [k, [*s]] for n, (k, s) in self.forms.items()}
        return {"keys": [*self.keys], "blobs": len(self.blobs), "forms": forms}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of the parameters: immutable, sent once however many orders name it."""

    version: int  # grows by one with each applied update; names the snapshot in a run
    parameters: Tensors  # what is trained
    # What travels along and is not trained (running means of BatchNorm)
    buffers: Tensors = field(default_factory=dict)
    # Where volunteers get the parameters, if not from here
    published: Published | None = field(default=None, kw_only=True)


PARTLY = "partly"  # of an order's settings, if fewer samples than ordered may come


@dataclass(frozen=True, slots=True)
class Order:
    """One piece of work for one volunteer."""

    # What the work is, unique in a run (``e0/s3/p7``): applied at most once. A
    # repetition and a backup copy have the same key.
    key: str
    kernel: str  # name of the task's function: see `stoilo.learn.kernels`
    snapshot: Snapshot  # what it starts from
    part: int  # index of the data part that it uses
    samples: int  # how many samples it must say that it used
    # Small arguments of the kernel: rates, steps, seeds
    settings: Mapping[str, Plain] = field(default_factory=dict)
    rows: tuple[int, ...] | None = None  # of the part, which samples; all when None
    # Arrays of this part alone: beside the snapshot's, or in place of those of a name
    own: Tensors = field(default_factory=dict)
    # Argument of the kernel → key of the order whose answer, which stayed, it is
    inputs: Mapping[str, str] = field(default_factory=dict)
    # Whether the answer stays at the place for later orders to name: it has no numbers here
    stays: bool = False
    # Of the answer's arrays, where they are not those of `arrays`
    forms: Mapping[str, Form] | None = None

    @property
    def arrays(self) -> Tensors:
        """What the kernel gets: the snapshot's parameters and the part's own."""
        return {**self.snapshot.parameters, **self.own}

    @property
    def is_own(self) -> bool:
        """Whether all parameters are the part's own: the snapshot's need not travel."""
        return bool(self.own) and self.own.keys() >= self.snapshot.parameters.keys()

    @property
    def work(self) -> str:
        """What is computed, the same for compared copies: see `stoilo.learn.methods.copies`."""
        return self.key.partition("@")[0]

    @property
    def is_partly(self) -> bool:
        """Whether its answer may be of fewer samples: of the regions that were there."""
        return self.settings.get(PARTLY) is True

    @property
    def gives_parameters(self) -> bool:
        """Whether the answer is where local steps led to, no sum of gradients."""
        return self.settings.get("give") == "parameters"


@dataclass(frozen=True, slots=True)
class OrderRow:
    """An order as it is saved: of its snapshot, the version; of its rows, an array."""

    key: str
    kernel: str
    version: int
    part: int
    samples: int
    settings: dict[str, Any]
    rows: Array | None
    own: dict[str, Array] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    stays: bool = False
    forms: dict[str, Form] | None = None

    @classmethod
    def of(cls, order: Order) -> OrderRow:
        """Return the row of an order."""
        rows = None if order.rows is None else np.array(order.rows, np.int64)
        about = (order.kernel, order.snapshot.version, order.part, order.samples)
        forms = None if order.forms is None else dict(order.forms)
        apart = dict(order.own), dict(order.inputs), order.stays, forms
        return cls(order.key, *about, dict(order.settings), rows, *apart)

    def open(self, snapshot: Snapshot, key: str = "") -> Order:
        """Return the order from its snapshot, under another key if one is given."""
        rows = None if self.rows is None else tuple(self.rows.tolist())
        about = (self.part, self.samples, self.settings, rows, self.own)
        apart = self.inputs, self.stays, self.forms
        return Order(key or self.key, self.kernel, snapshot, *about, *apart)


@dataclass(frozen=True, slots=True)
class Reply:
    """A volunteer's answer that passed every check: known version, forms, finite."""

    version: int  # of the snapshot it started from
    samples: int  # number of samples, as ordered
    loss_sum: float  # sum of the samples' losses
    # By the kernel: a sum of gradients, or parameters after local steps
    tensors: Tensors
    # Of the model after the work, names and forms of the snapshot's
    buffers: Tensors = field(default_factory=dict)
    correct: int = -1  # samples classified rightly; -1 where the kernel does not count


@dataclass(frozen=True, slots=True)
class Update:
    """What one reply did."""

    key: str  # the order's
    version: int  # of the parameters afterwards
    applied: bool  # whether it counted (a late one may not)
    loss: float  # mean loss of its samples, before the update
    samples: int  # how many those were
    staleness: int  # versions applied between its snapshot and now
    epoch: int  # number of the epoch it belongs to, from 0
    epoch_ended: bool = False  # whether that epoch is complete now
    # Keys of orders that are out and hold up nothing any more: they take no room
    late: tuple[str, ...] = ()
    # Keys of orders that are out and whose answers would not count
    given_up: tuple[str, ...] = ()
    # Keys of answers that stayed at the place and that no order will name any more
    spent: tuple[str, ...] = ()


class Method(Protocol):
    """A training algorithm without clock, files or network; one thread calls it."""

    @property
    def snapshot(self) -> Snapshot:
        """The newest version of the parameters."""

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be ordered or waited for."""

    def next_orders(self, room: int) -> Sequence[Order]:
        """Return at most `room` further orders; none when it must wait for replies.

        An order that was returned is the method's to remember until `take` or `lose`.
        """

    def take(self, order: Order, reply: Reply) -> Update:
        """Apply the first reply to an order; later ones of its key never come here."""

    def lose(self, order: Order) -> None:
        """Note that an order will never be answered: it may be given out again."""

    def save(self) -> State:
        """Return the whole state; orders in flight stay in flight.

        Its arrays are never changed in place afterwards: they are written once.

        The driver keeps those orders themselves and, after a `load`, answers or loses each.
        """

    def load(self, state: State) -> None:
        """Go on from a saved state (of the same method and settings)."""

    def note_time(self, now_s: float) -> None:
        """Note the backend's time, s; called before each `next_orders`."""

    def next_alarm(self) -> float | None:
        """Return when to be told the time at the latest; None when nothing runs out."""

    def note_saved(self) -> None:
        """Note that the checkpoint names the state that `save` gave last: it must stay."""


def refuse_answer(what: str) -> TrustError:
    """Return the error for an answer of which no number may be used."""
    return TrustError("STO-T010", f"a volunteer's answer is not used: {what}")
