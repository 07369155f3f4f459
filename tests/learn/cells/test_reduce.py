import hashlib
import math
import queue
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError, UnreachableError
from stoilo.core.listen import Address, listen
from stoilo.learn.cells.reduce import SCHEDULES, all_reduce, join
from tests.support.summing import draw, start_ranks

SIZES = (1, 2, 3, 5, 7, 8)
KINDS = sorted(SCHEDULES)


class Mailboxes:
    """Ranks that are threads: what is sent lies in a queue."""

    def __init__(self, size):
        self.ways = {(a, b): queue.Queue() for a in range(size) for b in range(size)}
        self.sent = [0] * size

    def link(self, rank):
        return Mailbox(self, rank)


class Mailbox:
    def __init__(self, all_of_them, rank):
        self.all, self.rank = all_of_them, rank

    def exchange(self, to, given, source, into):
        if to is not None:
            self.all.sent[self.rank] += len(given)
            self.all.ways[self.rank, to].put(given.copy())
        if source is not None:
            into[:] = self.all.ways[source, self.rank].get(timeout=10)


def together(size, work):
    with ThreadPoolExecutor(size) as threads:
        return [*threads.map(work, range(size))]


def sum_up(kind, arrays):
    """Return every rank's sum, and how many numbers of eight bytes each sent."""
    size = len(arrays)
    boxes, sums = Mailboxes(size), [array.copy() for array in arrays]
    together(
        size,
        lambda rank: all_reduce(
            sums[rank], SCHEDULES[kind](rank, size), boxes.link(rank)
        ),
    )
    return sums, [sent // 8 for sent in boxes.sent]


def worst_error(found, arrays):
    exact = np.array([math.fsum(column) for column in zip(*arrays, strict=True)])
    scale = np.sum(np.abs(arrays), axis=0)
    return np.max(np.abs(found - exact) / scale) if len(exact) else 0.0


@given(
    kind=st.sampled_from(KINDS),
    size=st.integers(1, 9),
    length=st.integers(0, 40),
    seed=st.integers(0, 2**16),
)
def test_all_ranks_hold_the_same_bits_of_the_sum(kind, size, length, seed):
    arrays = [draw(seed + rank, length) for rank in range(size)]
    sums, _ = sum_up(kind, arrays)
    assert {one.tobytes() for one in sums} == {sums[0].tobytes()}
    assert worst_error(sums[0], arrays) <= 2e-15


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_error_on_odd_lengths_is_that_of_few_additions(kind, size):
    arrays = [draw(rank, 1003) for rank in range(size)]
    sums, _ = sum_up(kind, arrays)
    assert {one.tobytes() for one in sums} == {sums[0].tobytes()}
    assert worst_error(sums[0], arrays) <= 2e-15


def test_sums_in_an_order_of_each_ranks_own_differ_in_bits():
    arrays = [draw(rank, 1003) for rank in range(5)]
    sums = [sum(arrays[rank:] + arrays[:rank]) for rank in range(5)]
    assert len({one.tobytes() for one in sums}) == 5


@given(size=st.integers(1, 12), length=st.integers(0, 3000))
def test_ring_sends_two_times_all_but_one_chunk(size, length):
    for rank in range(size):
        sent = SCHEDULES["ring"](rank, size).sent(length)
        assert abs(sent - 2 * (size - 1) / size * length) <= size


@given(power=st.integers(0, 4), length=st.integers(0, 3000))
def test_halving_sends_as_much_where_the_size_is_a_power_of_two(power, length):
    size = 2**power
    for rank in range(size):
        schedule = SCHEDULES["halving"](rank, size)
        assert len(schedule.steps) == 2 * power
        assert abs(schedule.sent(length) - 2 * (size - 1) / size * length) <= size


@pytest.mark.parametrize(
    ("size", "sent"), [(3, [2, 1, 1]), (5, [2.5, 1.5, 1.5, 1.5, 1])]
)
def test_halving_of_other_sizes_sends_more_where_ranks_are_folded_in(size, sent):
    found = [SCHEDULES["halving"](rank, size).sent(1000) / 1000 for rank in range(size)]
    assert found == sent


@pytest.mark.parametrize("kind", KINDS)
def test_schedule_says_what_is_sent(kind):
    _, sent = sum_up(kind, [draw(rank, 1003) for rank in range(5)])
    assert sent == [SCHEDULES[kind](rank, 5).sent(1003) for rank in range(5)]


def test_published_volumes_of_a_ring():
    sent = {p: max(sum_up("ring", [draw(r, 1003) for r in range(p)])[1]) for p in SIZES}
    assert all(abs(sent[p] - 2 * (p - 1) / p * 1003) <= p for p in SIZES)


def test_tree_takes_two_steps_a_doubling():
    deepest = max(len(SCHEDULES["tree"](rank, 8).steps) for rank in range(8))
    assert deepest == 6


def test_array_that_is_not_contiguous_is_refused():
    with pytest.raises(ValueError, match="copy"):
        all_reduce(
            np.zeros((4, 4))[:, 1:], SCHEDULES["ring"](0, 1), Mailboxes(1).link(0)
        )


@pytest.fixture
def listeners():
    found = [listen("127.0.0.1:0") for _ in range(5)]
    yield found
    for listener in found:
        listener.close()


def addresses_of(listeners):
    return [Address(*listener.getsockname()) for listener in listeners]


def join_all(listeners, limit_s=10.0, token=b"token"):
    peers = addresses_of(listeners)
    return together(
        len(peers), lambda rank: join(rank, peers, listeners[rank], token, limit_s)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_streams_carry_what_mailboxes_do(kind, listeners):
    links = join_all(listeners)
    arrays = [draw(rank, 300_001) for rank in range(5)]
    expected, _ = sum_up(kind, arrays)
    together(
        5,
        lambda rank: all_reduce(arrays[rank], SCHEDULES[kind](rank, 5), links[rank]),
    )
    assert [one.tobytes() for one in arrays] == [one.tobytes() for one in expected]
    for link in links:
        link.__exit__()


def attempt(rank, links, array):
    """Sum; return the error, after which the link is closed as in a `with`."""
    try:
        with links[rank]:
            all_reduce(array, SCHEDULES["ring"](rank, len(links)), links[rank])
    except (TrustError, UnreachableError) as error:
        return error.code
    return None


def test_rank_with_another_length_is_named(listeners):
    links = join_all(listeners[:2], limit_s=5.0)
    codes = together(2, lambda rank: attempt(rank, links, np.zeros(10 + 2 * rank)))
    assert codes == ["STO-T038", "STO-T038"]


def test_stranger_without_the_token_is_hung_up_on(listeners):
    first, second = addresses_of(listeners[:2])
    with ThreadPoolExecutor(1) as thread:
        rank0 = thread.submit(
            join, 0, [first, second], listeners[0], b"token", limit_s=0.7
        )
        with join(1, [first, second], listeners[1], b"other", 0.7) as link:
            with pytest.raises(UnreachableError, match="T037"):
                rank0.result()
            with pytest.raises(UnreachableError, match="gone"):
                all_reduce(np.zeros(4), SCHEDULES["ring"](1, 2), link)


def test_silent_stranger_keeps_nobody_out(listeners, monkeypatch):
    monkeypatch.setattr("stoilo.learn.cells.reduce._GREETING_S", 0.2)
    listeners[0].listen()
    with socket.create_connection(listeners[0].getsockname()):
        links = join_all(listeners[:2], limit_s=5.0)
    assert [attempt(0, [links[0]], np.zeros(1))] == [None]
    links[1].__exit__()


def test_stalled_rank_ends_in_an_error_within_the_limit(listeners):
    limit_s = 0.3
    links = join_all(listeners[:2], limit_s=limit_s)
    began = time.monotonic()
    assert attempt(0, links, np.zeros(10)) == "STO-T037"
    assert limit_s <= time.monotonic() - began < 3 * limit_s
    links[1].__exit__()


def ports(count):
    """Return addresses that were free a moment ago."""
    taken = [listen("127.0.0.1:0") for _ in range(count)]
    found = [str(Address(*one.getsockname())) for one in taken]
    for one in taken:
        one.close()
    return found


def test_processes_without_torch_agree_on_the_bits():
    told = start_ranks(ports(3), 10_001, 20.0, {1: "late"})
    expected, _ = sum_up("ring", [draw(rank, 10_001) for rank in range(3)])
    digest = hashlib.sha256(expected[0].tobytes()).hexdigest()
    assert told == [{"digest": digest, "torch": False}] * 3


@pytest.mark.parametrize(("fault", "soon_s"), [("dies", 1.0), ("stalls", 1.8)])
def test_others_of_a_process_that_fails_end_within_the_limit(fault, soon_s):
    told = start_ranks(ports(3), 10_001, 1.0, {2: fault})
    assert [one["error"] for one in told[:2]] == ["STO-T037"] * 2
    assert max(one["seconds"] for one in told[:2]) < soon_s
