"""Where the time of an epoch's tasks goes, against times by hand on a virtual clock."""

import numpy as np
import pytest

from stoilo.learn import (
    LocalWork,
    Part,
    Sgd,
    SimulatedBackend,
    SimulatedHost,
    SynchronousSettings,
    SynchronousTrainer,
    TrainerOptions,
    VCASGDTrainer,
    split,
)
from stoilo.learn.core.orders import Update
from stoilo.learn.driver.saving import Tally
from stoilo.learn.trainers.epochs import Waits
from tests.support.points import make_model, make_samples

DATA = make_samples(120)


def update(version, *, applied=True):
    return Update("k", version, applied, 1.0, 1, 0, 0)


def hosts(*speeds, poll_s=0.0):
    return SimulatedBackend([SimulatedHost(speed, poll_s) for speed in speeds])


async def synchronise(place, parts, **changes):
    settings = SynchronousSettings(epochs=1, **changes)
    async with SynchronousTrainer(
        place, make_model(), parts, settings, Sgd(0.1)
    ) as trainer:
        return await trainer.train_epoch()


async def test_step_waits_for_its_slowest_host():
    """Four parts of 30 samples: three hosts take 1 s and wait 2 s for one that takes 3."""
    found = await synchronise(hosts(30.0, 30.0, 30.0, 10.0), split(*DATA, 4))
    assert found.seconds == pytest.approx(3.0)
    assert found.waiting == pytest.approx(1.0 - 6.0 / 12.0)


async def test_equal_hosts_wait_for_nobody():
    """The control of the test above."""
    found = await synchronise(hosts(30.0, 30.0, 30.0, 30.0), split(*DATA, 4))
    assert (found.seconds, found.waiting) == pytest.approx((1.0, 0.0))


async def test_partial_step_does_not_wait_for_the_slowest():
    found = await synchronise(
        hosts(30.0, 30.0, 30.0, 10.0), split(*DATA, 4), fraction=0.75
    )
    assert (found.seconds, found.waiting) == pytest.approx((1.0, 0.0))


async def test_answers_that_count_at_once_wait_for_nobody():
    async with VCASGDTrainer(
        hosts(30.0, 30.0, 30.0, 10.0), make_model(), split(*DATA, 4),
        local=LocalWork(0.1), epochs=1, options=TrainerOptions(in_flight=4),
    ) as trainer:  # fmt: skip
        found = await trainer.train_epoch()
    assert (found.seconds, found.waiting) == pytest.approx((3.0, 0.0))


async def test_tasks_wait_for_hosts_that_poll_and_for_their_turn():
    """One host, two parts of 60 samples: 2 s, 5 s until it asks again, 2 s."""
    found = await synchronise(hosts(30.0, poll_s=5.0), split(*DATA, 2))
    assert found.seconds == pytest.approx(9.0)
    computed, out, held = 4.0, 2.0 + 9.0, 7.0
    assert found.waiting == pytest.approx(1.0 - computed / (out + held))


async def test_each_epoch_has_its_own_share():
    settings = SynchronousSettings(epochs=2)
    place = hosts(30.0, 10.0)
    parts = [Part(DATA[0][:30], DATA[1][:30])] * 2
    async with SynchronousTrainer(
        place, make_model(), parts, settings, Sgd(0.1)
    ) as trainer:
        found = [await trainer.train_epoch() for _ in range(2)]
    assert [one.waiting for one in found] == pytest.approx([1.0 / 3.0] * 2)
    assert [one.seconds for one in found] == pytest.approx([3.0, 3.0])


def test_share_is_unknown_where_nobody_says_how_long_he_computed():
    waits = Waits(0, 0.0, Tally())
    waits.note(update(1), 2.0)
    assert waits.share(Tally(out_s=2.0)) is None


def test_answer_that_is_dropped_waits_for_nothing():
    waits = Waits(0, 0.0, Tally())
    waits.note(update(0, applied=False), 1.0)
    waits.note(update(1), 5.0)
    assert waits.share(Tally(out_s=4.0, computed_s=4.0)) == 0.0


async def test_here_a_share_of_the_time_is_computing():
    found = await synchronise(None, split(*DATA, 4))
    assert 0.0 <= found.waiting < 1.0
    assert np.isfinite(found.seconds)
