"""Downpour whose parameters and optimiser lie in shards."""

import numpy as np
import pytest

from stoilo.core.errors import UsageError
from stoilo.learn import ArrayModel, DownpourTrainer, split
from stoilo.learn.core.tensors import flatten
from stoilo.learn.methods.base import Staleness
from stoilo.learn.methods.downpour import AtShards, Downpour, DownpourSettings
from stoilo.learn.methods.optimizers import Adagrad, Momentum
from stoilo.learn.store.protocol import ShardOptimizer
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.shards import LocalShard
from tests.support.learning import Net, Volunteers, load_digits, run_serially
from tests.support.resuming import store

ADAGRAD = ShardOptimizer("step", "adagrad", {"rate": 0.05}, commutes=True)
MOMENTUM = ShardOptimizer("step", "momentum", {"rate": 0.01}, commutes=True)


@pytest.fixture
def crew():
    digits = load_digits()
    cut = np.split(np.arange(90), [30, 70])
    return Volunteers(Net((64, 10)), digits.images, digits.labels, cut)


def open_server(optimizer=ADAGRAD, shards=2):
    names = [f"s{number}" for number in range(shards)]
    shards = {name: LocalShard(functions=[optimizer]) for name in names}
    return ParameterServer(shards, [optimizer])


def make(crew, optimizer, **more):
    settings = DownpourSettings(2, 10, **more)
    return Downpour(crew.start(), crew.sizes, optimizer, settings)


def sharded(crew, server, optimizer=ADAGRAD, **more):
    start = crew.start().parameters
    return make(crew, AtShards(server, optimizer, start, block_bytes=1024), **more)


def end_of(crew, method):
    run_serially(method, crew.answer)
    return flatten(method.snapshot.parameters)


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_shards_make_the_steps_of_an_optimiser_at_home_bit_for_bit(crew, shards):
    wanted = end_of(crew, make(crew, Adagrad(0.05), push=2))
    found = end_of(crew, sharded(crew, open_server(shards=shards), push=2))
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(("optimizer", "at_home"), [
    (ADAGRAD, Adagrad(0.05)), (MOMENTUM, Momentum(0.01)),
])  # fmt: skip
def test_stale_push_is_damped_at_the_shards(crew, optimizer, at_home):
    """Control: in full it ends elsewhere."""
    ends = []
    for one, policy in [
        (at_home, "damp"),
        (AtShards(open_server(optimizer), optimizer, crew.start().parameters), "damp"),
        (AtShards(open_server(optimizer), optimizer, crew.start().parameters), "apply"),
    ]:
        method = make(crew, one, staleness=Staleness(policy))
        orders = method.next_orders(3)
        for order in orders:
            method.take(order, crew.answer(order))
        ends.append(flatten(method.snapshot.parameters))
    assert np.allclose(ends[1], ends[0], rtol=1e-12, atol=1e-15)
    assert not np.allclose(ends[2], ends[0], rtol=1e-6)


def test_trainer_keeps_nothing_of_the_optimisers_state(crew):
    method = sharded(crew, open_server())
    run_serially(method, crew.answer, limit=5)
    state = method.optimizer.save()
    assert dict(state.tensors) == {}
    assert sum(state.plain["pushes"].values()) == 5


def resume(crew, run=None):
    """Be killed between a push and the save; go on from the save before."""
    server = open_server()
    method = sharded(crew, server)
    run_serially(method, crew.answer, limit=4)
    saved = store(method.save())
    run_serially(method, crew.answer, limit=1)
    again = sharded(crew, server)
    again.load(saved)
    again.optimizer._run = run or again.optimizer._run
    return end_of(crew, again)


def test_push_that_a_killed_trainer_makes_again_counts_once(crew):
    """Control: under another run's name it counts twice."""
    wanted = end_of(crew, sharded(crew, open_server()))
    assert resume(crew).tobytes() == wanted.tobytes()
    assert resume(crew, "other").tobytes() != wanted.tobytes()


def test_server_that_has_forgotten_the_run_is_refused(crew):
    method = sharded(crew, open_server())
    run_serially(method, crew.answer, limit=4)
    with pytest.raises(UsageError, match="STO-T012"):
        sharded(crew, open_server()).load(store(method.save()))


def bowl(parameters, x, y):
    """Least squares: sum of losses and its gradient."""
    rest = x @ parameters["w"] - y
    return 0.5 * float(rest @ rest), {"w": x.T @ rest}


async def test_trainer_trains_on_shards_in_processes(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    y = x @ np.array([1.0, -2.0, 0.5])
    model = ArrayModel({"w": np.zeros(3)}, bowl)
    server = ParameterServer.open(tmp_path, 2, [ADAGRAD], processes=True)
    optimizer = AtShards(server, ADAGRAD, {"w": np.zeros(3)})
    settings = DownpourSettings(20, 10)
    async with DownpourTrainer(
        None, model, split(x, y, 3), settings, optimizer=optimizer
    ) as trainer:
        trained = await trainer.train()
    cell = server.read(["w"])["w"]
    server.close()
    assert np.array_equal(cell.value, trained.snapshot.parameters["w"])
    assert trained.epochs[-1].average_loss < trained.epochs[0].average_loss / 2
