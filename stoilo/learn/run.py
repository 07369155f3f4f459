"""The driver: puts a method's orders on a backend and hands each checked answer over once.

    method → orders → jobs → backend → endings → acceptance → bounded influence → method

A run can be killed at any moment. Its checkpoint holds the method's state and the orders in
flight; a job's key names what is computed, so that an order which was submitted before the
kill is the same task afterwards, not a second one.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from stoilo.client.results import UserError
from stoilo.core.errors import InternalError, StoiloError, TrustError, UsageError
from stoilo.learn import robust
from stoilo.learn.backends.interface import Backend, Ending, Handle, Job
from stoilo.learn.checkpoint import read_checkpoint, write_checkpoint
from stoilo.learn.data import Part
from stoilo.learn.flights import Flight, Flights
from stoilo.learn.guard import Guard
from stoilo.learn.history import History, Tally
from stoilo.learn.kernels.checks import are_alike
from stoilo.learn.models import Model
from stoilo.learn.pace import Pace
from stoilo.learn.transport import (
    Raw,
    Transport,
    ask,
    count_bytes,
    expect_frames,
    receive,
)
from stoilo.learn.work import Method, Order, Plain, Snapshot, State, Timed, Update

__all__ = ["Run", "RunSettings"]

_KEY_TAKEN = "STO-R011"  # by a task of other content
Watcher = Callable[[Update, Tally], None]


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a run is driven.

    Attributes:
        name: of the run, in labels; its checkpoint keeps it.
        in_flight: how many orders are out at most.
        tries: how often the researcher's own function may fail at the same work before
            the run ends.
        patience: how many answers and tasks in a row may come to nothing through others'
            fault before the run ends: a single cheat cannot end it.
        clip: bound on the influence of one answer; None for none.
        probe: compute a few samples here first, so that the bound holds from the first
            answer on; without it nothing is cut until `clip.least` answers are known.
        folder: of checkpoint and history; None keeps nothing.
        least_loss: least loss of one sample; answers below it are refused.
        transport: how the arrays of answers travel.
    """

    name: str = "run"
    in_flight: int = 8
    tries: int = 4
    patience: int = 200
    clip: robust.Clip | None = field(default_factory=robust.Clip)
    probe: bool = True
    folder: Path | None = None
    least_loss: float = -np.inf
    transport: Transport = field(default_factory=Raw)


class Run:
    """One training, from its method's first order to its end; use it in ``async with``."""

    def __init__(
        self,
        method: Method,
        model: Model,
        parts: Sequence[Part],
        backend: Backend,
        settings: RunSettings | None = None,
        *,
        watcher: Watcher | None = None,
        memory: robust.Memory | None = None,
    ) -> None:
        """Put a run together; `memory` is what an earlier one learned of norms."""
        self.method, self.model, self.backend = method, model, backend
        self.settings = settings or RunSettings()
        self.parts = list(parts)
        self.tally = Tally()
        folder = self.settings.folder
        self.history = History(folder / "history.jsonl" if folder else None)
        self._watcher = watcher
        self._flights = Flights()
        self._handles: dict[str, Handle] = {}
        self._guard = Guard(
            model,
            self.settings.clip,
            probe=self.settings.probe,
            least_loss=self.settings.least_loss,
            memory=memory,
        )
        self._in_vain = 0  # endings in a row that came to nothing
        self._faults: dict[str, int] = {}  # of the researcher's function, by order
        self._pace = Pace()
        self._ident = secrets.token_hex(8)

    @property
    def memory(self) -> robust.Memory:
        """The norms of answers so far, for a run that goes on with the same model."""
        return self._guard.memory

    async def start(self) -> None:
        """Take up a checkpoint, if there is one: its orders in flight are waited for.

        Raises:
            TrustError: ``STO-T011``.
            UsageError: ``STO-T012`` when it is of another run.
        """
        folder = self.settings.folder
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        saved = read_checkpoint(folder)
        if saved is None:
            return
        self._load(saved)
        for flight in self._flights.waiting():
            await self._submit(flight)

    async def step(self) -> Update:
        """Wait for the next answer that counts or is discarded, and return what it did.

        Raises:
            UserError: the researcher's own function failed too often.
            InternalError: ``STO-T020``, ``STO-T021``.
            StopAsyncIteration: the method is finished.
        """
        while not self.method.finished:
            await self._fill()
            wait_s, began = self._alarm_s(), self.backend.now()
            ending = await self.backend.next(wait_s)
            waited_s = self.backend.now() - began
            if ending is None and wait_s is not None and waited_s > wait_s / 2:
                continue
            if ending is None:
                raise InternalError(
                    "STO-T020", "the training waits, and nothing is under way"
                )
            update = await self._settle(ending)
            if update is not None:
                return update
        raise StopAsyncIteration

    def _alarm_s(self) -> float | None:
        """Return after how many s the method is to be told the time; None for never."""
        if not isinstance(self.method, Timed):
            return None
        alarm = self.method.next_alarm()
        return None if alarm is None else max(1e-3, alarm - self.backend.now())

    async def updates(self) -> AsyncIterator[Update]:
        """Yield updates until the method is finished; then nothing of it is under way."""
        while not self.method.finished:
            yield await self.step()
        await self.end()

    async def end(self) -> None:
        """Forget what is under way and save: for a method that is finished."""
        await self._drop(self._flights.all())
        self._save()

    async def finish(self) -> Snapshot:
        """Run to the end and return the newest version."""
        async for _ in self.updates():
            pass
        return self.method.snapshot

    async def _fill(self) -> None:
        """Order what the method has; noted on disk before it is submitted."""
        for flight in self._flights.waiting():  # a submission that failed before
            await self._submit(flight)
        if isinstance(self.method, Timed):
            self.method.note_time(self.backend.now())
        room = self.settings.in_flight - len(self._flights)
        orders = self.method.next_orders(room) if room > 0 else ()
        if not orders:
            return
        orders = [ask(order, self.settings.transport) for order in orders]
        added = [self._flights.add(order) for order in orders]
        self._save()
        for flight in added:
            await self._submit(flight)

    def _part(self, order: Order) -> Part:
        if not 0 <= order.part < len(self.parts):
            raise UsageError("STO-T012", f"there is no data part {order.part}")
        return self.parts[order.part]

    async def _submit(self, flight: Flight) -> None:
        order = flight.order
        await self._guard.look(order, self._part(order))
        arguments = await self._arguments(order)
        expected = self._guard.expect(order)
        frames = expect_frames(order, expected.tensors)
        is_place = order.settings.get("give") == "parameters"
        while True:
            job = Job(
                key=self._job_key(flight, arguments),
                function=self.model.kernel(order.kernel),
                arguments=arguments,
                samples=order.samples,
                level=self.model.level,
                label=f"{self.settings.name} {order.key}"[:128],
                check=expected.validator(frames),
                alike=are_alike if frames is None and not is_place else None,
            )
            try:
                job_id = await self.backend.submit(job)
            except StoiloError as error:
                if error.code != _KEY_TAKEN:
                    raise
                self._flights.renew(flight)  # the source was changed since the kill
                continue
            self._flights.submitted(flight, job_id)
            self._pace.begin(flight.job_id, self.backend.now())
            return

    def _job_key(self, flight: Flight, arguments: Mapping[str, object]) -> str:
        """Return a name for what is computed: same content, same key, in every process."""
        order = flight.order
        words = [self._ident, order.key, order.kernel, str(order.snapshot.version)]
        words += [str(flight.attempt), json.dumps(dict(order.settings), sort_keys=True)]
        words += [a.digest for a in arguments.values() if isinstance(a, Handle)]
        words.append(repr(order.rows))
        return hashlib.sha256("\0".join(words).encode()).hexdigest()[:48]

    async def _arguments(self, order: Order) -> dict[str, object]:
        snapshot, part = order.snapshot, self.parts[order.part]
        version = f"v{snapshot.version}"
        return {
            **self.model.constants(),
            "parameters": await self._put(version, dict(snapshot.parameters)),
            "buffers": await self._put(f"{version}/buffers", dict(snapshot.buffers)),
            "data": await self._put(f"p{order.part}", {"x": part.x, "y": part.y}),
            "rows": None if order.rows is None else list(order.rows),
            "settings": dict(order.settings),
            "version": snapshot.version,
        }

    async def _put(self, name: str, value: object) -> Handle:
        """Store a version or part once; versions that no order names any more go."""
        if name not in self._handles:
            kept = {f"v{v}" for v in self._flights.versions()}
            for old in [n for n in self._handles if n[0] == "v"]:
                if old.partition("/")[0] not in kept:
                    del self._handles[old]
            self._handles[name] = await self.backend.put(value)
            self.tally.sent_bytes += self._handles[name].size
        return self._handles[name]

    async def _settle(self, ending: Ending) -> Update | None:
        """Hand an answer over, or give its work out again."""
        flight = self._flights.end(ending.job_id)
        self._pace.end(ending.job_id, ending.finished_at)
        self.tally.stragglers = self._pace.count_late(ending.finished_at)
        if flight is None:
            return None
        try:
            if ending.error is not None:
                self.tally.failed += 1
                self._lose(flight, ending.error)
                return None
            expected = self._guard.expect(flight.order)
            value = receive(ending.value, flight.order, expected.tensors)
            reply = self._guard.admit(flight.order, value)
            self.tally.shortened = self._guard.shortened
        except TrustError as error:
            self.tally.refused += 1
            await self.backend.refuse(ending.job_id, error.message)
            self._lose(flight, error)
            return None
        try:
            update = self.method.take(flight.order, reply)
        except BaseException:
            self._flights.put_back(flight)  # nothing was applied: it stays out
            raise
        await self._drop(self._flights.named(flight.order.key))
        self._flights.forget(flight.order.key)
        self._in_vain, _ = 0, self._faults.pop(flight.order.key, None)
        self.tally.received_bytes += count_bytes(ending.value)
        self.history.note(update, ending.finished_at, self.tally)
        self._save()
        if self._watcher is not None:
            self._watcher(update, self.tally)
        return update

    def _lose(self, flight: Flight, error: Exception) -> None:
        """Note a failure; the run ends when the researcher's own code failed too often.

        What hosts and their place do wrong ends it only when nothing else comes any more.
        """
        key = flight.order.key
        self._flights.failures(key)
        self._in_vain += 1
        if isinstance(error, UserError):
            self._faults[key] = self._faults.get(key, 0) + 1
        too_often = self._faults.get(key, 0) >= self.settings.tries
        self.method.lose(flight.order)
        if too_often:
            del self._faults[key]
            self._flights.forget(key)  # another start tries it anew
        self._save()
        if too_often:
            raise error
        if self._in_vain >= self.settings.patience:
            self._in_vain = 0
            raise InternalError(
                "STO-T021",
                f"{self.settings.patience} answers or tasks in a row came to nothing,"
                f" {key} at last: {error}",
            ) from error

    async def _drop(self, flights: Sequence[Flight]) -> None:
        """Forget copies of work that is done."""
        for flight in flights:
            self._flights.end(flight.job_id)
            self._pace.forget(flight.job_id)
            await self.backend.cancel(flight.job_id)

    def _save(self) -> None:
        if self.settings.folder is None:
            return
        method, flights = self.method.save(), self._flights.save()
        plain: dict[str, Plain] = {
            "ident": self._ident,
            "parts": [len(part) for part in self.parts],
            "norms": list(self.memory.norms),
            "method": dict(method.plain),
            "flights": dict(flights.plain),
        }
        tensors = {f"method/{n}": a for n, a in method.tensors.items()}
        tensors |= {f"flights/{n}": a for n, a in flights.tensors.items()}
        write_checkpoint(self.settings.folder, State(tensors, plain))

    def _load(self, saved: State) -> None:
        plain = saved.plain
        if plain.get("parts") != [len(part) for part in self.parts]:
            raise UsageError(
                "STO-T012", "the checkpoint is of a run with other data parts"
            )
        self._ident = str(plain["ident"])
        norms = plain["norms"]
        if isinstance(norms, list):
            known = tuple(float(str(one)) for one in norms)
            self._guard.memory = robust.Memory(known)
        self.method.load(_below(saved, "method"))
        self._flights.load(_below(saved, "flights"), self.method.snapshot)

    async def close(self) -> None:
        """Save; tasks at a server go on and are waited for by the next start."""
        self._save()

    async def __aenter__(self) -> Self:
        """Take up a checkpoint, if there is one."""
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Save."""
        await self.close()


def _below(saved: State, group: str) -> State:
    """Return the part of a saved state below `group`.

    Raises:
        UsageError: ``STO-T012`` when it has none.
    """
    plain = saved.plain.get(group)
    if not isinstance(plain, dict):
        raise UsageError("STO-T012", f"the checkpoint has no {group}")
    start = f"{group}/"
    tensors = {
        name.removeprefix(start): array
        for name, array in saved.tensors.items()
        if name.startswith(start)
    }
    return State(tensors, plain)
