"""Orders that are out: which job carries which, and how often a piece of work failed."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from stoilo.client.capture.arguments import StoredValue
from stoilo.client.results import UserError
from stoilo.core.errors import InternalError, UsageError
from stoilo.learn.backends import Backend, Handle, Job, OwnBackend
from stoilo.learn.core.data import Part
from stoilo.learn.core.lazy import LazyPart, check_name
from stoilo.learn.core.models import Model
from stoilo.learn.core.orders import Order, OrderRow, Snapshot
from stoilo.learn.core.states import State, parse, render, unfit
from stoilo.learn.driver.acceptance import Expectation
from stoilo.learn.driver.downlink import Versions, name_blobs
from stoilo.learn.driver.mailbox import Mailbox
from stoilo.learn.driver.saving import Tally
from stoilo.learn.driver.transport import asked

# In an order's settings: so it is part of its job's key, and of checkpoints
DEADLINE = "deadline_s"
ASKED_AFTER = 3  # endings in vain in a row; then one order is computed here
# Of so many pieces of work it is known how often they were tried; of older ones not.
MOST_TRIED = 10_000


@dataclass(slots=True)
class Flight:
    """One order under way."""

    order: Order  # what was ordered
    attempt: int  # how many orders of this key went out before
    job_id: str = ""  # of the backend; empty until it is submitted
    is_late: bool = False  # whether it holds up nothing any more, and so takes no room
    began: float | None = None  # when it was submitted, by the backend's clock, s
    _row: OrderRow | None = None

    @property
    def row(self) -> OrderRow:
        """The order as it is saved, always the same arrays: they are written once."""
        if self._row is None:
            self._row = OrderRow.of(self.order)
        return self._row


class Flights:
    """All orders under way; part of a run's checkpoint."""

    def __init__(self) -> None:
        self._flights: list[Flight] = []
        self._attempts: dict[str, int] = {}  # how many orders of a key went out

    def __len__(self) -> int:
        """Return how many orders are out."""
        return len(self._flights)

    def all(self) -> tuple[Flight, ...]:
        """Return every flight."""
        return tuple(self._flights)

    def add(self, order: Order) -> Flight:
        """Note an order that will be submitted: another attempt than all of its key before.

        The same one would be the same task, which has its answer.
        """
        attempt = self._attempts.get(order.key, 0)
        self._attempts[order.key] = attempt + 1
        for key in [*self._attempts][: max(0, len(self._attempts) - MOST_TRIED)]:
            if not self.named(key):
                del self._attempts[key]
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
                return flight
        return None

    def take_out(self, key: str) -> tuple[Flight, ...]:
        """Take out all flights of one piece of work: nobody waits for them any more."""
        found = self.named(key)
        self._flights = [one for one in self._flights if one.order.key != key]
        return found

    def put_back(self, flight: Flight) -> None:
        """Take a flight up again that was ended and not handed over; no job carries it."""
        flight.job_id = ""  # the next round of submissions takes it up
        self._flights.append(flight)

    def renew(self, flight: Flight) -> None:
        """Give an order another attempt: its task of before had other content."""
        flight.attempt = self._attempts.get(flight.order.key, flight.attempt + 1)
        self._attempts[flight.order.key] = flight.attempt + 1

    def forget(self, key: str) -> None:
        """Note that a piece of work is done."""
        self._attempts.pop(key, None)

    def save(self) -> State:
        """Return all flights with the versions that they start from, each once."""
        orders = [flight.order for flight in self._flights]
        saved = _Saved(
            {str(order.snapshot.version): order.snapshot for order in orders},
            [_Row(one.row, one.attempt, one.is_late) for one in self._flights],
            self._attempts,
        )
        return render(saved)

    def load(self, state: State) -> None:
        """Take up saved flights; no job of this process carries them yet.

        Raises:
            UsageError: ``STO-T012`` when something is missing.
        """
        saved = parse(state, _Saved)
        if any(str(one.row.version) not in saved.snapshots for one in saved.flights):
            raise unfit("a version that orders start from is missing")
        self._flights = [one.open(saved.snapshots) for one in saved.flights]
        self._attempts = saved.attempts


@dataclass(frozen=True, slots=True)
class _Row:
    """A flight as it is saved."""

    row: OrderRow
    attempt: int
    is_late: bool

    def open(self, snapshots: Mapping[str, Snapshot]) -> Flight:
        """Return the flight, which starts from one of the snapshots."""
        order = self.row.open(snapshots[str(self.row.version)])
        return Flight(order, self.attempt, is_late=self.is_late, _row=self.row)


@dataclass(frozen=True, slots=True)
class _Saved:
    """What `Flights` saves."""

    snapshots: dict[str, Snapshot]  # by their versions
    flights: list[_Row]
    attempts: dict[str, int]


class Losses:
    """What came to nothing, and when that ends a run.

    The researcher's own function ends it when it failed too often. What hosts and their
    place do wrong ends it only when nothing else comes any more.
    """

    def __init__(self, tries: int, patience: int) -> None:
        self._tries, self._patience = tries, patience
        self._in_vain = 0  # endings in a row
        self._ask_at = min(ASKED_AFTER, patience)
        self._faults: dict[str, int] = {}  # of the researcher's function, by order

    def forget(self, key: str, *, was_in_vain: bool) -> None:
        """Note an answer to an order."""
        self._faults.pop(key, None)
        if not was_in_vain:
            self._in_vain = 0

    def asks_home(self, error: Exception) -> bool:
        """Whether one order is to be computed here before `error` is noted: is it ours?

        So much came to nothing in a row. The next time after twice as much: whoever lies
        makes the trainer compute a few times at most.
        """
        if isinstance(error, UserError) or self._in_vain + 1 < self._ask_at:
            return False
        self._ask_at = max(self._ask_at, min(2 * self._ask_at, self._patience))
        return True

    def note(self, flight: Flight, error: Exception) -> Exception | None:
        """Note a failure; return the error that ends the run, if it does."""
        key = flight.order.key
        # Only in a row: a single cheat among many never ends a run.
        self._in_vain += 1
        if isinstance(error, UserError):
            self._faults[key] = self._faults.get(key, 0) + 1
        too_often = self._faults.get(key, 0) >= self._tries
        if too_often or flight.is_late:
            self._faults.pop(key, None)  # another start tries it anew, as other tasks
        if too_often and not flight.is_late:
            return error
        if self._in_vain < self._patience:
            return None
        self._in_vain = 0
        return InternalError(
            "STO-T021",
            f"{self._patience} answers or tasks in a row came to nothing,"
            f" {key} at last: {error}",
        )


class Jobs:
    """Makes the jobs of one run.

    Attributes:
        ident: of the run; part of every key.
        mailbox: answers that stayed at the place.
    """

    def __init__(
        self,
        model: Model,
        parts: Sequence[Part],
        ident: str,
        tally: Tally,
        versions: Versions | None = None,  # how parameters travel; whole without it
    ) -> None:
        self.ident, self._versions = ident, versions or Versions(None)
        self.mailbox = Mailbox()
        self._model, self._parts, self._tally = model, parts, tally
        self._handles: dict[str, Handle] = {}

    def part_of(self, order: Order) -> Part:
        """Return the order's data.

        Raises:
            UsageError: ``STO-T012`` when there is no such part.
        """
        if not 0 <= order.part < len(self._parts):
            raise UsageError("STO-T012", f"there is no data part {order.part}")
        return self._parts[order.part]

    async def arguments(self, order: Order, backend: Backend) -> dict[str, object]:
        """Return the kernel's arguments, large ones as handles."""
        snapshot = order.snapshot
        version = f"v{snapshot.version}"
        chain, means = self._versions.name(order)
        stored: dict[str, tuple[str, object]] = {
            name: (f"v{sent.version}/sent", sent.frames)
            for name, sent in name_blobs(chain)
        } or {"parameters": (version, dict(snapshot.parameters))}
        stored["buffers"] = (f"{version}/buffers", dict(snapshot.buffers))
        if order.own:
            name = "parameters" if order.is_own else "own"
            stored[name] = (f"{version}/{order.key}", dict(order.own))
        is_here = order.is_own or isinstance(backend, OwnBackend)
        published = None if is_here else snapshot.published
        if published is not None:
            del stored["parameters"]
            means = published.means
        handles = {
            name: await self._put(place, value, backend)
            for name, (place, value) in stored.items()
        }
        for number, blob in enumerate(published.blobs if published else ()):
            name = f"delta{number}" if number else "parameters"
            handles[name] = Handle(*blob, StoredValue(*blob))
        return {
            **self._model.constants(),
            **handles,
            **self.mailbox.find(order),
            **({"downlink": means} if means else {}),
            "data": await self._put_part(order, backend),
            "rows": None if order.rows is None else list(order.rows),
            "settings": dict(order.settings),
            "version": snapshot.version,
        }

    async def _put(self, place: str, value: object, backend: Backend) -> Handle:
        if place not in self._handles:
            self._handles[place] = await backend.put(value)
            self._tally.sent_bytes += self._handles[place].size
        return self._handles[place]

    async def _put_part(self, order: Order, backend: Backend) -> Handle:
        part, place = self.part_of(order), f"p{order.part}"
        if place not in self._handles:
            load = part.load if isinstance(part, LazyPart) else lambda: part
            whole = await asyncio.to_thread(load)
            handle = await backend.put({"x": whole.x, "y": whole.y})
            check_name(part, handle.digest)  # before any task names it
            self._handles[place] = handle
            self._tally.sent_bytes += handle.size
        return self._handles[place]

    def forget(self, versions: frozenset[int]) -> None:
        """Let go of the versions that no order names any more; `versions` stay."""
        self._versions.forget(versions)
        kept = {f"v{version}" for version in versions | self._versions.named}
        for place in [n for n in self._handles if n[0] == "v"]:
            if place.partition("/")[0] not in kept:
                del self._handles[place]

    def make(
        self,
        flight: Flight,
        arguments: Mapping[str, object],
        expected: Expectation,
        label: str,
    ) -> Job:
        """Return the job of an order whose answer must be as `expected`."""
        order = flight.order
        told = asked(order)
        is_place = order.gives_parameters
        return Job(
            key=self._key(flight, arguments),
            function=self._model.kernel(order.kernel),
            arguments=arguments,
            samples=order.samples,
            deadline_s=read_deadline(order),
            level=self._model.level,
            label=f"{label} {order.key}"[:128],
            check=expected.validator(told),
            # Of two trained models the distance says nothing: they must be equal.
            alike=None if is_place else expected.comparator(told),
            stays=order.stays,
        )

    def _key(self, flight: Flight, arguments: Mapping[str, object]) -> str:
        # Same content, same key, in every process: a restarted run finds its tasks.
        order = flight.order
        words = [self.ident, order.key, order.kernel, str(order.snapshot.version)]
        words += [str(flight.attempt), json.dumps(dict(order.settings), sort_keys=True)]
        # By content: after a restart the same order is the same task.
        words += [a.digest for a in arguments.values() if isinstance(a, Handle)]
        words.append(repr(order.rows))
        return hashlib.sha256("\0".join(words).encode()).hexdigest()[:48]


def read_deadline(order: Order) -> float | None:
    """Return after how many s another host gets the order too; None: as the place has it."""
    found = order.settings.get(DEADLINE)
    return float(found) if isinstance(found, int | float) else None
