"""Evaluation on volunteers: the same numbers as here, whoever fails or lies on the way."""

import pytest
import torch
from torch import nn

from stoilo.client.results import UserError
from stoilo.learn import (
    ArrayModel,
    LocalBackend,
    Part,
    SimulatedBackend,
    SimulatedHost,
    TorchModel,
    TrainerOptions,
    evaluate,
    evaluate_on,
    split,
)
from stoilo.learn.methods.evaluating import Evaluating
from tests.support.points import make_model, make_samples, softmax_loss
from tests.support.resuming import store

DATA = make_samples(130)


def predict(parameters, x):
    return (x @ parameters["w"] + parameters["b"]).argmax(axis=1)


def make_counting():
    model = make_model()
    return ArrayModel(
        {n: a + 0.1 for n, a in model.parameters.items()}, softmax_loss, predict
    )


def here(model):
    return evaluate(model, model.first(), Part(*DATA))


@pytest.mark.parametrize("block", [0, 1, 7, 1000])
async def test_numbers_are_those_of_this_computer(block):
    found = await evaluate_on(None, make_counting(), DATA, block=block)
    wanted = here(make_counting())
    assert found.loss == pytest.approx(wanted.loss, rel=1e-12)
    assert (found.accuracy, found.samples) == (wanted.accuracy, 130)


async def test_torch_module_with_batchnorm_is_evaluated_as_it_stands():
    torch.manual_seed(0)
    module = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
    module[0].running_mean += 1.0
    model = TorchModel(module, nn.CrossEntropyLoss())
    found = await evaluate_on(None, model, DATA, block=20)
    assert found.loss == pytest.approx(here(model).loss, rel=1e-12)
    assert found.accuracy == here(model).accuracy
    assert module[0].num_batches_tracked == 0


async def test_model_that_does_not_count_has_no_accuracy():
    assert (await evaluate_on(None, make_model(), DATA)).accuracy is None


async def test_lost_tasks_are_given_out_again_and_nothing_counts_twice():
    place = SimulatedBackend([SimulatedHost(loss=0.4) for _ in range(3)], seed=3)
    found = await evaluate_on(place, make_counting(), DATA, block=10)
    assert found.loss == pytest.approx(here(make_counting()).loss, rel=1e-12)


async def test_answers_out_of_bounds_are_refused_and_those_within_believed():
    def claim(**what):
        return SimulatedHost(cheat=lambda value: {**value, **what})

    wanted = here(make_counting())
    options = TrainerOptions(least_loss=0.0)
    for lie in ({"correct": 10**6}, {"loss_sum": -1.0}, {"loss_sum": float("nan")}):
        place = SimulatedBackend([SimulatedHost(), claim(**lie)])
        found = await evaluate_on(place, make_counting(), DATA, options=options)
        assert (found.loss, found.accuracy) == pytest.approx(
            (wanted.loss, wanted.accuracy)
        )
    place = SimulatedBackend([claim(loss_sum=1.0)])
    unchecked = TrainerOptions(home_checks=0.0)
    found = await evaluate_on(place, make_counting(), DATA, options=unchecked)
    assert found.loss != wanted.loss


async def test_function_that_fails_everywhere_ends_it():
    def fail(_parameters, _x, _y):
        raise ValueError("no")

    async with LocalBackend(1) as place:
        with pytest.raises(UserError):
            await evaluate_on(place, ArrayModel(make_model().parameters, fail), DATA)


async def test_killed_evaluation_goes_on_with_what_it_knew(tmp_path):
    options = TrainerOptions(folder=tmp_path, tasks=4)
    first = await evaluate_on(None, make_counting(), DATA, options=options)
    place = SimulatedBackend(
        [SimulatedHost(cheat=lambda value: {**value, "loss_sum": 0.0})]
    )
    again = await evaluate_on(place, make_counting(), DATA, options=options)
    assert again == first  # nothing was asked anew


def test_half_an_evaluation_is_saved_and_loaded():
    start, sizes = make_model().first(), [len(part) for part in split(*DATA, 4)]
    method, fresh = (Evaluating(start, sizes, 10) for _ in range(2))
    method.next_orders(3)
    fresh.load(store(method.save()))
    assert len(fresh.next_orders(99)) == method._ledger.size - 3
    assert not fresh.finished
