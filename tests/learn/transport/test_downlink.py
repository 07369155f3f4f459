"""Versions on their way down: the same bits on both sides, and what is lost goes later."""

from dataclasses import replace

import numpy as np
import pytest

from stoilo.core.codec.nodes import from_node, to_node
from stoilo.core.codec.skeleton import decode, encode
from stoilo.core.errors import UsageError
from stoilo.learn import fit
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.backends.simulated import SimulatedBackend, SimulatedHost
from stoilo.learn.core.data import split
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.core.orders import Order, Snapshot
from stoilo.learn.core.states import join_states
from stoilo.learn.driver.codecs import (
    Compressed,
    Half,
    OneBit,
    PerLayer,
    PowerSGD,
    Quantised,
    Raw,
    Remainder,
    Ternary,
    TopK,
)
from stoilo.learn.driver.downlink import Delta, Versions, as_downlink, name_blobs
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.kernels.encoding import arrive
from stoilo.learn.methods.optimizers import Sgd
from stoilo.learn.methods.synchronous import Synchronous, SynchronousSettings
from stoilo.learn.trainers.trainer import TrainerOptions
from tests.support.points import make_model, make_samples, softmax_loss

WAYS = [
    Delta(base=Half(), every=1),
    Delta(base=Half("float16"), every=1),
    Delta(base=Compressed(), every=1),
    Delta(Quantised(8, block=7), every=3),
    Delta(OneBit(16), Half(), every=3),
    Delta(TopK(0.2), every=5),
    Delta(Remainder(TopK(0.1), Ternary(9)), every=4),
    Delta(PerLayer((("b", Raw()),), Quantised(4)), PerLayer((("w", Half()),)), 3),
]


def walk(seed, steps, dtype="float32"):
    """Yield versions of a model that drifts."""
    rng = np.random.default_rng(seed)
    w, b = rng.normal(size=(20, 9)), rng.normal(size=5)
    for version in range(steps):
        yield Snapshot(version, {"w": w.astype(dtype), "b": b.astype(dtype)})
        w, b = w + 0.1 * rng.normal(size=w.shape), b + 0.01 * rng.normal(size=5)


def order_of(snapshot, kernel="gradient"):
    return Order(f"k{snapshot.version}", kernel, snapshot, 0, 1)


def see(versions, order):
    """Return the parameters that a kernel computes at, from bytes of the wire."""
    chain, means = versions.name(order)
    given = {name: sent.frames for name, sent in name_blobs(chain)}
    wired = from_node(decode(encode(to_node({**given, "downlink": means}))))
    return arrive(wired)["parameters"]


def error(one, other):
    return np.sqrt(sum(((one[name] - other[name]) ** 2).sum() for name in one))


@pytest.mark.parametrize("how", WAYS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernel_sees_every_version_as_the_order_says_to_the_last_bit(how, dtype):
    versions = Versions(how)
    for snapshot in walk(0, 11, dtype):
        order = versions.send(order_of(snapshot))
        found = see(versions, order)
        for name, array in order.snapshot.parameters.items():
            assert found[name].tobytes() == array.tobytes()
            assert found[name].dtype == snapshot.parameters[name].dtype
        assert error(found, snapshot.parameters) < 4.0


class Forgetful(Versions):
    """The control: deltas go from version to version, and what was lost is lost."""

    def send(self, order):
        sent = super().send(order)
        self.meant = order.snapshot.parameters
        return sent

    def _reference(self, _):
        return self.meant


def drift(kind, codec, seed):
    versions = kind(Delta(codec, every=32))
    for snapshot in walk(seed, 32):
        sent = versions.send(order_of(snapshot)).snapshot
    return error(sent.parameters, snapshot.parameters)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("codec", [Quantised(8, block=64), TopK(0.3), OneBit(64)])
def test_what_a_codec_loses_goes_with_the_next_version(codec, seed):
    assert drift(Versions, codec, seed) < drift(Forgetful, codec, seed) / 1.5


def test_chain_is_as_long_as_asked_and_blobs_of_a_version_stay_the_same():
    versions, names = Versions(Delta(every=3)), []
    for snapshot in walk(0, 7):
        chain, _ = versions.name(versions.send(order_of(snapshot)))
        names.append([sent.version for sent in chain])
    assert names == [[0], [0, 1], [0, 1, 2], [3], [3, 4], [3, 4, 5], [6]]


def test_what_is_in_flight_keeps_its_chain_and_the_rest_goes():
    versions = Versions(Delta(every=2))
    orders = [versions.send(order_of(snapshot)) for snapshot in walk(0, 7)]
    versions.forget({3})
    assert versions.named == {2, 3, 6}
    found = see(versions, orders[3])
    assert found["w"].tobytes() == orders[3].snapshot.parameters["w"].tobytes()


def test_older_version_that_was_let_go_travels_whole_and_the_newest_goes_on():
    versions = Versions(Delta(every=4))
    old, *rest = walk(0, 6)
    for snapshot in rest[:4]:
        versions.send(order_of(snapshot))
    again = versions.send(order_of(old))
    assert error(see(versions, again), old.parameters) == 0.0
    chain, _ = versions.name(versions.send(order_of(rest[4])))
    assert [sent.version for sent in chain] == [5]
    chain, _ = versions.name(versions.send(order_of(replace(rest[4], version=6))))
    assert [sent.version for sent in chain] == [5, 6]


def test_evaluation_sees_the_version_itself():
    versions = Versions(Delta())
    order = order_of(next(walk(0, 1)), "evaluate")
    assert versions.send(order) is order
    assert versions.name(order) == ([], {})


def test_what_is_no_number_travels_as_it_is():
    versions = Versions(Delta())
    good, bad = walk(0, 2)
    bad.parameters["w"][0, 0] = np.inf
    versions.send(order_of(good))
    found = see(versions, versions.send(order_of(bad)))
    assert found["w"].tobytes() == bad.parameters["w"].tobytes()


@pytest.mark.parametrize("cut", range(1, 6))
def test_saved_versions_go_on_bit_for_bit(cut):
    one, other = Versions(WAYS[4]), Versions(WAYS[4])
    for number, snapshot in enumerate(walk(0, 8)):
        if number == cut:
            other = Versions(WAYS[4])
            other.load(join_states(**one.save()))
        orders = [versions.send(order_of(snapshot)) for versions in (one, other)]
        names = [order.snapshot.parameters["w"].tobytes() for order in orders]
        assert names[0] == names[1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Delta(PowerSGD()),
        lambda: Delta(Remainder(PowerSGD(), Ternary())),
        lambda: Delta(PerLayer((("w", PowerSGD()),))),
        lambda: Delta(base=Ternary()),
        lambda: Delta(every=0),
        lambda: Delta(every=33),
        lambda: as_downlink("int8"),
        lambda: as_downlink(TopK()),
    ],
)
def test_downlink_of_other_bits_or_without_end_is_refused(make):
    with pytest.raises(UsageError, match="STO-T040"):
        make()


def test_names_stand_for_whole_versions():
    assert as_downlink("raw") is None
    assert as_downlink("bfloat16") == Delta(base=Half(), every=1)
    assert as_downlink(Delta(TopK())) == Delta(TopK())


class Noted(LocalBackend):
    """Notes the keys of the jobs that are submitted, and what was put."""

    def __init__(self):
        super().__init__()
        self.keys, self.sizes = [], []

    async def put(self, value):
        handle = await super().put(value)
        self.sizes.append(handle.size)
        return handle

    async def submit(self, job):
        self.keys.append(job.key)
        return await super().submit(job)


def make_run(backend, how, **changes):
    model, parts = make_model(), split(*make_samples(), 6)
    settings = SynchronousSettings(epochs=6, block=10)
    method = Synchronous(model.first(), [len(p) for p in parts], Sgd(0.5), settings)
    return Run(method, model, parts, backend, RunSettings(downlink=how, **changes))


async def finish(how, **changes):
    async with Noted() as backend, make_run(backend, how, **changes) as run:
        end = await run.finish()
    return end.parameters, run.tally


DEEP = Delta(Quantised(8, block=4), every=5)


@pytest.mark.parametrize("steps", [1, 4, 9])
async def test_killed_run_takes_up_remainder_base_and_its_very_tasks(steps, tmp_path):
    whole, _ = await finish(DEEP)
    run = make_run(killed := Noted(), DEEP, folder=tmp_path)
    await run.start()
    for _ in range(steps):
        await run.step()
    await run.order()
    out = {flight.job_id for flight in run._flights.all()}
    assert out
    await killed.close()
    again = make_run(backend := Noted(), DEEP, folder=tmp_path)
    await again.start()
    assert set(backend.keys) <= set(killed.keys)
    assert len(backend.keys) == len(out)
    end = await again.finish()
    await again.close()
    await backend.close()
    assert again.tally.refused == 0
    for name, array in whole.items():
        np.testing.assert_array_equal(end.parameters[name], array)


async def test_run_without_its_remainder_ends_elsewhere(monkeypatch, tmp_path):
    """The control of the test above: what a checkpoint without it would give."""
    whole, _ = await finish(DEEP)
    monkeypatch.setattr(Versions, "load", lambda *_: None)
    run = make_run(killed := Noted(), DEEP, folder=tmp_path)
    await run.start()
    for _ in range(4):
        await run.step()
    await killed.close()
    again = make_run(backend := Noted(), DEEP, folder=tmp_path)
    async with again:
        end = await again.finish()
    await backend.close()
    assert (end.parameters["w"] != whole["w"]).any()


async def test_delta_run_learns_as_the_raw_one():
    exact, _ = await finish(None)
    found, _ = await finish(DEEP)
    first, raw, delta = (
        softmax_loss(one, *make_samples())[0]
        for one in (make_model().first().parameters, exact, found)
    )
    assert delta == pytest.approx(raw, abs=0.02 * first)


async def test_delta_costs_a_fraction_of_the_bytes():
    rng = np.random.default_rng(0)
    start = {"w": rng.normal(size=(4, 3000)).astype("float32")}
    model = ArrayModel(start, lambda p, x, _: (1.0, {"w": x.T @ (x @ p["w"])}))
    data, sent = (rng.normal(size=(8, 4)).astype("float32"), np.zeros(8)), {}
    for name, how in {"raw": None, "int8": Delta(every=8)}.items():
        method = Synchronous(model.first(), [8], Sgd(1e-3), SynchronousSettings(8))
        settings = RunSettings(downlink=how)
        async with (
            LocalBackend() as place,
            Run(method, model, split(*data, 1), place, settings) as run,
        ):
            await run.finish()
        sent[name] = run.tally.sent_bytes
    assert sent["int8"] < 0.4 * sent["raw"]


METHODS = ["vcasgd", "downpour", "sync", "fedavg", "diloco", "sandblaster"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", ["bfloat16", DEEP], ids=str)
async def test_every_method_takes_the_option(method, how):
    parts = split(*make_samples(), 3)
    options = TrainerOptions(downlink=how, transport="ternary")
    trained = await fit(method, make_model(), parts, epochs=2, options=options)
    assert trained.tally.refused == 0
    assert trained.epochs[-1].average_loss < np.log(3.0)


async def test_simulated_hosts_that_come_and_go_see_the_same_version():
    hosts = [SimulatedHost(), SimulatedHost(20.0), SimulatedHost()]
    there, tally = await finish_on(SimulatedBackend(hosts))
    here, _ = await finish(DEEP)
    np.testing.assert_allclose(there["w"], here["w"], atol=1e-12)
    assert tally.refused == 0


async def finish_on(backend):
    async with backend, make_run(backend, DEEP) as run:
        end = await run.finish()
    return end.parameters, run.tally
