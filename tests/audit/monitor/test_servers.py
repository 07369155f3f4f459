"""A monitor before servers that lie about lengths, drip, never end or talk rubbish."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stoilo.audit.format.tiles import parse_tile_path
from stoilo.audit.monitor.monitor import Monitor
from stoilo.audit.monitor.state import MonitorState
from stoilo.audit.read import source
from stoilo.audit.read.source import open_source
from stoilo.core.errors import StoiloError, TrustError, UnreachableError

from .conftest import Watcher

Answer = Callable[[BaseHTTPRequestHandler, bytes], None]


def honest(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.send_response(200)
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def cut(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.send_response(200)
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[: len(data) // 2])


def drip(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.send_response(200)
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    for place in range(len(data)):
        handler.wfile.write(data[place : place + 1])
        handler.wfile.flush()
        threading.Event().wait(0.02)


def endless(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"\xff" * (65_536 + len(data)))


def rubbish(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    honest(handler, b"<html>\x00" * (len(data) + 1))


def empty(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    honest(handler, data[:0])


def broken(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.wfile.write(b"HTTP/1.1 abc\r\n\r\n" + data[:0])


def failing(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.send_response(500)
    handler.send_header("content-length", str(len(data[:0])))
    handler.end_headers()


def drip_headers(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\nslow: " + data[:0])
    for _ in range(100):
        handler.wfile.write(b"x")
        handler.wfile.flush()
        threading.Event().wait(0.02)
    handler.wfile.write(b"\r\n\r\n" + data)


def elsewhere(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.send_response(302)
    handler.send_header("location", f"ftp://127.0.0.1:1/{len(data)}")
    handler.end_headers()


Kinds = type | tuple[type, ...]


class Server:
    """Serves a log in memory; `bad` answers for names that begin with `where`."""

    def __init__(self, watcher: Watcher) -> None:
        self.log = watcher.log
        self.bad: Answer = honest
        self.where = "nowhere"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self, self.path.removeprefix("/audit/"))

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()

    def answer(self, handler: BaseHTTPRequestHandler, name: str) -> None:
        data = self.data(name)
        if data is None:
            handler.send_error(404)
        elif name.startswith(self.where):
            self.bad(handler, data)
        else:
            honest(handler, data)

    def data(self, name: str) -> bytes | None:
        if name == "log/checkpoint":
            return self.log.note
        if name.startswith("log/tile/"):
            return self.log.tile(parse_tile_path(name.removeprefix("log/")))
        if name.startswith("seen/"):
            return self.log.seen(int(name.removeprefix("seen/")))
        return None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/audit/log/"

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(source, "_ANSWER_S", 0.3)
    watcher.log.admit(time=990)
    watcher.log.publish()
    made = Server(watcher)
    yield made
    made.close()


@pytest.fixture
def state(tmp_path: Path) -> Iterator[MonitorState]:
    made = MonitorState.open(tmp_path / "http")
    yield made
    made.close()


def poll(server: Server, state: MonitorState) -> None:
    policy = server.log.key.policy
    Monitor(open_source(server.url), policy, state, clock=lambda: 1000).poll()


def test_honest_server_is_followed(server: Server, state: MonitorState) -> None:
    server.log.see("s", server.log.sign())
    poll(server, state)
    assert (state.memory.size, state.memory.seen) == (1, 1)
    assert list(state.findings()) == []


@pytest.mark.parametrize("where", ["log/checkpoint", "log/tile/entries"])
@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (cut, UnreachableError),
        (drip, UnreachableError),
        (drip_headers, UnreachableError),
        (elsewhere, UnreachableError),
        (endless, (TrustError, UnreachableError)),  # too long, or too slow
        (rubbish, TrustError),
        (empty, TrustError),
        (broken, UnreachableError),
        (failing, UnreachableError),
    ],
)
def test_bad_answer_is_an_error_of_ours_and_nothing_is_taken(
    server: Server, state: MonitorState, where: str, bad: Answer, expected: Kinds
) -> None:
    server.bad, server.where = bad, where
    with pytest.raises(StoiloError) as caught:
        poll(server, state)
    assert isinstance(caught.value, expected)
    assert state.memory.size == 0
    server.where = "nowhere"
    poll(server, state)
    assert state.memory.size == 1


@pytest.mark.parametrize("bad", [cut, drip, endless, rubbish, failing])
def test_bad_page_of_seen_checkpoints_leaves_the_log_followed(
    server: Server, state: MonitorState, bad: Answer
) -> None:
    server.log.see("s", server.log.sign())
    server.bad, server.where = bad, "seen/"
    with pytest.raises((TrustError, UnreachableError)):
        poll(server, state)
    assert (state.memory.size, state.memory.seen) == (1, 0)


def test_redirection_to_another_kind_of_address_is_not_followed(
    server: Server, state: MonitorState
) -> None:
    server.bad, server.where = elsewhere, "log/checkpoint"
    with pytest.raises(UnreachableError, match="URLSchemeUnknown"):
        poll(server, state)
