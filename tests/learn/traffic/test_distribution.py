"""Versions: one receipt each, whoever lies, stalls or vanishes; links learnt and forgotten."""

from __future__ import annotations

import statistics
from collections import Counter
from random import Random

import pytest

from bench.learn_traffic import MBIT, SIZE, draw_access, name_workers, time_distribution
from bench.traffic.simulation import (
    Network,
    PlayedDistribution,
    Ways,
    distribute,
)
from bench.traffic.trees import Access
from stoilo.learn.traffic.distribution import (
    Distribution,
    Done,
    Give,
    Sent,
    Transfer,
    Wait,
)
from stoilo.learn.traffic.links import LinkMatrix, Term

SIX, TWELVE = name_workers(6), name_workers(12)


def make(nodes, links=None, seed: int = 0, **options) -> Distribution:
    links = LinkMatrix() if links is None else links
    return Distribution(
        options.pop("version", "v"), SIZE, "root", nodes, links, Random(seed), **options
    )


def give(schedule: Distribution, node: str, now: float = 0.0) -> Transfer:
    reply = schedule.ask(node, now)
    assert isinstance(reply, Give)
    return reply.transfer


@pytest.mark.parametrize("seed", range(20))
def test_six_of_unit_bandwidth_have_it_after_1_2_2_3_3_3(seed: int):
    unit = {node: Access(1.0, 1.0) for node in ["root", *SIX]}
    schedule = Distribution("v", 1, "root", SIX, LinkMatrix(), Random(seed))
    times = sorted(distribute(Network(unit), schedule).values())
    assert times == pytest.approx([1, 2, 2, 3, 3, 3])
    assert statistics.fmean(times) == pytest.approx(7 / 3)


def test_twelve_are_served_in_a_third_of_a_stars_time_and_less_than_a_trees():
    times = [time_distribution(draw_access(12, seed), seed) for seed in range(20)]
    ours, star, tree, first, bound = (
        statistics.fmean(getattr(one, name) for one in times)
        for name in ("ours", "star", "tree", "first", "bound")
    )
    assert ours <= 0.35 * star
    assert ours <= 0.8 * tree
    assert ours <= first
    assert bound <= ours


def test_without_memory_later_rounds_are_no_faster():
    nets = [(draw_access(12, seed), seed) for seed in range(20)]
    times = [time_distribution(net, seed, memory=-1) for net, seed in nets]
    learnt = [time_distribution(net, seed) for net, seed in nets]
    mean = statistics.fmean(one.ours for one in times)
    assert mean > 0.97 * statistics.fmean(one.first for one in times)
    assert mean > 1.05 * statistics.fmean(one.ours for one in learnt)


@pytest.mark.parametrize("seed", range(5))
def test_each_node_receives_each_of_two_overlapping_versions_once(seed: int):
    network, links = Network(draw_access(12, seed), latency_s=0.01), LinkMatrix()
    plays = [
        PlayedDistribution(network, make(TWELVE, links, seed, version=v, iteration=i))
        for i, v in enumerate(("v1", "v2"))
    ]
    network.run(lambda: all(one.schedule.done for one in plays))
    for one in plays:
        assert Counter(t.receiver for t in one.given) == Counter(TWELVE)
        assert {t.version for t in one.given} == {one.schedule.version}


def test_a_report_of_another_version_is_none():
    schedule = make(["a"])
    transfer = give(schedule, "root")
    other = Transfer(Term(1), "w", transfer.number, "root", "a")
    schedule.received(other, 1.0, "w", 1.0)
    assert not schedule.done
    schedule.received(transfer, 1.0, "v", 1.0)
    assert schedule.done


def test_who_asks_again_gets_the_same_and_others_wait():
    schedule = make(["a"])
    transfer = give(schedule, "root")
    assert give(schedule, "root", 1.0) == transfer
    assert schedule.ask("a", 1.0) == Wait()
    schedule.received(transfer, 1.0, "v", 2.0)
    assert schedule.ask("root", 2.0, Sent(transfer, 1.0)) == Done()


def test_a_transfer_that_does_not_end_is_somebody_elses():
    schedule = make(["a", "b"], lease_s=10.0)
    first = give(schedule, "root")
    assert not schedule.expire(9.0)
    assert schedule.expire(10.0) == [first]
    assert give(schedule, "root", 10.0).receiver != first.receiver


def test_a_late_receipt_counts_and_ends_the_second_transfer():
    schedule = make(["a"], lease_s=10.0)
    first = give(schedule, "root")
    schedule.expire(10.0)
    give(schedule, "root", 11.0)
    schedule.received(first, 12.0, "v", 12.0)
    assert schedule.done
    assert not schedule.open


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("ways", "faults"),
    [
        (Ways(wrong=True), ["bytes"]),
        (Ways(stalls=True), ["stalled"]),
        (Ways(says=0.01), ["rates"]),
    ],
)
def test_whatever_one_node_does_the_others_end_and_it_is_named(
    seed: int, ways: Ways, faults: list[str]
):
    network, links = Network(draw_access(12, seed)), LinkMatrix()
    for number in range(8):
        schedule = make(TWELVE, links, seed, version=f"v{number}", iteration=number)
        served = distribute(network, schedule, {"w3": ways})
        assert set(served) >= set(TWELVE) - {"w3"}
        if "w3" in links.named():
            break
    assert links.named() == {"w3": faults}


@pytest.mark.parametrize("seed", range(5))
def test_a_lie_of_any_size_costs_the_others_little(seed: int):
    for says in (0.01, 100.0):
        means = []
        for ways in ({}, {"w3": Ways(says=says)}):
            network, links = Network(draw_access(12, seed)), LinkMatrix()
            for number in range(10):
                schedule = make(
                    TWELVE, links, seed, version=f"{number}", iteration=number
                )
                means.append(
                    statistics.fmean(distribute(network, schedule, ways).values())
                )
        honest, lied = statistics.fmean(means[:10]), statistics.fmean(means[10:])
        assert lied < 1.2 * honest


@pytest.mark.parametrize("seed", range(5))
def test_the_others_end_when_one_vanishes_at_any_time(seed: int):
    for when in (0.0, 1.0, 5.0, 10.0, 15.0):
        for victim in TWELVE:
            network = Network(draw_access(12, seed))
            play = PlayedDistribution(network, make(TWELVE, seed=seed))
            network.at(when, lambda p=play, v=victim: p.kill(v))
            network.run(lambda p=play: p.schedule.done)
            assert {*play.schedule.holders, victim} == {"root", *TWELVE}


def test_the_only_holder_sends_even_when_it_is_named():
    schedule = make(["a", "b", "c"], lease_s=1.0)
    for now in (0.0, 1.0):
        give(schedule, "root", now)
        schedule.expire(now + 1.0)
    assert "root" in schedule.links.named()
    assert isinstance(schedule.ask("root", 3.0), Give)


def test_who_refuses_what_several_send_is_given_up():
    schedule = make(["a"])
    schedule.restore("b", 0.0, has=True)
    for sender in ("root", "b"):
        transfer = give(schedule, sender, 1.0)
        schedule.received(transfer, 1.0, "something else", 2.0)
    assert schedule.out == {"a"}
    assert schedule.done


def test_after_a_restart_agents_say_what_they_have():
    before = make([*SIX], lease_s=60.0)
    going = give(before, "root")
    after = make([*SIX], term=Term(2, "again"))
    after.restore("root", 5.0, has=True)
    after.restore("w9", 5.0, has=True)
    assert give(after, "root", 6.0).term == Term(2, "again")
    assert give(after, "w9", 6.0).sender == "w9"
    after.received(going, 5.0, "v", 7.0)  # that was ordered before
    assert going.receiver in after.holders


def test_who_comes_back_without_the_version_gets_it_again():
    schedule = make(["a"])
    schedule.received(give(schedule, "root"), 1.0, "v", 1.0)
    schedule.gone("a", 2.0)
    assert schedule.done
    schedule.restore("a", 3.0, has=False)
    assert give(schedule, "root", 3.0).receiver == "a"


def test_who_says_that_it_has_lost_the_version_gets_it_again():
    schedule = make(["a"])
    schedule.received(give(schedule, "root"), 1.0, "v", 1.0)
    schedule.restore("a", 3.0, has=False)
    assert give(schedule, "root", 3.0).receiver == "a"


class FirstWords(LinkMatrix):
    """The control: for ever what was measured first."""

    def hear(self, transfer, pair, size, **said):
        old = self._links.get(pair)
        if old is None or old.transfer == transfer:
            super().hear(transfer, pair, size, **said)


def cut_a_link(links: LinkMatrix, seed: int) -> tuple[list[bool], list[bool]]:
    """Return in which rounds the most used link was used: while cut, and after."""
    network, chance, used = Network(draw_access(12, seed)), Random(seed), []

    def play(rounds: range) -> list[set[tuple[str, str]]]:
        for number in rounds:
            schedule = Distribution(
                f"v{number}", SIZE, "root", TWELVE, links, chance, iteration=number
            )
            one = PlayedDistribution(network, schedule)
            network.run(lambda s=schedule: s.done)
            used.append({(t.sender, t.receiver) for t in one.given})
        return used[-len(rounds) :]

    recent = play(range(20))[-6:]
    link = Counter(pair for pairs in recent for pair in pairs).most_common(1)[0][0]
    network.change(limits={link: 10 * MBIT})
    cut = [link in pairs for pairs in play(range(20, 50))]
    network.change(limits={link: 455 * MBIT})
    return cut, [link in pairs for pairs in play(range(50, 62))]


def test_a_cut_link_is_avoided_within_six_rounds_and_tried_again_after():
    runs = [cut_a_link(LinkMatrix(), seed) for seed in range(10)]
    # Tried once, and again each time that its rate is forgotten.
    assert statistics.fmean(sum(cut[:6]) for cut, _ in runs) <= 2.0
    assert statistics.fmean(statistics.fmean(cut[6:]) for cut, _ in runs) <= 0.25
    assert all(any(after) for _, after in runs)


def test_a_matrix_that_keeps_its_first_word_never_avoids_it():
    runs = [cut_a_link(FirstWords(None), seed) for seed in range(5)]
    assert statistics.fmean(statistics.fmean(cut) for cut, _ in runs) >= 0.8


def test_a_matrix_that_never_forgets_mostly_does_not_come_back():
    runs = [cut_a_link(LinkMatrix(None), seed) for seed in range(10)]
    assert statistics.fmean(any(after) for _, after in runs) <= 0.6
