"""What the guard lets through: absence, buffers, uneven parts; and what it tells."""

import asyncio
import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn

from stoilo.core.errors import TrustError
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.backends.simulated import SimulatedBackend, SimulatedHost
from stoilo.learn.core.data import Part, split
from stoilo.learn.core.models import ArrayModel, TorchModel
from stoilo.learn.core.orders import Order
from stoilo.learn.driver.acceptance import Guard
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.methods.base import LocalWork
from stoilo.learn.methods.optimizers import Adam, Sgd
from stoilo.learn.methods.robust import Clip
from stoilo.learn.methods.synchronous import Synchronous, SynchronousSettings
from stoilo.learn.methods.vcasgd import Vcasgd, VcasgdSettings

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(80, 4)).astype(np.float32), RNG.integers(0, 3, 80)


class Spare(nn.Module):
    """A net with a layer that no sample uses."""

    def __init__(self):
        super().__init__()
        self.used, self.spare = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.used(x)


class Normed(nn.Module):
    """A net with running statistics."""

    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(4), nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.norm(x))


def make_run(module, cheat=None, hosts=8, optimizer=None, epochs=3, **settings):
    torch.manual_seed(0)
    model = TorchModel(module(), nn.functional.cross_entropy)
    parts = split(X, Y, 8)
    method = Synchronous(
        model.first(),
        [len(part) for part in parts],
        optimizer or Sgd(0.5),
        SynchronousSettings(epochs),
    )
    others = [SimulatedHost()] * (hosts - 1)
    backend = SimulatedBackend([*others, SimulatedHost(cheat=cheat)])
    return Run(method, model, parts, backend, RunSettings(**settings))


# ------------------------------------------------------------------ absence


async def test_parameter_that_no_sample_needs_is_left_as_torch_leaves_it():
    run = make_run(Spare, optimizer=Adam(0.1, decay=0.5, decoupled=True))
    before = run.model.first().parameters
    async with run:
        after = (await run.finish()).parameters
    assert np.array_equal(after["spare.weight"], before["spare.weight"])
    assert not np.array_equal(after["used.weight"], before["used.weight"])


def test_gradient_of_zeros_would_shrink_it():
    before = {"spare": np.ones(3)}
    step = Adam(0.1, decay=0.5, decoupled=True).step
    assert step(before, {"spare": np.zeros(3)})["spare"].max() < 1.0


@pytest.mark.parametrize("left", [set(), {"used.bias", "spare.bias"}])
async def test_host_that_leaves_out_what_others_have_is_at_fault(left):
    def leave_out(value):
        kept = {n: a for n, a in value["tensors"].items() if n in left}
        return {**value, "tensors": kept}

    run = make_run(Spare, leave_out, epochs=1)
    async with run:
        await run.finish()
    assert run.backend.faults[-1] > 0
    assert sum(run.backend.faults[:-1]) == 0


# ------------------------------------------------------------------ buffers


def lie_about_buffers(**lies):
    def lie(value):
        buffers = {
            name: np.full_like(array, lies[name.rpartition(".")[2]])
            if name.rpartition(".")[2] in lies
            else array
            for name, array in value["buffers"].items()
        }
        return {**value, "buffers": buffers}

    return lie


async def end_of(cheat, **settings):
    run = make_run(Normed, cheat, epochs=10, **settings)
    async with run:
        return (await run.finish()).buffers


LARGE = {"running_var": 1e12, "running_mean": -1e12}


async def test_one_large_lie_about_statistics_changes_them_little():
    honest, lied = await end_of(None), await end_of(lie_about_buffers(**LARGE))
    mean, var = lied["norm.running_mean"], lied["norm.running_var"]
    assert np.abs(mean - honest["norm.running_mean"]).max() < 0.5
    assert (var / honest["norm.running_var"]).max() < 4.0


async def test_large_lie_spoils_statistics_that_are_not_bounded():
    lied = await end_of(lie_about_buffers(**LARGE), clip=None)
    assert lied["norm.running_var"].min() > 1e10


class Tuned(Normed):
    """A net whose BatchNorm stays as it was trained before."""

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self


async def test_statistics_that_no_honest_answer_moves_stay():
    run = make_run(Tuned, lie_about_buffers(**LARGE))
    async with run:
        lied = (await run.finish()).buffers
    assert lied["norm.running_var"].tolist() == [1.0] * 4
    assert run.tally.shortened > 0


async def test_lie_about_a_counter_does_not_count():
    lied = await end_of(lie_about_buffers(num_batches_tracked=60))
    assert lied["norm.num_batches_tracked"] == 10


async def test_no_honest_statistic_is_shortened():
    run = make_run(Normed, epochs=10)
    async with run:
        await run.finish()
    assert run.tally.shortened == 0


async def test_statistics_are_bounded_where_each_answer_counts_alone():
    ends = []
    for cheat in (None, lie_about_buffers(**LARGE)):
        run = make_run(Normed, cheat)
        local = LocalWork(0.1, batch=5)
        run.method = Vcasgd(
            run.model.first(), [10] * 8, VcasgdSettings(2, local, alpha=0.9)
        )
        async with run:
            ends.append((await run.finish()).buffers["norm.running_var"])
    assert ends[1].max() < 10.0 * ends[0].max()


async def test_buffer_whose_way_is_beyond_numbers_is_refused():
    model = TorchModel(Normed().double(), nn.functional.cross_entropy)
    guard = Guard(model, Clip())
    order = Order("k", "gradient", model.first(), 0, 4, rows=(0, 1, 2, 3))
    part = Part(X.astype(float), Y)
    await guard.look(order, part)
    kwargs = {**model.constants(), "version": 0, "rows": [0, 1, 2, 3], "settings": {}}
    kwargs |= {"parameters": order.snapshot.parameters, "data": {"x": part.x, "y": Y}}
    kwargs["buffers"] = order.snapshot.buffers
    value = copy.deepcopy(model.kernel("gradient")(kwargs))
    assert guard.admit(order, value).buffers
    value["buffers"]["norm.running_mean"][:] = 1.7e308
    with pytest.raises(TrustError, match="STO-T010"):
        guard.admit(order, value)


# ------------------------------------------------------------------ uneven parts


def squares(parameters, x, y):
    rest = x @ parameters["w"] - y
    return float(rest @ rest), {"w": 2.0 * x.T @ rest}


async def step_over(parts, **settings):
    model = ArrayModel({"w": np.zeros(4)}, squares)
    sizes = [len(part) for part in parts]
    method = Synchronous(model.first(), sizes, Sgd(0.01), SynchronousSettings(1))
    settings = RunSettings(**settings)
    async with (
        LocalBackend() as backend,
        Run(method, model, parts, backend, settings) as run,
    ):
        return (await run.finish()).parameters["w"], run


def uneven_parts(hardness=30.0):
    """Parts of 700, 700, 700 and one hard sample."""
    x = np.concatenate([RNG.normal(size=(2100, 4)), np.full((1, 4), hardness)])
    y = x @ np.ones(4) + 0.1 * RNG.normal(size=2101)
    bounds = [0, 700, 1400, 2100, 2101]
    return [Part(x[a:b], y[a:b]) for a, b in itertools.pairwise(bounds)]


async def test_step_over_honest_uneven_parts_is_exact():
    parts = uneven_parts()
    whole = Part(*(np.concatenate([getattr(p, a) for p in parts]) for a in "xy"))
    step, run = await step_over(parts)
    exact, _ = await step_over([whole], clip=None)
    np.testing.assert_allclose(step, exact, rtol=1e-6)
    assert run.tally.shortened == 0


async def test_first_answer_that_is_cut_is_told(caplog):
    run = make_run(
        Spare,
        lambda v: {**v, "tensors": {n: -1e6 * a for n, a in v["tensors"].items()}},
    )
    async with run:
        await run.finish()
    assert run.tally.shortened > 1
    assert [r.message for r in caplog.records if "shortened" in r.message][1:] == []
    assert "was shortened" in caplog.text
    assert (
        run.backend.faults[-1] == run.tally.shortened
    )  # far off: its host hears of it


class Interrupted(SimulatedBackend):
    """A backend at which Ctrl-C comes while the first wrong answer is reported."""

    reports = 0

    async def refuse(self, job_id, reason):
        self.reports += 1
        if self.reports == 1:
            raise asyncio.CancelledError
        await super().refuse(job_id, reason)


@pytest.mark.parametrize("change", [{"version": 9}, {}], ids=["refused", "shortened"])
async def test_no_order_is_lost_when_a_report_is_interrupted(change):
    def cheat(value):
        tensors = {n: -1e6 * a for n, a in value["tensors"].items()}
        return {**value, "tensors": tensors, **change}

    run = make_run(Spare)
    run.backend = Interrupted([SimulatedHost(), SimulatedHost(cheat=cheat)])
    async with run:
        with pytest.raises(asyncio.CancelledError):
            await run.finish()
        await run.finish()
    assert run.backend.reports > 1
    assert sum(one.samples for one in run.history.updates if one.applied) == 3 * len(X)


class Echo(SimulatedBackend):
    """A backend that hands every answer on twice."""

    last = None

    async def next(self, wait_s=None):
        again, self.last = self.last, None
        if again is None:
            again = self.last = await super().next(wait_s)
        return again


async def test_answer_that_comes_twice_counts_once():
    run = make_run(Spare)
    alone = (await finish(make_run(Spare))).parameters
    run.backend = Echo([SimulatedHost()])
    twice = (await finish(run)).parameters
    assert np.array_equal(twice["used.weight"], alone["used.weight"])
    assert len({update.key for update in run.history.updates}) == 24


async def finish(run):
    async with run:
        return await run.finish()
