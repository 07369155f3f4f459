"""A coordinator's record: what happened, in a file and the newest in memory; its reader."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from stoilo.core.errors import UnreachableError
from stoilo.learn.store import protocol as p
from stoilo.learn.store.place import ShardPlace
from stoilo.learn.traffic import wire as w
from stoilo.learn.traffic.links import Fault, Node, Term

SHOWN = 4096  # events at most
_FILE_BYTES = 32 << 20  # of a file of events
_RECORD_BYTES = 64 << 20  # of an answer


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a coordinator's record."""

    at: float  # s since 1970, the coordinator's clock
    # joined, left, version (begun at `node`), opened (a round, by its root), sent (`node`
    # from `sender`), collected, failed, named (`why`: of what)
    what: str
    node: str
    number: int = -1  # of the version or round
    sender: str = ""
    size: int = 0  # bytes
    seconds: float = 0.0  # that the transfer took by the coordinator's clock
    why: str = ""
    # of what failed: stalled, bytes, refused, gone, late (its lease), other (bytes there)
    cause: str = ""
    ids: tuple[str, ...] = ()  # of a part of a round
    segment: int = 0  # of its vector; `size` is this one's


class Record(msgspec.Struct, frozen=True, tag="record"):
    """What an operator sees."""

    term: Term
    nodes: dict[str, str]  # who is there, and where
    rates: list[tuple[str, str, float]]  # from, to, bytes/s: what is not forgotten
    named: dict[Node, list[Fault]]  # who is held to be at fault, and of what
    versions: dict[int, list[str]]  # number → who has it, in order of receipt
    rounds: dict[int, list[str]]  # number → whose contributions the root has
    events: list[Event]  # newest last
    disputes: list[tuple[Fault, Node, Node]] = []
    leases: int = 0  # transfers under way


def count(event: Event) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield what an event adds to counters, each named with its labels."""
    yield ("stoilo_traffic_events_total", event.what), 1
    match event.what:
        case "failed":
            yield ("stoilo_traffic_failures_total", event.cause), 1
        case "sent":
            pair = event.sender, event.node
            yield ("stoilo_traffic_transfers_total", *pair), 1
            yield ("stoilo_traffic_bytes_total", *pair), event.size
            yield ("stoilo_traffic_seconds_total", *pair), event.seconds


class Log:
    """The coordinator's own record: a file, the newest of it in memory, and its sums."""

    def __init__(self, path: Path) -> None:
        self._path, self.newest = path, deque[Event](maxlen=SHOWN)
        self.totals = defaultdict[tuple[str, ...], float](float)

    def note(self, what: str, node: str, number: int = -1, **more: Any) -> None:  # noqa: ANN401 - fields of an event
        """Write an event down; a full disk is no reason to stop the traffic."""
        event = Event(time.time(), what, node, number, **more)
        self.newest.append(event)
        for name, amount in count(event):
            self.totals[name] += amount
        with suppress(OSError):
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(event) + b"\n")
                is_full = file.tell() > _FILE_BYTES
            if is_full:
                self._path.replace(self._path.with_suffix(".1.jsonl"))


def read_record(place: ShardPlace, events: int) -> Record:
    """Return what a coordinator's operator sees.

    Raises:
        UnreachableError: ``STO-C050``, it does not answer.
    """
    try:
        with place.connect(w.STALL_S) as stream:
            p.send_frame(stream, w.Show(events))
            record: Record = w.receive(stream, Record, _RECORD_BYTES)
    except OSError as error:
        why = f"no coordinator answers at {place.shard}: {type(error).__name__}"
        raise UnreachableError("STO-C050", why) from None
    return record
