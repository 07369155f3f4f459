from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from stoilo.server.http.web_server import TimedProtocol

HALF, REST = b"GET / HTTP/1.1\r\nHost", b": x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"


class Impatient(TimedProtocol):
    head_s = 0.1


async def answer(request):
    await request.body()
    return Response(b"here")


APP = Starlette(routes=[Route("/", answer, methods=["GET", "POST"])])


@contextmanager
def serve(protocol):
    config = uvicorn.Config(
        APP,
        log_level="error",
        lifespan="off",
        http=protocol,
        ws="none",
        forwarded_allow_ips="",
    )
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        with socket.create_connection(listener.getsockname(), timeout=60) as connection:
            yield connection
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def test_head_that_stops_coming_ends_the_connection():
    with serve(Impatient) as connection:
        connection.sendall(HALF)
        assert connection.recv(100) == b""


def test_connection_that_says_nothing_is_ended():
    with serve(Impatient) as connection:
        assert connection.recv(100) == b""


def test_head_in_two_pieces_is_answered():
    with serve(TimedProtocol) as connection:
        connection.sendall(HALF)
        connection.sendall(REST)
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("pieces", "waits"),
    [
        ([], True),
        ([HALF], True),
        ([HALF, b"l"], True),
        ([HALF, REST], False),
        ([POST], False),
        ([POST, b"slow"], False),
    ],
    ids=str,
)
def test_only_a_head_that_is_owed_is_waited_for(pieces, waits):
    async def waiting():
        config = uvicorn.Config(APP, lifespan="off", log_level="error")
        config.load()
        protocol = TimedProtocol(config, uvicorn.server.ServerState(), {})
        server = await asyncio.get_running_loop().create_server(
            lambda: protocol, "127.0.0.1", 0
        )
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        while not hasattr(protocol, "transport") or protocol.transport is None:  # noqa: ASYNC110 - a moment
            await asyncio.sleep(0)
        for piece in pieces:
            protocol.data_received(piece)
        found = protocol._overdue is not None
        writer.close()
        protocol.transport.close()
        server.close()
        await server.wait_closed()
        return found

    assert asyncio.run(waiting()) is waits


class FewOfAll(TimedProtocol):
    most = 3


class FewOfAddress(TimedProtocol):
    most_of_address = 3


class FewBehindProxy(FewOfAddress):
    """As where the proxy stands at this address."""

    def __init__(self, config, *rest, **words):
        config.forwarded_allow_ips = "127.0.0.1"
        super().__init__(config, *rest, **words)


@pytest.mark.parametrize(
    ("protocol", "served"),
    [(FewOfAll, 3), (FewOfAddress, 3), (FewBehindProxy, 6), (TimedProtocol, 6)],
)
def test_connections_beyond_a_bound_are_closed(protocol, served):
    with serve(protocol) as first:
        more = [socket.create_connection(first.getpeername(), 60) for _ in range(5)]
        answers = [ask(one) for one in [first, *more]]
        for one in more:
            one.close()
        assert answers.count(b"HTTP/1.1 200") == served
        assert answers[:3] == [b"HTTP/1.1 200"] * 3


def ask(connection):
    """Return the first bytes of an answer, empty from a closed connection."""
    try:
        connection.sendall(HALF + REST)
        return connection.recv(12)
    except ConnectionError:
        return b""
