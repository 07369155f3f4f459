"""A witness's server may do anything: each ends in an answer or our error, in time."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from stoilo.audit.witness.client import HttpWire
from stoilo.audit.witness.protocol import (
    MAX_ANSWER_BYTES,
    Answer,
    parse_cosignatures,
)
from stoilo.core.errors import TrustError, UnreachableError

Behave = Callable[[socket.socket], None]
Serve = Callable[[Behave], AbstractContextManager[HttpWire]]
HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def serve() -> Serve:
    """Run a raw server that treats every connection so."""

    @contextlib.contextmanager
    def server(behave: Behave) -> Iterator[HttpWire]:
        listener = socket.create_server(("127.0.0.1", 0))

        def attend() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        behave(connection)

        thread = threading.Thread(target=attend)
        thread.start()
        wire = HttpWire(f"http://127.0.0.1:{listener.getsockname()[1]}/prefix/")
        yield wire
        wire.close()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()

    return server


def read_request(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"BODY"):
        chunk = connection.recv(4096)
        if not chunk:
            raise ConnectionError
        data += chunk
    return data


def post(wire: HttpWire, seconds: float = 20) -> Answer:
    return wire.post(b"BODY", time.monotonic() + seconds)


def test_request_goes_to_the_prefix_and_answers_are_read(serve: Serve) -> None:
    seen: list[bytes] = []

    def behave(connection: socket.socket) -> None:
        for _ in range(2):
            seen.append(read_request(connection))
            connection.sendall(b"HTTP/1.1 409 X\r\ncontent-length: 2\r\n\r\n7\n")

    with serve(behave) as wire:
        assert post(wire) == post(wire) == Answer(409, b"7\n")
    assert [one.split(b"\r\n")[0] for one in seen] == (
        [b"POST /prefix/add-checkpoint HTTP/1.1"] * 2
    )


def test_kept_connection_that_was_closed_is_opened_again(serve: Serve) -> None:
    def behave(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(HEAD + b"content-length: 1\r\n\r\nx")

    with serve(behave) as wire:
        assert [post(wire).body for _ in range(3)] == [b"x"] * 3


def drip(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(HEAD + b"\r\n")
    for _ in range(100):
        connection.sendall(b"x")
        time.sleep(0.05)


def be_silent(connection: socket.socket) -> None:
    read_request(connection)
    time.sleep(1.5)


@pytest.mark.parametrize(
    "behave",
    [
        lambda connection: connection.close(),
        lambda connection: read_request(connection) and None,
        lambda connection: connection.sendall(b"\xff" * 5000),
        lambda connection: connection.sendall(b"220 mail.example ESMTP\r\n\r\n"),
        lambda connection: connection.sendall(HEAD + b"content-length: -5\r\n\r\n"),
        lambda connection: connection.sendall(HEAD + b"a: b\r\n" * 200 + b"\r\n"),
        lambda connection: connection.sendall(HEAD + b"x: " + b"y" * 70_000),
        lambda connection: connection.sendall(
            HEAD + b"\r\n" + b"x" * (MAX_ANSWER_BYTES + 1)
        ),
        lambda connection: connection.sendall(
            HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n"
        ),
        drip,
        be_silent,
    ],
)
def test_hostile_server_ends_in_our_error(serve: Serve, behave: Behave) -> None:
    """No answer, or one in which there is no cosignature."""
    refused = pytest.raises((UnreachableError, TrustError), match=r"STO-L(058|010)")
    with serve(behave) as wire, refused:
        parse_cosignatures(post(wire, 0.6).body)


def test_redirect_is_an_answer_and_is_not_followed(serve: Serve) -> None:
    def behave(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(
            b"HTTP/1.1 302 X\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
        )

    with serve(behave) as wire:
        assert post(wire).status == 302


def test_nobody_at_the_address_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UnreachableError, match="STO-L058"):
        post(HttpWire(f"http://127.0.0.1:{port}/"))
