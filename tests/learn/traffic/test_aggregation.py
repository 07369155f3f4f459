"""Sums: three seconds for six, and each contribution once, whatever happens."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.learn_traffic import SIZE, draw_access, name_workers
from stoilo.learn.traffic.aggregation import Aggregation, Holder, Order
from stoilo.learn.traffic.links import LinkMatrix, Term
from stoilo.learn.traffic.simulation import Network, PlayedAggregation, Ways, aggregate
from stoilo.learn.traffic.trees import Access
from tests.support.wildround import ROOT, Careless, WildRound


def tallies(workers: list[str]) -> dict[str, Counter[str]]:
    return {node: Counter({node: 1}) for node in workers}


def play(workers: int, seed: int = 0, ways=None) -> PlayedAggregation:
    names = name_workers(workers)
    network = Network(draw_access(workers, seed), latency_s=0.01)
    schedule = Aggregation("r", SIZE, ROOT, names, LinkMatrix(), lease_s=60.0)
    return PlayedAggregation(network, schedule, tallies(names), ways)


def run(played: PlayedAggregation) -> Counter[str]:
    played.network.run(lambda: played.schedule.done)
    assert played.schedule.done
    return played.total or Counter()


def test_six_of_unit_bandwidth_take_three_seconds():
    unit = {node: Access(1.0, 1.0) for node in [ROOT, *name_workers(6)]}
    schedule = Aggregation("r", 1, ROOT, name_workers(6), LinkMatrix())
    took, total = aggregate(Network(unit), schedule, tallies(name_workers(6)))
    assert took == pytest.approx(3.0)
    assert total == Counter(name_workers(6))


@pytest.mark.parametrize("workers", range(1, 30))
def test_each_contribution_counts_once(workers: int):
    for seed in range(5):
        assert run(play(workers, seed)) == Counter(name_workers(workers))


@pytest.mark.parametrize("workers", range(1, 30))
def test_the_living_count_once_when_one_dies(workers: int):
    for seed in range(5):
        played, chance = play(workers, seed), Random(seed)
        victim = chance.choice(name_workers(workers))
        played.network.at(
            chance.uniform(0.0, 20.0), lambda v=victim, p=played: p.kill(v)
        )
        total = run(played)
        assert set(total) >= set(name_workers(workers)) - {victim}
        assert set(total.values()) <= {1}
        assert played.schedule.missing <= {victim}


def instants(workers: int) -> list[float]:
    """Return times before, at and after each event of an undisturbed round."""
    played, times = play(workers), [0.0]
    while not played.schedule.done:
        played.network.run(lambda: played.network.now > times[-1])
        times.append(played.network.now)
    return [t + off for t in times for off in (-1e-4, 0.0, 1e-4) if t + off >= 0.0]


@pytest.mark.parametrize("workers", range(1, 8))
def test_a_death_in_any_state_loses_nobody_elses(workers: int):
    for when in instants(workers):
        for victim in name_workers(workers):
            played = play(workers)
            played.network.at(when, lambda v=victim, p=played: p.kill(v))
            total = run(played)
            assert set(total) >= set(name_workers(workers)) - {victim}
            assert set(total.values()) <= {1}


def test_what_a_dead_aggregator_had_is_asked_for_again():
    # w0 -> w1 is over, w1 dies before it goes on: w0 still has its own.
    schedule = Aggregation("r", 1, ROOT, ["w0", "w1"], LinkMatrix())
    schedule.ready("w0", [frozenset({"w0"})], 0.0)
    (order,) = schedule.ready("w1", [frozenset({"w1"})], 0.0)
    both = [frozenset({"w0", "w1"}), frozenset({order.receiver})]
    schedule.finished(order, 1.0, both, 1.0)
    schedule.gone(order.receiver, 2.0)
    (again,) = schedule.ready(ROOT, [], 3.0)
    assert (again.sender, again.part) == (order.sender, frozenset({order.sender}))
    assert schedule.missing == {order.receiver}


def test_a_stalled_node_is_named_and_the_others_end():
    played = play(6, ways={"w3": Ways(stalls=True)})
    assert run(played) == Counter(set(name_workers(6)) - {"w3"})
    assert played.schedule.missing == {"w3"}
    assert played.schedule.links.named() == {"w3": ["stalled"]}


def test_a_round_waits_for_those_who_are_not_ready():
    schedule = Aggregation("r", 1, ROOT, ["w0", "w1"], LinkMatrix())
    schedule.ready(ROOT, [], 0.0)
    (order,) = schedule.ready("w0", [frozenset({"w0"})], 0.0)
    schedule.finished(order, 1.0, [frozenset({"w0"})], 1.0)
    assert not schedule.done
    assert schedule.missing == {"w1"}
    schedule.gone("w1", 2.0)
    assert schedule.done


def test_the_faster_way_counts():
    links = LinkMatrix()
    links.hear(0, ("w0", "w1"), 100, got_s=1.0)
    links.hear(1, ("w1", "w0"), 100, got_s=2.0)
    schedule = Aggregation("r", 1, ROOT, ["w0", "w1"], links)
    schedule.ready("w1", [frozenset({"w1"})], 0.0)
    (order,) = schedule.ready("w0", [frozenset({"w0"})], 0.0)
    assert (order.sender, order.receiver) == ("w0", "w1")


def test_the_same_order_twice_adds_once():
    holder = Holder("w0", Counter("a"))
    order = Order(Term(1), "r", 0, "w1", "w0", frozenset({"w1"}))
    assert holder.take(order, Counter("b"))
    assert holder.take(order, Counter("b"))
    assert holder.total == Counter("ab")


def test_a_node_adds_nothing_that_it_has():
    holder = Holder("w0", Counter("a"))
    holder.take(Order(Term(1), "r", 0, "w1", "w0", frozenset({"w1"})), Counter("b"))
    second = Order(Term(1), "r", 1, "w2", "w0", frozenset({"w1", "w2"}))
    assert not holder.take(second, Counter("bc"))
    assert holder.total == Counter("ab")


def test_a_node_begins_afresh_where_its_sum_is_of_no_use():
    holder = Holder("w0", Counter("a"))
    holder.take(Order(Term(1), "r", 0, "w1", "w0", frozenset({"w1"})), Counter("b"))
    order = Order(Term(1), "r", 1, "w2", "w0", frozenset({"w1", "w2"}), afresh=True)
    assert holder.take(order, Counter("bc"))
    assert holder.total == Counter("abc")


def disturb(chance: Random, workers: int, kind=Holder) -> WildRound:
    """Play a round in which everything happens, until it is over."""
    wild = WildRound(workers, chance, kind)
    for _ in range(chance.randrange(120)):
        what = chance.random()
        if what < 0.02:
            wild.start_coordinator()
        elif what < 0.04 and workers > 1:
            wild.kill(chance.choice(wild.workers))
        wild.step()
    wild.settle()
    return wild


@given(st.integers(0, 2**32), st.integers(1, 9))
def test_whatever_is_lost_doubled_or_restarted_each_counts_once(
    seed: int, workers: int
):
    wild = disturb(Random(seed), workers)
    total = wild.nodes[ROOT].total or Counter()
    assert set(total.values()) <= {1}
    assert set(total) == wild.nodes[ROOT].ids
    assert set(total) >= set(wild.nodes) - {ROOT}


def test_without_the_ledger_some_would_count_twice():
    rounds = (disturb(Random(seed), 6, Careless) for seed in range(30))
    totals = [wild.nodes[ROOT].total or Counter() for wild in rounds]
    assert any(max(total.values(), default=0) > 1 for total in totals)
