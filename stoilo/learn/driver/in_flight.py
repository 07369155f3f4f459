"""Orders that are out: which job carries which, and how often a piece of work failed."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Order, Plain, Snapshot, State
from stoilo.learn.core.tensors import Array, Tensors


# Of so many pieces of work it is known how often they failed; of older ones not.
MOST_FAILURES = 10_000


@dataclass(slots=True)
class Flight:
    """One order under way.

    Attributes:
        order: what was ordered.
        attempt: how many orders of this key went out before.
        job_id: of the backend; empty until it is submitted.
        is_late: whether it holds up nothing any more, and so takes no room.
    """

    order: Order
    attempt: int
    job_id: str = ""
    is_late: bool = False
    _rows: Array | None = None

    @property
    def rows(self) -> Array | None:
        """The order's rows as an array, always the same one: it is saved once."""
        if self._rows is None and self.order.rows is not None:
            self._rows = np.array(self.order.rows, np.int64)
        return self._rows


class Flights:
    """All orders under way; part of a run's checkpoint."""

    def __init__(self) -> None:
        self._flights: list[Flight] = []
        self._attempts: dict[str, int] = {}
        self._failures: dict[str, int] = {}

    def __len__(self) -> int:
        """Return how many orders are out."""
        return len(self._flights)

    def all(self) -> tuple[Flight, ...]:
        """Return every flight."""
        return tuple(self._flights)

    def add(self, order: Order) -> Flight:
        """Note an order that will be submitted."""
        attempt = self._attempts.get(order.key, 0)
        self._attempts[order.key] = attempt + 1
        self._flights.append(Flight(order, attempt))
        return self._flights[-1]

    @property
    def in_time(self) -> int:
        """How many orders are out that are waited for."""
        return sum(not flight.is_late for flight in self._flights)

    def overtake(self, keys: Collection[str]) -> None:
        """Note that orders hold up nothing any more."""
        for flight in self._flights:
            if flight.order.key in keys:
                flight.is_late = True

    def submitted(self, flight: Flight, job_id: str) -> None:
        """Note the job that carries the order."""
        flight.job_id = job_id

    def waiting(self) -> tuple[Flight, ...]:
        """Return the flights that no job of this process carries."""
        return tuple(flight for flight in self._flights if not flight.job_id)

    def named(self, key: str) -> tuple[Flight, ...]:
        """Return the flights of one piece of work: repetitions and backup copies."""
        return tuple(flight for flight in self._flights if flight.order.key == key)

    def versions(self) -> frozenset[int]:
        """Return the versions that orders under way start from."""
        return frozenset(flight.order.snapshot.version for flight in self._flights)

    def end(self, job_id: str) -> Flight | None:
        """Take a job's flight out; None when it is none of ours (any more)."""
        for flight in self._flights:
            if flight.job_id == job_id:
                self._flights.remove(flight)
                if not self.named(flight.order.key):
                    self._attempts.pop(flight.order.key, None)
                return flight
        return None

    def take_out(self, key: str) -> tuple[Flight, ...]:
        """Take out all flights of one piece of work: nobody waits for them any more."""
        found = self.named(key)
        self._flights = [one for one in self._flights if one.order.key != key]
        return found

    def put_back(self, flight: Flight) -> None:
        """Take a flight up again that was ended and not handed over; no job carries it."""
        # No job: the next round of submissions takes it up.
        flight.job_id, key = "", flight.order.key
        self._attempts[key] = max(self._attempts.get(key, 0), flight.attempt + 1)
        self._flights.append(flight)

    def renew(self, flight: Flight) -> None:
        """Give an order another attempt: its task of before had other content."""
        flight.attempt = self._attempts.get(flight.order.key, flight.attempt + 1)
        self._attempts[flight.order.key] = flight.attempt + 1

    def failures(self, key: str) -> int:
        """Note a failure of a piece of work and return how many it has had.

        Its next order is another attempt: the same one would be the same task, which has
        its answer.
        """
        self._failures[key] = self._failures.get(key, 0) + 1
        self._attempts[key] = max(self._attempts.get(key, 0), self._failures[key])
        while len(self._failures) > MOST_FAILURES:
            oldest = next(iter(self._failures))
            del self._failures[oldest]
            if not self.named(oldest):
                self._attempts.pop(oldest, None)
        return self._failures[key]

    def forget(self, key: str) -> None:
        """Note that a piece of work is done."""
        self._attempts.pop(key, None)
        self._failures.pop(key, None)

    def save(self) -> State:
        """Return all flights with the versions that they start from, each once."""
        tensors: dict[str, Array] = {}
        for flight in self._flights:
            snapshot = flight.order.snapshot
            for group, arrays in (("p", snapshot.parameters), ("b", snapshot.buffers)):
                for name, array in arrays.items():
                    # Once a version, however many orders start from it.
                    tensors[f"{snapshot.version}/{group}/{name}"] = array
            if flight.rows is not None:
                tensors[_rows_name(flight.order.key)] = flight.rows
        rows: list[Plain] = [_row(flight) for flight in self._flights]
        plain: dict[str, Plain] = {
            "orders": rows,
            "attempts": dict(self._attempts),
            "failures": dict(self._failures),
        }
        return State(tensors, plain)

    def load(self, state: State, like: Snapshot) -> None:
        """Take up saved flights; no job of this process carries them yet.

        Raises:
            UsageError: ``STO-T012`` when something is missing.
        """
        try:
            rows = cast("list[dict[str, Any]]", state.plain["orders"])
            self._flights = [_flight(row, state.tensors, like) for row in rows]
            self._attempts = _counts(state.plain["attempts"])
            self._failures = _counts(state.plain["failures"])
        except (KeyError, TypeError, ValueError):
            raise UsageError(
                "STO-T012", "the checkpoint's orders are not of this run"
            ) from None


def _row(flight: Flight) -> dict[str, Plain]:
    order = flight.order
    return {
        "key": order.key,
        "kernel": order.kernel,
        "version": order.snapshot.version,
        "part": order.part,
        "samples": order.samples,
        "settings": dict(order.settings),
        "has_rows": order.rows is not None,
        "attempt": flight.attempt,
        "late": flight.is_late,
    }


def _rows_name(key: str) -> str:
    return f"rows/{key}"


def _flight(row: Mapping[str, Any], tensors: Tensors, like: Snapshot) -> Flight:
    version = int(row["version"])
    snapshot = Snapshot(
        version,
        {name: tensors[f"{version}/p/{name}"] for name in like.parameters},
        {name: tensors[f"{version}/b/{name}"] for name in like.buffers},
    )
    rows = tensors[_rows_name(str(row["key"]))] if row["has_rows"] else None
    order = Order(
        key=str(row["key"]),
        kernel=str(row["kernel"]),
        snapshot=snapshot,
        part=int(row["part"]),
        samples=int(row["samples"]),
        settings=dict(row["settings"]),
        rows=None if rows is None else tuple(rows.tolist()),
    )
    return Flight(order, int(row["attempt"]), is_late=bool(row["late"]), _rows=rows)


def _counts(plain: Plain) -> dict[str, int]:
    return {
        str(key): int(str(count))
        for key, count in cast("dict[str, Plain]", plain).items()
    }


KEPT = 100  # how many durations the median looks back over
FACTOR = 2.0  # an order is late after so many times the median
LEAST = 3  # with fewer known durations nothing is late


class Pace:
    """Begin and end of jobs, by the backend's clock, s."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._took: deque[float] = deque(maxlen=KEPT)

    def begin(self, job_id: str, at: float) -> None:
        """Note that a job was submitted."""
        self._began.setdefault(job_id, at)

    def end(self, job_id: str, at: float) -> float:
        """Note that it ended and return how long it was out, s; 0 when it is not known."""
        began = self._began.pop(job_id, None)
        if began is None:
            return 0.0
        self._took.append(max(0.0, at - began))
        return self._took[-1]

    def forget(self, job_id: str) -> None:
        """Note that nobody waits for it any more."""
        self._began.pop(job_id, None)

    def count_late(self, now: float) -> int:
        """Return how many jobs are out for longer than `FACTOR` times the median."""
        if len(self._took) < LEAST:
            return 0
        limit = FACTOR * statistics.median(self._took)
        return sum(now - began > limit for began in self._began.values())
