"""Live: each node in a network of its own, behind token buckets in both directions."""

import signal
from statistics import fmean

import pytest

from tests.support.traffic import (
    FORGED,
    LYING,
    Network,
    Site,
    find_obstacle,
    wait_for,
)

pytestmark = pytest.mark.slow
NODES, MODEL = 12, 16 << 20
SEEDS = range(2)


@pytest.fixture(scope="module", autouse=True)
def networks():
    if why := find_obstacle():
        pytest.skip(why)


def test_version_and_sum_beat_star_and_tree(tmp_path):
    """Ours counts from the third version on: before, most links are unknown."""
    spread, added = ({plan: [] for plan in ("star", "tree", "ours")} for _ in "12")
    for seed in SEEDS:
        with Network.draw(NODES, seed) as network:
            for plan in spread:
                with Site(tmp_path / f"{plan}{seed}", network, plan) as site:
                    rounds = range(1, 6 if plan == "ours" else 2)
                    times = [site.spread(n, MODEL) for n in rounds]
                    print(f"\n{seed} {plan}: {times}", end="")
                    spread[plan].append(fmean(times[2:] or times))
                    added[plan].append(fmean(site.add_up(n, MODEL) for n in rounds[:2]))
    print(f"\nmean receipt, s: {spread}\nuntil the root has the sum, s: {added}")
    mean = {plan: fmean(times) for plan, times in spread.items()}
    # .29 on a machine at rest (the bench's affair); this one may be busy
    assert mean["ours"] <= 0.45 * mean["star"]
    assert mean["ours"] < mean["tree"]
    # Processor time bounds it here: 0.37 of the star beside three busy processes.
    assert fmean(added["ours"]) <= 0.7 * fmean(added["star"])
    assert fmean(added["ours"]) < fmean(added["tree"])


def test_those_at_fault_are_named_and_the_others_finish(tmp_path):
    at_fault = {"n1": FORGED, "n2": LYING}
    with (
        Network.draw(NODES, 1) as network,
        Site(tmp_path, network, kinds=at_fault) as site,
    ):

        def show():
            return site.coordinator.show()

        def stop_two():
            wait_for(lambda: len(site.holders(1)) > 2)
            site.nodes.signal("n3", signal.SIGSTOP)
            site.nodes.signal("n4", signal.SIGKILL)

        site.spread(1, MODEL, but=("n3", "n4"), meanwhile=stop_two)
        for number in range(2, 12):
            if {"n1", "n2"} <= {*show().named}:
                break
            site.spread(number, MODEL, but=("n1", "n3", "n4"))
        assert show().named == {"n1": ["bytes"], "n2": ["rates"]}
        left = [event.node for event in show().events if event.what == "left"]
        assert sorted(left) == ["n3", "n4"]
