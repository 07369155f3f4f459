"""Optimisers at the shards: the steps of one at home, in the order that was declared."""

from collections import deque

import numpy as np
import pytest

from stoilo.core.errors import UsageError
from stoilo.learn.store.protocol import Change, Push, ShardOptimizer
from stoilo.learn.store.remote import RemoteShard
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.shards import LocalShard
from stoilo.learn.store.workers import ClockService, Worker
from tests.support.networkshard import NetworkShard

WORKERS = ["w0", "w1", "w2"]
CLOCKS = 4
START = {"a": np.linspace(-1, 1, 7), "b": np.ones((2, 3), np.float32), "c": np.zeros(1)}
KINDS = {
    "sgd": {"rate": 0.1},
    "momentum": {"rate": 0.1, "momentum": 0.9},
    "adam": {"rate": 0.01, "betas": [0.8, 0.99], "decay": 0.1, "decoupled": True},
    "adagrad": {"rate": 0.05},
}


def make(kind, **more):
    return ShardOptimizer("move", kind, KINDS[kind], **(more or {"commutes": True}))


def gradient(clock, worker):
    rng = np.random.default_rng([clock, int(worker[1:])])
    return {
        key: rng.normal(size=array.shape).astype(array.dtype)
        for key, array in START.items()
    }


def push_of(clock, worker, factor=1.0, run="r"):
    entries = gradient(clock, worker).items()
    changes = [Change(key, "move", slope, factor) for key, slope in entries]
    return Push(f"{run}/{worker}", clock, changes)


IN_ORDER = [(clock, worker) for clock in range(CLOCKS) for worker in WORKERS]


def at_home(kind, factors=(1.0,)):
    """The steps of one optimiser in this process, in order."""
    here, optimizer = dict(START), make(kind).make()
    rate = optimizer.rate
    for step, place in enumerate(IN_ORDER):
        optimizer.rate = rate * factors[step % len(factors)]
        here = optimizer.step(here, gradient(*place))
    return here


def values(server):
    return {key: cell.value for key, cell in server.read(START).items()}


def same(one, other):
    return all(
        one[key].dtype == other[key].dtype
        and one[key].tobytes() == other[key].tobytes()
        for key in START
    )


def shuffled(seed):
    """An order of arrival: each worker's own pushes in their order."""
    rng = np.random.default_rng(seed)
    left = {worker: deque(range(CLOCKS)) for worker in WORKERS}
    found = []
    while any(left.values()):
        worker = rng.choice([name for name, clocks in left.items() if clocks])
        found.append((left[worker].popleft(), str(worker)))
    return found


def arrive(folder, shards, optimizer, order, stop=None):
    """Push in that order; with `stop` the server is opened anew in between."""
    server = ParameterServer.open(folder, shards, [optimizer])
    server.create(START)
    for number, place in enumerate(order):
        if number == stop:
            server.close()
            server = ParameterServer.open(folder, shards + 1, [optimizer])
        server.push(push_of(*place))
        assert server.push(push_of(*place)) == 0  # a repetition counts for nothing
    found = values(server)
    server.close()
    return found


@pytest.mark.parametrize("kind", [*KINDS])
def test_steps_at_shards_are_those_at_home_also_over_a_move_to_more_shards(
    kind, tmp_path
):
    found = arrive(tmp_path, 1, make(kind), IN_ORDER, stop=5)
    assert same(found, at_home(kind))


@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_factor_is_a_schedules(kind):
    server = ParameterServer({"s": LocalShard(functions=[make(kind)])}, [make(kind)])
    server.create(START)
    factors = (1.0, 0.5, 0.0, 2.0)
    for number, place in enumerate(IN_ORDER):
        server.push(push_of(*place, factor=factors[number % 4]))
    assert same(values(server), at_home(kind, factors))
    server.close()


@pytest.mark.parametrize("seed", range(5))
def test_declared_order_gives_the_same_bits_whatever_comes_first(seed, tmp_path):
    """Control: declared commuting, the same arrivals end elsewhere."""
    order = shuffled(seed)
    found = arrive(tmp_path / "o", 2, make("adam", order=WORKERS), order, stop=5)
    assert same(found, at_home("adam"))
    assert not same(arrive(tmp_path / "c", 2, make("adam"), order), found)


@pytest.mark.parametrize("seed", range(5))
def test_two_shards_are_one_for_an_order_of_arrival(seed, tmp_path):
    one, two = (
        arrive(tmp_path / str(shards), shards, make("adam"), shuffled(seed))
        for shards in (1, 2)
    )
    assert same(one, two)


@pytest.mark.parametrize("form", ["process", "network"])
def test_shards_elsewhere_move_as_one_here(form, tmp_path):
    optimizer = make("adagrad", order=WORKERS)
    with NetworkShard(tmp_path / "n") as process:
        where = process.place if form == "network" else tmp_path / "s.db"
        shard = RemoteShard(where, [optimizer])
        shard.create(START)
        for place in shuffled(0):
            shard.apply(push_of(*place))
        assert same(values(shard), at_home("adagrad"))
        shard.close()


def test_state_of_an_optimiser_stays_at_the_shard():
    server = ParameterServer({"s": LocalShard(functions=[make("adagrad")])})
    server.create(START)
    server.push(push_of(0, "w0"))
    slot = server.read(["a"])["a"].slot
    (squares,) = slot.tensors.values()
    assert np.array_equal(squares, gradient(0, "w0")["a"] ** 2)
    server.close()


def test_worker_reads_anew_what_an_optimiser_moved():
    optimizer = make("sgd")
    server = ParameterServer({"s": LocalShard(functions=[optimizer])}, [optimizer])
    server.create({"a": np.ones(2)})
    worker = Worker("w", server, ClockService(["w"], limit=9), total=1)
    for _ in worker.iterations():
        worker.read("a")
        worker.update("a", np.ones(2), "move")
        assert worker.read("a").tolist() == [0.9, 0.9]
    server.close()


@pytest.mark.parametrize("push", [
    Push("r/w0", 0, [Change("a", "move", np.ones(6))]),
    Push("r/w0", 0, [Change("a", "move", 1.0)]),
    Push("r/stranger", 0, [Change("a", "move", np.ones(7))]),
    Push("other/w0", 0, [Change("a", "move", np.ones(7))]),
    Push("r/w0", 1, [Change("a", "move", np.ones(7))]),
    Push("r/w0", 0, [Change("a", "second", np.ones(7))]),
])  # fmt: skip
def test_push_that_is_no_gradient_or_out_of_order_changes_nothing(push):
    second = ShardOptimizer("second", "sgd", {"rate": 1.0}, commutes=True)
    shard = LocalShard(functions=[make("sgd", order=WORKERS), second])
    shard.create(START)
    shard.apply(push_of(0, "w1"))  # waits
    before = shard.read(["a"])
    with pytest.raises(UsageError, match=r"STO-T068|STO-T074"):
        shard.apply(push)
    assert shard.read(["a"]) == before
    assert np.array_equal(before["a"].value, START["a"])


def test_file_of_another_optimiser_of_that_name_is_refused(tmp_path):
    LocalShard(tmp_path / "s.db", [make("sgd")]).close()
    with pytest.raises(UsageError, match="STO-T012"):
        LocalShard(tmp_path / "s.db", [make("sgd", order=WORKERS)])


@pytest.mark.parametrize("bad", [
    {"kind": "newton"}, {"options": {"speed": 1.0}}, {"order": ["w", "w"]},
    {"commutes": False}, {"order": ["w"], "commutes": True},
])  # fmt: skip
def test_what_is_no_optimiser_or_has_no_order_is_refused(bad):
    with pytest.raises(UsageError, match="STO-T040"):
        ShardOptimizer(**{
            "name": "x", "kind": "sgd", "options": {"rate": 1.0},
            "commutes": "order" not in bad, **bad,
        })  # fmt: skip
