"""Every method: save, load and go on equals going on, at any point."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoilo.core.errors import UsageError
from stoilo.learn.core.states import State
from stoilo.learn.core.tensors import flatten
from stoilo.learn.methods.base import LocalWork, Staleness
from stoilo.learn.methods.downpour import Downpour, DownpourSettings
from stoilo.learn.methods.federated import FederatedSettings, Gossip, diloco, fedavg
from stoilo.learn.methods.lbfgs import Rules
from stoilo.learn.methods.optimizers import Adagrad, Adam, Sgd
from stoilo.learn.methods.overlapping import DoubleBuffered
from stoilo.learn.methods.sandblaster import Sandblaster, SandblasterSettings
from stoilo.learn.methods.ssp import Ssp, SspSettings
from stoilo.learn.methods.synchronous import (
    LargeMinibatch,
    LargeMinibatchSettings,
    Synchronous,
    SynchronousSettings,
)
from stoilo.learn.methods.vcasgd import Vcasgd, VcasgdSettings
from tests.support.learning import Net, Volunteers, load_digits
from tests.support.resuming import Drive, store

CREW = Volunteers(
    Net((64, 10)),
    load_digits().images,
    load_digits().labels,
    np.split(np.arange(40), [9, 20, 33]),
)


def make_synchronous(kind=Synchronous, **more):
    wanted = {"epochs": 3, "block": 5, "fraction": 0.7, **more}
    return kind(CREW.start(), CREW.sizes, Adam(0.01), SynchronousSettings(**wanted))


def make_vcasgd(**more):
    local = LocalWork(0.5, batch=4, momentum=0.5)
    return Vcasgd(CREW.start(), CREW.sizes, VcasgdSettings(3, local, **more))


def make_downpour(optimizer=None, **more):
    wanted = {"passes": 2, "batch": 4, "push": 2, **more}
    optimizer = optimizer or Adagrad(0.05)
    return Downpour(CREW.start(), CREW.sizes, optimizer, DownpourSettings(**wanted))


def make_sandblaster(**more):
    rules = Rules(history=3, iterations=6, **more)
    wanted = SandblasterSettings(2, penalty=0.01, shards=3, rules=rules)
    return Sandblaster(CREW.start(), CREW.sizes, wanted)


def make_large(**more):
    wanted = LargeMinibatchSettings(3, 5, 0.1, warmup=2.0, **more)
    return LargeMinibatch(CREW.start(), CREW.sizes, wanted)


def make_federated(kind, local=None, **more):
    local = local or LocalWork(0.1, batch=4, steps=5)
    wanted = FederatedSettings(4, local, **more)
    return kind(CREW.start(), CREW.sizes, wanted)


def make_ssp(staleness, optimizer=Adam, **more):
    wanted = SspSettings(3, staleness, **more)
    return Ssp(CREW.start(), CREW.sizes, optimizer(0.01), wanted)


METHODS = {
    "synchronous": make_synchronous,
    "synchronous, late ones queued": lambda: make_synchronous(late="queue"),
    "double buffered": lambda: make_synchronous(kind=DoubleBuffered),
    "local steps": lambda: make_synchronous(local=LocalWork(0.1, batch=2)),
    "downpour": make_downpour,
    "downpour, warmed up, discarding": lambda: make_downpour(
        Adagrad(0.05),
        warmup=3,
        staleness=Staleness("discard", 1),
    ),
    "downpour, own weights": lambda: make_downpour(fetch=3),
    "sandblaster": make_sandblaster,
    "large minibatch": make_large,
    "large minibatch, folded rate": lambda: make_large(folded=True),
    "fedavg": lambda: make_federated(fedavg, clients=0.7),
    "gossip": lambda: make_federated(Gossip),
    "diloco": lambda: make_federated(diloco, fraction=0.6, weights="equal"),
    "fedavg, by adamw": lambda: make_federated(
        fedavg,
        LocalWork(0.01, batch=4, steps=3, optimizer="adamw"),
        clients=0.7,
        fraction=0.6,
    ),
    "vcasgd": make_vcasgd,
    "vcasgd, by epoch, deltas, damped": lambda: make_vcasgd(
        pull="epoch", mode="delta", alpha="e/(e+1)", staleness=Staleness("damp")
    ),
    "ssp": lambda: make_ssp(2, block=5),
    "ssp, in rounds": lambda: make_ssp(0, block=6),
    "ssp, waiting for nobody, local steps": lambda: make_ssp(
        None, Sgd, local=LocalWork(0.1, batch=4, steps=3)
    ),
    "vcasgd, discarding": lambda: make_vcasgd(staleness=Staleness("discard", 0)),
}
CHOICES = st.lists(st.integers(0, 99), max_size=60)


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=25)
@given(before=CHOICES, after=CHOICES)
def test_resumed_run_equals_the_one_that_went_on(name, before, after):
    ours = Drive(METHODS[name](), CREW.answer)
    ours.run(before)
    resumed = ours.resume(METHODS[name])
    assert resumed.run(after) == ours.run(after)
    one, other = ours.method.snapshot, resumed.method.snapshot
    assert one.version == other.version
    assert (flatten(one.parameters) == flatten(other.parameters)).all()
    assert resumed.method.finished == ours.method.finished


@pytest.mark.parametrize("name", METHODS)
def test_every_order_has_a_seed_of_its_own_and_a_repetition_the_same(name):
    one, other = METHODS[name](), METHODS[name]()
    orders, again = one.next_orders(3), other.next_orders(3)
    seeds = [order.settings["seed"] for order in orders]
    assert len(set(seeds)) == len({order.key for order in orders})
    assert seeds == [order.settings["seed"] for order in again]
    one.lose(orders[0])
    lost = next(o for o in one.next_orders(9) if o.key == orders[0].key)
    assert lost.settings["seed"] == seeds[0]


@pytest.mark.parametrize("name", METHODS)
def test_state_of_nothing_is_refused(name):
    with pytest.raises(UsageError, match="STO-T012"):
        METHODS[name]().load(State({}, {}))


@pytest.mark.parametrize("name", METHODS)
def test_state_of_another_model_is_refused(name):
    state = METHODS[name]().save()
    cut = {name: array[:1] for name, array in state.tensors.items()}
    with pytest.raises(UsageError, match="STO-T012"):
        METHODS[name]().load(State(cut, state.plain))


@pytest.mark.parametrize("name", METHODS)
def test_run_ends_though_every_fifth_order_is_lost(name):
    drive = Drive(METHODS[name](), CREW.answer)
    for choice in range(5000):
        drive.turn(choice)
    assert drive.method.finished
    assert len({update.key for update in drive.updates}) == len(drive.updates)


OPTIMIZERS = {
    "sgd": lambda: Sgd(0.1, momentum=0.9),
    "adam": lambda: Adam(0.1, decoupled=True, decay=0.1),
    "adagrad": lambda: Adagrad(0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_resumed_optimizer_steps_like_the_one_that_went_on(name):
    rng, ours, other = np.random.default_rng(1), OPTIMIZERS[name](), OPTIMIZERS[name]()
    w = {"a": rng.normal(size=(3, 2)), "b": rng.normal(size=4)}
    w = ours.step(w, {"a": w["a"], "b": w["b"]})
    ours.rate = 0.05
    other.load(store(ours.save()))
    g = {"a": rng.normal(size=(3, 2)), "b": rng.normal(size=4)}
    assert (flatten(ours.step(w, g)) == flatten(other.step(w, g))).all()
