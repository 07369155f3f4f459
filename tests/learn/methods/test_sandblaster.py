import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import fmin_l_bfgs_b

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Reply, Snapshot
from stoilo.learn.core.tensors import flatten, unflatten
from stoilo.learn.methods.lbfgs import Coordinator, LineSearch, Rules
from stoilo.learn.methods.sandblaster import Sandblaster, SandblasterSettings
from stoilo.learn.store.shards import LocalShard
from stoilo.learn.store.vectors import Vectors
from tests.support.learning import (
    Fleet,
    Net,
    Volunteers,
    load_digits,
    run_replicas,
    run_serially,
)

NET, PENALTY = Net((64, 10)), 1e-3


def gather(*sizes):
    digits = load_digits()
    cut = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    return Volunteers(NET, digits.images, digits.labels, cut)


def make(crew, rules=None, **more):
    wanted = SandblasterSettings(penalty=PENALTY, rules=rules or Rules(), **more)
    return Sandblaster(Snapshot(0, NET.start(spread=0.0)), crew.sizes, wanted)


def ask_scipy(samples):
    digits, like = load_digits(), NET.start(spread=0.0)

    def evaluate(x):
        w = unflatten(x, like)
        images, labels = digits.images[:samples], digits.labels[:samples]
        loss, slope, _ = NET.differentiate(w, images, labels)
        mean = flatten(slope) / samples + PENALTY * x
        return loss / samples + 0.5 * PENALTY * x @ x, mean

    x, value, info = fmin_l_bfgs_b(
        evaluate, flatten(like), pgtol=1e-6, factr=10.0, maxiter=500, maxfun=1000
    )
    return x, value, info["nit"]


@pytest.mark.parametrize("sizes", [
    (100, 99, 1), pytest.param((700, 699, 1), marks=pytest.mark.slow),
])  # fmt: skip
def test_minimum_is_scipys_and_nearly_every_first_trial_is_accepted(sizes):
    crew = gather(*sizes)
    method = make(crew)
    updates = run_serially(method, crew.answer)
    point, value, iterations = ask_scipy(sum(sizes))
    ours = flatten(method.snapshot.parameters)
    assert abs(method.value - value) < 1e-7 * value
    assert np.linalg.norm(ours - point) < 1e-3 * np.linalg.norm(point)
    passes = len(updates) // 3
    assert method.iterations < 1.5 * iterations
    assert passes < 1.3 * method.iterations


class WithoutRegulariser(Sandblaster):
    """The toy's line search: judges by the bare loss, with the regularised slope."""

    def _judge_point(self, value):
        there = self._vectors.dot("trial", "trial")
        return super()._judge_point(value - 0.5 * PENALTY * there)


class MeanOfMeans(Sandblaster):
    """The toy's sum: each portion's mean counts alike."""

    def _add(self, order, reply):
        factor = self._samples / (len(self._pieces) * reply.samples)
        tensors = {name: factor * array for name, array in reply.tensors.items()}
        loss = factor * reply.loss_sum
        return super()._add(order, replace(reply, tensors=tensors, loss_sum=loss))


@pytest.mark.parametrize("kind", [WithoutRegulariser, MeanOfMeans])
def test_toy_misses_the_minimum_by_more_than_is_allowed(kind):
    """Control of the test above: its bound tells them apart."""
    crew = gather(100, 99, 1)
    method = kind(
        Snapshot(0, NET.start(spread=0.0)), crew.sizes, SandblasterSettings(1, PENALTY)
    )
    run_serially(method, crew.answer)
    _, value, _ = ask_scipy(200)
    w = method.snapshot.parameters
    digits, flat = load_digits(), flatten(w)
    loss, _, _ = NET.differentiate(w, digits.images[:200], digits.labels[:200])
    assert loss / 200 + 0.5 * PENALTY * flat @ flat > value * (1 + 1e-7)


@pytest.mark.parametrize(("portions", "shards"), [(4, 2), (28, 1), (7, 7)])
def test_portions_and_shards_leave_the_iterates_as_they_are(portions, shards):
    crew, rules = gather(1400), Rules(iterations=10)
    one, many = make(crew, rules), make(crew, rules, portions=portions, shards=shards)
    run_serially(one, crew.answer)
    run_serially(many, crew.answer)
    ours, theirs = (flatten(m.snapshot.parameters) for m in (one, many))
    assert np.linalg.norm(ours - theirs) < 1e-9 * np.linalg.norm(ours)


def answer_singly(order):
    """Softmax regression, every number of it in single precision."""
    digits, w = load_digits(), order.snapshot.parameters
    rows = np.arange(order.samples) if order.rows is None else np.array(order.rows)
    images, labels = digits.images[rows].astype(np.float32), digits.labels[rows]
    z = images @ w["w0"] + w["b0"]
    odds = np.exp(z - z.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    loss = -np.log(odds[np.arange(len(rows)), labels]).sum(dtype=np.float32)
    odds[np.arange(len(rows)), labels] -= 1.0
    slope = {"w0": images.T @ odds, "b0": odds.sum(axis=0)}
    return Reply(order.snapshot.version, len(rows), float(loss), slope)


@pytest.mark.parametrize(
    ("noise", "least", "most"), [(0.0, 80, 110), (1e-300, 120, 999)]
)
def test_single_precision_ends_at_its_noise_and_searches_no_lines_in_it(
    noise, least, most
):
    """Control: with no noise known, two searches of 30 passes each end nowhere."""
    start = {n: a.astype(np.float32) for n, a in NET.start(spread=0.0).items()}
    rules = Rules(tolerance=1e-6, iterations=500, noise=noise)
    wanted = SandblasterSettings(4, PENALTY, 3, rules=rules)
    method = Sandblaster(Snapshot(0, start), [1400], wanted)
    passes = len(run_serially(method, answer_singly)) / 4
    assert least < passes < most
    assert method.value == pytest.approx(0.26567085, rel=1e-6)
    assert method.snapshot.parameters["w0"].dtype == np.float32


def test_way_that_was_gone_is_that_of_the_rounded_points():
    start = {n: a.astype(np.float32) for n, a in NET.start(spread=0.0).items()}
    method = Sandblaster(Snapshot(0, start), [140], SandblasterSettings())
    run_serially(method, answer_singly, limit=8)
    ways = [method._vectors.gather(f"s{pair}") for pair in method.coordinator.pairs]
    point = flatten(method._snapshot.parameters)
    assert len(ways) > 1
    assert (method._vectors.gather("trial") == point).all()
    assert np.abs(sum(ways) - method._vectors.gather("x")).max() < 1e-14


def time_pass(portions, times, backups):
    crew = gather(1400)
    method = make(crew, portions=portions, backups=backups)
    done = lambda _: method.snapshot.version == 1  # noqa: E731
    return run_replicas(method, crew.answer, Fleet(times), done)[-1].time


@pytest.mark.parametrize(("portions", "ideal", "backed", "alone"), [
    (28, 5, 6, 20), (120, 20, 24, 40),
])  # fmt: skip
def test_backups_hide_a_slow_host(portions, ideal, backed, alone):
    slow = (1.0,) * 5 + (20.0,)
    assert time_pass(portions, (1.0,) * 6, 0.25) == ideal
    assert time_pass(portions, slow, 0.25) == backed
    assert time_pass(portions, slow, 0.0) == alone


def test_portion_counts_once_when_both_copies_answer():
    crew = gather(10, 10)
    method, twice = make(crew, backups=1.0), make(crew, backups=0.0)
    run_serially(twice, crew.answer, limit=2)
    orders = method.next_orders(4)
    assert [o.key for o in orders[2:]] == [o.key for o in orders[:2]]
    first = method.take(orders[0], crew.answer(orders[0]))
    again = method.take(orders[2], crew.answer(orders[2]))
    assert (first.applied, again.applied) == (True, False)
    method.take(orders[1], crew.answer(orders[1]))
    assert method.value == twice.value


def test_lost_copy_leaves_the_other_one_out():
    crew = gather(10, 10)
    method = make(crew, backups=1.0)
    one, other, copy, _ = method.next_orders(4)
    method.lose(copy)
    assert method.take(one, crew.answer(one)).applied
    method.lose(other)
    assert [o.key for o in method.next_orders(1)] == [other.key]


def rosenbrock(x):
    a, b = x
    value = (1 - a) ** 2 + 100 * (b - a * a) ** 2
    return value, np.array([-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)])


def in_memory(size, shards):
    return Vectors(size, [LocalShard() for _ in range(shards)])


def descend(function, start, rules=None, vectors=None):
    """Coordinator alone on a plain function."""
    vectors = vectors or in_memory(len(start), 2)
    coordinator = Coordinator(rules or Rules())
    for name in ("x", "trial"):
        vectors.put(name, np.array(start))
    for _ in range(1000):
        value, slope = function(vectors.gather("trial"))
        vectors.put("slope", slope)
        coordinator.judge(vectors, value)
        assert all(vectors.dot(f"y{k}", f"s{k}") > 0 for k in coordinator.pairs)
        if coordinator.stopped:
            break
    return coordinator, vectors


def test_valley_that_is_not_convex_is_followed_with_positive_curvature():
    coordinator, vectors = descend(rosenbrock, [-1.2, 1.0])
    assert coordinator.converged
    assert np.allclose(vectors.gather("x"), [1.0, 1.0], atol=1e-6)


def test_pair_without_curvature_is_skipped():
    vectors = in_memory(2, 1)
    for name, values in {
        "trial": [1.0, 0],
        "x": [0.0, 0],
        "g": [0.5, 0],
        "slope": [0.2, 0],
    }.items():
        vectors.put(name, np.array(values))
    coordinator = Coordinator(Rules())
    coordinator._remember(vectors)
    assert coordinator.pairs == []
    assert [*vectors.save().plain["held"]] == ["g", "slope", "trial", "x"]


def test_two_failed_line_searches_end_at_the_accepted_point():
    wall = lambda x: (0.0 if x[0] == 2.0 else np.inf, np.array([1.0]))  # noqa: E731
    coordinator, vectors = descend(wall, [2.0], vectors=in_memory(1, 1))
    assert (coordinator.stopped, coordinator.converged) == (True, False)
    assert vectors.gather("trial").tolist() == [2.0]


def test_line_search_brackets_a_good_step():
    search, rules = LineSearch(value=4.0, slope=-8.0, step=16.0), Rules()
    while not search.judge((search.step - 2) ** 2 * 1.0, 2 * (search.step - 2), rules):
        pass
    assert 0.1 < search.step < 4.0


class Tapped:
    """Vectors whose traffic with the coordinator is listened to."""

    def __init__(self, inner):
        self.inner, self.seen = inner, set()

    def __getattr__(self, name):
        def call(*args):
            found = getattr(self.inner, name)(*args)
            self.seen |= {type(value) for value in (*args, found)}
            return found

        return call


def test_coordinator_neither_holds_nor_moves_a_vector():
    inner = in_memory(50, 3)
    for name in ("x", "trial"):
        inner.put(name, np.ones(50))
    tapped, coordinator = Tapped(inner), Coordinator(Rules(tolerance=1e-9))
    weights = np.linspace(1, 9, 50)
    while not coordinator.stopped:
        x = inner.gather("trial")
        inner.put("slope", weights * x)
        coordinator.judge(tapped, 0.5 * float(weights @ x**2))
    assert coordinator.converged
    assert tapped.seen <= {str, float, list, type(None)}
    assert len(json.dumps(coordinator.save().plain)) < 500


@pytest.mark.parametrize("bad", [
    {"portions": 0}, {"shards": 0}, {"penalty": -1.0}, {"backups": 2.0},
])  # fmt: skip
def test_settings_that_cannot_train_are_refused(bad):
    with pytest.raises(UsageError, match="STO-T040"):
        SandblasterSettings(**bad)
