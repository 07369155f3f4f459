"""A program: what a part adds, how parts are put together, what is made of it.

One description runs in two places: as a training whose tasks are volunteers' (`train`, with
any backend), and as a worker beside a parameter server (`work`), which looks serial. A round
is synchronous in both: it is made of all parts, in the order of the parts where they are tasks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from stoilo.learn.core.data import Part
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.core.orders import Reply, Snapshot
from stoilo.learn.core.states import Stateful
from stoilo.learn.core.tensors import Array, Tensors
from stoilo.learn.kernels.programs import fill
from stoilo.learn.methods.synchronous import (
    Synchronous,
    SynchronousSettings,
    sum_gradients,
)
from stoilo.learn.store.functions import UpdateFunction
from stoilo.learn.store.workers import Worker
from stoilo.learn.trainers.options import Common, Place, TrainerOptions
from stoilo.learn.trainers.trainer import Trainer


@dataclass(frozen=True)
class Program:
    """An algorithm.

    Attributes:
        start: name → array of doubles: what is looked for, and room for what parts add.
        kernel: ``(parameters, x, y) -> (loss, name → array)``; travels as source. The
            arrays have names and shapes of `start`, not necessarily all of them.
        step: ``(parameters, what all parts added) -> what changes``; runs here.
        rounds: how often.
        update: puts two parts' arrays together, zeros being neutral; their sum when None.
    """

    start: Tensors
    kernel: Callable[..., tuple[float, Tensors]]
    step: Callable[[Tensors, Tensors], Tensors]
    rounds: int = 1
    update: UpdateFunction | None = None

    def model(self) -> ArrayModel:
        """Return what volunteers get."""
        make: Any = fill  # untyped: it travels as source
        return ArrayModel(self.start, make(self.kernel))

    def method(self, start: Snapshot, parts: Sequence[int]) -> Synchronous:
        """Return the pure method; `parts` are their numbers of samples."""
        settings = SynchronousSettings(self.rounds, reduction="sum")
        fold = functools.partial(_fold, self.update) if self.update else sum_gradients
        return Synchronous(start, parts, _Step(self), settings, combine=fold)


class _Step(Stateful):
    """A program's step in the place of an optimiser's; all state is in the parameters."""

    rate = 1.0

    def __init__(self, program: Program) -> None:
        self._program = program

    def step(self, parameters: Tensors, gradient: Tensors) -> dict[str, Array]:
        """Return the parameters after a round."""
        return {**parameters, **self._program.step(parameters, gradient)}


def _fold(update: UpdateFunction, replies: Sequence[Reply]) -> dict[str, Array]:
    return {
        name: functools.reduce(update.apply, (reply.tensors[name] for reply in replies))
        for name in replies[0].tensors
    }


class ProgramTrainer(Trainer):
    """A program on volunteers, each round a task a part.

    No bound is put on an answer (`clip`), for a sum has no usual size: run two copies of
    each task, or spot checks, where volunteers are not yours.

    Args:
        data: parts, or what is split into parts: samples first.
        program: the algorithm.
    """

    def __init__(
        self, conn: Place, data: object, program: Program, **common: Unpack[Common]
    ) -> None:
        common["options"] = replace(
            common.get("options") or TrainerOptions(), clip=None
        )
        super().__init__(
            conn, program.model(), data, program.method, name="program", **common
        )


async def train(
    conn: Place, data: object, program: Program, **common: Unpack[Common]
) -> dict[str, Array]:
    """Run a program to its end on volunteers; return its parameters."""
    async with ProgramTrainer(conn, data, program, **common) as trainer:
        await trainer.train()
        return dict(trainer.snapshot.parameters)


def work(program: Program, worker: Worker, part: Part) -> dict[str, Array]:
    """Run a program as one of a server's workers, whose total is the program's rounds.

    The server knows the program's update function. Each round's sums are values of their
    own, so that a worker that was given up and is back reads the rounds it missed.
    """
    here, done = dict(program.start), 0
    names = tuple(program.kernel(here, part.x, part.y)[1])
    for round_ in worker.iterations():
        for missed in range(done, round_):
            here = _step(program, worker, here, missed, names)
        _, pushes = program.kernel(here, part.x, part.y)
        mine = {f"{round_}/{name}": array for name, array in pushes.items()}
        for key, array in mine.items():
            worker.write(key, np.zeros_like(array))
        worker.update_many(mine, program.update.name if program.update else "add")
        worker.sync()
        here, done = _step(program, worker, here, round_, names), round_ + 1
    return here


def _step(
    program: Program,
    worker: Worker,
    here: dict[str, Array],
    round_: int,
    names: Sequence[str],
) -> dict[str, Array]:
    found = worker.read_many([f"{round_}/{name}" for name in names])
    return {**here, **program.step(here, {n: found[f"{round_}/{n}"] for n in names})}
