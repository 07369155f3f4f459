"""Reports of a training: what a place is told, and that the training needs nobody to listen."""

from __future__ import annotations

import asyncio
import math

import pytest

from stoilo.core.errors import UnreachableError
from stoilo.learn import LocalBackend, TrainerOptions, make_trainer
from stoilo.learn.trainers.reporting import EVERY_S, MOST_POINTS, Reports
from tests.support.points import WISHES, make_model, make_samples

DATA = make_samples()


class Told(LocalBackend):
    """Threads here, and what they are told of the training."""

    def __init__(self, deaf: int = 0) -> None:
        super().__init__()
        self.reports, self.deaf = [], deaf

    async def report(self, request) -> None:
        if self.deaf:
            self.deaf -= 1
            raise UnreachableError("STO-C050", "nobody there")
        self.reports.append(request)


async def train(backend: Told, **more):
    options = TrainerOptions(tasks=4, held_out=DATA, **more)
    wish = {"batch": 10, **WISHES["fedavg"], "epochs": 3}
    made = make_trainer("fedavg", make_model(), DATA, backend, options=options, **wish)
    async with made as trainer:
        return await trainer.train()


def told(backend: Told) -> dict[int, tuple[float, float]]:
    return {
        one.version: (one.loss, one.held_out)
        for report in backend.reports
        for one in report.points
    }


@pytest.mark.parametrize("deaf", [0, 1])
async def test_every_version_is_told_also_after_a_failure(deaf: int) -> None:
    backend = Told(deaf)
    trained = await train(backend)
    found = told(backend)
    assert sorted(found) == list(range(1, trained.snapshot.version + 1))
    assert all(math.isfinite(loss) for loss, _ in found.values())
    last = trained.epochs[-1].held_out
    assert found[trained.snapshot.version][1] == pytest.approx(last.loss)
    assert [one.ended for one in backend.reports][-1]


async def test_training_that_nobody_listens_to_ends_all_the_same() -> None:
    backend = Told(deaf=1000)
    trained = await train(backend)
    assert (trained.snapshot.version > 0, backend.reports) == (True, [])


async def test_switch_keeps_it_to_oneself() -> None:
    backend = Told()
    await train(backend, console=False)
    assert backend.reports == []


async def test_reports_are_seconds_apart_and_bounded() -> None:
    backend, clock = Told(), iter([0.0, 0.0, *[EVERY_S - 1] * 600])
    reports = Reports(backend, "run", lambda: next(clock))
    for version in range(1, MOST_POINTS + 50):
        reports.log({"loss": 1.0, "answers": 1}, version)
        await asyncio.sleep(0)
    assert len(backend.reports) == 1
    await reports.close()
    assert [len(one.points) for one in backend.reports] == [
        1,
        MOST_POINTS,
    ]  # the first one was dropped
