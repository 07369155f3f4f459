"""The influence of one answer is bounded from the first answer of a run on."""

import numpy as np
import pytest

from stoilo.core.errors import InternalError
from stoilo.learn.backends.simulated import SimulatedBackend, SimulatedHost
from stoilo.learn.core.data import split
from stoilo.learn.core.orders import Order
from stoilo.learn.core.tensors import add, safe_norm
from stoilo.learn.driver.pace import Pace
from stoilo.learn.driver.probing import look_at, measure_seconds
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.methods.base import LocalWork
from stoilo.learn.methods.optimizers import Sgd
from stoilo.learn.methods.synchronous import Synchronous, SynchronousSettings
from stoilo.learn.methods.vcasgd import Vcasgd, VcasgdSettings
from tests.support.points import make_model, make_samples


def enlarge(by, answers=1):
    """Return a cheat that enlarges the first answers that it sees."""
    left = [answers]

    def cheat(value):
        left[0] -= 1
        factor = by if left[0] >= 0 else 1.0
        tensors = {name: factor * array for name, array in value["tensors"].items()}
        return {**value, "tensors": tensors}

    return cheat


def make_run(cheat=None, kind="gradient", **settings):
    model, parts = make_model(), split(*make_samples(), 6)
    sizes = [len(part) for part in parts]
    if kind == "gradient":
        method = Synchronous(model.first(), sizes, Sgd(0.5), SynchronousSettings(1))
    else:
        local = LocalWork(0.1, batch=5, momentum=0.5)
        method = Vcasgd(model.first(), sizes, VcasgdSettings(1, local, alpha=0.0))
    backend = SimulatedBackend([SimulatedHost(cheat=cheat)])
    return Run(method, model, parts, backend, RunSettings(**settings))


async def move_of_first_answer(run):
    async with run:
        before = run.method.snapshot.parameters
        while run.method.snapshot.version == 0:
            await run.step()
    return safe_norm(add(run.method.snapshot.parameters, before, -1.0))


@pytest.mark.parametrize("kind", ["gradient", "local_steps"])
async def test_first_answer_of_a_run_is_bounded(kind):
    honest = await move_of_first_answer(make_run(kind=kind))
    wrong = await move_of_first_answer(make_run(enlarge(1e6), kind))
    assert wrong < 30.0 * honest


@pytest.mark.parametrize("kind", ["gradient", "local_steps"])
async def test_first_answer_would_not_be_bounded_without_the_look(kind):
    honest = await move_of_first_answer(make_run(kind=kind))
    wrong = await move_of_first_answer(make_run(enlarge(1e6), kind, probe=False))
    assert wrong > 1e5 * honest


@pytest.mark.parametrize("kind", ["gradient", "local_steps"])
async def test_no_honest_answer_is_shortened(kind):
    run = make_run(kind=kind)
    async with run:
        await run.finish()
    assert run.tally.shortened == 0
    assert run.history.updates


def overflow(value):
    tensors = {n: np.full_like(a, 1.7e308) for n, a in value["tensors"].items()}
    return {**value, "tensors": tensors}


@pytest.mark.parametrize("clip", [{}, {"clip": None}])
@pytest.mark.parametrize("kind", ["gradient", "local_steps"])
async def test_finite_entries_of_infinite_norm_are_refused(kind, clip):
    run = make_run(overflow, kind, tries=2, **clip)
    async with run:
        with pytest.raises(InternalError, match="its norm is not finite"):
            await run.finish()
    assert run.tally.refused >= 2
    assert run.method.snapshot.version == 0


async def test_large_entries_of_finite_norm_are_not_refused():
    run = make_run(enlarge(1e200))
    async with run:
        await run.finish()
    assert run.tally.refused == 0
    assert run.tally.shortened > 0


def test_function_that_fails_says_nothing_about_norms():
    model, part = make_model(), split(*make_samples(), 1)[0]
    order = Order("k", "gradient", model.first(), 0, 999, rows=(0, 999))
    assert look_at(model, order, part).norm is None


def test_time_of_a_sample_is_measured():
    model, part = make_model(), split(*make_samples(), 1)[0]
    order = Order("k", "gradient", model.first(), 0, len(part))
    assert 0.0 < measure_seconds(model, order, part) < 1.0


def test_orders_out_much_longer_than_usual_are_late():
    pace = Pace()
    for took in (1.0, 1.0, 1.2):
        pace.note(took)
    assert pace.count_late([0.0, 0.0], 1.9) == 0
    assert pace.count_late([0.0, 0.0], 2.1) == 2
    assert pace.count_late([0.0, 1.0], 2.1) == 1
