"""Who shares the hosts with whom: fair by share, by age within one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from engine_bench import EmbeddedBench
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.engine import EngineOptions
from stoilo.server.engines.embedded.workunits import ranks
from stoilo.server.engines.embedded.workunits.ranks import Ranks
from tests.support.engine import make_spec

ONCE = Redundancy(
    min_quorum=1, target_results=1, max_error=1, max_total=2, max_success=1
)
ROOM = 8  # results a call, by lot among the 64 whose turn it is


def spec_of(name, share="", weight=1, app="pure", flop=1e9):
    made = make_spec(name, redundancy=ONCE, app=app)
    return replace(made, share=share, weight=weight, fpops_est=flop)


class Sent:
    """What a row says of a result that went out."""

    def __init__(self, app, rank):
        self.wu_app, self.rank = app, rank


def serve(order, count):
    """Send the `count` lowest of (rank, share) and return whose they were."""
    places, waiting = order
    gone = sorted(waiting)[:count]
    for one in gone:
        waiting.remove(one)
        places.note_sent([Sent("pure", one[0])])
    return [share for _, share in gone]


def queue(*shares, weights=None):
    """Return ranks, and what waits after one workunit of each of `shares` in turn."""
    places, waiting = Ranks(), []
    for share in shares:
        weight = (weights or {}).get(share, 1)
        waiting.append((places.place(spec_of("w", share, weight)), share))
    return places, waiting


def test_one_share_goes_by_age():
    places = Ranks()
    found = [places.place(spec_of(str(n))) for n in range(9)]
    assert found == sorted(set(found))


def test_newcomer_stands_beside_the_others_and_not_behind_all_of_them():
    order = queue(*"a" * 100)
    assert serve(order, 30) == ["a"] * 30
    places, waiting = order
    waiting += [(places.place(spec_of("w", "b")), "b") for _ in range(10)]
    assert sorted(serve(order, 20)).count("b") in {9, 10}


def test_who_was_idle_gets_nothing_for_it():
    order = queue("b", *"a" * 100)
    serve(order, 80)
    places, waiting = order
    waiting += [(places.place(spec_of("w", "b")), "b") for _ in range(40)]
    assert serve(order, 20).count("a") in {9, 10, 11}


def test_weights_are_proportions():
    order = queue(*"ab" * 300, weights={"a": 3})
    assert serve(order, 200).count("a") == pytest.approx(150, abs=2)


def test_long_work_counts_for_more():
    places = Ranks()
    waiting = [(places.place(spec_of("w", "a", flop=4e9)), "a") for _ in range(99)]
    waiting += [(places.place(spec_of("w", "b", flop=1e9)), "b") for _ in range(99)]
    assert serve((places, waiting), 50).count("b") == pytest.approx(40, abs=2)


def test_shares_of_one_app_do_not_wait_for_another():
    places = Ranks()
    far = [places.place(spec_of("w", "a", app="numeric")) for _ in range(1000)]
    places.note_sent([Sent("numeric", far[-1])])
    assert places.place(spec_of("w", "a")) == 0


def test_shares_that_are_behind_are_forgotten_and_lose_nothing(monkeypatch):
    monkeypatch.setattr(ranks, "SHARES_KEPT", 10)
    places = Ranks()
    ahead = [places.place(spec_of("w", "ahead")) for _ in range(50)]
    places.note_sent([Sent("pure", ahead[5])])
    for number in range(100):
        places.place(spec_of("w", f"s{number}"))
        places.note_sent([Sent("pure", ahead[6 + number % 2])])
    assert places.place(spec_of("w", "ahead")) > ahead[-1]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(1, 1e18)), max_size=50),
    st.integers(1, 1000),
)
def test_ranks_of_a_share_grow_whatever_work_costs(asked, weight):
    places, last = Ranks(), {}
    for share, flop in asked:
        rank = places.place(replace(spec_of("w", share, weight), fpops_est=flop))
        assert 0 <= rank < 2**62
        assert rank > last.get(share, -1)
        last[share] = rank


def bench_of(tmp_path, clock, seed):
    options = EngineOptions(lots=random.Random(seed).random)
    return EmbeddedBench(tmp_path / "engine", clock, options)


def create(bench, share, count, name=""):
    specs = [spec_of(f"{name or share}_{n}", share) for n in range(count)]
    bench.engine.create_workunits(specs)


def sent(bench, calls, first_user=100):
    """Return whose results go to so many hosts of their own accounts."""
    return [
        name.partition("_")[0]
        for user in range(first_user, first_user + calls)
        for name in bench.fetch(user, room=ROOM)
    ]


@pytest.mark.parametrize(
    ("seed", "restarted"), [*((seed, False) for seed in range(5)), (0, True)]
)
def test_late_share_is_served_beside_the_long_queue_of_another(
    tmp_path, clock, seed, *, restarted
):
    bench = bench_of(tmp_path, clock, seed)
    create(bench, "a", 200)
    assert set(sent(bench, 3)) == {"a"}
    if restarted:
        bench.restart()
    create(bench, "b", 20)
    found = sent(bench, 10, 200)
    assert len(found) == 10 * ROOM
    assert found.count("b") >= 12  # some may stay behind by lot
    bench.engine.close()


def test_late_work_of_the_same_share_waits_its_turn(tmp_path, clock):
    """The control: without shares the late ones stand behind all that wait."""
    bench = bench_of(tmp_path, clock, 0)
    create(bench, "a", 200)
    sent(bench, 3)
    create(bench, "a", 20, name="late")
    assert "late" not in sent(bench, 10, 200)
    bench.engine.close()
