"""Nodes fetch over streams that stay open, and give up those that are no good."""

import socket
from contextlib import ExitStack

import pytest

from stoilo.learn.store import network
from stoilo.learn.store import protocol as p
from stoilo.learn.traffic import wire
from tests.support.traffic import ForgedHoldings
from tests.support.watched import Cutting, Still, Watched, put

ITEMS = [wire.cut(n, bytes([n]) * 300_000, ())[0][0] for n in range(1, 4)]


def make(folder, kind=Watched):
    made = kind(folder)
    for item in ITEMS:
        assert put(made.holdings, item.number, bytes([item.number]) * item.size) == item
    return made


@pytest.fixture
def taker(tmp_path):
    made = Watched(tmp_path / "taker")
    yield made
    made.close()


@pytest.fixture
def giver(tmp_path):
    made = make(tmp_path / "giver")
    yield made
    made.close()


def is_well(report, item):
    return isinstance(report, wire.Has) and report.item == item


def hang_up(giver, wait_until):
    for one in wait_until(lambda: [*giver._idle]):
        socket.socket.shutdown(one, socket.SHUT_RDWR)


def test_fetches_from_one_node_use_one_stream(taker, giver):
    assert all(is_well(taker.fetch(item, giver), item) for item in ITEMS)
    assert giver.greeted == 1


def test_node_that_keeps_no_streams_opens_one_for_each_fetch(taker, giver):
    """The control."""
    taker.streams.close()
    assert all(is_well(taker.fetch(item, giver), item) for item in ITEMS)
    assert giver.greeted == len(ITEMS)


def test_kept_stream_that_was_hung_up_on_is_replaced(taker, giver, wait_until):
    taker.fetch(ITEMS[0], giver)
    hang_up(giver, wait_until)
    assert is_well(taker.fetch(ITEMS[1], giver), ITEMS[1])
    assert giver.greeted == 2


def test_node_that_is_gone_with_its_kept_stream_fails_as_before(
    taker, giver, wait_until
):
    taker.fetch(ITEMS[0], giver)
    giver.close()
    hang_up(giver, wait_until)
    failed = taker.fetch(ITEMS[1], giver)
    assert (type(failed), failed.fault) == (wire.Failed, "")


def test_node_that_hangs_up_in_an_answer_is_left_and_another_gives(
    taker, giver, tmp_path
):
    cutting = make(tmp_path / "cutting", Cutting)
    failed = taker.fetch(ITEMS[0], cutting)
    assert (type(failed), failed.fault) == (wire.Failed, "")
    assert (cutting.greeted, taker.streams._kept) == (1, [])
    assert is_well(taker.fetch(ITEMS[0], giver), ITEMS[0])
    cutting.close()


def test_stream_on_which_other_bytes_came_is_not_used_again(taker, giver, tmp_path):
    taker.fetch(ITEMS[0], giver)
    giver.holdings = ForgedHoldings(tmp_path / "forged")
    failed = taker.fetch(ITEMS[1], giver)
    assert (failed.fault, giver.greeted, taker.streams._kept) == ("bytes", 1, [])


def test_stream_on_which_nothing_came_is_not_used_again(taker, tmp_path, monkeypatch):
    still = make(tmp_path / "still", Still)
    monkeypatch.setattr(wire, "STALL_S", 0.2)
    assert taker.fetch(ITEMS[1], still).fault == "stalled"
    assert (still.greeted, taker.streams._kept) == (1, [])
    still.close()


def test_what_a_node_does_not_hold_is_refused_and_the_stream_ends(taker, giver):
    other = wire.cut(9, b"other", ())[0][0]
    failed = taker.fetch(other, giver)
    assert (failed.fault, taker.streams._kept) == ("", [])
    assert is_well(taker.fetch(ITEMS[0], giver), ITEMS[0])


def test_streams_that_wait_keep_nobody_out(taker, giver, wait_until):
    with ExitStack() as held:
        waiting = [
            held.enter_context(giver.for_nodes.connect(30.0))
            for _ in range(network.IDLE + 8)
        ]
        wait_until(lambda: len(giver._idle) == network.IDLE)
        assert is_well(taker.fetch(ITEMS[0], giver), ITEMS[0])
        assert len(giver._idle) <= network.IDLE
        assert waiting[0].recv(1) == b""  # the oldest was hung up on
        p.send_frame(waiting[-1], wire.Fetch("t", ITEMS[0]))
        assert wire.receive(waiting[-1], p.Answer) == wire.DONE


def test_stream_that_waits_too_long_is_hung_up_on(giver, monkeypatch):
    monkeypatch.setattr(network, "IDLE_S", 0.1)
    with giver.for_nodes.connect(30.0) as stream:
        assert stream.recv(1) == b""


def test_each_request_on_a_stream_is_one_that_its_token_may_make(giver):
    """The token was of the stream: what it opens is looked at each time."""
    with giver.for_nodes.connect(30.0) as stream:
        p.send_frame(stream, wire.Fetch("t", ITEMS[0]))
        wire.receive(stream, p.Answer)
        list(wire.receive_pieces(stream, ITEMS[0], float("inf")))
        p.send_frame(stream, wire.DONE)
        p.send_frame(stream, wire.Collect(1, [], 1.0))
        with pytest.raises(wire.UnreachableError, match="no value"):
            wire.receive(stream, wire.Give)
