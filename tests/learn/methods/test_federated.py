import numpy as np
import pytest

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Reply, Snapshot
from stoilo.learn.core.tensors import flatten
from stoilo.learn.methods.base import LocalWork, round_up
from stoilo.learn.methods.federated import FederatedSettings, diloco, fedavg
from tests.support.learning import (
    Fleet,
    Net,
    Volunteers,
    load_digits,
    run_replicas,
    run_serially,
)

HERE = Snapshot(0, {"w": np.array([8.0])})


def make(kind=fedavg, parts=(1, 3), **more):
    return kind(
        HERE, parts, FederatedSettings(**{"rounds": 2, "local": LocalWork(0.1), **more})
    )


def answer_with(*values):
    """Each part gives its own value."""
    return lambda order: Reply(
        order.snapshot.version,
        order.samples,
        0.0,
        {"w": np.array([values[order.part]])},
    )


def gather(*sizes):
    digits = load_digits()
    cut = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    return Volunteers(Net((64, 10)), digits.images, digits.labels, cut)


@pytest.mark.parametrize(("weights", "wanted"), [("samples", 7.0), ("equal", 6.0)])
def test_round_ends_at_the_weighted_mean(weights, wanted):
    method = make(rounds=1, weights=weights)
    run_serially(method, answer_with(4.0, 8.0))
    assert method.snapshot.parameters["w"].tolist() == [wanted]


def test_one_local_step_on_all_of_each_part_is_a_step_on_all_data():
    crew, whole = gather(30, 70), gather(100)
    ends = []
    for some in (crew, whole):
        settings = FederatedSettings(3, LocalWork(0.5))
        method = fedavg(crew.start(), some.sizes, settings)
        run_serially(method, some.answer)
        ends.append(flatten(method.snapshot.parameters))
    assert np.allclose(*ends, rtol=1e-10, atol=1e-13)


def test_outer_nesterov_step_by_hand():
    method = make(diloco, parts=(1,), rounds=2)
    run_serially(method, answer_with(4.0))
    first = 8.0 - 0.7 * (4.0 + 0.9 * 4.0)  # u = 4
    speed = 0.9 * 4.0 + (first - 4.0)
    second = first - 0.7 * ((first - 4.0) + 0.9 * speed)
    assert method.snapshot.parameters["w"] == pytest.approx([second])


def test_all_of_a_round_start_from_the_same_version():
    method = make()
    first, other = method.next_orders(2)
    method.take(first, answer_with(1.0, 1.0)(first))
    assert first.snapshot is other.snapshot is method.snapshot


@pytest.mark.parametrize(("share", "size", "wanted"), [
    (0.1, 10, 1), (0.3, 10, 3), (0.34, 3, 2), (1.0, 7, 7), (0.001, 2, 1),
])  # fmt: skip
def test_shares_are_rounded_up(share, size, wanted):
    assert round_up(share, size) == wanted


def test_share_of_clients_changes_with_the_round():
    method = make(parts=(1,) * 8, clients=0.5, rounds=6)
    chosen = set()
    while not method.finished:
        orders = method.next_orders(9)
        assert len(orders) == 4
        chosen.add(frozenset(order.part for order in orders))
        for order in orders:
            method.take(order, answer_with(*[1.0] * 8)(order))
    assert len(chosen) > 1


def test_late_answer_of_a_closed_round_is_dropped():
    method = make(fraction=0.5)
    one, late = method.next_orders(2)
    method.take(one, answer_with(1.0, 2.0)(one))
    before = method.snapshot
    update = method.take(late, answer_with(1.0, 2.0)(late))
    assert (update.applied, update.staleness) == (False, 1)
    assert method.snapshot is before


@pytest.mark.parametrize("bad", [{"rounds": 0}, {"clients": 0.0}, {"fraction": 2.0}])
def test_settings_that_cannot_train_are_refused(bad):
    with pytest.raises(UsageError, match="STO-T040"):
        make(**bad)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rounds", "local", "least"), [
    (fedavg, 12, LocalWork(0.5, batch=10), 0.85),
    (diloco, 20, LocalWork(3e-3, batch=10, steps=14, optimizer="adamw"), 0.75),
])  # fmt: skip
def test_digits_are_learned_on_parts_of_few_labels(kind, rounds, local, least):
    """Each part has four labels at most: far from independent samples."""
    digits, net = load_digits(), Net((64, 32, 10))
    parts = np.array_split(np.argsort(digits.labels, kind="stable"), 20)
    parts = [np.concatenate(parts[k::10]) for k in range(10)]
    crew = Volunteers(net, digits.images, digits.labels, parts)
    method = kind(crew.start(), crew.sizes, FederatedSettings(rounds, local))
    run_replicas(method, crew.answer, Fleet((1.0,) * 5, jitter=0.5, lost=0.1))
    w = method.snapshot.parameters
    assert net.score(w, digits.test_images, digits.test_labels) > least
