"""The driver: puts a method's orders on a backend and hands each checked answer over once.

    method → orders → jobs → backend → endings → acceptance → bounded influence → method

A run can be killed at any moment. Its checkpoint holds the method's state and the orders in
flight; a job's key names what is computed, so that an order which was submitted before the
kill is the same task afterwards, not a second one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np

from stoilo.core.errors import InternalError, StoiloError, TrustError, UsageError
from stoilo.learn.backends import Backend, JobEnd, Reached, reach
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import Model
from stoilo.learn.core.orders import Method, Order, Reply, Snapshot, Update
from stoilo.learn.core.states import Keeper, select
from stoilo.learn.driver.acceptance import Disputes, Guard, HomeChecks
from stoilo.learn.driver.codecs import Raw, Transport
from stoilo.learn.driver.downlink import Delta, Versions
from stoilo.learn.driver.in_flight import DEADLINE, Flight, Flights, Jobs, Losses
from stoilo.learn.driver.pace import Pace, Speeds
from stoilo.learn.driver.probing import find_own_fault
from stoilo.learn.driver.saving import History, Saving, Tally, identify
from stoilo.learn.driver.transport import ask, count_bytes, receive
from stoilo.learn.methods import robust
from stoilo.learn.methods.rules import Clip


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
        downlink: how versions travel; None for whole and as they are.
        home_checks: share of usual answers that is computed again here before it counts.
        by_speed: give each order a deadline by how long others were out.
        outage_s: how long a server that does not answer is waited for, s, when there is
            something to submit; answers are waited for as long as it takes.
    """

    name: str = "run"
    in_flight: int = 8
    tries: int = 4
    patience: int = 200
    clip: Clip | None = field(default_factory=Clip)
    probe: bool = True
    folder: Path | None = None
    least_loss: float = -np.inf
    transport: Transport = field(default_factory=Raw)
    downlink: Delta | None = None
    home_checks: float = 0.0
    by_speed: bool = False
    outage_s: float = 3600.0


_KEY_TAKEN = "STO-R011"  # by a task of other content
Watcher = Callable[[Update, Tally], None]  # told of each update once it is saved


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
        beside: Keeper | None = None,
    ) -> None:
        """Put a run together.

        `memory` is what an earlier one learned of norms; `beside` is saved with it.
        """
        self.method, self.model, self.backend = method, model, backend
        self.settings = settings or RunSettings()
        self.parts = list(parts)
        self.tally = Tally()
        folder = self.settings.folder
        self.history = History(folder / "history.jsonl" if folder else None)
        self._watcher, self._beside = watcher, beside
        self._flights = Flights()
        self._versions = versions = Versions(self.settings.downlink)
        ident = secrets.token_hex(8)
        self._jobs = Jobs(model, self.parts, ident, self.tally, versions)
        self.home = HomeChecks(model, self.settings.home_checks)
        self._guard = Guard(
            model,
            self.settings.clip,
            probe=self.settings.probe,
            least_loss=self.settings.least_loss,
            memory=memory,
            home=self.home,
        )
        self._losses = Losses(self.settings.tries, self.settings.patience)
        self._pace, self.speeds = Pace(), Speeds()
        self._saving: Saving | None = None
        self._untold: Update | None = None
        self._unwanted: list[Flight] = []
        self._disputes = Disputes(model)
        self._broken: BaseException | None = None  # of a `take` that did half its work

    @property
    def memory(self) -> robust.Memory:
        """The norms of answers so far, for a run that goes on with the same model."""
        return self._guard.memory

    async def start(self) -> None:
        """Take up a checkpoint, if there is one: its orders in flight are waited for.

        Raises:
            TrustError: ``STO-T011``.
            UsageError: ``STO-T012`` when it is of another training, ``STO-T023`` when
                another process trains there.
        """
        folder = self.settings.folder
        if folder is None:
            return
        first = self.model.first()
        who = await asyncio.to_thread(identify, self.method, first, self.parts)
        saving = Saving(folder, self.history, self.tally)
        saved = await saving.open(who)
        try:
            if saved is not None:
                run, states = saved
                self._jobs.ident, self._guard.memory = run.ident, run.memory
                self.method.load(select(states, "method"))
                self._flights.load(select(states, "flights"))
                self._versions.load(states)
                if "mailbox" in states.plain:  # checkpoints of before have none
                    self._jobs.mailbox.load(select(states, "mailbox"))
                if self._beside is not None:
                    self._beside.load(select(states, "beside"))
        except BaseException:
            saving.close()
            raise
        self._saving = saving
        await self._submit(self._flights.waiting())

    async def step(self) -> Update:
        """Wait for the next answer that counts or is discarded, and return what it did.

        Raises:
            UserError: the researcher's own function failed too often.
            InternalError: ``STO-T020``, ``STO-T021``, ``STO-T022``.
            StopAsyncIteration: the method is finished.
        """
        if self._broken is not None:
            raise InternalError(
                "STO-T020",
                "an answer was applied only in part; the checkpoint is from before it",
            ) from self._broken
        if self._untold is not None:
            return await self._tell()
        while not self.method.finished:
            await self._fill()
            wait_s, began = self._alarm_s(), self.backend.now()
            ending = await self.backend.next(wait_s)
            waited_s = self.backend.now() - began
            # The alarm, not the end of all work: the method is told the time and goes on.
            if ending is None and wait_s is not None and waited_s > wait_s / 2:
                continue
            if ending is None:
                raise InternalError(
                    "STO-T020", "the training waits, and nothing is under way"
                )
            if await self._settle(ending):
                return await self._tell()
        raise StopAsyncIteration

    def _alarm_s(self) -> float | None:
        """Return after how many s the method is to be told the time; None for never."""
        alarm = self.method.next_alarm()
        return None if alarm is None else max(1e-3, alarm - self.backend.now())

    async def updates(self) -> AsyncIterator[Update]:
        """Yield updates until the method is finished; then nothing of it is under way."""
        while not self.method.finished or self._untold is not None:
            yield await self.step()
        await self.end()

    async def order(self) -> tuple[str, ...]:
        """Order what the method has now, without waiting; return the jobs under way."""
        await self._fill()
        return tuple(flight.job_id for flight in self._flights.all())

    async def end(self) -> None:
        """Forget what is under way and save: for a method that is finished, or stopped."""
        flights = self._flights.all()
        for key in {flight.order.key for flight in flights}:
            self._unwanted += self._flights.take_out(key)
        # Stopped early: what was out must be orderable again.
        for flight in flights if not self.method.finished else ():
            self.method.lose(flight.order)  # another start may go on
        await self._save()
        await self._cancel_unwanted()

    async def finish(self) -> Snapshot:
        """Run to the end and return the newest version."""
        async for _ in self.updates():
            pass
        return self.method.snapshot

    async def _fill(self) -> None:
        # Noted on disk before it is submitted: after a kill it is the same task.
        # Submissions that failed before.
        await self._submit(self._flights.waiting())
        self.method.note_time(self.backend.now())
        # Late orders take no room, up to as many again: else one dead host stops all.
        most = self.settings.in_flight
        room = min(most - self._flights.in_time, 2 * most - len(self._flights))
        orders = self.method.next_orders(room) if room > 0 else ()
        if not orders:
            return
        send, transport = self._versions.send, self.settings.transport
        # What stays is read by kernels only, which know no codec.
        orders = [
            self._time(one if one.stays else ask(send(one), transport))
            for one in orders
        ]
        added = [self._flights.add(order) for order in orders]
        await self._save()
        await self._submit(added)

    def _time(self, order: Order) -> Order:
        """Return the order with the deadline of its part's class, once that is known."""
        found = self.speeds.find_deadline(order.samples)
        if not self.settings.by_speed or found is None:
            return order
        return replace(order, settings={**order.settings, DEADLINE: found})

    async def _submit(self, flights: Sequence[Flight]) -> None:
        """Submit orders together, those whose key was taken again under the next one."""
        waiting = [(flight, await self._arguments(flight.order)) for flight in flights]
        while waiting:
            expect, name = self._guard.expect, self.settings.name
            jobs = [
                self._jobs.make(one, given, expect(one.order), name)
                for one, given in waiting
            ]
            began = self.backend.now()
            submit = functools.partial(self.backend.submit_many, jobs)
            found = await self._reach(submit)
            faults = [one for one in found if isinstance(one, StoiloError)]
            for (flight, _), answer in zip(waiting, found, strict=True):
                if isinstance(answer, str):
                    flight.job_id, flight.began = answer, began
                elif answer.code == _KEY_TAKEN:
                    self._flights.renew(flight)  # the source was changed since the kill
            for fault in faults:
                if fault.code != _KEY_TAKEN:
                    raise fault
            waiting = [one for one in waiting if not one[0].job_id]

    async def _arguments(self, order: Order) -> Mapping[str, object]:
        await self._guard.look(order, self._jobs.part_of(order))
        self._jobs.forget(self._flights.versions())
        return await self._reach(lambda: self._jobs.arguments(order, self.backend))

    async def _reach(self, call: Callable[[], Awaitable[Reached]]) -> Reached:
        return await reach(call, self.backend, self.settings.outage_s)

    async def _settle(self, ending: JobEnd) -> bool:
        """Hand an answer over, or give its work out again; return whether it was taken."""
        flight = self._flights.end(ending.job_id)
        if flight is None or flight.began is None:
            return False
        order = flight.order
        took = self._pace.note(ending.finished_at - flight.began)
        self.tally.out_s += took
        self.tally.computed_s += min(max(0.0, ending.computed_s), took)
        if ending.error is None:
            self.speeds.note(order.samples, took, ending.computed_s)
        out = [one.began for one in self._flights.all() if one.began is not None]
        self.tally.stragglers = self._pace.count_late(out, ending.finished_at)
        try:
            if ending.error is not None:
                await self._check_claim(flight, ending.error)
                self.tally.failed += 1
                await self._lose(flight, ending.error)
                return False
            cut = self._guard.shortened
            value = receive(ending.value, order, self._guard.expect(order).tensors)
            part = self._jobs.part_of(order)
            if order.stays:
                reply = self._jobs.mailbox.take(order, value, self._guard.expect(order))
            else:
                reply = await self._keep(flight, self._guard.judge(order, part, value))
        except TrustError as error:
            self.tally.refused += 1
            self._disputes.note(ending.job_id, str(error))
            await self._lose(flight, error)
            return False
        self.tally.shortened += self._guard.shortened - cut
        self.tally.received_bytes += count_bytes(ending.value)
        self._take(flight, reply, ending.finished_at)
        if self._guard.doubt:
            self._disputes.note(ending.job_id, self._guard.doubt)
        return True

    async def _check_claim(self, flight: Flight, error: Exception) -> None:
        """Do not believe that the function fails which does not fail here.

        It is believed before any answer: something may be missing in every jail.
        """
        if len(self.history):
            part = self._jobs.part_of(flight.order)
            await self._keep(flight, self._disputes.check(flight.order, part, error))

    async def _keep(self, flight: Flight, work: Awaitable[Reached]) -> Reached:
        """Await what judges an answer; an interruption leaves the answer to come again."""
        try:
            return await work
        except TrustError:
            raise
        except BaseException:
            self._flights.put_back(flight)
            raise

    def _take(self, flight: Flight, reply: Reply, at: float) -> None:
        # Nothing is awaited in here: no kill comes between.
        key = flight.order.key
        try:
            update = self.method.take(flight.order, reply)
        except BaseException as error:
            self._flights.put_back(flight)
            self._broken = error  # how much was applied, nobody knows
            raise
        self._losses.forget(key, was_in_vain=not update.applied)
        self._disputes.forget(key)
        self._flights.overtake(update.late)
        self._jobs.mailbox.forget(update.spent)
        self.history.note(update, at, self.tally)
        # Saved and told by `step`, which may be interrupted in between.
        self._untold = update

    async def _tell(self) -> Update:
        """Save, cancel what nobody needs any more, and return the newest update.

        An exception on the way (a full disk, Ctrl-C) leaves it for the next `step`.
        """
        update = self._untold
        if update is None:
            raise InternalError("STO-T020", "there is nothing to tell")
        for key in (update.key, *update.given_up):
            self._unwanted += self._flights.take_out(key)
            if update.applied or key != update.key:
                self._flights.forget(key)
        await self._save()
        await self._disputes.report(self.backend)
        self._untold = None
        await self._cancel_unwanted()
        if self._watcher is not None:
            self._watcher(update, self.tally)
        return update

    async def _lose(self, flight: Flight, error: Exception) -> None:
        """Give work out again, save, and tell the place which answers were refused."""
        self.method.lose(flight.order)
        apart = flight.order.stays or flight.order.is_partly
        asks_home = self._losses.asks_home(error) and not apart
        end = self._losses.note(flight, error)
        await self._save()
        await self._disputes.report(self.backend)
        if asks_home:
            await self._refuse_own_fault(flight.order)
        if end is not None:
            raise end from (None if end is error else error)

    async def _refuse_own_fault(self, order: Order) -> None:
        """End the run if the order's answer cannot be used when it is computed here."""
        part, form = self._jobs.part_of(order), self._guard.expect(order).plain()
        fault = await asyncio.to_thread(find_own_fault, self.model, order, part, form)
        if fault:
            epoch = max((one.epoch for one in self.history.updates[-1:]), default=0)
            raise UsageError(
                "STO-T001",
                f"{fault}, computed here as well as by volunteers: epoch {epoch}, version"
                f" {order.snapshot.version}, {len(self.history)} answers were good before",
                hint="a smaller rate or clip=…, an epsilon where the loss takes a log or"
                " divides; look at that sample",
            )

    async def _cancel_unwanted(self) -> None:
        # What cannot be reached runs on: its answer will be nobody's.
        while self._unwanted:
            with contextlib.suppress(StoiloError):
                await self.backend.cancel(self._unwanted.pop().job_id)

    async def _save(self) -> None:
        """Write the run as it is, in another thread; nothing without a folder.

        What is broken is not written: the checkpoint keeps what was before.
        """
        if self._saving is None or self._broken is not None:
            return
        # All of one moment: nothing may be awaited between them.
        states = {"method": self.method.save(), "flights": self._flights.save()}
        states |= self._versions.save() | {"mailbox": self._jobs.mailbox.save()}
        states |= {"beside": self._beside.save()} if self._beside is not None else {}
        await self._saving.save(self._jobs.ident, self.memory, states)
        self.method.note_saved()

    async def close(self) -> None:
        """Save; tasks at a server go on and are waited for by the next start."""
        try:
            await self._save()
        finally:
            saving, self._saving = self._saving, None
            if saving is not None:
                saving.close()

    async def __aenter__(self) -> Self:
        """Take up a checkpoint, if there is one."""
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Save."""
        await self.close()
