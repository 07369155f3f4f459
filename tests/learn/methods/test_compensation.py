"""Late gradients brought up to date (DC-ASGD) by Downpour's server."""

import numpy as np
import pytest

from stoilo.core.errors import UsageError
from stoilo.learn import SimulatedBackend, SimulatedHost, fit, split
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.core.tensors import flatten
from stoilo.learn.methods.downpour import Downpour, DownpourSettings
from stoilo.learn.methods.optimizers import Compensation, Sgd
from tests.learn.methods.test_downpour import gather
from tests.learn.transport.test_travel import START, softmax_loss
from tests.support.points import make_samples


def make(crew, strength, **settings):
    wanted = {"passes": 2, "batch": 10, "compensation": strength, **settings}
    return Downpour(crew.start(), crew.sizes, Sgd(0.5), DownpourSettings(**wanted))


def train_late(method, crew, stop=10_000):
    """Let all replicas fetch before any of them pushes, again and again."""
    while not method.finished and stop > 0:
        for order in method.next_orders(len(crew.sizes)):
            method.take(order, crew.answer(order))
            stop -= 1
    return flatten(method.snapshot.parameters)


def test_corrections_are_those_of_the_paper():
    rule = Compensation(2.0)
    base, now = {"w": np.array([1.0, 2.0])}, {"w": np.array([1.5, 1.0])}
    first, second = np.array([0.3, -0.4]), np.array([0.1, 0.2])
    rule.correct({"w": first}, base, now)
    found = rule.correct({"w": second}, base, now)["w"]
    mean = 0.95 * 0.05 * first**2 + 0.05 * second**2
    factor = 2.0 / np.sqrt(mean + 1e-7)
    wanted = second + factor * second**2 * np.array([0.5, -1.0])
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    # As published: divided again each time, a factor of earlier ones too.
    again = 2.0 / np.sqrt(0.05 * first**2 + 1e-7) / np.sqrt(mean + 1e-7)
    assert not np.allclose(found, second + again * second**2 * [0.5, -1.0], rtol=0.1)


def test_gradient_in_time_stays_to_the_last_bit():
    found = [
        train_late(make(gather(1), strength), gather(1)) for strength in (0.0, 2.0)
    ]
    np.testing.assert_array_equal(*found)


def test_late_gradient_is_corrected():
    found = [
        train_late(make(gather(3), strength), gather(3)) for strength in (0.0, 2.0)
    ]
    assert not np.allclose(*found)


def test_restarted_method_goes_on_with_the_same_means():
    crew = gather(3)
    whole, first, second = (make(crew, 2.0) for _ in range(3))
    train_late(first, crew, stop=6)
    second.load(first.save())
    np.testing.assert_array_equal(train_late(second, crew), train_late(whole, crew))


def drift(seed, strength):
    """Return how far late gradients are from what they would be in time, in the mean."""
    rng, rule, ways = np.random.default_rng(seed), Compensation(strength), []
    x, y = make_samples()
    now = {
        name: array + 0.01 * rng.normal(size=array.shape)
        for name, array in START.items()
    }
    past = [now]
    for _ in range(60):
        rows = rng.integers(0, len(y), 8)
        base = past[max(0, len(past) - 4)]
        late = {n: g / 8 for n, g in softmax_loss(base, x[rows], y[rows])[1].items()}
        true = {n: g / 8 for n, g in softmax_loss(now, x[rows], y[rows])[1].items()}
        moved = rule.correct(late, base, now)
        ways.append(np.linalg.norm(flatten(moved) - flatten(true)))
        now = {name: array - 0.1 * true[name] for name, array in now.items()}
        past.append(now)
    return float(np.mean(ways))


@pytest.mark.parametrize("seed", range(5))
def test_corrected_gradients_are_nearer_to_those_in_time(seed):
    without, some, full = (drift(seed, strength) for strength in (0.0, 0.3, 1.0))
    assert full < 0.85 * without
    assert full < some < without


@pytest.mark.parametrize("backend", ["local", "simulated"])
async def test_downpour_takes_the_setting(backend):
    hosts = [SimulatedHost() for _ in range(3)]
    place = LocalBackend() if backend == "local" else SimulatedBackend(hosts)
    model = ArrayModel(START, softmax_loss)
    trained = await fit(
        "downpour", model, split(*make_samples(), 3), place, epochs=4, batch=10,
        compensation=0.3,
    )  # fmt: skip
    assert trained.tally.refused == 0
    assert trained.epochs[-1].average_loss < 0.5 * np.log(3.0)


@pytest.mark.parametrize("strength", [-1.0, np.nan])
def test_strength_that_is_none_is_refused(strength):
    with pytest.raises(UsageError, match="STO-T040"):
        DownpourSettings(1, 1, compensation=strength)
