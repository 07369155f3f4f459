import math

import pytest

from stoilo.core.errors import TrustError
from stoilo.learn.traffic import wire
from stoilo.learn.traffic.links import FASTEST, MEMORY
from stoilo.learn.traffic.reach import MOST_RATES, Reach

NET, URLS = "203.0.113.0/24", {"n1": "https://n1/", "n2": "https://n2/", "n3": ""}


def rates(reach, named=None):
    return reach.locate(URLS, [], named or {}).rates


def heard(*downloads, node="n1"):
    reach = Reach()
    for one in downloads:
        reach.hear(node, wire.Reached({NET: one}))
    return reach


def test_newest_download_of_a_network_is_its_rate():
    assert rates(heard((100, 1.0), (100, 4.0))) == [("n1", NET, 25.0)]


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_time_that_cannot_be_says_nothing(seconds):
    assert rates(heard((100, seconds))) == []


def test_claim_faster_than_any_network_is_cut():
    assert rates(heard((10**9, 1e-300))) == [("n1", NET, FASTEST)]


def test_rate_is_forgotten_after_some_versions():
    reach = heard((100, 1.0))
    reach.advance(MEMORY)
    assert rates(reach)
    reach.advance(MEMORY + 1)
    assert rates(reach) == []


def test_oldest_words_go_when_there_are_too_many():
    reach = heard((100, 1.0))
    for number in range(MOST_RATES):
        reach.hear("n2", wire.Reached({str(number): (1, 1.0)}))
    assert len(rates(reach)) == MOST_RATES
    assert not [one for one in rates(reach) if one[0] == "n1"]


def test_rates_of_a_named_node_do_not_count_and_wrong_bytes_take_it_out():
    reach = heard((100, 1.0))
    assert rates(reach, {"n1": ["rates"]}) == []
    assert "n1" in reach.locate(URLS, [], {"n1": ["rates"]}).urls
    assert reach.locate(URLS, [], {"n1": ["bytes"]}).urls == {"n2": "https://n2/"}


@pytest.mark.parametrize(
    "downloads",
    [
        {NET: (-1, 1.0)},
        {NET: (wire.MOST_ITEM + 1, 1.0)},
        {"x" * (wire.MOST_TEXT + 1): (1, 1.0)},
        {str(number): (1, 1.0) for number in range(wire.MOST_NETWORKS + 1)},
    ],
)
def test_report_that_no_honest_node_makes_is_refused(downloads):
    with pytest.raises(TrustError, match="STO-T038"):
        wire.Reached(downloads)
