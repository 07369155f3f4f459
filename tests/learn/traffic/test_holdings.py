import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError, UnreachableError, UsageError
from stoilo.learn.traffic.holdings import Holdings, Kept
from stoilo.learn.traffic.wire import Item
from tests.support.watched import put


@pytest.fixture
def holdings(tmp_path):
    return Holdings(tmp_path)


def numbers(*values):
    return np.array(values, "<i8").tobytes()


def read(holdings, item):
    with holdings.open(item) as file:
        return file.read()


def test_what_was_held_is_held_after_a_restart(holdings, tmp_path):
    item = put(holdings, 1, b"model")
    part = put(holdings, 1, numbers(1), ("a",))
    again = Holdings(tmp_path)
    assert again.list() == [item, part]
    assert read(again, item) == b"model"


def test_a_file_that_is_not_its_digests_is_left_out_after_a_restart(holdings, tmp_path):
    item, other = put(holdings, 1, b"model"), put(holdings, 2, b"another")
    (tmp_path / item.key).write_bytes(b"moddl")
    assert Holdings(tmp_path).list() == [other]


def test_what_was_half_written_is_gone_after_a_restart(tmp_path):
    (tmp_path / "1-1.draft").write_bytes(b"mod")
    (tmp_path / f"{'0' * 64}.note").write_bytes(b"{")
    assert Holdings(tmp_path).list() == []
    assert not list(tmp_path.glob("*.draft"))


def test_sum_of_parts_is_held_beside_them(holdings):
    one = put(holdings, 5, numbers(1, 2), ("a",))
    other = put(holdings, 5, numbers(10, -20), ("b",))
    both = holdings.hold(other, [numbers(10, -20)], one)
    assert both.ids == ("a", "b")
    assert read(holdings, both) == numbers(11, -18)
    assert {*holdings.list()} == {one, other, both}


@pytest.mark.parametrize(
    ("number", "values", "ids"),
    [
        (5, (1, 1), ("a",)),
        (5, (1, 1), ("a", "c")),
        (6, (1, 1), ("c",)),
        (5, (1,), ("c",)),
        (5, (1, 1), ()),
    ],
    ids=["again", "partly again", "another round", "another length", "a version"],
)
def test_parts_that_do_not_fit_are_not_added(holdings, number, values, ids):
    both = put(holdings, 5, numbers(1, 2), ("a", "b"))
    other = put(holdings, number, numbers(*values), ids)
    with pytest.raises(UsageError, match="in common"):
        holdings.hold(other, [numbers(*values)], both)
    assert {*holdings.list()} == {both, other}


def test_sum_too_large_for_its_numbers_is_refused(holdings):
    most = np.iinfo(np.int64).max
    one, other = (
        put(holdings, 1, numbers(most), ("a",)),
        put(holdings, 1, numbers(1), ("b",)),
    )
    with pytest.raises(UsageError, match="too large"):
        holdings.hold(other, [numbers(1)], one)
    assert {*holdings.list()} == {one, other}


def test_oldest_versions_go_and_sums_stay(tmp_path):
    forgotten = []
    holdings = Holdings(tmp_path, Kept(3), forgotten.append)
    part = put(holdings, 0, numbers(1), ("a",))
    held = [put(holdings, number, b"model") for number in range(4)]
    assert holdings.list() == [part, *held[1:]]
    assert forgotten == held[:1]
    with pytest.raises(UnreachableError):
        holdings.open(held[0])


def test_versions_have_so_many_bytes_together(tmp_path):
    holdings = Holdings(tmp_path, Kept(nbytes=10))
    held = [put(holdings, number, b"model") for number in range(4)]
    assert holdings.list() == held[2:]
    assert not holdings.wants(held[1])
    assert not holdings.wants(Item(9, "0" * 64, 11))
    assert holdings.wants(Item(9, "0" * 64, 10))


ITEMS = st.sets(
    st.builds(Item, st.integers(0, 9), st.sampled_from("abc"), st.integers(0, 9))
)


@given(ITEMS, st.integers(1, 5), st.integers(0, 20))
def test_newest_stay_as_far_as_there_is_room(items, most, nbytes):
    chosen = Kept(most, nbytes).choose(items)
    assert chosen <= items
    assert len(chosen) <= most
    assert sum(one.size for one in chosen) <= nbytes
    newest = max(items, key=lambda one: (one.number, one.digest), default=None)
    assert newest is None or newest in chosen or newest.size > nbytes


def test_trainings_keep_their_newest_beside_any_number_of_files():
    files = [Item(1000 + n, "f", 1) for n in range(9)]
    old = [Item(n, "v", 1, training=t) for t in ("one", "other") for n in range(5)]
    chosen = Kept(4).choose([*files, *old])
    assert {*files[-4:]} < chosen
    assert sorted(one.number for one in chosen if one.training) == [2, 2, 3, 3, 4, 4]
    many = [Item(n, "v", 1, training=f"{n}") for n in range(20)]
    assert Kept(4).choose(many) == {*many[4:]}


def test_version_is_found_by_its_digest_and_a_sum_is_not(holdings):
    item, part = put(holdings, 1, b"model"), put(holdings, 1, numbers(1), ("a",))
    assert holdings.find(item.digest).read_bytes() == b"model"
    assert holdings.find(part.digest) is None


def test_collected_round_is_forgotten_and_no_version_with_it(holdings):
    version = put(holdings, 3, b"model")
    put(holdings, 3, numbers(1), ("a",))
    holdings.drop(3, sums=True)
    assert holdings.list() == [version]


@pytest.mark.parametrize(
    "claim",
    [
        {"size": -1},
        {"size": 1 << 60},
        {"ids": ("b", "a")},
        {"ids": ("a",), "segment": 2, "of": 2},
        {"ids": ("a",), "segment": -1},
        {"ids": ("a",), "of": 1 << 20},
        {"of": 2},
        {"ids": ("a", "a")},
        {"ids": tuple(f"{i:05}" for i in range(5000))},
    ],
    ids=[
        *(
            "negative",
            "huge",
            "unsorted",
            "beyond",
            "before",
            "segments",
            "cut version",
        ),
        *("twice", "too many"),
    ],
)
def test_what_no_node_can_hold_is_refused(claim):
    with pytest.raises(TrustError):
        Item(**{"number": 1, "digest": "0" * 64, "size": 1, **claim})


def test_equal_bytes_of_two_nodes_are_two_parts(holdings):
    one, other = (put(holdings, 1, numbers(0), (name,)) for name in "ab")
    assert holdings.list() == [one, other]
    assert io.BytesIO(read(holdings, one)).getvalue() == read(holdings, other)


def test_segments_of_different_places_are_not_added(holdings):
    one, other = (put(holdings, 1, numbers(1), (n,), i, 2) for i, n in enumerate("ab"))
    with pytest.raises(UsageError, match="in common"):
        holdings.hold(other, [numbers(1)], one)


def test_nothing_is_held_of_bytes_that_turn_out_to_be_others(holdings, tmp_path):
    one, other = (put(holdings, 1, numbers(7), (name,)) for name in "ab")

    def pieces():
        yield numbers(8)
        raise TrustError("STO-L141", "not these")

    for onto in (None, one):
        with pytest.raises(TrustError):
            holdings.hold(Item(1, "0" * 64, 8, ("c",)), pieces(), onto)
    assert holdings.list() == [one, other]
    assert not list(tmp_path.glob("*draft"))
