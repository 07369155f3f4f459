"""Replicas that keep their own weights between fetches (n_fetch ≠ n_push)."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from stoilo.learn import LocalBackend, SimulatedBackend, SimulatedHost, split
from stoilo.learn.core.assignments import assign_iid
from stoilo.learn.core.tensors import add, flatten, safe_norm, scale
from stoilo.learn.driver.codecs import Compressed
from stoilo.learn.driver.downlink import Delta, Versions
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.methods.base import Staleness
from stoilo.learn.methods.copies import Copied
from stoilo.learn.methods.downpour import AtShards, Downpour, DownpourSettings
from stoilo.learn.methods.optimizers import Adagrad, Sgd
from stoilo.learn.methods.rules import Clip
from tests.learn.methods.test_downpour import gather, make
from tests.learn.methods.test_downpour_store import ADAGRAD, open_server
from tests.support.learning import Volunteers, deal, run_serially
from tests.support.points import make_model, make_samples, softmax_loss
from tests.support.resuming import store

PAIRS = [(1, 1), (1, 2), (2, 1), (3, 2), (2, 4), (4, 4), (4, 1), (5, 3)]
RATE = 0.25  # of local steps: large, so that own weights matter
SIZE = 65  # seven steps of ten samples a pass, the last of five


@dataclass
class Loop:
    """The loop of the paper's client, one step after the other, and of its server.

    Attributes:
        kind: "own" pushes what is new since the last push, before each fetch, and goes on
            from where the push led; "exact" keeps each step's own rounding there; "early"
            tests before it counts the step, as published; "overlapping" pushes all since
            the last fetch, as published for Paracel.
    """

    w: dict
    optimizer: object
    fetch: int
    push: int
    kind: str = "own"

    def run(self, crew, passes):
        """Yield before each push; `passes` are lists of the samples of each step."""
        keeps = self.kind in {"own", "exact"}
        for batches in passes:
            acc, new = {}, False
            for step, batch in enumerate(batches):
                if step % self.fetch == 0:
                    yield from self.send(acc, new and keeps)
                    w, base, acc = self.w, self.w, scale(self.w, 0.0)
                mean = slope_of(crew, w, batch)
                acc, w, new = add(acc, mean), add(w, mean, -RATE), True
                if (step + (self.kind != "early")) % self.push == 0:
                    yield from self.send(acc)
                    base, new = add(base, acc, -RATE), False
                    w = base if self.kind == "own" else w
                    acc = acc if self.kind == "overlapping" else scale(acc, 0.0)
            yield from self.send(acc, new and keeps)

    def send(self, slope, is_due=True):
        if is_due:
            yield
            self.w = self.optimizer.step(self.w, slope)


def slope_of(crew, w, batch):
    _, total, _ = crew.net.differentiate(w, crew.images[batch], crew.labels[batch])
    return {name: array / len(batch) for name, array in total.items()}


def own(crew, fetch, push, optimizer=None, **more):
    wanted = {"rate": RATE, "fetch": fetch, "push": push, **more}
    return make(crew, optimizer or Adagrad(0.05), **wanted)


def at_shards(crew):
    return AtShards(open_server(), ADAGRAD, crew.start().parameters)


PLACES = {"home": lambda _: Adagrad(0.05), "shards": at_shards}


def train(crew, method, seed=0):
    """Answer one order after the other, drawn by the seed; return end, orders, answers."""
    rng, flying, orders = np.random.default_rng(seed), [], []
    while not method.finished:
        flying += method.next_orders(99)
        orders.append(flying.pop(rng.integers(len(flying))))
        assert method.take(orders[-1], crew.answer(orders[-1])).applied
    return flatten(method.snapshot.parameters), orders


def list_steps(order, samples, batch):
    dealt = deal(samples[list(order.rows)], batch, order.settings["seed"])
    return itertools.islice(dealt, order.settings["steps"])


def read_passes(crew, orders, part=0, passes=2):
    """Return the samples of each step of a part, by passes; each sample is there once."""
    mine = [order for order in orders if order.part == part]
    steps = [b for one in mine for b in list_steps(one, crew.parts[part], 10)]
    half = len(steps) // passes
    found = [steps[half * n : half * (n + 1)] for n in range(passes)]
    for one in found:
        assert sorted(np.concatenate(one)) == sorted(crew.parts[part])
        assert len(one) == -(-len(crew.parts[part]) // 10)
    return found


def loop_to_the_end(crew, orders, fetch, push, kind="own", optimizer=None):
    loop = Loop(crew.start().parameters, optimizer or Adagrad(0.05), fetch, push, kind)
    pushes = len(list(loop.run(crew, read_passes(crew, orders))))
    return flatten(loop.w), pushes


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("fetch", "push"), PAIRS)
def test_one_replica_is_the_loop_bit_for_bit(fetch, push, place):
    crew = gather(1, SIZE)
    found, orders = train(crew, own(crew, fetch, push, PLACES[place](crew)))
    wanted, pushes = loop_to_the_end(crew, orders, fetch, push)
    assert (found.tobytes(), len(orders)) == (wanted.tobytes(), pushes)


@pytest.mark.parametrize(("fetch", "push"), PAIRS)
def test_own_weights_are_those_of_the_published_steps_but_for_rounding(fetch, push):
    """Control: as often as one pushes, nothing is fetched: another end."""
    crew = gather(1, SIZE)
    found, orders = train(crew, own(crew, fetch, push))
    exact, _ = loop_to_the_end(crew, orders, fetch, push, "exact")
    assert np.allclose(found, exact, rtol=0, atol=1e-13)
    if fetch > push:
        fetched, _ = train(crew, own(crew, push, push))
        assert not np.allclose(fetched, exact, rtol=0, atol=1e-3)


@pytest.mark.parametrize(("kind", "fetch", "push"), [
    ("early", 3, 2), ("early", 2, 4), ("early", 4, 4),
    ("overlapping", 2, 1), ("overlapping", 3, 2), ("overlapping", 4, 1),
])  # fmt: skip
def test_published_order_of_the_steps_ends_elsewhere(kind, fetch, push):
    crew = gather(1, SIZE)
    found, orders = train(crew, own(crew, fetch, push))
    other, _ = loop_to_the_end(crew, orders, fetch, push, kind)
    assert not np.allclose(found, other, rtol=0, atol=1e-3)


class Whole:
    """Least squares in whole numbers: sums of few steps are exact in any order."""

    def start(self, _seed):
        return {"w": np.zeros(3)}

    def differentiate(self, w, x, y):
        rest = x @ w["w"] - y
        return float(rest @ rest) / 2, {"w": x.T @ rest}, 0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("fetch", "push"), PAIRS)
def test_where_sums_are_exact_it_is_the_published_loop_bit_for_bit(fetch, push, seed):
    rng, size = np.random.default_rng(seed), 28
    x, y = rng.integers(-1, 2, (size, 3)), rng.integers(-4, 5, size)
    crew = Volunteers(Whole(), 1.0 * x, 1.0 * y, [np.arange(size)])
    settings = DownpourSettings(1, 8, push, RATE, fetch=fetch)
    method = Downpour(crew.start(), crew.sizes, Sgd(0.5), settings)
    found, orders = train(crew, method)
    batches = [b for one in orders for b in list_steps(one, crew.parts[0], 8)]
    loop = Loop(crew.start().parameters, Sgd(0.5), fetch, push, "exact")
    assert len(list(loop.run(crew, [batches]))) == len(orders)
    assert found.tobytes() == flatten(loop.w).tobytes()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("fetch", "push"), [(2, 1), (3, 2), (5, 3)])
def test_replicas_are_loops_side_by_side_bit_for_bit(fetch, push, seed, place):
    """Control: in another order of arrival they end elsewhere."""
    crew = gather(3, 3 * SIZE)
    found, orders = train(crew, own(crew, fetch, push, PLACES[place](crew)), seed)
    server = Loop(crew.start().parameters, Adagrad(0.05), fetch, push)
    replicas = [server.run(crew, read_passes(crew, orders, part)) for part in range(3)]
    for replica in replicas:
        next(replica)
    for order in orders:
        next(replicas[order.part], None)
    assert found.tobytes() == flatten(server.w).tobytes()
    assert found.tobytes() != train(crew, own(crew, fetch, push), seed + 5)[0].tobytes()


def test_batch_that_is_split_moves_the_own_weights_as_a_whole():
    crew = gather(1, 60)
    whole, _ = train(crew, own(crew, 3, 1))
    parts, orders = train(crew, own(crew, 3, 1, split=3))
    assert len(orders) == 36
    assert np.allclose(parts, whole, rtol=0, atol=1e-12)


def resume(crew, seed, *, forgets=False):
    """Be killed between a push to the shards and the save; go on from the save before."""
    server = open_server()
    first, second = (
        own(crew, 4, 1, AtShards(server, ADAGRAD, crew.start().parameters))
        for _ in range(2)
    )
    run_serially(first, crew.answer, limit=2 + seed)
    saved = store(first.save())
    run_serially(first, crew.answer, limit=1)
    second.load(saved)
    if forgets:
        second._replicas["0"].own = None
    run_serially(second, crew.answer)
    return flatten(second.snapshot.parameters).tobytes()


@pytest.mark.parametrize("seed", range(5))
def test_killed_trainer_goes_on_from_the_replicas_own_weights(seed):
    """Control: from the newest ones it ends elsewhere.

    Unless it fetches there, or right after the push that the shards have already.
    """
    crew = gather(1, SIZE)
    wanted = train(crew, own(crew, 4, 1))[0].tobytes()
    assert resume(crew, seed) == wanted
    is_same = resume(crew, seed, forgets=True) == wanted
    assert is_same == ((2 + seed) % 7 in {0, 3, 4, 6})


def test_own_pushes_make_own_weights_no_older_and_those_of_others_do():
    crew = gather(2, 120)
    method = own(crew, 6, 1, staleness=Staleness("discard", 0))
    mine, other = method.next_orders(2)
    for staleness in (0, 0, 0):
        update = method.take(mine, crew.answer(mine))
        assert (update.applied, update.staleness) == (True, staleness)
        (mine,) = method.next_orders(2)
        assert mine.is_own
    assert method.take(other, crew.answer(other)).staleness == 3
    (again,) = method.next_orders(2)
    method.take(again, crew.answer(again))
    late = method.take(mine, crew.answer(mine))
    assert (late.applied, late.staleness) == (False, 1)
    fresh = next(o for o in method.next_orders(2) if o.part == mine.part)
    assert (fresh.rows, fresh.own, fresh.snapshot) == (mine.rows, {}, method.snapshot)


def test_lost_order_goes_out_again_from_the_same_own_weights():
    crew = gather(1, SIZE)
    method = own(crew, 4, 1)
    run_serially(method, crew.answer, limit=2)
    (order,) = method.next_orders(9)
    method.lose(order)
    assert method.next_orders(9) == [order]


def test_copies_of_an_order_start_from_the_replicas_own_weights():
    crew = gather(1, SIZE)
    method = Copied(own(crew, 4, 1), assign_iid(2, 2), agree=2)
    run_serially(method, crew.answer, limit=7)
    again = Copied(own(crew, 4, 1), assign_iid(2, 2), agree=2)
    again.load(store(method.save()))  # with an answer that waits for the second
    run_serially(again, crew.answer)
    wanted, _ = train(crew, own(crew, 4, 1))
    assert flatten(again.snapshot.parameters).tobytes() == wanted.tobytes()


def test_own_weights_travel_as_they_are_whatever_versions_do():
    crew, versions = gather(1, SIZE), Versions(Delta())
    method = own(crew, 4, 1)
    (first,) = method.next_orders(1)
    assert versions.name(versions.send(first))[0]
    method.take(first, crew.answer(first))
    (second,) = method.next_orders(1)
    assert versions.send(second) is second
    assert versions.name(second) == ([], {})


PLACES_TO_RUN = {
    "threads": LocalBackend,
    "hosts": lambda: SimulatedBackend([SimulatedHost(), SimulatedHost(0.5)]),
}


def make_run(place, fetch=3, parts=1, **more):
    settings = DownpourSettings(2, 10, 2, RATE, fetch=fetch)
    model, data = make_model(), split(*make_samples(parts * 95), parts)
    sizes = [len(part) for part in data]
    method = Downpour(model.first(), sizes, Adagrad(0.05), settings)
    return Run(method, model, data, place, RunSettings(**more))


class Points:
    """The points' regression as `Volunteers` differentiate it."""

    def start(self, _seed):
        return make_model().parameters

    def differentiate(self, w, x, y):
        return *softmax_loss(w, x, y), 0


def drive(fetch):
    (part,) = split(*make_samples(95), 1)
    crew = Volunteers(Points(), part.x, part.y, [np.arange(95)])
    settings = DownpourSettings(2, 10, 2, RATE, fetch=fetch)
    return train(crew, Downpour(crew.start(), crew.sizes, Adagrad(0.05), settings))[0]


@pytest.mark.parametrize(
    "downlink", [None, Delta(codec=Compressed(), base=Compressed())]
)
@pytest.mark.parametrize("place", PLACES_TO_RUN)
async def test_driver_brings_own_weights_to_the_kernel(place, downlink):
    """Control: whoever fetches as often as it pushes ends elsewhere."""
    async with (
        PLACES_TO_RUN[place]() as where,
        make_run(where, downlink=downlink, clip=None) as run,
    ):
        end = flatten((await run.finish()).parameters)
    assert run.tally.refused == run.tally.failed == 0
    assert np.allclose(end, drive(3), rtol=0, atol=1e-12)
    assert not np.allclose(end, drive(0), rtol=0, atol=1e-3)


@pytest.mark.parametrize("answers", range(1, 6))
async def test_killed_run_goes_on_with_orders_from_own_weights(answers, tmp_path):
    async with LocalBackend() as where:
        killed = make_run(where, folder=tmp_path, clip=None)
        await killed.start()
        for _ in range(answers):
            await killed.step()
        await killed.order()
        killed._saving.close()  # as the end of its process would
        async with make_run(where, folder=tmp_path, clip=None) as run:
            end = flatten((await run.finish()).parameters)
    assert np.allclose(end, drive(3), rtol=0, atol=1e-12)


def push(value):
    return {**value, "tensors": scale(value["tensors"], -1000.0)}


@pytest.mark.parametrize("clip", [Clip(), None])
async def test_push_that_is_shortened_moves_the_own_weights_no_further(clip):
    """Control: without the bound they go as far as the host says."""
    cheat = SimulatedHost(cheat=push)
    backend = SimulatedBackend([cheat, *(SimulatedHost() for _ in range(3))])
    farthest = 0.0
    async with backend, make_run(backend, fetch=99, parts=4, clip=clip) as run:
        async for _ in run.updates():
            owns = [r.own for r in run.method._replicas.values() if r.own]
            farthest = max([farthest, *(safe_norm(own.parameters) for own in owns)])
    assert (farthest < 20.0) == (clip is not None)
