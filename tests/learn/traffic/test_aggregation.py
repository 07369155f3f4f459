"""Sums: three seconds for six, and each contribution once, whatever happens."""

from __future__ import annotations

from collections import Counter
from random import Random
from statistics import fmean

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench.learn_traffic import SIZE, draw_access, name_workers, time_aggregation
from bench.traffic.simulation import (
    Holder,
    Network,
    PlayedAggregation,
    Ways,
    aggregate,
)
from bench.traffic.trees import Access
from stoilo.learn.traffic.aggregation import ABREAST, Aggregation
from stoilo.learn.traffic.ledger import Order
from stoilo.learn.traffic.links import LinkMatrix, Term
from tests.support.wildround import ROOT, Careless, WildRound

SEGMENTS = (1, 1, 1, 4)  # of four rounds' vectors


def tallies(workers: list[str]) -> dict[str, Counter[str]]:
    return {node: Counter({node: 1}) for node in workers}


def play(
    workers: int, seed: int = 0, ways=None, segments: int = 1
) -> PlayedAggregation:
    names = name_workers(workers)
    network = Network(draw_access(workers, seed), latency_s=0.01)
    size = SIZE // segments
    schedule = Aggregation("r", size, ROOT, names, LinkMatrix(), lease_s=60.0)
    return PlayedAggregation(network, schedule, tallies(names), ways, segments)


def run(played: PlayedAggregation) -> Counter[str]:
    played.network.run(lambda: played.schedule.done)
    assert played.schedule.done
    return played.total or Counter()


def find_missing(schedule: Aggregation) -> frozenset[str]:
    """Return whose contribution nobody who is there has whole."""
    held = (one.held for one in schedule.ledgers.values())
    return frozenset(schedule.workers) - frozenset.intersection(*held)


def test_six_of_unit_bandwidth_take_three_seconds():
    unit = {node: Access(1.0, 1.0) for node in [ROOT, *name_workers(6)]}
    schedule = Aggregation("r", 1, ROOT, name_workers(6), LinkMatrix())
    took, total = aggregate(Network(unit), schedule, tallies(name_workers(6)))
    assert took == pytest.approx(3.0)
    assert total == Counter(name_workers(6))


@pytest.mark.parametrize("workers", range(1, 30))
def test_each_contribution_counts_once(workers: int):
    for seed, segments in enumerate(SEGMENTS):
        played = play(workers, seed, segments=segments)
        assert run(played) == Counter(name_workers(workers))


@pytest.mark.parametrize("workers", range(1, 30))
def test_the_living_count_once_when_one_dies(workers: int):
    for seed, segments in enumerate(SEGMENTS):
        played, chance = play(workers, seed, segments=segments), Random(seed)
        victim = chance.choice(name_workers(workers))
        played.network.at(
            chance.uniform(0.0, 20.0), lambda v=victim, p=played: p.kill(v)
        )
        total = run(played)
        assert set(total) >= set(name_workers(workers)) - {victim}
        assert set(total.values()) <= {1}
        assert find_missing(played.schedule) <= {victim}


def instants(workers: int, segments: int) -> list[float]:
    """Return times before, at and after each event of an undisturbed round."""
    played, times = play(workers, segments=segments), [0.0]
    while not played.schedule.done:
        played.network.run(lambda: played.network.now > times[-1])
        times.append(played.network.now)
    return [t + off for t in times for off in (-1e-4, 0.0, 1e-4) if t + off >= 0.0]


@pytest.mark.parametrize(
    ("workers", "segments"), [*((n, 1) for n in range(1, 8)), (2, 3), (3, 3)]
)
def test_a_death_in_any_state_loses_nobody_elses(workers: int, segments: int):
    for when in instants(workers, segments):
        for victim in name_workers(workers):
            played = play(workers, segments=segments)
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
    assert find_missing(schedule) == {order.receiver}


@pytest.mark.parametrize("segments", [1, 4])
def test_a_stalled_node_is_named_and_the_others_end(segments: int):
    played = play(6, ways={"w3": Ways(stalls=True)}, segments=segments)
    assert run(played) == Counter(set(name_workers(6)) - {"w3"})
    assert find_missing(played.schedule) == {"w3"}
    assert played.schedule.links.named() == {"w3": ["stalled"]}


def test_a_round_waits_for_those_who_are_not_ready():
    schedule = Aggregation("r", 1, ROOT, ["w0", "w1"], LinkMatrix())
    schedule.ready(ROOT, [], 0.0)
    (order,) = schedule.ready("w0", [frozenset({"w0"})], 0.0)
    schedule.finished(order, 1.0, [frozenset({"w0"})], 1.0)
    assert not schedule.done
    assert find_missing(schedule) == {"w1"}
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


def begin(*workers: str, segments: int = 1) -> tuple[Aggregation, list[Order]]:
    """Return a round in which all are ready, the root last, and its first orders."""
    schedule = Aggregation("r", 1, ROOT, workers, LinkMatrix())
    orders = []
    for node in (*workers, ROOT):
        parts = [] if node == ROOT else [frozenset({node})]
        for segment in range(segments):
            orders += schedule.ready(node, parts, 0.0, segment)
    return schedule, orders


def test_a_node_sends_one_segment_while_two_come():
    _, orders = begin("w0", "w1", "w2", "w3", segments=6)
    sends, takes = (
        Counter(getattr(o, way) for o in orders) for way in ("sender", "receiver")
    )
    assert {*sends.values()} == {1}
    assert max(takes.values()) == ABREAST
    assert sends.keys() & takes.keys()


def test_nobody_has_two_orders_of_one_segment():
    _, orders = begin(*name_workers(9), segments=3)
    for segment in range(3):
        ends = Counter(
            n for o in orders if o.segment == segment for n in (o.sender, o.receiver)
        )
        assert {*ends.values()} == {1}


def test_the_root_takes_what_is_left_over():
    assert [o.receiver for o in begin("w0", "w1", "w2")[1]] == ["w1", ROOT]


def test_two_that_failed_try_others_before_each_other():
    schedule, (failed, other) = begin("w0", "w1", "w2", "w3")
    (again,) = schedule.lost(failed, 1.0, fault=False)
    assert (again.sender, again.receiver) == (failed.sender, ROOT)
    assert {*schedule.open} == {other, again}


def test_what_died_with_its_node_in_one_segment_goes_on_in_none():
    # w0's first segment is at the root when it dies, its second nowhere else.
    schedule = Aggregation("r", 1, ROOT, ["w0", "w1"], LinkMatrix())
    schedule.ready(ROOT, [], 0.0)
    orders = [*schedule.ready("w0", [frozenset({"w0"})], 0.0)]
    schedule.ready("w0", [frozenset({"w0"})], 0.0, 1)
    schedule.finished(orders[0], 1.0, [frozenset({"w0"})], 1.0)
    schedule.gone("w0", 2.0)
    (order,) = schedule.ready("w1", [frozenset({"w1"})], 3.0)
    assert (order.receiver, order.afresh, order.part) == (ROOT, True, {"w1"})
    assert schedule.arrived == set()


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


def disturb(chance: Random, workers: int, kind=Holder, segments: int = 1) -> WildRound:
    """Play a round in which everything happens, until it is over."""
    wild = WildRound(workers, chance, kind, segments)
    for _ in range(chance.randrange(120)):
        what = chance.random()
        if what < 0.02:
            wild.start_coordinator()
        elif what < 0.04 and workers > 1:
            wild.kill(chance.choice(wild.workers))
        wild.step()
    wild.settle()
    return wild


@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 3))
@example(2**32 - 1, 2, 2)  # all die, and one segment of them is at the root: torn
def test_whatever_is_lost_doubled_or_restarted_each_counts_once(
    seed: int, workers: int, segments: int
):
    wild = disturb(Random(seed), workers, segments=segments)
    newest = wild.coordinators[-1]
    assert newest.arrived >= set(wild.nodes) - {ROOT}
    for segment, held in enumerate(wild.nodes[ROOT]):
        total = held.total or Counter()
        assert set(total.values()) <= {1}
        assert set(total) == held.ids
        # What is torn is nobody's sum, whole or in part
        assert held.ids == newest.arrived or held.ids & newest.ledgers[segment].torn


def test_without_the_ledger_some_would_count_twice():
    rounds = (disturb(Random(seed), 6, Careless) for seed in range(30))
    totals = [wild.nodes[ROOT][0].total or Counter() for wild in rounds]
    assert any(max(total.values(), default=0) > 1 for total in totals)


def test_a_sum_takes_less_than_a_third_of_the_stars_time():
    times = [time_aggregation(draw_access(12, seed), rounds=1) for seed in range(20)]
    ours, star, tree = (
        fmean(getattr(t, n) for t in times) for n in ("first", "star", "tree")
    )
    assert ours <= 0.30 * star
    assert ours <= 0.65 * tree


def test_whole_vectors_are_what_segments_gain_over():
    # The control: the same rule with one segment.
    values = dict.fromkeys(name_workers(12), 1)
    found = {1: 0.0, 8: 0.0}
    for seed in range(5):
        for segments in found:
            schedule = Aggregation("r", SIZE // segments, ROOT, values, LinkMatrix())
            network = Network(draw_access(12, seed))
            found[segments] += aggregate(network, schedule, values, None, segments)[0]
    assert found[8] <= 0.6 * found[1]
