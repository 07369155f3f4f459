"""Pipelines of tasks end where one process ends that follows the delayed rule."""

import itertools
import random

import numpy as np
import pytest
from torch import nn

from stoilo.core.errors import UsageError
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.backends.simulated import SimulatedBackend, SimulatedHost, Spell
from stoilo.learn.core.data import Part
from stoilo.learn.core.orders import Reply, Snapshot
from stoilo.learn.core.tensors import Form
from stoilo.learn.kernels import stages as kernels
from stoilo.learn.methods.optimizers import Adam, Sgd
from stoilo.learn.methods.schedules import StepDecay
from stoilo.learn.methods.staged import Staged, StagedSettings
from stoilo.learn.trainers.options import TrainerOptions
from stoilo.learn.trainers.staged import StagedModel, StagedTrainer
from tests.support.stagedtasks import follow_rule, make_stages, make_task

SEEDS = range(5)
RATE = 0.2


def trainer(place, seed, stages=3, **changes):
    options = changes.pop("options", {})
    settings = {"epochs": 2, "group": 12, "batch": 5, "seed": seed} | changes
    return StagedTrainer(
        place,
        make_stages(seed, stages),
        [Part(*make_task(seed))],
        StagedSettings(**settings),
        Sgd(RATE),
        loss=nn.functional.cross_entropy,
        options=TrainerOptions(**options),
    )


async def run(place, seed, stages=3, **changes):
    async with trainer(place, seed, stages, **changes) as one:
        return dict((await one.train()).snapshot.parameters), one.run


def rule(seed, stages=3, depth=3, epochs=2, **how):
    """Return what the rule gives with the groups of a pipeline of the same seed."""
    method = trainer(None, seed, stages, in_flight=depth, epochs=epochs).run.method
    rows = [list(method.piece(group).rows) for group in range(method.groups)]
    return follow_rule(
        make_stages(seed, stages), make_task(seed), rows, RATE, depth, **how
    )


def are_equal(one, other):
    return all(np.array_equal(one[name], other[name]) for name in one)


def gap(one, other):
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


@pytest.mark.parametrize("seed", SEEDS)
async def test_threads_end_where_the_serial_delayed_rule_ends(seed):
    found, _ = await run(LocalBackend(3), seed)
    assert are_equal(found, rule(seed))
    assert gap(found, rule(seed, depth=1)) > 1e-4
    assert gap(found, rule(seed, stashed=False)) > 1e-5


@pytest.mark.parametrize("seed", SEEDS)
async def test_hosts_that_lose_stall_and_die_change_no_bit(seed):
    away = SimulatedHost(away=[Spell(1.0, 500.0)])
    hosts = [SimulatedHost(loss=0.2, stall=0.3), SimulatedHost(20.0), away]
    found, made = await run(SimulatedBackend(hosts, deadline_s=30.0, seed=seed), seed)
    assert are_equal(found, rule(seed))
    keys = [u.key for u in made.history.updates if u.applied]
    assert len(keys) == len(set(keys)) == made.method.groups * 5


@pytest.mark.parametrize(("stages", "depth"), [(1, 1), (3, 1), (2, 5), (4, 4)])
async def test_other_depths_follow_their_rule(stages, depth):
    found, _ = await run(LocalBackend(2), 1, stages, in_flight=depth)
    assert are_equal(found, rule(1, stages, depth))


async def test_pipeline_is_as_fast_as_its_slowest_stage_where_one_group_waits():
    took = {}
    for depth in (1, 3):
        backend = SimulatedBackend([SimulatedHost(poll_s=0.0)] * 3)
        await run(backend, 0, in_flight=depth)
        took[depth] = backend.now()
    assert took[3] < 0.6 * took[1]


async def test_stash_is_never_larger_than_the_stages_that_follow():
    most = [0, 0, 0, 0]
    async with trainer(LocalBackend(3), 2, 4) as one:
        async for _ in one:
            places = [name[0] for name in one.run.method._stash]
            most = np.maximum(
                most, [1 + places.count(str(stage)) for stage in range(4)]
            )
        assert not one.run._jobs.mailbox._left
    assert list(most) == [4, 3, 2, 1]


async def test_killed_trainer_goes_on_and_ends_with_the_same_bits(tmp_path):
    options = {"folder": tmp_path}
    for stop in (7, 20):
        one = await trainer(LocalBackend(2), 3, options=options, epochs=1).start()
        for _ in range(stop):
            await one.run.step()
        await one.run.backend.close()
        one.run._saving.close()  # as a kill would: nothing is written any more
    found, made = await run(LocalBackend(2), 3, options=options, epochs=1)
    assert are_equal(found, rule(3, epochs=1))
    keys = [u.key for u in made.history.updates if u.applied]
    assert len(keys) == len(set(keys)) == made.method.groups * 5


@pytest.mark.parametrize("lie", [lambda _: None, lambda v: {**v, "tensors": {}}])
async def test_answer_of_a_wrong_form_goes_to_another_host(lie):
    hosts = [SimulatedHost(), SimulatedHost(cheat=lie)]
    backend = SimulatedBackend(hosts)
    found, _ = await run(backend, 0)
    assert are_equal(found, rule(0))
    assert backend.faults[1] > 0 == backend.served[1]


async def test_wrong_activation_of_a_right_form_spoils_what_comes_after():
    def lie(value):
        tensors = {name: -10.0 * a for name, a in value["tensors"].items()}
        return {**value, "tensors": tensors}

    found, _ = await run(SimulatedBackend([SimulatedHost(cheat=lie)]), 0)
    assert gap(found, rule(0)) > 1e-2  # which is why copies have to agree


def pure(stages=3, groups=9, **settings):
    start = Snapshot(0, {f"{s}.w": np.zeros(1) for s in range(stages)})
    forms = [Form("float64", ())] * (stages - 1)
    about = StagedSettings(group=1, **settings)
    parts = [groups, groups, 1] if forms else [groups]
    return Staged(start, parts, forms, about, Sgd(1.0))


def reply(order):
    tensors = {n: np.ones(f.shape) for n, f in order.forms.items()}
    return Reply(order.snapshot.version, order.samples, 1.0, tensors)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_the_order_of_arrival_every_pass_is_made_once(seed):
    draw = random.Random(seed)
    stages, depth = draw.randint(1, 5), draw.randint(1, 7)
    method, out, keys = pure(stages, in_flight=depth), [], []
    while not method.finished:
        out += method.next_orders(draw.randint(0, 3) if out else 1)
        order = out.pop(draw.randrange(len(out)))
        if draw.random() < 0.2:
            method.lose(order)
        else:
            keys.append(method.take(order, reply(order)).key)
    assert len(keys) == len(set(keys)) == 9 * (2 * stages - 1)
    assert all(w == -9.0 for w in method.snapshot.parameters.values())


def test_answer_that_comes_twice_is_applied_once():
    method = pure(1, in_flight=1)
    (order,) = method.next_orders(4)
    first = method.take(order, reply(order))
    second = method.take(order, reply(order))
    assert (first.applied, second.applied) == (True, False)
    assert method.snapshot.parameters["0.w"] == -1.0


def test_answer_that_overtakes_waits_for_the_one_before():
    method = pure(1, in_flight=3)
    first, second, _ = method.next_orders(9)
    assert method.take(second, reply(second)).applied
    assert method.snapshot.parameters["0.w"] == 0.0
    method.take(first, reply(first))
    assert method.snapshot.parameters["0.w"] == -2.0


def test_schedule_counts_groups_whoever_comes_first():
    ends = []
    for reverse in (False, True):
        method = pure(2, in_flight=3)
        method.schedule = StepDecay(3, 0.5)
        while not method.finished:
            orders = sorted(method.next_orders(9), key=lambda o: o.key, reverse=reverse)
            for order in orders:
                method.take(order, reply(order))
        ends.append(method.snapshot.parameters["0.w"])
    assert ends[0] == ends[1] == -(3 + 1.5 + 0.75)


def passes(seed, slope_seed):
    """Return the activations of a stage with dropout, and the slopes at its input."""
    stage = nn.Sequential(nn.Identity(), nn.Dropout(0.5)).double()
    common = {
        "model": nn.Sequential(stage),
        "parameters": {},
        "buffers": {},
        "rows": None,
    }
    x = np.ones((6, 4))
    about = {"stage": 0, "batch": 4, "seed": seed}
    given = {
        "input": {"tensors": {"output": x}},
        "data": {"x": x, "y": x},
        "version": 0,
    }
    out = kernels.forward({**common, **given, "settings": about})["tensors"]["output"]
    own = {
        "own": {"output": np.ones((6, 4))},
        "settings": {**about, "seed": slope_seed},
    }
    back = kernels.backward({**common, **given, **own})["tensors"]["input"]
    return out, back


def test_both_passes_of_a_group_draw_the_same_masks():
    out, back = passes(3, 3)
    assert np.array_equal(out, back)
    assert not np.array_equal(*passes(3, 4))


@pytest.mark.parametrize("seed", [0, 1])
async def test_optimizer_with_memory_is_by_stage(seed):
    ends = []
    for workers in (1, 3):
        one = trainer(LocalBackend(workers), seed)
        one.run.method.optimizer = Adam(0.01)
        async with one:
            ends.append((await one.train()).snapshot.parameters)
    assert are_equal(*ends)


@pytest.mark.parametrize(
    ("stages", "loss"),
    [
        ([nn.Linear(4, 4), nn.BatchNorm1d(4)], nn.functional.cross_entropy),
        (list(itertools.repeat(nn.Linear(4, 4), 2)), nn.functional.cross_entropy),
    ],
    ids=["buffers", "shared"],
)
def test_model_that_cannot_be_cut_is_refused(stages, loss):
    with pytest.raises(UsageError, match=r"share a parameter|has buffers"):
        StagedModel(nn.Sequential(*stages), loss)


def test_stage_that_gives_no_array_is_refused():
    class Two(nn.Module):
        def forward(self, x):
            return x, x

    model = StagedModel(
        nn.Sequential(Two(), nn.Linear(4, 2)), nn.functional.cross_entropy
    )
    with pytest.raises(UsageError, match="stage 0"):
        model.outputs(Part(np.zeros((3, 4), np.float32), np.zeros(3, np.int64)))


def test_fewer_groups_than_in_flight_are_refused():
    with pytest.raises(UsageError, match="fewer than 10 in flight"):
        pure(groups=9, in_flight=10)


def test_codecs_are_refused():
    with pytest.raises(UsageError, match="transport"):
        trainer(None, 0, options={"transport": "int8"})
