"""HTTP: bounded bytes, bounded time to the last header, redirections only when asked for."""

import socket
import threading
from collections.abc import Iterator

import pytest

from stoilo.core.http_client import HttpClient, HttpError


class Script:
    """A server that sends given pieces to each caller, with pauses between them."""

    def __init__(self, *pieces: bytes, pause_s: float = 0.0) -> None:
        self._pieces, self._pause = pieces, threading.Event()
        self._pause_s = pause_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.requests: list[bytes] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            with caller:
                self.requests.append(caller.recv(65536))
                try:
                    for piece in self._pieces:
                        caller.sendall(piece)
                        self._pause.wait(self._pause_s)
                except OSError:
                    continue

    def close(self) -> None:
        self._pause.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def client() -> Iterator[HttpClient]:
    client = HttpClient(read_s=5.0)
    yield client
    client.close()


def serve(*pieces: bytes, pause_s: float = 0.0) -> Script:
    return Script(*pieces, pause_s=pause_s)


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-A: b\r\n\r\n" % len(body) + body


def test_answer_has_status_headers_and_body(client):
    server = serve(ok(b"hello"))
    answer = client.fetch("GET", server.url, most=5, within_s=9)
    assert (answer.status, answer.headers["x-a"], answer.body) == (200, "b", b"hello")
    server.close()


def test_body_above_the_bound_is_an_error(client):
    server = serve(ok(b"hello"))
    with pytest.raises(HttpError, match="more than 4"):
        client.fetch("GET", server.url, most=4, within_s=9)
    server.close()


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\n", ok(b"")[:-2] + b"A: "])
def test_headers_that_drip_end_at_the_deadline(client, start):
    server = serve(start, *[b"a"] * 500, pause_s=0.05)
    with pytest.raises(HttpError):
        client.fetch("GET", server.url, most=9, within_s=0.3)
    server.close()


def test_redirection_is_an_answer_unless_asked_for(client):
    there = serve(ok(b"there"))
    here = serve(
        b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: "
        + there.url.encode()
        + b"\r\n\r\n"
    )
    assert client.fetch("GET", here.url, most=9, within_s=9).status == 302
    following = HttpClient(redirects=1)
    assert following.fetch("GET", here.url, most=9, within_s=9).body == b"there"
    following.close()
    here.close()
    there.close()


def test_redirection_to_another_kind_of_address_is_an_error():
    server = serve(
        b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: file:///etc/passwd\r\n\r\n"
    )
    following = HttpClient(redirects=1)
    with pytest.raises(HttpError):
        following.fetch("GET", server.url, most=9, within_s=9)
    following.close()
    server.close()


def test_nobody_there_and_no_address_are_errors(client):
    server = serve()
    server.close()
    for url in (server.url, "http://[", "http://127.0.0.1:99999/"):
        with pytest.raises(HttpError):
            client.fetch("GET", url, most=9, within_s=2)


def swallow_second(listener: socket.socket, requests: list[bytes]) -> None:
    """Answer the first request of each connection; close it when a second has come."""
    for _ in range(2):
        caller, _ = listener.accept()
        with caller:
            requests.append(caller.recv(65536))
            caller.sendall(ok(b"x"))
            requests.append(caller.recv(65536))


def test_request_that_a_closing_kept_connection_swallowed_is_sent_again(client):
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=swallow_second, args=(listener, requests)).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        for method in ("GET", "POST"):
            assert client.fetch(method, url, most=9, within_s=5).body == b"x"
        client.close()
    assert [one[:4] for one in requests[:3]] == [b"GET ", b"POST", b"POST"]


def test_new_connection_that_closes_without_an_answer_is_an_error(client):
    server = serve()
    with pytest.raises(HttpError, match="no answer"):
        client.fetch("GET", server.url, most=9, within_s=5)
    assert len(server.requests) == 1
    server.close()
