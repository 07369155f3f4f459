import numpy as np
import pytest

from stoilo.core.errors import UsageError
from stoilo.learn.core.tensors import flatten
from stoilo.learn.methods.optimizers import Sgd
from stoilo.learn.methods.schedules import Warmup
from stoilo.learn.methods.synchronous import LargeMinibatch, LargeMinibatchSettings
from tests.support.learning import (
    Net,
    Volunteers,
    load_digits,
    run_serially,
    split_evenly,
)


def gather(size, parts, net=None):
    digits = load_digits()
    cut = split_evenly(size, parts)
    return Volunteers(net or Net((64, 10)), digits.images, digits.labels, cut)


def train(crew, **more):
    wanted = {"epochs": 2, "block": 4, "rate": 0.05, "warmup": 1.0, **more}
    method = LargeMinibatch(crew.start(), crew.sizes, LargeMinibatchSettings(**wanted))
    run_serially(method, crew.answer)
    return method


def test_step_of_k_parts_is_a_step_on_all_their_samples_the_unequal_last_one_too():
    crew = gather(62, 4)
    method = LargeMinibatch(
        crew.start(), crew.sizes, LargeMinibatchSettings(1, 6, 0.05, kind="none")
    )
    w, local, rounds = crew.start().parameters, Sgd(0.05 * 4, momentum=0.9), {}
    while not method.finished:
        for order in method.next_orders(1):
            rows = crew.parts[order.part][list(order.rows)]
            rounds.setdefault(order.snapshot.version, []).append(rows)
            method.take(order, crew.answer(order))
    for step in rounds.values():
        rows = np.concatenate(step)
        _, slope, _ = crew.net.differentiate(w, crew.images[rows], crew.labels[rows])
        w = local.step(w, {name: a / len(rows) for name, a in slope.items()})
    assert [len(np.concatenate(step)) for step in rounds.values()] == [24, 24, 14]
    assert np.allclose(flatten(method.snapshot.parameters), flatten(w), rtol=1e-9)


@pytest.mark.parametrize(("kind", "rates"), [
    ("gradual", (0.1, 0.1 + 0.7 / 50, 0.45, 0.8, 0.8)),
    ("constant", (0.1, 0.1, 0.1, 0.8, 0.8)),
    ("none", (0.8, 0.8, 0.8, 0.8, 0.8)),
])  # fmt: skip
def test_rates_at_the_beginning_in_the_middle_and_at_the_end_of_the_warmup(kind, rates):
    warmup = Warmup(0.1, 8.0, steps_per_epoch=10, epochs=5.0, kind=kind)
    assert [warmup(step) for step in (0, 1, 25, 50, 500)] == pytest.approx(rates)


def test_rate_falls_to_a_tenth_at_each_milestone():
    warmup = Warmup(0.1, 2.0, 10, milestones=(30, 60))
    rates = [warmup(step) for step in (299, 300, 599, 600)]
    assert rates == pytest.approx([0.2, 0.02, 0.02, 0.002])


def test_scale_is_the_number_of_parts_and_steps_are_those_of_the_run():
    schedule = LargeMinibatchSettings(1, 4, 0.05).make_schedule((17, 16, 16))
    assert (schedule.scale, schedule.steps_per_epoch) == (3, 5)


def test_rate_follows_the_schedule_step_by_step():
    method = train(gather(64, 4), warmup=2.0)
    assert method.steps == 8
    assert method.optimizer.rate == pytest.approx(0.05 + 0.15 * 7 / 8)


def test_folded_rate_trains_the_same():
    crew = gather(64, 4)
    ends = [flatten(train(crew, folded=f).snapshot.parameters) for f in (False, True)]
    assert np.allclose(*ends, rtol=1e-9)


@pytest.mark.parametrize("bad", [
    {"block": 0}, {"rate": 0.0}, {"warmup": -1.0}, {"folded": True, "decay": 0.1},
])  # fmt: skip
def test_settings_that_cannot_train_are_refused(bad):
    with pytest.raises(UsageError, match="STO-T040"):
        LargeMinibatchSettings(**{"epochs": 1, "block": 1, "rate": 1.0, **bad})
