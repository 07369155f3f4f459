"""A program: what a part adds, how parts are put together, what is made of it.

One description runs in two places: as a training whose tasks are volunteers' (`train`, with
any backend), and as a worker beside a parameter server (`work`), which looks serial. A round
is made of all parts, in the order of the parts where they are tasks; where a program allows
it, parts may be some rounds apart (`staleness`, `work_apart`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from stoilo.learn.core.data import Part
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.core.orders import Snapshot
from stoilo.learn.core.tensors import Array, Tensors
from stoilo.learn.kernels.programs import fill
from stoilo.learn.paracel.rounds import Algorithm, Apart, Rounds
from stoilo.learn.store.workers import Worker
from stoilo.learn.trainers.options import Common, Place, TrainerOptions
from stoilo.learn.trainers.trainer import Trainer


@dataclass(frozen=True)
class Program(Algorithm):
    """An algorithm of `Algorithm`'s attributes, ready to run."""

    def model(self) -> ArrayModel:
        """Return what volunteers get."""
        make: Any = fill  # untyped: it travels as source
        return ArrayModel(self.start, make(self.kernel))

    def method(
        self, start: Snapshot, parts: Sequence[int], staleness: int | None = 0
    ) -> Rounds | Apart:
        """Return the pure method; `parts` are their numbers of samples.

        Args:
            start: version 0.
            parts: how many samples each has.
            staleness: how many rounds a part may be ahead of the slowest; None: any.

        Raises:
            UsageError: ``STO-T040`` when the program needs rounds.
        """
        if staleness == 0:
            return Rounds(self, start, parts)
        self.check_lenient()
        return Apart(self, start, parts, staleness)


class ProgramTrainer(Trainer):
    """A program on volunteers, each round a task a part.

    Sums are exact or not at all: nothing is cut to size. An answer that is far larger than
    those of the other parts counts once a second task has given the same.

    Args:
        data: parts, or what is split into parts: samples first.
        program: the algorithm.
        staleness: how many rounds a part may be ahead of the slowest; None: any number.
    """

    def __init__(
        self,
        conn: Place,
        data: object,
        program: Program,
        *,
        staleness: int | None = 0,
        **common: Unpack[Common],
    ) -> None:
        common["options"] = replace(
            common.get("options") or TrainerOptions(), clip=None
        )
        make = functools.partial(program.method, staleness=staleness)
        super().__init__(conn, program.model(), data, make, name="program", **common)


async def train(
    conn: Place,
    data: object,
    program: Program,
    *,
    staleness: int | None = 0,
    **common: Unpack[Common],
) -> dict[str, Array]:
    """Run a program to its end on volunteers; return its parameters."""
    trainer = ProgramTrainer(conn, data, program, staleness=staleness, **common)
    async with trainer:
        await trainer.train()
        return dict(trainer.snapshot.parameters)


def work(
    program: Program, worker: Worker, part: Part, number: int = 0
) -> dict[str, Array]:
    """Run a program as one of a server's workers, whose total is the program's rounds.

    The server knows the program's update function; `number` is the part's. Each round's sums
    are values of their own, so that a worker that was given up and is back reads the rounds
    it missed.
    """
    here, own, names, done = *_begin(program, part, number), 0
    for round_ in worker.iterations():
        for missed in range(done, round_):
            here = _step(program, worker, here, missed, names)
        own, pushes = _compute(program, {**here, **own}, part)
        mine = {f"{round_}/{name}": array for name, array in pushes.items()}
        for key, array in mine.items():
            worker.write(key, np.zeros_like(array))
        worker.update_many(mine, program.update.name if program.update else "add")
        worker.sync()
        here, done = _step(program, worker, here, round_, names), round_ + 1
    return here


def work_apart(
    program: Program, worker: Worker, part: Part, number: int = 0
) -> dict[str, Array]:
    """Run a program as a worker that reads what its clock allows: SSP, or ASP.

    A value is the sum of all parts' newest arrays: each pushes by how much its own differ
    from those before. All wait for all once, for a sum without some part is none.

    Raises:
        UsageError: ``STO-T040`` when the program needs rounds.
    """
    program.check_lenient()
    here, own, names = _begin(program, part, number)
    before: Tensors = {}
    for round_ in worker.iterations():
        own, pushes = _compute(program, {**here, **own}, part)
        for name, array in pushes.items():
            worker.write(name, np.zeros_like(array))
        worker.update_many({n: a - before.get(n, 0.0) for n, a in pushes.items()})
        before = pushes
        if round_ == 0:
            worker.sync()
        here |= program.step(here, worker.read_many(names))
    return {**here, **program.step(here, worker.read_last(names))}


def _begin(
    program: Program, part: Part, number: int
) -> tuple[dict[str, Array], Tensors, tuple[str, ...]]:
    """Return the start, what the part keeps at first, and the names of what it will add."""
    here, own = dict(program.start), program.own(number, len(part))
    return here, own, tuple(_compute(program, {**here, **own}, part)[1])


def _compute(program: Program, given: Tensors, part: Part) -> tuple[Tensors, Tensors]:
    found = program.kernel(given, part.x, part.y)[1]
    return program.part(found)


def _step(
    program: Program,
    worker: Worker,
    here: dict[str, Array],
    round_: int,
    names: Sequence[str],
) -> dict[str, Array]:
    found = worker.read_many([f"{round_}/{name}" for name in names])
    return {**here, **program.step(here, {n: found[f"{round_}/{n}"] for n in names})}
