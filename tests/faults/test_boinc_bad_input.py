"""Attacks on a project's BOINC side while an honest volunteer works: it never notices.

Each attack has its honest counterpart, which is taken. What the wire's parsers do with
single texts is in `test_bad_project_input`; here are callers who lie about who they are,
how much they send and how fast, and what they have sent before.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from stoilo.core.types import Redundancy
from stoilo.executor.host import Volunteer
from stoilo.executor.ledger import Ledger
from stoilo.executor.pace import Settings
from stoilo.executor.transfer import Transfer
from stoilo.testing.engine import EchoExecutor, make_spec
from stoilo.testing.project import ProjectProcess
from stoilo.testing.wire import BoincPeer, HttpAnswer

SINGLE = Redundancy(
    min_quorum=1, target_results=1, max_error=5, max_total=9, max_success=5
)
WORKUNITS = 1500
MOST_BYTES = 100_000  # of `make_spec`'s results
STEPS = 3  # tasks that the honest volunteer finishes during or after every attack
MIB = 1024 * 1024
BOMB = "".join(
    f'<!ENTITY a{n} "{f"&a{n - 1};" * 10 if n else "lol" * 10}">' for n in range(9)
)


@dataclass
class Copy:
    """A copy on an attacker's own host, and where its result goes."""

    name: str
    upload: str
    path: str


@dataclass
class World:
    """A project, a volunteer who works all the time, and keys for others."""

    project: ProjectProcess
    honest: EchoExecutor
    keys: Iterator[str]
    wait: Callable[..., object]

    def peer(self) -> BoincPeer:
        """Return somebody with an account."""
        return BoincPeer(self.project.url, next(self.keys))

    def query(self, text: str, *values: object) -> list[tuple[object, ...]]:
        """Ask the project's database, read-only."""
        file = self.project.directory / "engine" / "engine.sqlite"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as found:
            return found.execute(text, values).fetchall()

    def rows(self, table: str) -> int:
        (count,) = self.query("select count(*) from " + table)[0]  # noqa: S608 - our names
        assert isinstance(count, int)
        return count

    def state(self, copy: str) -> tuple[object, ...]:
        """Return state and outcome of a copy."""
        (row,) = self.query(
            "select state, outcome from engine_result where name=?", copy
        )
        return row

    def refusals(self, code: str) -> int:
        """Return how many lines of the operator's log have a code."""
        return len(re.findall(rf"refused \S+ from 127\.0\.0\.1 \[{code}\]", self.log()))

    def log(self) -> str:
        return self.project.log()

    def goes_on(self) -> None:
        """Wait until the honest volunteer has finished some more tasks."""
        before = len(self.honest.done)
        self.wait(lambda: len(self.honest.done) >= before + STEPS)

    def connect(self) -> socket.socket:
        address = urlsplit(self.project.url)
        return socket.create_connection((address.hostname, address.port), timeout=60)

    def kib(self) -> int:
        """Return the project's resident memory, KiB."""
        text = Path(f"/proc/{self.project.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1])


@pytest.fixture(scope="module")
def world(tmp_path_factory, wait_until) -> Iterator[World]:
    project = ProjectProcess(tmp_path_factory.mktemp("attacked"))
    names = [f"w{number}_1" for number in range(WORKUNITS)]
    project.create([make_spec(name, redundancy=SINGLE) for name in names])
    key, *others = project.keys(60)
    honest = EchoExecutor(seconds=0.1)
    with project:
        volunteer = Volunteer(
            Settings(project.url, key, backoff_s=(0.05, 0.2)),
            Ledger(project.directory / "volunteer", project.url),
            Transfer(project.url, timeout_s=60),
            honest,
        )
        thread = threading.Thread(target=volunteer.run)
        thread.start()
        try:
            found = World(project, honest, iter(others), wait_until)
            found.goes_on()
            yield found
            nothing_is_lost(found)
        finally:
            volunteer.stop()
            thread.join()
            volunteer.close()


def nothing_is_lost(world: World) -> None:
    """Whatever the honest volunteer did counts, and nothing went wrong inside."""
    done = {name.rpartition("_")[0] for name in world.honest.done}
    world.wait(lambda: len(done - set(world.project.outcomes())) <= 4)  # on their way
    kinds = world.project.outcomes()
    assert {kinds[name] for name in done & set(kinds)} == {"canonical"}
    assert "Traceback" not in world.log()


@pytest.fixture(autouse=True)
def others_go_on(world: World) -> Iterator[None]:
    yield
    world.goes_on()


def take(peer: BoincPeer, **words: object) -> Copy:
    """Get a copy as an honest host does."""
    answer = peer.schedule(instances=1, **words)
    text = answer.body.decode()
    name = re.search(r"<result><name>([^<]+)<", text)
    upload = re.search(
        r"<file_info><name>([^<]+)</name><max_nbytes>[^<]+</max_nbytes>"
        r"<upload_url>http://[^/]+([^<]+)<",
        text,
    )
    assert name, text
    assert upload, text
    return Copy(name[1], upload[1], upload[2])


def names_of(answer: HttpAnswer) -> list[str]:
    return re.findall(r"<result><name>([^<]+)<", answer.body.decode())


# ------------------------------------------------------------------ who calls


@pytest.mark.parametrize("key", ["", "0" * 32, "' or 1=1 --", "k" * 255])
def test_wrong_key_is_told_as_boinc_does_and_leaves_nothing(world: World, key: str):
    peer, before = world.peer(), world.rows("engine_host")
    lines = world.refusals("STO-E100")
    answer = peer.schedule(key=key, instances=8)
    assert answer.field("request_delay") == "3600.000"
    assert b'<message priority="notice">' in answer.body
    assert not answer.field("hostid")
    assert not names_of(answer)
    assert world.rows("engine_host") == before
    assert world.refusals("STO-E100") > lines or "more before" in world.log()
    assert names_of(peer.schedule(instances=1))  # the right one


def test_flood_of_wrong_keys_neither_stops_others_nor_fills_the_log(world: World):
    def flood() -> None:
        peer = BoincPeer(world.project.url, "1" * 32)
        for _ in range(60):
            assert peer.schedule(instances=1).status == 200

    before = world.rows("engine_host")
    threads = [threading.Thread(target=flood) for _ in range(5)]
    for thread in threads:
        thread.start()
    world.goes_on()
    for thread in threads:
        thread.join()
    assert world.rows("engine_host") == before
    assert len(world.log()) < MIB


def test_host_id_of_somebody_else_opens_nothing(world: World):
    victim, thief = world.peer(), world.peer()
    copy = take(victim)
    (host,) = world.query("select host_id from engine_result where name=?", copy.name)[
        0
    ]
    answer = thief.schedule(host_id=host)
    assert answer.field("hostid") not in {"", str(host)}
    assert copy.name not in names_of(answer)
    assert names_of(victim.schedule(host_id=host)) == [copy.name]  # lost, sent again


def test_cloned_state_becomes_another_host_and_gets_nothing_of_the_first(world: World):
    peer = world.peer()
    mine = int(peer.schedule().field("hostid"))
    old = peer.request(host_id=mine)
    copy = take(peer, host_id=mine)
    answer = peer.send("POST", "/sched", old)  # the copied disk wakes up
    assert answer.field("hostid") not in {"", str(mine)}
    assert copy.name not in names_of(answer)
    assert names_of(peer.schedule(host_id=mine)) == [copy.name]  # the first goes on


def test_report_by_another_host_of_the_same_account_changes_nothing(world: World):
    peer = world.peer()
    other = BoincPeer(world.project.url, peer.key)
    copy = take(peer)
    for state, status in ((5, 0), (3, 1), (6, 200)):
        answer = other.report(copy.name, state=state, exit_status=status)
        assert f"<result_ack><name>{copy.name}<".encode() in answer.body
    assert world.state(copy.name)[0] == "in_progress"
    peer.report(copy.name, state=3, exit_status=1)
    assert world.state(copy.name)[0] == "over"


# ------------------------------------------------------------------ what is sent again


def test_request_played_again_gets_the_same_copy_and_no_other(world: World):
    peer = world.peer()
    request = peer.request(instances=1)
    first = names_of(peer.send("POST", "/sched", request))
    hosts = world.rows("engine_host")
    held = set(first)
    for _ in range(5):
        held |= set(names_of(peer.send("POST", "/sched", request)))
    assert first[0] in held
    assert world.rows("engine_host") == hosts
    (count,) = world.query(
        "select count(*) from engine_result where host_id = "
        "(select host_id from engine_result where name = ?)",
        first[0],
    )[0]
    assert count == len(held)  # everything that it was given, it was told


def test_report_and_upload_played_again_change_nothing(world: World):
    peer = world.peer()
    copy = take(peer)
    assert peer.upload(copy.path, copy.upload, b"answer").field("status") == "0"
    assert world.state(copy.name)[0] == "in_progress"
    for _ in range(3):
        assert peer.report(copy.name).status == 200
    world.wait(lambda: copy.name.rpartition("_")[0] in world.project.outcomes())
    before = world.state(copy.name)
    for data in (b"answer", b"better"):
        again = peer.upload(copy.path, copy.upload, data)
        assert again.field("status") == "-1"
        assert "STO-E031" in again.field("message")
    assert peer.report(copy.name, state=3, exit_status=1).status == 200
    assert world.state(copy.name) == before


# ------------------------------------------------------------------ forged headers


def test_forwarded_address_does_not_buy_more_account_calls(world: World):
    peer = world.peer()
    query = "/lookup_account.php?email_addr=a%40b.org&passwd_hash=" + "0" * 32

    def call(number: int) -> HttpAnswer:
        address = f"192.0.2.{number}"
        headers = {"X-Forwarded-For": address, "Forwarded": f"for={address}"}
        return peer.send("GET", query, headers=headers)

    assert call(0).field("error_num") == "-206"  # taken, and no such account
    answers = [call(number) for number in range(1, 80)]
    refused = [answer for answer in answers if answer.field("error_num") == "-183"]
    assert refused
    assert "STO-E013" in refused[0].field("error_msg")


def test_forged_host_header_changes_no_address_in_the_reply(world: World):
    peer = world.peer()
    headers = {"Host": "evil.example", "X-Forwarded-Host": "evil.example"}
    answer = peer.send("POST", "/sched", peer.request(instances=1), headers)
    assert names_of(answer)
    assert b"evil.example" not in answer.body
    assert world.project.url.encode() + b"upload/" in answer.body


def test_compressed_body_is_not_unpacked(world: World):
    peer = world.peer()
    bomb = gzip.compress(b"<a>" * (20 * MIB))
    headers = {"Content-Encoding": "gzip"}
    before = world.kib()
    answer = peer.send("POST", "/sched", bomb, headers)
    assert answer.status == 400
    assert b"STO-X030" in answer.body
    assert world.kib() - before < 30 * 1024
    odd = {"Content-Type": "image/png", "Expect": "100-continue"}
    assert names_of(peer.send("POST", "/sched", peer.request(instances=1), odd))


# ------------------------------------------------------------------ too much, too slow


def upload_head(copy: Copy, size: int, data: bytes = b"") -> bytes:
    """Return an upload's beginning: a head that announces `size` bytes, and `data`."""
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return (
        f"<data_server_request><file_upload><file_info><name>{copy.upload}</name>"
        f"</file_info><nbytes>{size}</nbytes><md5_cksum>{md5}</md5_cksum>"
        "<offset>0</offset><data>\n"
    ).encode() + data


@pytest.mark.parametrize(
    ("said", "code"), [(100 * MIB, "STO-E032"), (10, "STO-E030")], ids=["true", "small"]
)
def test_upload_of_100_mb_is_refused_and_not_held(world: World, said: int, code: str):
    peer = world.peer()
    copy = take(peer)
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


def slow_head(world: World) -> bytes:
    del world
    return b"POST /sched HTTP/1.1\r\nHost"


def slow_call(world: World) -> bytes:
    del world
    return b"POST /sched HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n<"


def slow_upload(world: World) -> bytes:
    copy = take(world.peer())
    head = upload_head(copy, 900)
    size = len(head) + 900
    start = f"POST {copy.path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
    return start.encode() + head


def slow_account(world: World) -> bytes:
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
    world: World, begin: Callable[[World], bytes]
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


def test_honest_body_in_pieces_is_taken(world: World):
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
        f"<!DOCTYPE x [{BOMB}]><data_server_request>&a8;".encode(),
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
def test_hostile_head_of_an_upload_is_refused_for_good(world: World, head: bytes):
    peer = world.peer()
    copy = take(peer)
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


def files_of(world: World) -> set[str]:
    """Return what lies in the project, but for what comes and goes with honest work."""
    found = set()
    for place, folders, files in os.walk(world.project.directory):
        folders[:] = [one for one in folders if one not in {"volunteer", "uploads"}]
        found |= {f"{place}/{one}" for one in files if "sqlite" not in one}
    return found


@pytest.mark.parametrize("trick", TRICKS, ids=lambda trick: trick[:12])
def test_trick_in_a_name_touches_no_file_and_stops_nothing(world: World, trick: str):
    before = files_of(world)
    peer = world.peer()
    for path in FIELDS:
        answer = peer.schedule(reports=element(path, trick))
        assert answer.status in {200, 400}
        assert answer.status == 200 or b"STO-X030" in answer.body
        assert peer.schedule(reports=element(path, "plain_name")).status == 200
    assert files_of(world) == before
