"""VC-ASGD's two ways to hand weights out differ, with the number of tasks out by default."""

import numpy as np
import pytest

from stoilo.learn import (
    SimulatedBackend,
    SimulatedHost,
    TrainerOptions,
    VCASGDTrainer,
    make_trainer,
)
from stoilo.learn.trainers.progress import Conditions
from tests.support.points import make_model, make_samples


async def train(**changes):
    place = SimulatedBackend([SimulatedHost(poll_s=0.0) for _ in range(2)])
    async with VCASGDTrainer(
        place, make_model(), make_samples(), alpha=0.5, epochs=2, **changes
    ) as trainer:
        trained = await trainer.train()
    return trained.snapshot.parameters["w"], trained.epochs[1].staleness


async def test_latest_weights_are_not_those_of_the_start_of_the_epoch():
    latest, epoch = await train(), await train(pull="epoch")
    assert np.abs(latest[0] - epoch[0]).max() > 1e-2
    assert latest[1] == pytest.approx(1.0, abs=0.26)  # two of eight tasks are out
    assert epoch[1] == pytest.approx(3.5)  # 0, 1 … 7 versions old


async def test_latest_weights_of_tasks_ordered_at_once_are_those_of_the_start():
    """The control of the test above."""
    options = TrainerOptions(in_flight=8)
    at_once, epoch = await train(options=options), await train(pull="epoch")
    np.testing.assert_array_equal(at_once[0], epoch[0])


@pytest.mark.parametrize(
    ("parts", "given", "out"), [(8, 0, 2), (9, 0, 3), (1, 0, 1), (8, 5, 5)]
)
def test_tasks_out_are_a_quarter_of_the_parts_unless_told(parts, given, out):
    options = TrainerOptions(tasks=parts, in_flight=given)
    data = make_samples()
    trainer = VCASGDTrainer(None, make_model(), data, options=options)
    assert trainer.run.settings.in_flight == out
    rounds = trainer.estimate(Conditions(volunteers=99)).rounds
    assert rounds == -(-parts // out)


@pytest.mark.parametrize("method", ["dpbgd", "downpour"])
def test_tasks_out_are_as_many_as_parts_elsewhere(method):
    trainer = make_trainer(method, make_model(), make_samples())
    assert trainer.run.settings.in_flight == 8
