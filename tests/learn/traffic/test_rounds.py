"""What regions and their root say to each other; one contract for fake and real nodes."""

import math
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import StoiloError, TrustError, UnreachableError, UsageError
from stoilo.learn.core.orders import Reply
from stoilo.learn.traffic.rounds import (
    Bounded,
    NodeTraffic,
    Round,
    Terms,
    add_up,
    read_round,
    read_sum,
)
from tests.support.regions import Net

LIKE = {"w": np.zeros((2, 3), np.float32), "b": np.zeros(2, np.float32)}
TERMS = Terms(bound=4.0, samples=100)


def answer(value=1.0, samples=10, **more):
    tensors = {name: np.full(a.shape, value, a.dtype) for name, a in LIKE.items()}
    return Reply(0, samples, 2.5, {**tensors, **more})


def sum_of(*replies):
    return add_up(Bounded.of(one, LIKE, TERMS) for one in replies).tobytes()


def read(data, most=100):
    return read_sum(data, LIKE, TERMS, 7, most)


def there(**changes):
    about = {"sizes": (5, 6), "blocks": (4, 4), "shares": {"a": (0,), "b": (1,)}}
    about |= {"seed": 3, "in_order": False, "bound": 4.0, **changes}
    return Round(9, 2, about.pop("step", 1), LIKE, **about)


def test_sum_comes_back_as_an_answer_of_all_samples():
    found = read(sum_of(answer(0.1), answer(0.2), answer(-1.5, 20)))
    assert (found["version"], found["samples"]) == (7, 40)
    assert found["loss_sum"] == pytest.approx(7.5, rel=1e-12)
    assert found["tensors"]["w"] == pytest.approx(np.full((2, 3), -1.2), rel=1e-6)
    assert found["tensors"]["w"].dtype == np.float64


def test_array_that_no_answer_has_stays_away_and_of_others_those_that_have_it_count():
    without = Reply(0, 10, 0.0, {"b": np.ones(2)})
    assert read(sum_of(without, without))["tensors"].keys() == {"b"}
    mixed = read(sum_of(without, answer(0.5)))["tensors"]
    assert (mixed["w"] == 0.5).all()
    assert (mixed["b"] == 1.5).all()


def test_answer_longer_than_the_bound_has_the_bounds_length():
    huge = read(sum_of(answer(1e30, 10)))["tensors"]
    total = math.sqrt(sum(float((a**2).sum()) for a in huge.values()))
    assert total == pytest.approx(4.0 * 10)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_in_no_sum(value):
    with pytest.raises(UsageError, match="STO-T040"):
        Bounded.of(answer(value), LIKE, TERMS)


@pytest.mark.parametrize("unchecked", [{"tensors": {}}, None, LIKE])
def test_only_replies_are_bounded_and_only_what_is_bounded_is_added(unchecked):
    with pytest.raises(AttributeError):
        Bounded.of(unchecked, LIKE, TERMS)
    with pytest.raises(AttributeError):
        add_up([unchecked])
    with pytest.raises(AttributeError):
        add_up([answer()])  # checked, and not bounded


def test_all_samples_at_the_bound_fit():
    one = Reply(0, 50, 1e90, {"b": np.array([200.0, 0.0])})
    found = read(sum_of(one, one))
    assert found["tensors"]["b"][0] == pytest.approx(400.0, rel=1e-12)
    assert found["loss_sum"] == pytest.approx(400.0)


def test_sum_of_more_samples_or_longer_than_checked_answers_is_refused():
    good = np.frombuffer(sum_of(answer()), "<i8")
    for place, value in ((-1, 0), (-1, 101), (0, 1 << 62)):
        bad = good.copy()
        bad[place] = value
        with pytest.raises(TrustError, match="beyond"):
            read(bad.tobytes())


@given(st.binary(max_size=120))
def test_any_bytes_are_a_sum_or_our_error(data):
    try:
        assert 0 < read(data)["samples"] <= 100
    except StoiloError as error:
        assert error.code == "STO-T010"


def test_round_is_the_same_bytes_each_time_and_comes_back():
    found = read_round(there().render())
    assert there().render() == there().render()
    assert found.shares == {"a": (0,), "b": (1,)}
    assert (found.parameters["w"] == LIKE["w"]).all()
    assert [found.count(part) for part in (0, 1)] == [1, 2]
    assert (found.count_of("b"), found.count_of("c")) == (2, 0)
    assert found.terms == Terms(4.0, 3)
    assert not read_round(Round.end(4).render()).sizes


ODD = [
    {"blocks": (4,)},
    {"shares": {"a": (0,), "b": (0, 1)}},
    {"shares": {"a": (0,), "b": (7,)}},
    {"sizes": (5, -6)},
    {"bound": math.nan},
    {"bound": 0.0},
    {"step": -1},
]


@pytest.mark.parametrize("change", ODD)
def test_round_that_makes_no_sense_is_refused(change):
    with pytest.raises(TrustError, match="STO-T011"):
        read_round(there(**change).render())


@given(st.binary(max_size=200))
def test_any_bytes_are_a_round_or_our_error(data):
    with pytest.raises(TrustError):
        read_round(data)


@pytest.fixture(params=["fake", "nodes"])
def nodes(request):
    """Two regions' nodes and the root's, numbers of their own."""
    names = ("root", "n1", "n2")
    if request.param == "fake":
        net = Net()
        return [net.node(name) for name in names]
    settled = request.getfixturevalue("settled")
    return [NodeTraffic(settled.nodes.connection(name)) for name in names]


NUMBERS = iter(range(100, 10_000, 10))
ONE, TWO = (np.full(3, n, "<i8").tobytes() for n in (1, 2))


def test_version_comes_to_all_and_again_is_the_same(nodes):
    root, one, _ = nodes
    number, data = next(NUMBERS), os.urandom(3 << 20)
    for _ in range(3):
        root.give(number, data)
    assert one.collect(number, (), 60.0) == ((), data)


def test_newest_version_comes_to_who_has_missed_some(nodes):
    root, one, _ = nodes
    number = next(NUMBERS)
    for later in range(4):
        root.give(number + later, bytes([later]))
    while (found := one.collect(number, (), 60.0)[1]) != b"\x03":
        assert found in {b"\x00", b"\x01", b"\x02"}  # on its way
    with pytest.raises(UnreachableError):
        one.collect(number + 4, (), 0.05)


def test_sum_of_both_comes_to_the_root_once(nodes):
    root, one, two = nodes
    number = next(NUMBERS)
    one.give(number, ONE, ("n1",))
    one.give(number, ONE, ("n1",))
    two.give(number, TWO, ("n2",))
    ids, data = root.collect(number, ["n1", "n2"], 60.0)
    assert ids == ("n1", "n2")
    assert [*np.frombuffer(data, "<i8")] == [3, 3, 3]


def test_root_that_brings_its_part_last_has_it_in_the_sum(nodes):
    root, one, _ = nodes
    number = next(NUMBERS)
    one.give(number, ONE, ("n1",))
    while collect_or_nothing(root, number, ["n1", "root"])[0] != ("n1",):
        pass
    root.give(number, TWO, ("root",))
    ids, data = root.collect(number, ["n1", "root"], 60.0)
    assert [*ids, *np.frombuffer(data, "<i8")] == ["n1", "root", 3, 3, 3]


def test_trainings_of_different_names_do_not_meet(settled):
    place = settled.nodes.connection("root")
    one, other = (NodeTraffic(place, name) for name in ("one", "other"))
    one.give(number := next(NUMBERS), b"1")
    other.give(number + 1, b"2")
    assert one.collect(number, (), 60.0) == ((), b"1")


def test_what_is_there_in_time_is_given_and_closes_the_round(nodes):
    root, one, _ = nodes
    number = next(NUMBERS)
    one.give(number, ONE, ("n1",))
    found = ((), b"")
    while found[0] != ("n1",):
        found = collect_or_nothing(root, number)
    assert root.collect(number, ["n1"], 60.0) == found == (("n1",), ONE)


def collect_or_nothing(root, number, ids=("n1", "n2")):
    try:
        return root.collect(number, ids, 0.2)
    except UnreachableError:
        return (), b""


def test_round_that_was_collected_is_given_and_collected_again(nodes):
    root, one, two = nodes
    number = next(NUMBERS)
    for _ in range(2):
        one.give(number, ONE, ("n1",))
        two.give(number, TWO, ("n2",))
        ids, data = root.collect(number, ["n1", "n2"], 60.0)
        assert [*ids, *np.frombuffer(data, "<i8")] == ["n1", "n2", 3, 3, 3]


def test_nothing_in_time_says_so(nodes):
    for ids in ((), ["n1"]):
        with pytest.raises(UnreachableError, match="STO-T037"):
            nodes[0].collect(next(NUMBERS), ids, 0.05)
