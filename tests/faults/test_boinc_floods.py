"""Callers who send a project too much, too slowly, or names and texts that are tricks.

Each has his honest counterpart, who is served, as is a volunteer who works meanwhile.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.attackers import ENTITY_BOMB, HeldCopy
from tests.support.workingproject import WorkingProject

pytestmark = pytest.mark.usefixtures("others_go_on")
MOST_BYTES = 100_000  # of `make_spec`'s results
MIB = 1024 * 1024


def upload_head(copy: HeldCopy, size: int, data: bytes = b"") -> bytes:
    """Return an upload's beginning: a head that announces `size` bytes, and `data`."""
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return (
        f"<data_server_request><file_upload><file_info><name>{copy.upload}</name>"
        f"</file_info><nbytes>{size}</nbytes><md5_cksum>{md5}</md5_cksum>"
        "<offset>0</offset><data>\n"
    ).encode() + data


@pytest.mark.parametrize(
    ("said", "code"), [(100 * MIB, "STO-E030"), (10, "STO-E030")], ids=["true", "small"]
)
def test_upload_of_100_mb_is_refused_and_not_held(
    world: WorkingProject, said: int, code: str
):
    peer = world.peer()
    copy = world.take(peer)
    before = world.kib()

    def body() -> Iterator[bytes]:
        yield upload_head(copy, said)
        for _ in range(100):
            yield bytes(MIB)

    lines = world.refusals(code)
    answer = peer.send("POST", copy.path, body())
    assert answer.status == 0 or answer.field("status") == "-1"
    assert answer.status == 0 or code in answer.field("message")
    world.wait(lambda: world.refusals(code) > lines or "more before" in world.log())
    assert world.kib() - before < 60 * 1024
    part = world.project.directory / "engine" / "uploads" / f"{copy.upload}.part"
    world.wait(lambda: not part.exists())
    most = os.urandom(MOST_BYTES)
    assert peer.upload(copy.path, copy.upload, most).field("status") == "0"


def slow_head(world: WorkingProject) -> bytes:
    del world
    return b"POST /sched HTTP/1.1\r\nHost"


def slow_call(world: WorkingProject) -> bytes:
    del world
    return b"POST /sched HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n<"


def slow_upload(world: WorkingProject) -> bytes:
    copy = world.take(world.peer())
    head = upload_head(copy, 900)
    size = len(head) + 900
    start = f"POST {copy.path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
    return start.encode() + head


def slow_account(world: WorkingProject) -> bytes:
    del world
    return (
        b"POST /create_account.php HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\ne"
    )


@pytest.mark.parametrize(
    "begin",
    [
        slow_head,
        slow_upload,
        pytest.param(slow_call, marks=pytest.mark.slow),
        pytest.param(slow_account, marks=pytest.mark.slow),
    ],
)
def test_hundred_connections_that_hang_are_ended_and_stop_nobody(
    world: WorkingProject, begin: Callable[[WorkingProject], bytes]
):
    with ExitStack() as stack:
        data = begin(world)
        hanging = [stack.enter_context(world.connect()) for _ in range(100)]
        for connection in hanging:
            connection.sendall(data)
        world.goes_on()
        for connection in hanging:
            while connection.recv(4096):  # an answer or none, and then the end
                pass


def test_honest_body_in_pieces_is_taken(world: WorkingProject):
    peer = world.peer()
    body = peer.request(instances=1)
    with world.connect() as connection:
        head = f"POST /sched HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        connection.sendall(f"{head}Connection: close\r\n\r\n".encode())
        for at in range(0, len(body), 100):
            connection.sendall(body[at : at + 100])
        answer = b""
        while more := connection.recv(4096):
            answer += more
    assert b"<result><name>" in answer


# ------------------------------------------------------------------ texts and names


@pytest.mark.parametrize(
    "head",
    [
        f"<!DOCTYPE x [{ENTITY_BOMB}]><data_server_request>&a8;".encode(),
        b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><data_server_request/><data>\n',
        '<?xml version="1.0" encoding="utf-16"?><data_server_request/>'.encode(
            "utf-16"
        ),
        b"<data_server_request>" + b"<a>" * 5000 + b"<data>\n",
        b"<data_server_request " + b'a="b" ' * 2000 + b"><data>\n",
        b"<data_server_request><file_upload><data>\n" + b"x" * 1000,
    ],
    ids=lambda head: repr(head[:40]),
)
def test_hostile_head_of_an_upload_is_refused_for_good(
    world: WorkingProject, head: bytes
):
    peer = world.peer()
    copy = world.take(peer)
    answer = peer.send("POST", copy.path, head)
    assert answer.field("status") == "-1"
    assert "STO-E030" in answer.field("message")
    assert peer.upload(copy.path, copy.upload, b"answer").field("status") == "0"


TRICKS = [
    "../../../tmp/x",
    "/etc/passwd",
    "..",
    "a/b",
    "x" * 300,
    "&#0;",
    "&lt;b&gt;",
    "%2e",
]
FIELDS = (
    "other_results/other_result/name",
    "file_info/name",
    "platform_name",
    "alt_platform/name",
    "app_versions/app_version/app_name",
    "cross_project_id",
    "host_info/domain_name",
)


def element(path: str, value: str) -> str:
    """Return an element as deep as `path` says around a value."""
    tags = path.split("/")
    return (
        "".join(f"<{one}>" for one in tags)
        + value
        + "".join(f"</{one}>" for one in reversed(tags))
    )


def files_of(world: WorkingProject) -> set[str]:
    """Return what lies in the project, but for what comes and goes with honest work."""
    found = set()
    for place, folders, files in os.walk(world.project.directory):
        folders[:] = [one for one in folders if one not in {"volunteer", "uploads"}]
        found |= {f"{place}/{one}" for one in files if "sqlite" not in one}
    return found


@pytest.mark.parametrize("trick", TRICKS, ids=lambda trick: trick[:12])
def test_trick_in_a_name_touches_no_file_and_stops_nothing(
    world: WorkingProject, trick: str
):
    before = files_of(world)
    peer = world.peer()
    for path in FIELDS:
        answer = peer.schedule(reports=element(path, trick))
        assert answer.status in {200, 400}
        assert answer.status == 200 or b"STO-X030" in answer.body
        assert peer.schedule(reports=element(path, "plain_name")).status == 200
    assert files_of(world) == before
