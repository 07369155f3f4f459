"""Speeds by data part: pieces and deadlines, what a liar can do, and what an epoch gains."""

import statistics

import numpy as np
import pytest

from stoilo.client.options import CreateOptions
from stoilo.core.errors import UsageError
from stoilo.learn import (
    ArrayModel,
    LocalWork,
    Privacy,
    Sgd,
    SimulatedBackend,
    SimulatedHost,
    SynchronousSettings,
    SynchronousTrainer,
    TrainerOptions,
    split,
)
from stoilo.learn.backends import Job
from stoilo.learn.backends.server import LEAST_S, ServerBackend
from stoilo.learn.core.tensors import flatten
from stoilo.learn.driver.pace import KNOWN, MOST_CUTS, Speeds
from stoilo.learn.methods.synchronous import Synchronous
from tests.support.points import make_samples

SLOW, FAST = 25.0, 100.0  # samples a second
DATA = make_samples(400)


def squares(parameters, x, y):
    rest = x @ parameters["w"] - y
    return float((rest**2).sum()), {"w": 2 * x.T @ rest}


MODEL = ArrayModel({"w": np.zeros(4)}, squares)


def told(times, claims=(), count=2 * KNOWN):
    """Speeds after answers of one sample each; the last ones say `claims` in place of it."""
    speeds = Speeds()
    for _ in range(count):
        said = [*times[: len(times) - len(claims)], *claims]
        for took, claim in zip(times, said, strict=True):
            speeds.note(1, took, claim)
    return speeds


def test_work_is_cut_into_as_many_pieces_as_slow_hosts_are_slower():
    assert told([1.0, 1.1, 1.0, 1.2]).count_cuts() == 1
    assert told([1.0, 4.0, 1.0, 4.0]).count_cuts() == 4
    assert told([1.0, 1.0, 1.0, 100.0]).count_cuts() == MOST_CUTS
    assert told([1.0, 4.0], count=KNOWN // 2 - 1).count_cuts() == 1


def test_deadline_is_twice_the_95th_percentile_and_no_more_than_8_medians():
    assert told([1.0] * 18 + [3.0] * 2).find_deadline(10) == pytest.approx(60.0)
    assert told([1.0] * 18 + [90.0] * 2).find_deadline(10) == pytest.approx(80.0)
    assert told([1.0], count=KNOWN - 1).find_deadline(1) is None


HONEST = [1.0, 1.1, 1.2, 4.0, 4.4, 1.3, 1.0, 4.1, 1.2, 1.1, 4.2, 1.0]


@pytest.mark.parametrize("claim", [1e-9, 1e9, float("inf"), -3.0])
def test_claims_of_one_host_in_twelve_change_nothing(claim):
    honest, lied = told(HONEST), told(HONEST, [claim])
    assert lied.count_cuts() == honest.count_cuts() == 4
    assert lied.find_deadline(7) == honest.find_deadline(7)


def test_control_claims_of_half_the_hosts_change_the_pieces():
    assert told(HONEST, [1e-9] * 6).count_cuts() == MOST_CUTS


async def train(hosts, *, by_speed, seed, epochs=30, tasks=4):
    place = SimulatedBackend(hosts, seed=seed)
    options = TrainerOptions(by_speed=by_speed, seed=seed, home_checks=0.0)
    settings = SynchronousSettings(epochs, seed=seed)
    parts, ends = split(*DATA, tasks, seed=seed), []
    async with SynchronousTrainer(
        place, MODEL, parts, settings, Sgd(0.05), options=options
    ) as trainer:
        async for update in trainer:
            if update.update.epoch_ended:
                ends.append(place.now())  # noqa: PERF401 - the training is of use, too
        trained = trainer.trained()
    return np.diff(ends)[3:], flatten(trained.snapshot.parameters)


def fleet(stall):
    return [SimulatedHost(s, poll_s=0.1, stall=stall) for s in (SLOW, SLOW, FAST, FAST)]


SEEDS = range(5)


@pytest.mark.parametrize(("stall", "least"), [(0.0, 1.8), (0.1, 1.5)])
async def test_epoch_of_fast_and_slow_hosts_is_shorter(stall, least):
    gains = []
    for seed in SEEDS:
        equal, weights = await train(fleet(stall), by_speed=False, seed=seed)
        cut, same = await train(fleet(stall), by_speed=True, seed=seed)
        np.testing.assert_allclose(same, weights, rtol=1e-9)
        gains.append(equal.mean() / cut.mean())
    assert min(gains) > 1.2
    assert statistics.mean(gains) > least


async def test_control_alike_hosts_gain_nothing_and_lose_little():
    hosts = [SimulatedHost(FAST, poll_s=0.1)] * 4
    gains = [
        (await train(hosts, by_speed=True, seed=seed))[0].mean()
        / (await train(hosts, by_speed=False, seed=seed))[0].mean()
        for seed in SEEDS
    ]
    assert statistics.mean(gains) == pytest.approx(1.0, rel=0.05)


async def test_what_is_out_too_long_goes_to_another_host_and_the_first_answer_counts():
    hosts = [SimulatedHost(FAST, poll_s=0.1, stall=0.15, stall_times=60.0)] * 4
    slow, weights = await train(hosts, by_speed=False, seed=1, epochs=25)
    timed, same = await train(hosts, by_speed=True, seed=1, epochs=25)
    assert timed.mean() < 0.5 * slow.mean()
    np.testing.assert_allclose(same, weights, rtol=1e-9)


def test_pieces_of_a_step_are_those_of_the_checkpoint():
    settings = SynchronousSettings(3, block=10, seed=1)
    one, other = (Synchronous(MODEL.first(), [20, 5], Sgd(0.1), settings) for _ in "ab")
    one.cut(4)
    assert len(one.next_orders(99)) == 2  # the step that has begun stays as it is
    one._begin()
    other.load(one.save())
    orders = other.next_orders(99)
    assert sorted(order.samples for order in orders) == [1, 1, 1, 2, 2, 2, 3, 3]
    rows = sorted((o.part, row) for o in orders for row in o.rows)
    assert len(set(rows)) == 15


def test_local_steps_stay_whole():
    settings = SynchronousSettings(3, local=LocalWork(0.1))
    method = Synchronous(MODEL.first(), [20, 5], Sgd(1.0), settings)
    method.cut(4)
    method._begin()
    assert len(method.next_orders(99)) == 2


def test_privacy_of_parts_is_not_cut_into_pieces():
    options = TrainerOptions(by_speed=True, privacy=Privacy(1.0, 1.0, 1e-5))
    with pytest.raises(UsageError, match="STO-T040"):
        SynchronousTrainer(
            None, MODEL, DATA, SynchronousSettings(1), Sgd(0.1), options=options
        )


@pytest.mark.parametrize(("asked", "given"), [
    (None, 300), (1000.0, 300), (100.2, 101), (0.5, LEAST_S),
])  # fmt: skip
def test_server_is_told_an_earlier_deadline_alone(asked, given):
    backend = ServerBackend(None, CreateOptions(1, 1, delay_bound=300))
    job = Job("k", len, {}, 1, "numeric", deadline_s=asked)
    assert backend._hurry(job).delay_bound_s == given
