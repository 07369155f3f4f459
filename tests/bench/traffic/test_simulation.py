"""The network without wires: what is shared, what changes, what it takes to begin."""

from __future__ import annotations

import math

import pytest

from bench.traffic.simulation import Network
from bench.traffic.trees import Access
from stoilo.learn.traffic.distribution import Transfer
from stoilo.learn.traffic.links import Term

Ends = dict[tuple[str, str], float]


def start(network: Network, *pairs: tuple[str, str], size: float = 100.0) -> Ends:
    """Begin flows; the result fills with the times of their ends."""
    ends: Ends = {}
    for number, pair in enumerate(pairs):
        what = Transfer(Term(1), "v", number, *pair)
        network.send(what, size, lambda p=pair: ends.setdefault(p, network.now))
    return ends


def run(network: Network, ends: Ends, count: int) -> Ends:
    network.run(lambda: len(ends) == count)
    return ends


def lines(**rates: tuple[float, float]) -> Network:
    return Network({node: Access(*rate) for node, rate in rates.items()})


def test_directions_of_a_line_are_apart():
    network = lines(a=(10.0, 50.0), b=(20.0, 100.0))
    ends = run(network, start(network, ("a", "b"), ("b", "a")), 2)
    assert ends == pytest.approx({("a", "b"): 10.0, ("b", "a"): 5.0})


def test_what_a_slow_receiver_leaves_goes_to_the_others():
    network = lines(a=(30.0, 1.0), b=(1.0, 5.0), c=(1.0, 100.0))
    ends = run(network, start(network, ("a", "b"), ("a", "c")), 2)
    assert ends == pytest.approx({("a", "c"): 4.0, ("a", "b"): 20.0})


def test_a_flow_that_ends_leaves_its_share():
    network = lines(a=(20.0, 1.0), b=(1.0, 99.0), c=(1.0, 99.0))
    short, long = start(network, ("a", "b"), size=50.0), start(network, ("a", "c"))
    network.run(lambda: bool(long))
    # Half each for 5 s; what is left of the second then has all.
    assert short | long == pytest.approx({("a", "b"): 5.0, ("a", "c"): 7.5})


def test_a_rate_that_changes_counts_from_then_on():
    network = lines(a=(10.0, 1.0), b=(1.0, 10.0))
    ends = start(network, ("a", "b"))
    network.at(5.0, lambda: network.change(access={"a": Access(25.0, 1.0)}))
    network.at(6.0, lambda: network.change(access={"b": Access(1.0, 50.0)}))
    # 50 in the first 5 s, 10 in the sixth, 40 at 25 a second.
    assert run(network, ends, 1) == pytest.approx({("a", "b"): 7.6})


def test_a_single_way_can_be_limited():
    network = lines(a=(10.0, 1.0), b=(1.0, 10.0), c=(1.0, 10.0))
    network.change(limits={("a", "b"): 1.0})
    ends = run(network, start(network, ("a", "b"), ("a", "c")), 2)
    assert ends == pytest.approx({("a", "c"): 100 / 9, ("a", "b"): 100.0})


def test_latency_comes_before_the_first_byte():
    network = Network({"a": Access(10.0, 1.0), "b": Access(1.0, 10.0)}, latency_s=3.0)
    assert run(network, start(network, ("a", "b")), 1) == pytest.approx(
        {("a", "b"): 13.0}
    )


def test_a_flow_that_is_stopped_never_ends():
    network = lines(a=(10.0, 1.0), b=(1.0, 10.0))
    ends = start(network, ("a", "b"))
    network.at(5.0, lambda: network.stop(lambda what: what.receiver == "b"))
    network.run(lambda: False)
    assert not ends
    assert network.now < math.inf
