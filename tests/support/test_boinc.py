from __future__ import annotations

import http.client
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

import pytest

from tests.support.boinc import parse_tasks
from tests.support.meddler import Meddler

SHOWN = """
======== Tasks ========
1) -----------
   name: t_1_0
   WU name: t_1
   state: downloaded
   active_task_state: EXECUTING
   fraction done: 0.250000
   estimated CPU time remaining: 10.5 seconds
2) -----------
   name: t_2_0
   state: uploading
"""


def test_tasks_are_read_from_what_boinccmd_prints() -> None:
    first, second = parse_tasks(SHOWN)
    assert (first.name, first.state, first.active) == (
        "t_1_0",
        "downloaded",
        "EXECUTING",
    )
    assert first.number("fraction done") == 0.25
    assert first.number("estimated CPU time remaining") == 10.5
    assert (second.name, second.active, second.number("x")) == ("t_2_0", "", 0)


def test_client_without_tasks_shows_none() -> None:
    assert parse_tasks("\n======== Tasks ========\n") == ()


class Project(BaseHTTPRequestHandler):
    """Answers with its own address and the size of what it was sent."""

    def do_POST(self) -> None:
        size = len(self.rfile.read(int(self.headers["Content-Length"])))
        host, port = self.server.server_address[:2]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"http://{host}:{port}/ {size}".encode())

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def project() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Project)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join()


def post(url: str, path: str, body: bytes = b"") -> bytes:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request("POST", path, body)
        return connection.getresponse().read()
    finally:
        connection.close()


def test_scheduler_replies_are_changed_and_others_are_not(project: str) -> None:
    with Meddler(project, lambda reply: reply.upper()) as meddler:
        assert post(meddler.project, "/sched", b"abc").endswith(b"/ 3")
        assert post(meddler.project, "/sched").startswith(b"HTTP:")
        assert post(meddler.project, "/upload/x").startswith(b"http:")


def test_addresses_lead_through_him_where_he_wants(project: str) -> None:
    with Meddler(project, through=True) as meddler:
        assert post(meddler.project, "/sched").startswith(meddler.project.encode())


def test_upload_that_may_not_pass_is_cut(project: str) -> None:
    with Meddler(project) as meddler:
        meddler.on_upload = lambda _path, body: body != b"cut"
        assert post(meddler.project, "/upload/x", b"abc").endswith(b"/ 3")
        with pytest.raises((OSError, http.client.HTTPException)):
            post(meddler.project, "/upload/x", b"cut")


def test_his_own_files_never_reach_the_project(project: str) -> None:
    with Meddler(project, files={"/planted": b"bytes"}) as meddler:
        assert post(meddler.project, "/planted") == b"bytes"
