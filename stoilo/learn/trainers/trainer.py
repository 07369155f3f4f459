"""What all trainers share: a method, a model, data and a place, run epoch by epoch.

async with DownpourTrainer(conn, model, data, DownpourSettings(4, 16)) as trainer:
    async for update in trainer:
        print(update.loss, update.accepted_tasks)
trained = trainer.trained()
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeAlias

from stoilo.core.errors import UsageError
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import find_least_loss
from stoilo.learn.core.orders import Method, Order, Snapshot, Update
from stoilo.learn.core.states import Keeper
from stoilo.learn.driver.downlink import as_downlink
from stoilo.learn.driver.pace import MOST_CUTS
from stoilo.learn.driver.probing import rehearse
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.driver.transport import as_transport
from stoilo.learn.methods.synchronous import Synchronous
from stoilo.learn.trainers.epochs import (
    Epoch,
    EpochCheckpoint,
    EpochMetrics,
    Epochs,
    Trained,
    TrainingUpdate,
    Waits,
    restore,
    sum_up,
)
from stoilo.learn.trainers.evaluation import evaluate
from stoilo.learn.trainers.options import (
    Loss,
    Place,
    TrainerOptions,
    as_held_out,
    as_model,
    as_options,
    as_parts,
    open_backend,
    set_privacy,
    set_schedule,
)
from stoilo.learn.trainers.progress import Conditions, Display, Estimate, estimate_step
from stoilo.learn.trainers.regions import as_gathered
from stoilo.learn.trainers.reporting import Reports
from stoilo.learn.trainers.watching import as_watchers, tell_epoch, tell_update

# First version, sizes of the data parts → the method.
MakeMethod: TypeAlias = Callable[[Snapshot, Sequence[int]], Method]


class Trainer:
    """A method, driven; subclasses choose which.

    Args:
        conn: a connection, a backend of `stoilo.learn.backends`, or None for threads here.
        model: an `ArrayModel` or `TorchModel`, or a torch module with `loss`.
        data: pairs of sample and target (a torch dataset), a pair of arrays, or parts;
            None for a trainer that gets its data epoch by epoch.
        make: makes the method.
        loss: ``(output, target) -> scalar``, mean over the samples, for a torch module.
        options: further choices.
        name: shown in lists of tasks.
        kept: an optimiser that `make` closes over; without own data it is saved beside
            the version (with own data the method saves it).
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        make: MakeMethod,
        *,
        loss: Loss | None = None,
        options: TrainerOptions | None = None,
        name: str = "run",
        kept: Keeper | None = None,
    ) -> None:
        self.options = as_options(options, conn)
        self.form = as_model(model, loss)
        self._record = Epochs()
        self._held_out = as_held_out(self.options.held_out)
        self._name, self._make = name, make
        self._backend = open_backend(
            conn, self.options.redundancy, self.options.flavor, self.options.limits
        )
        self._is_ours = conn is None or hasattr(conn, "create_task")
        self._first = self.form.first()
        self._between_epochs = EpochCheckpoint(
            self.options.folder if data is None else None, kept
        )
        self._updates: list[Update] = []
        self._has_started = self._is_stopped = self._is_shown = False
        shown = Display() if self.options.progress is True else self.options.progress
        self._display = shown if isinstance(shown, Display) else None
        self._watchers = as_watchers(self._display) + as_watchers(self.options.watcher)
        self._reports = Reports(self._backend, name)
        if self.options.console:
            self._watchers.append(self._reports)
        self._run: Run | None = None
        self.parts: list[Part] = []
        self._has_own = data is not None
        if data is not None:
            self.parts = as_parts(data, self.options)
            self._run = self._make_run(make, self.options.folder)

    def _make_run(self, make: MakeMethod, folder: Path | None) -> Run:
        rehearse(self.form, self.parts[0])
        least = self.options.least_loss
        settings = RunSettings(
            name=self._name,
            in_flight=self._most_out(),
            tries=self.options.tries,
            clip=None if self.options.privacy else self.options.clip,
            folder=folder,
            least_loss=find_least_loss(self.form) if least is None else least,
            transport=as_transport(self.options.transport),
            downlink=as_downlink(self.options.downlink),
            home_checks=self.options.home_checks,
            by_speed=self.options.by_speed,
        )
        self._made_by = make
        sizes = [len(part) for part in self.parts]
        method = as_gathered(make(self.snapshot, sizes), self._backend, sizes)
        set_schedule(method, self.options.schedule)
        self._private = set_privacy(method, self.options, len(self.parts))
        about = (method, self.form, self.parts, self._backend, settings)
        memory = self._run.memory if self._run else None
        tell = partial(tell_update, self._watchers)
        return Run(*about, watcher=tell, beside=self._record, memory=memory)

    def _most_out(self) -> int:
        """Return how many tasks are out at most."""
        pieces = MOST_CUTS if self.options.by_speed else 1
        return self.options.in_flight or pieces * len(self.parts)

    async def start(self) -> Self:
        """Take up what a killed trainer left in the folder: epochs, and tasks under way.

        The first step does it otherwise; afterwards `epoch_number` and `epochs` are known.

        Raises:
            TrustError: ``STO-T011``.
            UsageError: ``STO-T012`` when it is of another training.
        """
        if self._has_started:
            return self
        if self._run is None:
            self._first = await self._between_epochs.open(self._first, self._record)
        else:
            await self._run.start()
            self._waits = self._begin_waits()
            await self._take_up(list(self._run.history.updates))
        self._has_started = True
        self._note_stop()
        await self._show()
        return self

    async def _show(self) -> None:
        """Print the estimate and begin to draw, once there is something to be trained."""
        if self._display is None or self._is_shown or self._run is None:
            return
        self._is_shown = True
        self._display.say(str(await asyncio.to_thread(self.estimate)))
        self._display.say(self.options.describe_trust())
        self._display.__enter__()

    async def _take_up(self, updates: list[Update]) -> None:
        ends = [place for place, one in enumerate(updates) if one.epoch_ended]
        last = updates[ends[-1]].epoch if ends else -1
        if last >= self.epoch_number:
            self._updates = [one for one in updates if one.epoch == last]
            await self._end_epoch()
        self._updates = updates[ends[-1] + 1 :] if ends else updates

    @property
    def run(self) -> Run:
        """The run over the present data.

        Raises:
            UsageError: ``STO-T004`` before there is any.
        """
        if self._run is None:
            raise UsageError(
                "STO-T004",
                "this trainer has no dataset",
                hint="give one to the trainer, or a data loader to each epoch",
            )
        return self._run

    @property
    def stopped(self) -> bool:
        """Whether the stop rule is reached."""
        return self._is_stopped

    @property
    def finished(self) -> bool:
        """Whether all that the settings name is done, or the stop rule is reached."""
        return self._is_stopped or (self._run is not None and self._run.method.finished)

    @property
    def epochs(self) -> list[EpochMetrics]:
        """The metrics of the epochs that have ended, as `epoch_number` counts them."""
        return self._record.ended

    @property
    def epoch_number(self) -> int:
        """How many epochs have ended, those of killed processes counted (see `start`)."""
        return len(self.epochs)

    @property
    def snapshot(self) -> Snapshot:
        """The newest version; the best epoch's once a stop rule that restores is reached."""
        return self._best() if self._is_stopped else self._newest()

    def _newest(self) -> Snapshot:
        return self._run.method.snapshot if self._run else self._first

    def _best(self) -> Snapshot:
        return self._record.best[0] if self._record.best else self._newest()

    @property
    def model(self) -> Any:  # noqa: ANN401 - a torch module or arrays
        """The researcher's module with the newest weights; arrays without torch."""
        return restore(self.form, self.snapshot)

    def last_epoch_metrics(self) -> EpochMetrics | None:
        """Return what the last complete epoch came to; None before."""
        return self.epochs[-1] if self.epochs else None

    async def __aiter__(self) -> AsyncIterator[TrainingUpdate]:
        """Yield what each answer did, to the end of the training."""
        await self.start()
        while not self.finished:
            yield await self._step()

    def train_epoch(self) -> Epoch:
        """Train to the end of the present epoch: await it, or follow its answers.

        Raises (when awaited):
            UsageError: ``STO-T081`` when all epochs are done.
            UserError: the researcher's own code failed too often on volunteers.
        """
        return Epoch(self._follow_epoch(), lambda: self.epochs[-1])

    async def _follow_epoch(self) -> AsyncIterator[TrainingUpdate]:
        await self.start()
        if self.finished:
            raise UsageError("STO-T081", "no epoch is left to be trained")
        before = self.epoch_number
        while self.epoch_number == before:  # the last answer of all ends an epoch
            yield await self._step()

    async def change_data(self, data: object, make: MakeMethod | None = None) -> None:
        """Go on from the newest version with other data; nothing else is under way then.

        The method begins anew: what it kept beside the model is forgotten, but for an
        optimiser that `make` closes over.

        Args:
            data: as the trainer takes it.
            make: makes the method; the trainer's own when None.

        Raises:
            UsageError: ``STO-T081`` with a folder and data of its own: its checkpoint
                would know nothing of what happens elsewhere. ``STO-T040`` with `privacy`:
                a sample could be in several parts.
        """
        if self.options.privacy is not None:
            raise UsageError("STO-T040", "private parts stay the trainer's own data")
        if self.options.folder is not None and self._has_own:
            raise UsageError(
                "STO-T081",
                "the checkpoint in the folder is of the trainer's own data",
                hint="train_epoch() alone, or a trainer without data or without folder",
            )
        await self.start()
        if self._run is not None:
            await self._run.end()
            await self._run.close()
        self.parts = as_parts(data, self.options)
        # No folder: the run's checkpoint would be of data that nobody sees again.
        self._run = self._make_run(make or self._make, None)
        self._updates, self._waits = [], self._begin_waits()
        await self._show()

    async def order(self) -> tuple[str, ...]:
        """Order what the method has now, without waiting; return the tasks' ids."""
        await self.start()
        return await self.run.order()

    async def train(self) -> Trained:
        """Train to the end."""
        async for _ in self:
            pass
        return self.trained()

    def trained(self) -> Trained:
        """Return what has been reached so far."""
        run = self.run
        reached = self._best() if self.finished else self._newest()
        return Trained(reached, tuple(self.epochs), run.history, run.tally, self.form)

    def estimate(self, conditions: Conditions | None = None) -> Estimate:
        """Return how long a step will take; a few samples are computed here to know.

        `conditions` are those of the options when None.

        Raises:
            UsageError: ``STO-T004`` without data, ``STO-T040`` when the method orders
                nothing.
        """
        at_once = self.run.settings.in_flight
        if not (orders := self.draw_orders()):
            raise UsageError("STO-T040", "the method has nothing to be computed")
        given = conditions or self.options.conditions or Conditions()
        # More volunteers than tasks have nothing to do.
        most, of = min(given.volunteers, at_once), self.options
        about = (of.transport, of.downlink, replace(given, volunteers=most))
        return estimate_step(self.form, self.parts, orders, *about)

    def draw_orders(self) -> Sequence[Order]:
        """Return the first orders of a method made anew; nothing is begun."""
        method = self._made_by(self.form.first(), [*map(len, self.parts)])
        set_schedule(method, self.options.schedule)
        return method.next_orders(len(self.parts))

    def _begin_waits(self) -> Waits:
        return Waits(self._newest().version, self.run.backend.now(), self.run.tally)

    async def _step(self) -> TrainingUpdate:
        await self.start()
        run, update = self.run, await self.run.step()
        self._updates.append(update)
        self._waits.note(update, run.backend.now())
        accepted = sum(one.applied for one in self._updates)
        if update.epoch_ended or self.finished:
            await self._end_epoch()
        if self.finished:
            await run.end()
        return TrainingUpdate(update.loss, accepted, self.snapshot, update, self.form)

    async def _end_epoch(self) -> None:
        held_out, run = None, self.run
        seconds = self._waits.seconds(run.backend.now())  # without the evaluation
        if self._held_out is not None:
            held_out = await asyncio.to_thread(
                evaluate, self.form, self._newest(), self._held_out
            )
        about = held_out, seconds, self._waits.share(run.tally)
        epsilon = self._private.epsilon if self._private else None
        metrics = sum_up(self.epoch_number, self._updates, *about, epsilon)
        # Saved with the next answer; after a kill, made of the history again.
        self._record.note(metrics, self._newest(), self.options.stop)
        await self._between_epochs.put(self._newest(), self._record)
        self._updates, self._waits = [], self._begin_waits()
        if self.options.by_speed and isinstance(run.method, Synchronous):
            run.method.cut(run.speeds.count_cuts())
        self._note_stop()
        tell_epoch(self._watchers, metrics, self.options.on_epoch)

    def _note_stop(self) -> None:
        rule = self.options.stop
        self._is_stopped = rule is not None and rule.is_reached(self.epochs)

    async def close(self) -> None:
        """Save and stop waiting; with a folder, another trainer may go on."""
        if self._display is not None and self._is_shown:
            self._is_shown = False
            self._display.__exit__()
        if self._run is not None and self._has_started:
            await self._run.close()
        self._between_epochs.close()
        await self._reports.close()
        if self._is_ours:
            await self._backend.close()

    def __await__(self) -> Generator[Any, None, Self]:
        """Take up the folder and return the trainer: the thesis awaits its constructor."""
        return self.start().__await__()

    async def __aenter__(self) -> Self:
        """Take up the folder and return the trainer."""
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        """Close it; a backend that was given stays open."""
        await self.close()
