"""SSP for any method: BSP is the synchronous one, leads, reads, death and return."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Reply, Snapshot
from stoilo.learn.core.tensors import flatten
from stoilo.learn.methods.base import LocalWork
from stoilo.learn.methods.federated import FederatedSettings, fedavg
from stoilo.learn.methods.optimizers import Adagrad, Adam, Sgd, Yogi
from stoilo.learn.methods.robust import CoordinateMedian, RobustSum
from stoilo.learn.methods.ssp import Ssp, SspSettings, iteration_of
from stoilo.learn.methods.synchronous import Synchronous, SynchronousSettings
from tests.support.learning import Fleet, Net, Volunteers, load_digits, run_replicas

CUTS = [9, 10, 33, 38, 52, 61, 70, 81, 92, 100]  # 11 parts: "p10" sorts before "p2"
CREW = Volunteers(
    Net((64, 10)),
    load_digits().images,
    load_digits().labels,
    np.split(np.arange(110), CUTS),
)
OPTIMIZERS = {
    "sgd": lambda: Sgd(0.5),
    "momentum": lambda: Sgd(0.1, momentum=0.9),
    "adam": lambda: Adam(0.01),
    "adagrad": lambda: Adagrad(0.05),
    "yogi": lambda: Yogi(0.01),
}


def ssp_of(staleness, optimizer=None, parts=CREW.sizes, start=None, **more):
    wanted = SspSettings(**{"epochs": 3, "staleness": staleness, **more})
    return Ssp(start or CREW.start(), parts, optimizer or Sgd(0.5), wanted)


def drive(method, seed, answer=CREW.answer, lost=0.1):
    """Answer, or lose, what is out in a random order; yield after each."""
    chance, out = random.Random(seed), []
    while not method.finished:
        out += method.next_orders(chance.randint(1, 12))
        order = out.pop(chance.randrange(len(out)))
        if chance.random() < lost:
            method.lose(order)
        else:
            method.take(order, answer(order))
        yield order


def versions_of(method, seed):
    found = [method.snapshot]
    for _ in drive(method, seed):
        if method.snapshot is not found[-1]:
            found.append(method.snapshot)
    return np.array([flatten(one.parameters) for one in found])


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("block", [0, 7])
def test_bsp_is_the_synchronous_method_bit_for_bit(name, block):
    made = SynchronousSettings(3, block=block)
    plain = Synchronous(CREW.start(), CREW.sizes, OPTIMIZERS[name](), made)
    wanted = versions_of(plain, 0)
    for seed in range(5):
        ours = ssp_of(0, OPTIMIZERS[name](), block=block)
        assert np.array_equal(versions_of(ours, seed), wanted)


def test_control_a_limit_of_one_is_another_training():
    end = versions_of(ssp_of(1), 0)[-1]
    assert not np.allclose(end, versions_of(ssp_of(0), 0)[-1], rtol=1e-3)


def test_bsp_of_local_steps_is_fedavg():
    local = LocalWork(0.5, steps=4)
    plain = fedavg(CREW.start(), CREW.sizes, FederatedSettings(3, local))
    ours = ssp_of(0, Sgd(1.0), local=local)
    gap = versions_of(ours, 1) - versions_of(plain, 1)
    assert np.abs(gap).max() < 1e-12


@pytest.mark.parametrize("limit", [0, 1, 3, 8])
def test_lead_under_delays_and_losses_stays_within_the_limit_and_one(limit):
    leads = []
    for seed in range(5):
        method = ssp_of(limit, epochs=20)
        leads += [method.clock.lead for _ in drive(method, seed)]
    assert max(leads) == limit + 1


def test_control_without_a_limit_the_lead_grows():
    method = ssp_of(None, epochs=20)
    assert max(method.clock.lead for _ in drive(method, 0)) > 9


@given(
    st.sampled_from([0, 1, 3, 8]),
    st.lists(st.tuples(st.integers(0, 99), st.sampled_from("aaaalt")), max_size=150),
)
def test_death_and_return_break_no_promise_of_the_clock(limit, events):
    """Answers in any order, losses, and leases that end: answers come back later."""
    method, now_s, out = ssp_of(limit, epochs=30, lease_s=5.0), 0.0, []
    method.note_time(now_s)
    for choice, event in events:
        time = method.clock.time
        out += method.next_orders(choice % 12)
        if event == "t":
            now_s += choice / 10.0
            method.note_time(now_s)
        elif out:
            order = out.pop(choice % len(out))
            if event == "l":
                method.lose(order)
            else:
                method.take(order, nothing(order))
        assert method.clock.time >= time
        assert method.clock.lead <= limit + 1


def nothing(order):
    zeros = {n: np.zeros_like(a) for n, a in order.snapshot.parameters.items()}
    return Reply(order.snapshot.version, order.samples, 1.0, zeros)


def counting(limit, kind=Ssp, parts=10):
    """A model of one entry a part, to which each iteration of it adds one."""
    start = Snapshot(0, {"theta": np.zeros(parts)})
    return kind(start, [1] * parts, Sgd(float(parts)), SspSettings(20, limit))


def count_one(order):
    slope = np.zeros_like(order.snapshot.parameters["theta"])
    slope[order.part] = -1.0
    return Reply(order.snapshot.version, 1, 0.0, {"theta": slope})


def missing(method, order):
    """Return how many iterations that an order must have read, its own first, lack."""
    clocks, own = method.clock.clocks, method.clock.clocks[f"w{order.part}"]
    need = np.full(len(clocks), max(0, own - method.settings.staleness), float)
    need[order.part] = own
    return float(np.maximum(need - order.snapshot.parameters["theta"], 0).sum())


def most_missing(method, seed):
    worst, chance, out = 0.0, random.Random(seed), []
    while len(method.clock.clocks) == len(method._parts):
        fresh = method.next_orders(chance.randint(1, 10))
        worst = max([worst, *(missing(method, order) for order in fresh)])
        out += fresh
        order = out.pop(chance.randrange(len(out)))
        method.take(order, count_one(order))
    return worst


class Lagging(Ssp):
    """Hands out an old version."""

    def _order(self, key):
        kept = self.__dict__.setdefault("old", self._snapshot)
        if self._snapshot.version - kept.version > 60:
            self.old = self._snapshot
        now, self._snapshot = self._snapshot, self.old
        order, self._snapshot = super()._order(key), now
        return order


@pytest.mark.parametrize("limit", [0, 1, 3, 8])
def test_orders_hold_what_the_limit_promises_and_all_of_their_own(limit):
    assert max(most_missing(counting(limit), seed) for seed in range(5)) == 0


@pytest.mark.parametrize("limit", [0, 1, 3, 8])
def test_control_orders_from_an_old_version_lack_some(limit):
    assert most_missing(counting(limit, Lagging), 0) > 0


@pytest.mark.parametrize("limit", [0, 3, None])
def test_every_iteration_counts_once_whatever_is_lost_or_repeated(limit):
    method, repeated = counting(limit), 0
    for order in drive(method, 3, count_one, lost=0.3):
        part, iteration = iteration_of(order.key)
        if method.clock.clocks.get(f"w{part}", 20) > iteration:  # it was not lost
            before, repeated = method.snapshot, repeated + 1
            assert not method.take(order, count_one(order)).applied
            assert method.snapshot is before
    assert repeated == 200
    assert np.allclose(method.snapshot.parameters["theta"], 20.0)


def test_repeated_answer_changes_nothing():
    method = counting(None)
    order = method.next_orders(1)[0]
    assert method.take(order, count_one(order)).applied
    before = method.snapshot
    assert not method.take(order, count_one(order)).applied
    assert method.snapshot is before
    assert method.clock.clocks["w0"] == 1


@pytest.mark.parametrize("limit", [0, 2, None])
def test_parts_of_any_size_use_each_sample_once_an_epoch(limit):
    method = ssp_of(limit, parts=(3000, 1, 40), epochs=2, block=1)
    used = []
    for order in drive(method, 0, nothing, lost=0.0):
        used += [(order.part, row) for row in order.rows]
    assert len(used) == 2 * 3041
    assert len(set(used)) == 3041


def test_plain_steps_of_a_round_add_up_to_the_synchronous_one():
    method = ssp_of(None)
    orders = method.next_orders(99)
    for order in orders:  # all from the first version
        method.take(order, CREW.answer(order))
    whole = ssp_of(0)
    for order in whole.next_orders(99):
        whole.take(order, CREW.answer(order))
    gap = flatten(method.snapshot.parameters) - flatten(whole.snapshot.parameters)
    assert np.abs(gap).max() < 1e-12


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_limit_of_three_learns_with_every_optimizer(name):
    method = ssp_of(3, OPTIMIZERS[name](), epochs=40)
    run_replicas(method, CREW.answer, Fleet((1.0, 1.3, 3.0, 1.1), jitter=0.3, lost=0.1))
    digits = load_digits()
    end = method.snapshot.parameters
    assert CREW.net.score(end, digits.test_images, digits.test_labels) > 0.75
    assert CREW.net.score(CREW.start().parameters, digits.images, digits.labels) < 0.3


def test_robust_rule_needs_rounds():
    rule = RobustSum(CoordinateMedian())
    Ssp(CREW.start(), CREW.sizes, Sgd(0.1), SspSettings(1, 0), combine=rule)
    with pytest.raises(UsageError, match="STO-T040"):
        Ssp(CREW.start(), CREW.sizes, Sgd(0.1), SspSettings(1, 1), combine=rule)


@pytest.mark.parametrize(
    "wrong",
    [{"epochs": 0}, {"block": -1}, {"lease_s": 0.0}],
)
def test_settings_that_describe_nothing_are_refused(wrong):
    with pytest.raises(UsageError, match="STO-T040"):
        SspSettings(**{"epochs": 1, **wrong})


@settings(max_examples=20)
@given(st.sampled_from([1, 3, None]), st.integers(30, 60), st.integers(0, 99))
def test_part_that_comes_back_ends_the_training_and_only_missed_ones_lack(
    limit, gone, seed
):
    method, chance, held = counting(limit, parts=3), random.Random(seed), []
    method.clock.lease_s = 5.0
    for turn in range(2000):
        method.note_time(float(turn))
        held += method.next_orders(4)
        ready = [one for one in held if one.part or turn > gone]  # part 0 is silent
        if ready:
            order = held.pop(held.index(chance.choice(ready)))
            method.take(order, count_one(order))
        if method.finished:
            break
    assert method.finished
    done = method.snapshot.parameters["theta"].sum()
    assert done == pytest.approx(60 - method.missed)
