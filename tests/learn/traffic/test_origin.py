"""The server among its nodes: hands out once, hears who has what, is never disturbed."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.learn.traffic import wire
from stoilo.learn.traffic.agent import Agent
from stoilo.learn.traffic.origin import MOST_WAITING, Origin, read_holders
from stoilo.server.engines.embedded.files.holders import Holders

NODES = st.sampled_from(["a", "b", "c"])
URLS = st.sampled_from(["https://a/", "http://b.example/x/", "", "b", "ftp://c/", "//"])
LOCATED = st.builds(
    wire.Located,
    st.dictionaries(NODES, URLS),
    st.dictionaries(st.text(max_size=4), st.lists(NODES)),
    st.lists(st.tuples(NODES, st.text(max_size=4), st.floats())),
)


@pytest.fixture
def nobody(tmp_path):
    """A place where nobody answers any more."""
    gone = Agent(tmp_path / "gone", "127.0.0.1:0", [])
    gone.close()
    return gone.place


@pytest.fixture
def lonely(nobody):
    return Origin(nobody, nobody)


def put(folder, data):
    digest = hashlib.sha256(data).hexdigest()
    (folder / digest).write_bytes(data)
    return digest, folder / digest


def test_dead_node_and_dispatcher_disturb_nobody(lonely, tmp_path, caplog):
    for number in range(2 * MOST_WAITING):
        lonely.offer(*put(tmp_path, bytes(70_000) + number.to_bytes(4, "big")))
    for _ in range(3):
        assert lonely.ask() == 0
        assert not lonely.give()
    assert lonely.holders() == Holders()
    assert len(lonely._waiting) == MOST_WAITING
    assert len(caplog.records) == 2  # one about each


def test_file_that_is_gone_or_small_is_nothing_to_hand_out(lonely, tmp_path):
    lonely.ask()
    lonely.offer("0" * 64, tmp_path / "nothing")
    lonely.offer(*put(tmp_path, b"small"))
    assert lonely.give()
    assert lonely.give()
    assert not lonely.give()


def test_answer_that_has_grown_old_counts_no_more(lonely):
    lonely._holders, lonely._heard_at = Holders({"d": frozenset({"u"})}), -1e9
    assert lonely.holders() == Holders()


def test_numbers_grow_also_where_the_clock_goes_back(nobody):
    times = iter([5.0, 5.0, 1.0, 9.0])
    origin = Origin(nobody, nobody, lambda: next(times))
    numbers = [origin._next_number() for _ in range(4)]
    assert numbers == [5_000_000, 5_000_001, 5_000_002, 9_000_000]


def test_files_are_given_once_and_spread(field, tmp_path):
    coordinator = field.begin(2)
    origin = Origin(field.nodes.place("root"), coordinator.place)
    digest, path = put(tmp_path, bytes(100_000))
    origin.offer(digest, path)
    assert not origin.give()  # nobody has said yet what there is
    origin.ask()
    for _ in range(2):
        origin.offer(digest, path)
        origin.give()
    field.wait_until(
        lambda: [len(n) for n in coordinator.show().versions.values()] == [3]
    )
    again = Origin(field.nodes.place("root"), coordinator.place)  # as after a restart
    again.ask()
    again.offer(digest, path)
    assert again.give()
    assert len(coordinator.show().versions) == 1


@given(LOCATED)
def test_hosts_are_sent_to_urls_alone_whatever_a_dispatcher_says(found):
    holders = read_holders(found)
    named = {url for urls in holders.urls.values() for url in urls}
    rated = {url for rates in holders.rates.values() for url in rates}
    assert named | rated <= {"https://a/", "http://b.example/x/"}
    assert all(rate > 0 for rates in holders.rates.values() for rate in rates.values())
