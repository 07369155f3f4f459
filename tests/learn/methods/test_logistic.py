"""Logistic regression on the parameter server: the four modes, save and load, death."""

import functools
import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression as Reference

from stoilo.client.capture.modules import capture_task
from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Reply, Snapshot
from stoilo.learn.kernels import array_models
from stoilo.learn.kernels.array_models import make_logistic_loss
from stoilo.learn.methods.logistic import LogisticRegression, LogisticSettings
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.shards import RUNS, LocalShard
from stoilo.policies.gate import GateRequest, judge
from tests.support.learning import Fleet, run_replicas, run_serially

PARTS = (40, 70, 1, 89)
DECAY = 0.01
loss = make_logistic_loss(DECAY)


@functools.cache
def problem():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((sum(PARTS), 5))
    odds = 1 / (1 + np.exp(-x @ np.array([2.0, -1.0, 0.5, 0.0, 1.0])))
    return x, (rng.random(len(x)) < odds).astype(float)


def part_of(index):
    ends = np.cumsum(PARTS)
    rows = slice(ends[index] - PARTS[index], ends[index])
    x, y = problem()
    return {"x": x[rows], "y": y[rows]}


def answer(order):
    """What a volunteer does: the kernels that travel, called here."""
    kernel = {
        "gradient": array_models.gradient,
        "local_steps": array_models.local_steps,
    }
    found = kernel[order.kernel](
        {
            "parameters": order.snapshot.parameters,
            "data": part_of(order.part),
            "rows": order.rows,
            "settings": order.settings,
            "version": order.snapshot.version,
            "function": loss,
        }
    )
    assert found["samples"] == order.samples
    return Reply(**found)


def method_of(mode, server=None, **fields):
    start = Snapshot(0, {"theta": np.zeros(5)})
    return LogisticRegression(start, PARTS, LogisticSettings(mode, **fields), server)


def theta_of(method):
    return method.snapshot.parameters["theta"]


def mean_loss(theta):
    return loss({"theta": theta}, *problem())[0] / sum(PARTS)


@functools.cache
def optimum():
    x, y = problem()
    inverse = 1 / (2 * DECAY * len(x))
    found = Reference(C=inverse, fit_intercept=False, tol=1e-10, max_iter=1000)
    return mean_loss(found.fit(x, y).coef_[0])


def test_gradient_is_that_of_the_loss():
    x, y = problem()
    theta, step = np.linspace(-1, 1, 5), 1e-6
    for k, unit in enumerate(np.eye(5)):
        up, down = (
            loss({"theta": theta + sign * step * unit}, x, y)[0] for sign in (1, -1)
        )
        slope = loss({"theta": theta}, x, y)[1]["theta"][k]
        assert slope == pytest.approx((up - down) / (2 * step), rel=1e-6)


def test_loss_travels_as_source_that_the_gate_admits_at_level_numeric():
    captured = capture_task(
        array_models.local_steps, {"function": make_logistic_loss(0.5)}
    )
    request = GateRequest(captured.task_module.encode(), entry=captured.entry)
    assert judge(request).lowest_level == "numeric"


def test_loss_does_not_overflow():
    with np.errstate(all="raise", under="ignore"):
        value, slope = loss({"theta": np.array([1e4])}, np.array([[1.0], [-1.0]]), 1.0)
    assert np.isfinite(value)
    assert np.isfinite(slope["theta"]).all()


@pytest.mark.parametrize("room", [1, 3, 100])
def test_bsp_dgd_equals_serial_gradient_descent(room):
    method = method_of("dgd", rounds=20)
    run_serially(method, answer, room=room)
    theta = np.zeros(5)
    for _ in range(20):
        theta = theta - 1e-3 * loss({"theta": theta}, *problem())[1]["theta"]
    assert np.abs(theta_of(method) - theta).max() < 1e-12


def test_ipm_with_one_part_equals_serial_sgd():
    start = Snapshot(0, {"theta": np.zeros(5)})
    method = LogisticRegression(start, PARTS[:1], LogisticSettings("ipm", rounds=3))
    theta = start.parameters["theta"]
    while not method.finished:
        (order,) = method.next_orders(9)
        rows = np.random.Generator(np.random.PCG64(order.settings["seed"]))
        for row in rows.permutation(PARTS[0]):
            one = {name: array[[row]] for name, array in part_of(0).items()}
            theta = theta - 1e-3 * loss({"theta": theta}, **one)[1]["theta"]
        method.take(order, answer(order))
    assert np.abs(theta_of(method) - theta).max() < 1e-12


@pytest.mark.parametrize(
    ("mode", "fields", "gap"),
    [
        ("dgd", {"rounds": 100, "rate": 5e-3}, 1e-6),
        ("ipm", {"rounds": 60, "rate": 2e-2}, 2e-2),
        ("downpour", {"rounds": 20, "rate": 1e-2, "limit": 3, "push": 10}, 2e-2),
        ("agd", {"rounds": 20, "rate": 1e-2, "limit": None}, 2e-2),
    ],
)
def test_every_mode_comes_near_the_optimum_of_scikit_learn(mode, fields, gap):
    method = method_of(mode, **fields)
    fleet = Fleet(times=(1.0, 1.3, 3.0), jitter=0.2, lost=0.05)
    run_replicas(method, answer, fleet)
    assert mean_loss(np.zeros(5)) - optimum() > 0.2
    assert mean_loss(theta_of(method)) - optimum() < gap


@pytest.mark.parametrize("limit", [0, 1, 3, 8])
def test_no_part_gets_further_ahead_than_the_limit_and_one(limit):
    method = method_of("downpour", rounds=8, push=1, limit=limit)
    leads, chance, out = [], random.Random(0), []
    while not method.finished:
        out += method.next_orders(9)
        out.sort(key=lambda order: order.part)  # part 0 is answered last, mostly
        order = out.pop() if chance.random() < 0.9 else out.pop(0)
        method.take(order, answer(order))
        leads.append(method.clock.lead)
    assert max(leads) <= limit + 1


def test_endless_limit_behaves_as_none():
    found = [method_of("agd", rounds=2, limit=limit) for limit in (None, 10**9)]
    for method in found:
        run_replicas(method, answer, Fleet(times=(1.0, 1.3, 3.0), jitter=0.2))
    assert np.array_equal(*map(theta_of, found))


def test_lost_iteration_is_ordered_again_and_counts_once():
    method = method_of("dgd", rounds=1)
    orders = method.next_orders(9)
    method.lose(orders[0])
    (again,) = method.next_orders(9)
    assert again.key == orders[0].key
    for order in [again, *orders[1:]]:
        assert method.take(order, answer(order)).applied
    assert method.finished
    assert not method.take(again, answer(again)).applied


def test_late_answer_of_a_lost_copy_changes_nothing():
    method = method_of("agd", rounds=2, limit=None)
    order = method.next_orders(1)[0]
    method.lose(order)
    again = next(o for o in method.next_orders(9) if o.key == order.key)
    method.take(again, answer(again))
    before = theta_of(method)
    assert not method.take(order, answer(order)).applied
    assert np.array_equal(theta_of(method), before)


def test_epoch_ends_once_a_round():
    ended = [u.epoch_ended for u in run_serially(method_of("dgd", rounds=5), answer)]
    assert ended.count(True) == 5
    assert ended[len(PARTS) - 1 :: len(PARTS)] == [True] * 5


@settings(max_examples=25)
@given(
    st.sampled_from(["dgd", "ipm", "downpour", "agd"]),
    st.sampled_from([0, 1, None]),
    st.integers(0, 9),
    st.integers(0, 99),
)
def test_saved_and_loaded_with_orders_out_goes_on_as_if_nothing_was(
    mode, limit, taken, seed
):
    fields = {"rounds": 3, "limit": limit, "push": 30}
    one, chance = method_of(mode, **fields), random.Random(seed)
    out = []
    for _ in range(taken):
        out += one.next_orders(chance.randint(1, 4))
        order = out.pop(chance.randrange(len(out)))
        one.take(order, answer(order))
    other = method_of(mode, **fields)
    other.load(one.save())
    for method in (one, other):
        for order in out:
            method.take(order, answer(order))
        for _ in range(20):
            for order in method.next_orders(2):
                method.take(order, answer(order))
    assert np.array_equal(theta_of(one), theta_of(other))
    assert one.save().plain == other.save().plain


@pytest.mark.parametrize("mode", ["dgd", "downpour"])
def test_older_state_beside_a_server_with_files_counts_no_push_twice(tmp_path, mode):
    fields = {"rounds": 4, "push": 30, "limit": 0}
    whole = method_of(mode, **fields)
    run_serially(whole, answer)
    first = ParameterServer.open(tmp_path, 2)
    method = method_of(mode, first, **fields)
    replies = {}

    def once(order):
        """The same answer to the same order, as from the backend after a restart."""
        return replies.setdefault(order.key, answer(order))

    old = method.save()
    for _ in range(6):
        for order in method.next_orders(1):
            method.take(order, once(order))
    first.close()  # and the process is gone, with all that it knew since `old`
    second = ParameterServer.open(tmp_path, 2)
    again = method_of(mode, second, **fields)
    again.load(old)
    run_serially(again, once)
    assert np.abs(theta_of(again) - theta_of(whole)).max() < 1e-12
    second.close()


def test_second_training_on_a_kept_server_goes_on_from_the_first(tmp_path):
    server = ParameterServer.open(tmp_path, 2)
    for rounds in (3, 2):
        method = method_of("dgd", server, rounds=rounds)
        run_serially(method, answer)
    whole = method_of("dgd", rounds=5)
    run_serially(whole, answer)
    assert np.array_equal(theta_of(method), theta_of(whole))
    server.close()


def test_parameters_that_a_kill_left_ahead_of_the_state_are_a_version_of_their_own():
    server = ParameterServer({"a": LocalShard()})
    method = method_of("downpour", server, push=30, limit=None)
    (order,) = method.next_orders(1)
    saved, before = method.save(), method.snapshot
    method.take(order, answer(order))  # pushed; and killed before the state was saved
    again = method_of("downpour", server, push=30, limit=None)
    again.load(saved)
    assert not np.array_equal(theta_of(again), before.parameters["theta"])
    assert again.snapshot.version > before.version
    pushed = theta_of(again)
    assert again.take(order, answer(order)).applied
    assert np.array_equal(theta_of(again), pushed)


def test_state_as_new_as_the_servers_parameters_keeps_its_version():
    server = ParameterServer({"a": LocalShard()})
    method = method_of("agd", server, limit=None)
    for order in method.next_orders(2):
        method.take(order, answer(order))
    again = method_of("agd", server, limit=None)
    again.load(method.save())
    assert again.snapshot.version == method.snapshot.version


def test_run_that_the_server_has_forgotten_cannot_go_on():
    server = ParameterServer({"a": LocalShard()})
    old = method_of("dgd", server, rounds=2, limit=None)
    (order,) = old.next_orders(1)
    old.take(order, answer(order))
    for _ in range(RUNS):
        run_serially(method_of("dgd", server, rounds=1), answer)
    with pytest.raises(UsageError, match="STO-T012"):
        method_of("dgd", server, rounds=2, limit=None).load(old.save())


@pytest.mark.parametrize("mode", ["dgd", "ipm", "downpour", "agd"])
def test_blocks_of_rows_change_no_bit_of_the_result(mode):
    one, many = (
        method_of(mode, server, rounds=2, push=30, block_bytes=size)
        for server, size in ((None, 1 << 20), (in_three(), 8))
    )
    for method in (one, many):
        run_serially(method, answer)
    assert np.array_equal(theta_of(one), theta_of(many))


def in_three():
    return ParameterServer({f"shard{index}": LocalShard() for index in range(3)})


def test_silent_part_is_not_waited_for_and_comes_back():
    method = method_of("dgd", rounds=6, lease_s=10.0)
    method.note_time(0.0)
    silent, *others = method.next_orders(9)
    for order in others:
        method.take(order, answer(order))
    assert method.next_orders(9) == []
    assert method.next_alarm() == 10.0
    method.note_time(10.0)
    again = method.next_orders(9)
    assert [order.part for order in again] == [1, 2, 3, 0]
    for order in again[:3]:
        method.take(order, answer(order))
    assert not method.take(silent, answer(silent)).applied
    run_serially(method, answer)
    assert method.missed == 2


def test_round_that_a_silent_part_leaves_is_applied_and_told_of():
    method = method_of("dgd", rounds=3, lease_s=10.0)
    method.note_time(0.0)
    orders = method.next_orders(9)
    for order in orders[1:]:
        assert not method.take(order, answer(order)).epoch_ended
    before = theta_of(method)
    method.note_time(10.0)
    assert not np.array_equal(theta_of(method), before)
    (order, *_) = method.next_orders(1)
    assert method.take(order, answer(order)).epoch_ended


@pytest.mark.parametrize("mode", ["dgd", "ipm", "downpour", "agd"])
@pytest.mark.parametrize("limit", [0, 2, None])
def test_part_that_was_silent_to_the_end_does_its_rounds_then(mode, limit):
    method, seen = method_of(mode, rounds=2, lease_s=10.0, limit=limit), []
    for now_s in itertools.count():
        method.note_time(now_s)
        orders = [one for one in method.next_orders(9) if one.part or now_s > 300]
        seen += [method.take(order, answer(order)) for order in orders]
        if method.finished:
            break
    keys = {update.key for update in seen if update.applied}
    assert {f"w0/i{index}" for index in range(2)} <= keys
    assert (len(keys), method.missed) == (len(seen), 0)
    assert [update.epoch_ended for update in seen].count(True) == 2
    assert seen[-1].epoch_ended


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "sgd"},
        {"mode": "dgd", "rounds": 0},
        {"mode": "dgd", "rate": 0.0},
        {"mode": "dgd", "lease_s": 0.0},
        {"mode": "dgd", "block_bytes": 0},
    ],
)
def test_settings_that_describe_nothing_are_refused(fields):
    with pytest.raises(UsageError, match="STO-T040"):
        LogisticSettings(**fields)


def test_pieces_of_a_round_are_each_sample_once():
    method = method_of("downpour", rounds=1, push=1, limit=None)
    run = run_serially(method, answer)
    assert sum(update.samples for update in run) == sum(PARTS)
    keys = [update.key for update in run]
    assert len(set(keys)) == len(keys)
    assert all(a.version < b.version for a, b in itertools.pairwise(run))
