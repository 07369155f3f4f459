"""The driver with real methods on threads and simulated volunteers."""

import json
import math

import numpy as np
import pytest

from stoilo.core.errors import InternalError, UsageError
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.backends.simulated import SimulatedBackend, SimulatedHost, Spell
from stoilo.learn.core.data import split
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.core.orders import refuse_answer
from stoilo.learn.driver.in_flight import ASKED_AFTER, Flights, Losses
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.methods.base import LocalWork
from stoilo.learn.methods.optimizers import Sgd
from stoilo.learn.methods.synchronous import Synchronous, SynchronousSettings
from stoilo.learn.methods.vcasgd import Vcasgd, VcasgdSettings
from tests.support.points import make_model, make_samples, softmax_loss


@pytest.fixture
def samples():
    return make_samples()


@pytest.fixture
def model():
    return make_model()


def make_synchronous(model, parts, epochs=4):
    settings = SynchronousSettings(epochs=epochs, block=10)
    return Synchronous(model.first(), [len(p) for p in parts], Sgd(0.5), settings)


def make_vcasgd(model, parts, epochs=4):
    settings = VcasgdSettings(epochs, LocalWork(rate=0.1, batch=5), alpha=0.5)
    return Vcasgd(model.first(), [len(p) for p in parts], settings)


METHODS = {"synchronous": make_synchronous, "vcasgd": make_vcasgd}


def four_hosts(**changes):
    return SimulatedBackend([SimulatedHost(**changes) for _ in range(4)])


@pytest.fixture(params=METHODS)
def make_method(request):
    return METHODS[request.param]


@pytest.mark.parametrize("place", [LocalBackend, four_hosts])
async def test_method_trains_on_every_backend(make_method, place, model, samples):
    parts = split(*samples, 6)
    backend = place()
    async with backend, Run(make_method(model, parts), model, parts, backend) as run:
        end = await run.finish()
    first, last = softmax_loss(model.parameters, *samples)[0], end.parameters
    assert softmax_loss(last, *samples)[0] < 0.4 * first
    assert end.version == run.history.updates[-1].version


async def test_simulation_repeats_itself(make_method, model, samples):
    parts = split(*samples, 6)
    ends = []
    for _ in range(2):
        backend = four_hosts(loss=0.2, stall=0.1)
        async with Run(make_method(model, parts), model, parts, backend) as run:
            ends.append((await run.finish(), run.history.times))
    np.testing.assert_array_equal(
        ends[0][0].parameters["w"], ends[1][0].parameters["w"]
    )
    assert ends[0][1] == ends[1][1]


async def test_lost_tasks_and_absent_hosts_lose_no_part(make_method, model, samples):
    parts = split(*samples, 6)
    hosts = [SimulatedHost(loss=0.3), SimulatedHost(away=[Spell(2.0, 500.0)])]
    backend = SimulatedBackend(hosts, deadline_s=20.0)
    async with Run(make_method(model, parts, epochs=2), model, parts, backend) as run:
        await run.finish()
    applied = [u.key for u in run.history.updates if u.applied]
    assert len(applied) == len(set(applied))
    assert sum(one.samples for one in run.history.updates if one.applied) == 2 * len(
        samples[0]
    )


def spoil(value):
    return {**value, "tensors": {"w": np.full((4, 3), math.nan), "b": np.zeros(3)}}


def claim_another_version(value):
    return {**value, "version": value["version"] + 1}


FAST = {"samples_per_s": 1e9, "poll_s": 0.01}


@pytest.mark.parametrize("cheat", [spoil, claim_another_version])
async def test_fast_host_that_sends_garbage_ends_no_run_and_is_known(
    make_method, model, samples, cheat
):
    parts = split(*samples, 6)
    hosts = [*[SimulatedHost()] * 5, SimulatedHost(cheat=cheat, **FAST)]
    backend = SimulatedBackend(hosts)
    async with Run(make_method(model, parts), model, parts, backend) as run:
        end = await run.finish()
    assert backend.faults[-1] > 0
    assert backend.faults[:-1] == [0] * 5
    assert np.isfinite(end.parameters["w"]).all()


async def test_answer_that_is_refused_is_ordered_again_and_counted(
    make_method, model, samples
):
    parts = split(*samples, 6)
    hosts = [SimulatedHost(), SimulatedHost(cheat=claim_another_version)]
    backend = SimulatedBackend(hosts)
    async with Run(make_method(model, parts), model, parts, backend) as run:
        await run.finish()
    assert run.tally.refused == backend.faults[1] > 0


async def test_work_that_fails_always_ends_the_run_by_name(make_method, model, samples):
    parts = split(*samples, 6)
    backend = SimulatedBackend([SimulatedHost(cheat=spoil)])
    async with Run(make_method(model, parts), model, parts, backend) as run:
        with pytest.raises(InternalError, match="STO-T021"):
            await run.finish()


def claim_no_loss(value):
    return {**value, "loss_sum": math.nan}


def make_failing(samples, at_loss):
    """Return the model whose loss is no number for one sample, once it has learned."""
    x, _ = samples
    culprit = x[77].copy()

    def loss(parameters, x, y):
        value, slope = softmax_loss(parameters, x, y)
        has_it = (x == culprit).all(axis=1).any()
        return (math.nan if has_it and value < at_loss * len(x) else value), slope

    return ArrayModel(make_model().parameters, loss)


@pytest.mark.parametrize("place", [LocalBackend, four_hosts])
async def test_own_loss_that_is_no_number_ends_the_run_and_says_where(
    make_method, place, samples
):
    model, parts = make_failing(samples, at_loss=0.9), split(*samples, 6)
    method = make_method(model, parts, epochs=20)
    row = next(
        f"sample {i} of data part {n}"
        for n, part in enumerate(parts)
        for i, x in enumerate(part.x)
        if (x == samples[0][77]).all()
    )
    async with place() as backend, Run(method, model, parts, backend) as run:
        with pytest.raises(UsageError, match=f"the loss is nan at {row}") as caught:
            await run.finish()
    assert caught.value.code == "STO-T001"
    good = len(run.history)
    assert 0 < good < 100
    assert f"{good} answers were good before" in caught.value.message


@pytest.mark.parametrize("seed", range(5))
async def test_liars_who_claim_no_loss_end_no_training(
    make_method, model, samples, seed
):
    parts = split(*samples, 6)
    liars = [SimulatedHost(cheat=claim_no_loss, samples_per_s=1e9)] * 6
    backend = SimulatedBackend([SimulatedHost()] * 2 + liars, tries=1, seed=seed)
    async with Run(make_method(model, parts), model, parts, backend) as run:
        await run.finish()
    assert (
        run._losses._ask_at > ASKED_AFTER
    )  # control: it was computed here, and trained on


async def test_nothing_but_liars_is_called_by_its_name(make_method, model, samples):
    parts = split(*samples, 6)
    backend = SimulatedBackend([SimulatedHost(cheat=claim_no_loss)])
    async with Run(make_method(model, parts), model, parts, backend) as run:
        with pytest.raises(InternalError, match="STO-T021"):
            await run.finish()


@pytest.mark.parametrize(
    ("endings", "asked"), [(2, 0), (3, 1), (5, 1), (6, 2), (199, 7), (400, 9)]
)
def test_trainer_computes_a_few_times_however_long_they_lie(
    model, samples, endings, asked
):
    losses, method = Losses(4, patience=200), make_vcasgd(model, split(*samples, 6))
    flight = Flights().add(*method.next_orders(1))
    error = refuse_answer("its loss is not a finite number")
    times = 0
    for _ in range(endings):
        times += losses.asks_home(error)
        losses.note(flight, error)
    assert times == asked


async def test_error_of_the_researchers_function_reaches_him(samples):
    def broken(parameters, x, y):  # noqa: ARG001 - the kernel calls it so
        return parameters["nothing"], {}

    model = ArrayModel({"w": np.zeros(3)}, broken)
    parts = split(*samples, 2)
    async with LocalBackend() as backend:
        method = make_synchronous(model, parts)
        with pytest.raises(KeyError, match="nothing"):
            async with Run(method, model, parts, backend) as run:
                await run.finish()


async def run_some(make_method, model, parts, folder, updates):
    settings = RunSettings(folder=folder)
    run = Run(make_method(model, parts), model, parts, LocalBackend(1), settings)
    async with run.backend:
        await run.start()
        for _ in range(updates):
            await run.step()  # then the process is gone: no close, nothing said
    return run


async def test_killed_run_goes_on_where_it_was(make_method, model, samples, tmp_path):
    parts = split(*samples, 6)
    killed = await run_some(make_method, model, parts, tmp_path, 7)
    assert not killed.method.finished
    settings = RunSettings(folder=tmp_path)
    async with LocalBackend(1) as backend:
        method = make_method(model, parts)
        async with Run(method, model, parts, backend, settings) as run:
            end = await run.finish()
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    keys = [row["key"] for row in map(json.loads, lines) if row["applied"]]
    assert len(keys) == len(set(keys))
    assert keys[:7] == [u.key for u in killed.history.updates]
    assert end.version == method.snapshot.version


async def test_jobs_in_flight_at_the_kill_are_the_same_jobs_afterwards(
    make_method, model, samples, tmp_path
):
    parts = split(*samples, 6)
    settings = RunSettings(folder=tmp_path)
    seen = []
    for _ in range(2):
        backend = SimulatedBackend([SimulatedHost(poll_s=1e6)])
        run = Run(make_method(model, parts), model, parts, backend, settings)
        await run.start()
        await run._fill()
        seen.append({flight.job_id for flight in run._flights.all()})
    assert seen[0]
    assert seen[0] == seen[1]


async def test_checkpoint_of_other_data_is_refused(
    make_method, model, samples, tmp_path
):
    parts = split(*samples, 6)
    await run_some(make_method, model, parts, tmp_path, 2)
    other = split(*samples, 5)
    run = Run(
        make_method(model, other),
        model,
        other,
        LocalBackend(),
        RunSettings(folder=tmp_path),
    )
    async with run.backend:
        with pytest.raises(UsageError, match="STO-T012"):
            await run.start()
