"""What a method asks volunteers for, and what comes back: orders, replies, updates.

A method is a pure state machine (`stoilo.learn.methods`): it gives out `Order`s and takes
`Reply`s. `stoilo.learn.driver.run` puts the orders on a backend, checks what comes back
(`stoilo.learn.driver.acceptance`) and hands it over once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

from stoilo.core.errors import TrustError, UsageError
from stoilo.learn.core.tensors import Array, Tensors, forms_of

# What JSON holds.
Plain: TypeAlias = bool | int | float | str | list["Plain"] | dict[str, "Plain"] | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of the parameters: immutable, sent once however many orders name it."""

    version: int  # grows by one with each applied update; names the snapshot in a run
    parameters: Tensors  # what is trained
    # What travels along and is not trained (running means of BatchNorm)
    buffers: Tensors = field(default_factory=dict)


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
    # Further numbers by name, each finite
    numbers: Mapping[str, float] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True)
class State:
    """All that a method needs to go on elsewhere: arrays by name, and plain data."""

    tensors: Tensors
    plain: Mapping[str, Plain]


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


@runtime_checkable
class Timed(Protocol):
    """What a method has that must know the time: leases run out while nothing ends."""

    def note_time(self, now_s: float) -> None:
        """Note the backend's time, s; called before each `Method.next_orders`."""

    def next_alarm(self) -> float | None:
        """Return when to be told the time at the latest; None when nothing runs out."""


def refuse_answer(what: str) -> TrustError:
    """Return the error for an answer of which no number may be used."""
    return TrustError("STO-T010", f"a volunteer's answer is not used: {what}")


def join(**groups: Tensors) -> dict[str, Array]:
    """Return all arrays of all groups, each named ``group:name``."""
    return {
        f"{group}:{name}": array
        for group, tensors in groups.items()
        for name, array in tensors.items()
    }


def pick(tensors: Tensors, group: str, like: Tensors | None = None) -> dict[str, Array]:
    """Return the arrays of one group; in names, forms and order of `like` if given."""
    start = f"{group}:"
    found = {
        name.removeprefix(start): array
        for name, array in tensors.items()
        if name.startswith(start)
    }
    if like is None:
        return found
    if forms_of(found) != forms_of(like):
        raise unfit(f"its {group} have other names, types or shapes")
    return {name: found[name] for name in like}


def join_states(**groups: State) -> State:
    """Return several states as one, each under its name."""
    tensors = {name: state.tensors for name, state in groups.items()}
    return State(join(**tensors), {n: dict(s.plain) for n, s in groups.items()})


def select(state: State, group: str) -> State:
    """Return one of the states that `join_states` joined.

    Raises:
        UsageError: ``STO-T041`` when there is none of that name.
    """
    return State(pick(state.tensors, group), read_table(state.plain, group))


def unfit(reason: str) -> UsageError:
    """Return the error for a state of another method, model or version."""
    return UsageError("STO-T041", f"the saved state does not fit this run: {reason}")


def read_int(plain: Mapping[str, Plain], name: str) -> int:
    """Return a whole number of a saved state."""
    match plain.get(name):
        case bool():
            pass
        case int(number):
            return number
    raise unfit(f"no whole number {name!r}")


def read_float(plain: Mapping[str, Plain], name: str) -> float:
    """Return a number of a saved state."""
    match plain.get(name):
        case bool():
            pass
        case int(number) | float(number):
            return float(number)
    raise unfit(f"no number {name!r}")


def read_keys(plain: Mapping[str, Plain], name: str) -> list[str]:
    """Return a list of texts of a saved state."""
    match plain.get(name):
        case list(entries):
            return [str(entry) for entry in entries]
    raise unfit(f"no list {name!r}")


def read_table(plain: Mapping[str, Plain], name: str) -> dict[str, Plain]:
    """Return a table of a saved state."""
    match plain.get(name):
        case dict(table):
            return table
    raise unfit(f"no table {name!r}")


def save_snapshot(snapshot: Snapshot) -> State:
    """Return a snapshot as a state."""
    groups = {"parameters": snapshot.parameters, "buffers": snapshot.buffers}
    return State(join(**groups), {"version": snapshot.version})


def load_snapshot(state: State, like: Snapshot) -> Snapshot:
    """Return what `save_snapshot` made a state of; names in the order of `like`."""
    return Snapshot(
        read_int(state.plain, "version"),
        pick(state.tensors, "parameters", like.parameters),
        pick(state.tensors, "buffers", like.buffers),
    )


def save_replies(replies: Mapping[str, Reply]) -> State:
    """Return replies that wait for their step, by their keys."""
    return join_states(**{key: _save_reply(reply) for key, reply in replies.items()})


def _save_reply(reply: Reply) -> State:
    plain: dict[str, Plain] = {
        "version": reply.version,
        "samples": reply.samples,
        "loss_sum": reply.loss_sum,
        "correct": reply.correct,
        "numbers": dict(reply.numbers),
    }
    return State(join(tensors=reply.tensors, buffers=reply.buffers), plain)


def load_replies(state: State) -> dict[str, Reply]:
    """Return what `save_replies` made a part of."""
    return {key: _load_reply(select(state, key)) for key in state.plain}


def _load_reply(state: State) -> Reply:
    plain, numbers = state.plain, read_table(state.plain, "numbers")
    return Reply(
        read_int(plain, "version"),
        read_int(plain, "samples"),
        read_float(plain, "loss_sum"),
        pick(state.tensors, "tensors"),
        pick(state.tensors, "buffers"),
        read_int(plain, "correct"),
        {name: read_float(numbers, name) for name in numbers},
    )
