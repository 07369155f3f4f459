"""Fixed trees, and bounds that nothing beats."""

from __future__ import annotations

from random import Random

import pytest

from bench.best_schedule import find_best
from bench.learn_traffic import SIZE, draw_access, name_workers
from bench.traffic.simulation import Network, aggregate, distribute
from bench.traffic.trees import (
    Access,
    TreeAggregation,
    TreeDistribution,
    balance,
    bound_receipts,
    bound_sum,
    chain,
    star,
)
from stoilo.learn.traffic.aggregation import Aggregation
from stoilo.learn.traffic.distribution import Distribution
from stoilo.learn.traffic.links import LinkMatrix

TREES = (star, balance, chain)
SIX = name_workers(6)


def unit(workers: int) -> dict[str, Access]:
    return {node: Access(1.0, 1.0) for node in ["root", *name_workers(workers)]}


def fixed_times(make, access) -> list[float]:
    workers = [node for node in access if node != "root"]
    size = 1 if access["root"].up == 1.0 else SIZE
    schedule = TreeDistribution(
        "v", size, "root", workers, LinkMatrix(), Random(0), tree=make("root", workers),
        lease_s=1e9,
    )  # fmt: skip
    return sorted(distribute(Network(access), schedule).values())


def fixed_sum(make, access) -> float:
    workers = [node for node in access if node != "root"]
    size = 1 if access["root"].up == 1.0 else SIZE
    tree = make("root", workers)
    schedule = TreeAggregation(
        "r", size, "root", workers, LinkMatrix(), tree=tree, lease_s=1e9
    )
    took, total = aggregate(Network(access), schedule, dict.fromkeys(workers, 1))
    assert total == len(workers)
    return took


@pytest.mark.parametrize(
    ("make", "times"),
    [(star, [6] * 6), (balance, [2, 2, 4, 4, 4, 4]), (chain, [1, 2, 3, 4, 5, 6])],
)
def test_a_version_goes_down_a_fixed_tree(make, times: list[float]):
    assert fixed_times(make, unit(6)) == pytest.approx(times)


@pytest.mark.parametrize(("make", "took"), [(star, 6), (balance, 4), (chain, 6)])
def test_a_sum_goes_up_a_fixed_tree(make, took: float):
    assert fixed_sum(make, unit(6)) == pytest.approx(took)


def test_bound_and_best_are_what_the_paper_draws():
    assert bound_receipts(unit(6), "root", 1) == pytest.approx([1, 2, 2, 3, 3, 3])
    assert find_best(unit(6), "root", 1) == pytest.approx([1, 2, 2, 3, 3, 3])


@pytest.mark.parametrize("workers", [1, 3, 5, 7])
@pytest.mark.parametrize("seed", range(5))
def test_bound_is_below_the_best_and_the_best_below_ours(workers: int, seed: int):
    access = draw_access(workers, seed)
    nodes = name_workers(workers)
    best = find_best(access, "root", SIZE)
    bound = bound_receipts(access, "root", SIZE)
    assert all(low <= time * (1 + 1e-9) for low, time in zip(bound, best, strict=True))
    for chance in range(5):
        ours = Distribution("v", SIZE, "root", nodes, LinkMatrix(), Random(chance))
        times = distribute(Network(access), ours).values()
        assert sum(best) <= sum(times) * (1 + 1e-9)


@pytest.mark.parametrize("workers", [1, 3, 5, 7])
@pytest.mark.parametrize("seed", range(5))
def test_the_same_for_sums(workers: int, seed: int):
    access = draw_access(workers, seed)
    reverse = {node: one.reverse() for node, one in access.items()}
    best = find_best(reverse, "root", SIZE, last=True)[-1]
    assert bound_receipts(reverse, "root", SIZE)[-1] <= best * (1 + 1e-9)
    values = dict.fromkeys(name_workers(workers), 1)
    ours = Aggregation("r", SIZE, "root", values, LinkMatrix())
    assert best <= aggregate(Network(access), ours, values)[0] * (1 + 1e-9)


@pytest.mark.parametrize("make", TREES)
@pytest.mark.parametrize("seed", range(5))
def test_no_fixed_tree_is_below_the_bound(make, seed: int):
    access = draw_access(12, seed)
    pairs = zip(
        bound_receipts(access, "root", SIZE), fixed_times(make, access), strict=True
    )
    assert all(low <= time * (1 + 1e-9) for low, time in pairs)
    reverse = {node: one.reverse() for node, one in access.items()}
    least = bound_receipts(reverse, "root", SIZE)[-1]
    assert least <= fixed_sum(make, access) * (1 + 1e-9)


def test_a_sum_in_many_segments_comes_near_its_bound_and_not_below():
    line = Access(1.0, 1.0)
    access = {"root": line, "a": line, "b": Access(0.5, 1.0)}
    assert bound_sum(access, "root", 1) == 2.0
    values = {"a": 1, "b": 1}

    def add_up(segments: int) -> float:
        ours = Aggregation("r", 1 / segments, "root", values, LinkMatrix())
        return aggregate(Network(access), ours, values, segments=segments)[0]

    assert 2.0 * (1 - 1e-9) < add_up(8) < add_up(1)


def test_a_bound_without_whole_copies_would_say_less():
    # The control: sharing alone would let the second of two have it at 1.5 s.
    assert bound_receipts(unit(2), "root", 1)[1] == pytest.approx(2.0)
