import copy
import math

import numpy as np
import pytest

from stoilo.core.errors import UsageError
from stoilo.learn import Part, fit
from stoilo.learn.core.models import make_arguments
from stoilo.learn.core.orders import Reply, Snapshot
from stoilo.learn.core.tensors import flatten
from stoilo.learn.kernels.array_models import local_steps
from stoilo.learn.methods.base import LocalWork, round_up
from stoilo.learn.methods.federated import (
    FederatedSettings,
    Gossip,
    Regional,
    diloco,
    fedavg,
)
from stoilo.learn.methods.optimizers import Adagrad, Adam, Sgd, Yogi
from stoilo.learn.methods.robust import RobustSum
from stoilo.learn.methods.rules import CoordinateMedian
from tests.support.learning import (
    Fleet,
    Net,
    Volunteers,
    load_digits,
    run_replicas,
    run_serially,
)
from tests.support.points import make_model, make_samples

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


# What each of Reddi et al.'s optimisers does with one round's Δ, squares before it at zero.
DELTA = 8.0 - 7.0  # down from the parameters to the parts' weighted mean
FIRST_MOVES = {
    "FedAdam": (
        Adam(0.1, betas=(0.9, 0.99), epsilon=1e-3, corrected=False),
        0.1 * 0.1 * DELTA / (math.sqrt(0.01 * DELTA**2) + 1e-3),
    ),
    "FedYogi": (
        Yogi(0.1, betas=(0.9, 0.99), epsilon=1e-3, corrected=False),
        0.1 * 0.1 * DELTA / (math.sqrt(0.01 * DELTA**2) + 1e-3),
    ),
    "FedAdagrad": (Adagrad(0.1, epsilon=1e-3), 0.1 * DELTA / (DELTA + 1e-3)),
    "FedAvgM": (Sgd(0.5, momentum=0.9), 0.5 * DELTA),
}


@pytest.mark.parametrize("name", FIRST_MOVES)
def test_outer_optimiser_makes_the_round_of_the_closed_form(name):
    outer, move = FIRST_MOVES[name]
    settings = FederatedSettings(1, LocalWork(0.1))
    method = fedavg(HERE, (1, 3), settings, copy.deepcopy(outer))
    run_serially(method, answer_with(4.0, 8.0))
    assert method.snapshot.parameters["w"] == pytest.approx([8.0 - move], rel=1e-12)


def test_yogi_forgets_a_large_square_more_slowly_than_adam():
    ends = {}
    for kind in (Adam, Yogi):
        optimizer = kind(0.1, betas=(0.0, 0.9), corrected=False)
        for slope in (10.0, 1.0):
            optimizer.step(HERE.parameters, {"w": np.array([slope])})
        ends[kind] = optimizer._second["w"].item()
    assert ends == pytest.approx({Adam: 0.9 * 10.0 + 0.1, Yogi: 10.0 - 0.1})


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_proximal_steps_are_those_of_the_closed_form(steps):
    rate, pull, goal = 0.1, 3.0, 2.0

    def loss(parameters, x, _y):
        gap = parameters["w"] - goal
        return 0.5 * len(x) * float(gap @ gap), {"w": len(x) * gap}

    given = {
        "parameters": {"w": np.array([8.0])}, "buffers": {}, "version": 0, "rows": None,
        "data": {"x": np.zeros((4, 1)), "y": np.zeros(4)}, "function": loss,
        "settings": LocalWork(rate, steps=steps, proximal=pull).render(4, 0, "parameters"),
    }  # fmt: skip
    # ½(w - goal)² + pull/2 (w - start)²: a contraction to the weighted mean of the two.
    rest = (goal + pull * 8.0) / (1.0 + pull)
    wanted = rest + (8.0 - rest) * (1.0 - rate * (1.0 + pull)) ** steps
    assert local_steps(given)["tensors"]["w"] == pytest.approx([wanted], rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
async def test_proximal_parts_of_single_classes_stay_nearer_to_each_other(seed):
    x, y = make_samples(seed=seed)
    parts = [Part(x[y == label], y[y == label]) for label in range(3)]
    moves = []
    for pull in (0.0, 5.0):
        local = LocalWork(0.1, batch=5, steps=20, proximal=pull)
        start = make_model().first()
        method = fedavg(start, [len(p) for p in parts], FederatedSettings(1, local))
        ends = []
        for order in method.next_orders(3):
            given = make_arguments(
                make_model(), start, parts[order.part], order.settings
            )
            ends.append(local_steps(given)["tensors"]["w"])
        moves.append(np.std(ends, axis=0).sum())
    assert moves[1] < 0.5 * moves[0]


@pytest.mark.parametrize("seed", range(5))
async def test_fit_takes_an_outer_optimiser(seed):
    data = make_samples(seed=seed)
    outer = Adam(0.3, betas=(0.9, 0.99), epsilon=1e-3, corrected=False)
    trained = await fit(
        "fedavg", make_model(), data, epochs=6, outer=outer, proximal=0.1, steps=3
    )
    assert trained.epochs[-1].average_loss < 0.6 < trained.epochs[0].average_loss
    assert outer._steps == {}  # a copy was used


@pytest.mark.parametrize("wrong", [-0.1, math.nan, math.inf])
def test_proximal_factor_that_pushes_away_is_refused(wrong):
    with pytest.raises(UsageError, match="STO-T040"):
        LocalWork(0.1, proximal=wrong)


def scatter(seed, nodes, rounds):
    """Gossip whose replicas are random after round 0 and then left alone by training."""
    rng = np.random.default_rng(seed)
    first = {f"r0/p{node}": rng.normal(size=6) for node in range(nodes)}

    def answer(order):
        w = first.get(order.key, order.snapshot.parameters["w"])
        return Reply(order.snapshot.version, order.samples, 0.0, {"w": w})

    settings = FederatedSettings(rounds, LocalWork(0.1), seed=seed)
    method = Gossip(Snapshot(0, {"w": np.zeros(6)}), [4] * nodes, settings)
    return method, answer, np.mean([*first.values()], axis=0)


def spread(method):
    return np.ptp([one.parameters["w"] for one in method.replicas], axis=0).max()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("nodes", [2, 5, 8])
def test_gossip_keeps_the_mean_and_comes_to_it(seed, nodes):
    method, answer, mean = scatter(seed, nodes, rounds=40)
    run_serially(method, answer, room=3)
    np.testing.assert_allclose(method.snapshot.parameters["w"], mean, atol=1e-12)
    assert spread(method) < 1e-3


def test_gossip_of_one_round_keeps_the_mean_and_is_far_from_it():
    method, answer, mean = scatter(0, 8, rounds=1)
    run_serially(method, answer)
    np.testing.assert_allclose(method.snapshot.parameters["w"], mean, atol=1e-12)
    assert spread(method) > 0.1


@pytest.mark.parametrize("seed", range(5))
def test_pairs_of_gossip_wait_for_no_other(seed):
    method, answer, _ = scatter(seed, 8, rounds=3)
    times = [1.0] * 7 + [9.0]
    events = run_replicas(method, answer, Fleet(times))
    early = [event.order.key for event in events if event.time < 9.0]
    assert any(key.startswith("r1") for key in early)


@pytest.mark.parametrize("regions", [1, 2, 3, 7])
def test_sum_by_regions_is_the_flat_sum_bracketed_by_region(regions):
    rng = np.random.default_rng(regions)
    replies = [
        Reply(0, n, 0.0, {"w": rng.normal(size=9).astype(np.float32)})
        for n in (3, 1, 4, 1, 5)
    ]
    cuts = np.array_split(np.arange(5), regions)
    doubles = [reply.tensors["w"].astype(np.float64) for reply in replies]
    by_hand = sum(sum(doubles[i] for i in cut) for cut in cuts if len(cut))
    found = Regional(regions)(replies)["w"]
    assert (found == by_hand).all()
    np.testing.assert_allclose(found, sum(doubles), rtol=1e-13)


def test_each_region_bounds_its_own_liar():
    honest = [Reply(0, 1, 0.0, {"w": np.ones(3)}) for _ in range(9)]
    replies = [*honest, Reply(0, 1, 0.0, {"w": np.full(3, 1e6)})]
    robust = Regional(2, RobustSum(CoordinateMedian()))(replies)["w"]
    np.testing.assert_allclose(robust, np.full(3, 10.0))
    assert Regional(2)(replies)["w"].max() > 1e5
