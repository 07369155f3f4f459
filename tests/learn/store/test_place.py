"""Streams that are kept: which, how many, how long."""

import threading

import pytest

from stoilo.learn.store import place as module
from stoilo.learn.store import protocol as p
from stoilo.learn.store.network import TokenService
from stoilo.learn.store.place import KEPT_ALL, KEPT_EACH, Streams


class Echo(TokenService):
    """A service that answers each command; it counts those who came."""

    def __init__(self, folder):
        super().__init__(folder, "127.0.0.1:0")
        self.place, self.met = self.admit_one(), 0
        threading.Thread(target=self.run, daemon=True).start()

    def talk(self, stream, owner):
        del owner  # there is one
        self.met += 1
        for _ in self.requests(stream, lambda: must(p.receive_request(stream))):
            p.send_frame(stream, p.Answer(b""))


def must(found):
    if found is None:
        raise ConnectionResetError
    return found


def ask(stream):
    p.send_frame(stream, p.ListKeys())
    must(p.receive_response(stream))


@pytest.fixture
def echo(tmp_path):
    made = Echo(tmp_path)
    yield made
    made.close()


@pytest.fixture
def streams():
    made = Streams()
    yield made
    made.close()


def nest(streams, places):
    """Use so many streams at a time; return how many are kept afterwards."""
    if places:
        with streams.use(places[0], 30.0, ask):
            nest(streams, places[1:])
    return len(streams._kept)


def test_stream_is_used_again(streams, echo):
    for _ in range(3):
        with streams.use(echo.place, 30.0, ask) as stream:
            ask(stream)
    assert echo.met == 1


def test_stream_in_use_is_nobody_elses(streams, echo):
    assert nest(streams, [echo.place] * 2) == 2
    assert echo.met == 2


def test_no_more_are_kept_than_may_be_to_a_place(streams, echo):
    assert nest(streams, [echo.place] * (KEPT_EACH + 2)) == KEPT_EACH


def test_no_more_are_kept_than_may_be_together(streams, echo, monkeypatch):
    monkeypatch.setattr(module, "KEPT_EACH", KEPT_ALL + 5)
    assert nest(streams, [echo.place] * (KEPT_ALL + 3)) == KEPT_ALL


def test_stream_that_has_waited_too_long_is_closed(streams, echo):
    nest(streams, [echo.place])
    (kept,) = streams._kept
    streams._keep_s = 0.0
    streams.trim()
    assert (kept[1].fileno(), streams._kept) == (-1, [])


def test_another_token_is_another_stream(streams, echo, tmp_path):
    nest(streams, [echo.place, echo.admit("b", "token", tmp_path / "b.json")])
    assert len({one[0] for one in streams._kept}) == echo.met == 2


@pytest.mark.parametrize("error", [TimeoutError, ValueError, KeyboardInterrupt])
def test_stream_whose_user_failed_is_not_kept(streams, echo, error):
    with pytest.raises(error), streams.use(echo.place, 30.0, ask):
        raise error
    assert streams._kept == []


def test_question_that_failed_on_a_fresh_stream_is_not_asked_again(streams, echo):
    asked = []

    def fail(stream):
        asked.append(stream)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError), streams.use(echo.place, 30.0, fail):
        pass
    assert (len(asked), streams._kept) == (1, [])


@pytest.mark.parametrize("error", [TimeoutError, ValueError])
def test_kept_stream_that_is_not_dead_is_asked_once(streams, echo, error):
    nest(streams, [echo.place])
    asked = []

    def fail(stream):
        asked.append(stream)
        raise error

    with pytest.raises(error), streams.use(echo.place, 30.0, fail):
        pass
    assert (len(asked), streams._kept) == (1, [])


def test_closed_streams_keep_none(streams, echo):
    with streams.use(echo.place, 30.0, ask):
        nest(streams, [echo.place])
        streams.close()
        assert streams._kept == []
    assert streams._kept == []
