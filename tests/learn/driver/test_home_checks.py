"""Answers computed again at home: what is found, what it costs, what stays as it is."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from bench.digits import make_model, make_parts
from bench.learn_robust import train_among
from stoilo.core.errors import TrustError
from stoilo.learn.core.models import make_arguments
from stoilo.learn.core.orders import Order, Reply
from stoilo.learn.driver.acceptance import HomeChecks
from stoilo.learn.driver.probing import find_lie
from stoilo.learn.methods.base import LocalWork

MODEL, PART = make_model(), make_parts(10)[0]
ORDER = Order("k", "gradient", MODEL.first(), 0, len(PART), {"seed": 0})


class Draws:
    """Chance as it is told: the next draw, again and again."""

    next = 0.99

    def __call__(self):
        return self.next


def answer():
    loss, sums = MODEL.function(MODEL.parameters, PART.x, PART.y)
    return Reply(0, len(PART), float(loss), sums)


def push(times=1.0, seed=0):
    honest, chooser = answer(), np.random.default_rng(seed)
    way = {n: chooser.standard_normal(a.shape) for n, a in honest.tensors.items()}
    return replace(honest, tensors={n: times * a for n, a in way.items()})


def check(checks, reply, reach=1.0):
    asyncio.run(checks.check(ORDER, PART, reply, reach))


def test_honest_answer_and_one_that_rounds_otherwise_are_no_lie():
    honest = answer()
    rounded = {n: a * (1 + 1e-4) for n, a in honest.tensors.items()}
    assert find_lie(MODEL, ORDER, PART, honest) is None
    assert find_lie(MODEL, ORDER, PART, replace(honest, tensors=rounded)) is None


@pytest.mark.parametrize(
    "change", [{"loss_sum": 1.0}, {"correct": 900}, {"tensors": {}}]
)
def test_wrong_numbers_and_missing_arrays_are_lies(change):
    assert find_lie(MODEL, ORDER, PART, replace(answer(), **change)) is not None


def test_way_by_local_steps_is_compared_by_the_way_not_the_place():
    settings = LocalWork(0.1, batch=20).render(len(PART), 0, "parameters")
    order = replace(ORDER, kernel="local_steps", settings=settings)
    kwargs = make_arguments(MODEL, order.snapshot, PART, settings)
    raw, start = MODEL.kernel("local_steps")(kwargs), order.snapshot.parameters
    honest = Reply(
        0, len(PART), raw["loss_sum"], raw["tensors"], correct=raw["correct"]
    )
    back = {n: 2 * start[n] - a for n, a in raw["tensors"].items()}
    assert find_lie(MODEL, order, PART, honest) is None
    assert find_lie(MODEL, order, PART, replace(honest, tensors=back)).way


def test_answer_is_checked_the_more_often_the_longer_it_is():
    checks = HomeChecks(MODEL, 0.02, draw=lambda: 0.1)
    check(checks, answer(), reach=2.0)  # 0.08
    assert checks.checked == 0
    check(checks, answer(), reach=3.0)  # 0.18
    assert (checks.checked, checks.found) == (1, 0)


def test_push_in_a_direction_that_was_proven_wrong_is_found_whatever_is_drawn():
    draws = Draws()
    checks = HomeChecks(MODEL, 0.02, draw=draws)
    check(checks, push(), reach=1.0)  # not drawn: it passes
    draws.next = 0.0
    with pytest.raises(TrustError, match="computed again"):
        check(checks, push())
    draws.next = 0.99
    with pytest.raises(TrustError):
        check(checks, push(times=0.1))
    check(checks, push(seed=1))  # another direction: not known yet
    check(checks, answer())
    assert (checks.checked, checks.found) == (2, 2)


def test_honest_run_has_the_same_bits_with_every_answer_checked():
    runs = [train_among(0, 0.0, 0, share, epochs=1)[1] for share in (0.0, 1.0)]
    plain, checked = (run.method.snapshot.parameters for run in runs)
    assert all(np.array_equal(plain[n], checked[n]) for n in plain)
    assert (runs[1].home.checked, runs[1].tally.refused) == (70, 0)


def test_run_among_pushers_has_the_honest_bits_with_every_answer_checked():
    honest, checked, spoiled = (
        train_among(n, 3.0, 0, share, epochs=1)[1].method.snapshot.parameters["w"]
        for n, share in ((0, 0.0), (2, 1.0), (2, 0.0))
    )
    assert np.array_equal(honest, checked)
    assert not np.array_equal(honest, spoiled)
