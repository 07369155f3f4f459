"""Mirrors: which are named to whom, who is found out, who is excused, who may pull."""

from __future__ import annotations

import contextlib
import hashlib
import random
import socket
import threading
import time

import pytest
import urllib3
from engine_bench import EmbeddedBench
from sqlalchemy import select

from stoilo.core.boinc.messages import (
    FileInfo,
    ReportedResult,
)
from stoilo.core.errors import UsageError
from stoilo.learn.traffic.face import VolunteerFace
from stoilo.learn.traffic.holdings import Holdings
from stoilo.server.engines.embedded.accounts.accounts import load_secret
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.engine import EngineOptions
from stoilo.server.engines.embedded.files import mirrors as module
from stoilo.server.engines.embedded.files.holders import Holders
from stoilo.server.engines.embedded.files.mirrors import (
    DOWNLOAD_FAILED,
    LEAST_BYTES,
    Mirrors,
    check_mirror,
    is_mirror_key,
    parse_mirrors,
)
from stoilo.server.engines.interface import ResultOutcome
from stoilo.server.engines.workunits import WorkunitFile
from tests.support.engine import ProjectServer, make_spec
from tests.support.mirrors import CachingMirror, serve_app
from tests.support.scripted import Scripted, ScriptedProject
from tests.support.server import ManualClock
from tests.support.watched import put

ONE, TWO = "https://one.example/f/", "https://two.example/"
MODEL = random.Random(1).randbytes(200_000)
DIGEST = hashlib.sha256(MODEL).hexdigest()
PRIVATE = random.Random(2).randbytes(200_000)
PRIVATE_DIGEST = hashlib.sha256(PRIVATE).hexdigest()
SHARED = WorkunitFile("model", DIGEST, MODEL, sticky=True)


def test_setting_names_urls():
    assert parse_mirrors("") == ()
    assert parse_mirrors(f" {ONE}, {TWO},") == (ONE, TWO)


@pytest.mark.parametrize(
    "text",
    [
        "https://one.example",
        "ftp://one.example/",
        "https://a@one.example/",
        "https://one.example/?q=",
        "https://one.example/ weight=2",
        f"{ONE},{ONE}",
        ",".join(f"https://{number}.example/" for number in range(65)),
    ],
)
def test_setting_that_makes_no_sense_is_refused(text):
    with pytest.raises(UsageError, match="STO-R090"):
        parse_mirrors(text)


def failed(copy="w_0"):
    return ReportedResult(copy, 1, DOWNLOAD_FAILED)


@pytest.fixture
def clock():
    return ManualClock(1_800_000_000)


@pytest.fixture
def doubts():
    return []


@pytest.fixture
def board(clock, doubts, monkeypatch):
    """Two mirrors of which one was found well."""
    monkeypatch.setattr(
        module, "check_mirror", lambda url, *_: "" if url == ONE else "x"
    )
    made = Mirrors([ONE, TWO], clock, lambda: doubts.append(True))
    made.check({})
    return made


def named(board, host=1, *, sticky=True, nbytes=LEAST_BYTES + 1):
    file = FileInfo(DIGEST, "http://project/f", nbytes, "0" * 32, sticky)
    (sent,) = board.name([file], host)
    return sent.mirrors


def test_mirror_is_named_for_large_shared_files(board):
    assert named(board) == (f"{ONE}{DIGEST}",)
    assert named(board, sticky=False) == ()
    assert named(board, nbytes=LEAST_BYTES) == ()


class Known:
    """Nodes of which it is known who has what."""

    def __init__(self, holders):
        self.holders = lambda: holders

    def offer(self, digest, path):
        """Nothing spreads here."""

    def stop(self):
        """Nothing was begun."""


def test_node_is_named_for_what_it_has_and_only_then(board):
    other = "0" * 64
    board.nodes = Known(Holders({DIGEST: frozenset(), other: frozenset({TWO})}))
    board._good = frozenset({ONE, TWO})
    board.urls = ()
    assert named(board) == ()
    board.nodes = Known(Holders({DIGEST: frozenset({TWO}), other: frozenset({ONE})}))
    assert named(board) == (f"{TWO}{DIGEST}",)
    # The control: a plain list of the same nodes names one that lacks the file.
    board.nodes, board.urls = None, (ONE, TWO)
    assert f"{ONE}{DIGEST}" in named(board)


def test_fastest_node_for_the_hosts_network_comes_first_beside_mirrors(board):
    here = Holders({DIGEST: frozenset({TWO})}, {"203.0.113.0/24": {TWO: 5.0}})
    board.nodes, board._good = Known(here), frozenset({ONE, TWO})
    file = FileInfo(DIGEST, "http://project/f", LEAST_BYTES + 1, "0" * 32, sticky=True)

    def first(host, address):
        return board.name([file], host, address)[0].mirrors[0].removesuffix(DIGEST)

    assert board.urls == (ONE, TWO)
    board.urls = (ONE,)
    near = [first(host, "203.0.113.9") for host in range(200)]
    far = [first(host, "198.51.100.9") for host in range(200)]
    # p = 1/2: of two addresses one is known, and the other half tries the unknown one.
    assert 70 < near.count(TWO) < 130
    assert 70 < far.count(TWO) < 130
    here.rates["203.0.113.0/24"][ONE] = 1.0
    assert [first(host, "203.0.113.9") for host in range(200)].count(TWO) > 170


def test_node_is_in_use_for_as_long_as_it_sends_what_the_project_has(
    tmp_path, clock, known
):
    held = Holdings(tmp_path / "held")
    item = put(held, 1, MODEL)
    face = VolunteerFace("127.0.0.1:0")
    face.start(held, print)
    made = Mirrors([], clock)
    made.nodes = Known(Holders({DIGEST: frozenset({face.url})}))
    made.check({}, {"0" * 64: tmp_path, **known}, 60.0)
    assert named(made) == (f"{face.url}{DIGEST}",)
    (tmp_path / "held" / item.key).write_bytes(bytes(len(MODEL)))
    made.check({}, known, 60.0)
    assert named(made) == ()
    face.stop()


def test_mirror_that_was_not_checked_is_named_to_nobody(clock):
    assert named(Mirrors([ONE], clock)) == ()


def test_mirror_that_fails_a_check_is_out_until_it_is_well(board, monkeypatch):
    monkeypatch.setattr(module, "check_mirror", lambda *_: "dead")
    board.check({})
    assert named(board) == ()
    monkeypatch.setattr(module, "check_mirror", lambda *_: "")
    board.check({})
    assert len(named(board)) == 2


def test_hosts_spread_and_keep_their_mirrors(clock, monkeypatch):
    monkeypatch.setattr(module, "check_mirror", lambda *_: "")
    urls = [f"https://{number}.example/" for number in range(4)]
    board, fewer = Mirrors(urls, clock), Mirrors(urls[:3], clock)
    board.check({})
    fewer.check({})
    firsts = [named(board, host)[0] for host in range(400)]
    assert firsts == [named(board, host)[0] for host in range(400)]
    assert all(70 <= firsts.count(f"{url}{DIGEST}") <= 130 for url in urls)
    moved = [
        first for host, first in enumerate(firsts) if named(fewer, host)[0] != first
    ]
    assert set(moved) == {f"{urls[3]}{DIGEST}"}


def test_host_whose_downloads_failed_is_excused_and_sent_to_no_mirror(
    board, clock, doubts
):
    named(board)
    assert board.excuses(1, failed(), clock())
    assert named(board) == ()
    assert named(board, host=2) != ()
    assert doubts == [True]
    clock.now += 86_400
    assert named(board) != ()


def test_what_was_sent_before_is_excused_and_what_is_sent_later_is_not(
    board, clock, doubts
):
    sent = clock()
    clock.now += 600
    assert board.excuses(1, failed(), sent)
    clock.now += 86_399
    assert board.excuses(1, failed("w_1"), sent)
    assert board.excuses(1, failed("w_1"), sent)  # even if asked twice
    assert board.excuses(1, failed("w_2"), sent + 659)  # the client has the wrong file
    assert not board.excuses(1, failed("w_3"), sent + 660)
    assert doubts == [True]
    clock.now += 1  # later excuses do not prolong the day
    assert named(board) != ()


def test_host_that_failed_otherwise_or_without_mirrors_is_not_excused(board, clock):
    assert not board.excuses(1, ReportedResult("w_0", 3, 195), clock())
    assert not Mirrors([ONE], clock).excuses(1, failed(), clock())


@pytest.fixture
def known(tmp_path):
    path = tmp_path / DIGEST
    path.write_bytes(MODEL)
    return {DIGEST: path}


def test_dead_mirror_is_found_out(known):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
    assert "no answer" in check_mirror(url, known, 60.0)


HEADS = {
    "in its headers": b"HTTP/1.1 200 OK\r\nX-Long: ",
    "in its body": b"HTTP/1.1 206 OK\r\nContent-Length: 60000\r\n\r\n",
}


@pytest.mark.parametrize("place", HEADS)
def test_mirror_that_drips_is_too_slow(known, place):
    closing = threading.Event()

    def drip(listener):
        with contextlib.suppress(OSError), listener.accept()[0] as peer:
            peer.sendall(HEADS[place])
            while not closing.wait(0.05):
                peer.sendall(b"0")

    begun = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=drip, args=(listener,), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        assert check_mirror(url, known, 0.5)
        closing.set()
    assert time.monotonic() - begun < 60  # it never ends


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Scripted(MODEL), "more than 65536 bytes"),
        (Scripted(status=404), "HTTP 404"),
        (Scripted(bytes(65_536), status=206), "wrong bytes"),
    ],
)
def test_mirror_that_sends_something_else_is_found_out(known, answer, problem):
    with ScriptedProject() as mirror:
        mirror.answer(f"/{DIGEST}", answer)
        assert problem in check_mirror(mirror.url, known, 60.0)


def test_nothing_to_ask_for_makes_no_mirror_good():
    assert check_mirror(ONE, {}, 1.0)


@pytest.mark.parametrize("secret", [b"", b"k", b"k" * 31, b"k" * 33])
def test_key_file_that_holds_no_key_opens_nothing(tmp_path, secret):
    path = tmp_path / "mirror.secret"
    assert not is_mirror_key(path, "")
    path.write_bytes(secret)
    assert not is_mirror_key(path, secret.hex())


@pytest.fixture
def mirror(tmp_path):
    """An honest cache that has nothing yet."""
    (tmp_path / "cache").mkdir()
    made = CachingMirror(tmp_path / "cache")
    with serve_app(made) as made.url:
        yield made


@pytest.fixture
def bench(tmp_path, mirror):
    options = EngineOptions(mirrors=(mirror.url,))
    made = EmbeddedBench(tmp_path / "engine", ManualClock(1_800_000_000), options)
    files = (SHARED, WorkunitFile("arguments", PRIVATE_DIGEST, PRIVATE))
    made.engine.create_workunits([make_spec("w", files=files)])
    yield made
    made.engine.close()


@pytest.fixture
def checked(bench, mirror, tmp_path):
    """The same with a mirror that was found well."""
    mirror.key = load_secret(tmp_path / "engine" / "mirror.secret").hex()
    with ProjectServer(bench.engine) as server:
        mirror.project = server.url
        bench.engine._check_mirrors()
    return bench


def urls(bench, user=1):
    reply = bench.request(user, cpu_req_instances=1.0)
    return {info.name: info.mirrors for info in reply.files}


def test_cache_gets_what_tasks_share_for_the_key_and_nothing_else(bench, tmp_path):
    key = load_secret(tmp_path / "engine" / "mirror.secret").hex()

    def get(digest, said):
        return urllib3.request(
            "GET",
            f"{server.url}mirror/file/{digest}",
            headers={"Authorization": said},
            retries=False,
        )

    with ProjectServer(bench.engine) as server:
        got = get(DIGEST, f"Bearer {key}")
        assert got.data == MODEL
        assert "public" in got.headers["cache-control"]
        for said in ("", "Bearer ", "Bearer " + "0" * 64, key, f"Basic {key}"):
            assert get(DIGEST, said).status == 404
        for digest in (PRIVATE_DIGEST, "0" * 64, "..", DIGEST.upper()):
            assert get(digest, f"Bearer {key}").status == 404


def test_project_without_a_key_gives_nobody_anything(bench):
    assert bench.engine.find_shared(DIGEST, "") is None
    assert bench.engine.find_shared(DIGEST, "0" * 64) is None


def test_host_is_sent_to_a_checked_mirror_for_shared_files_only(checked, mirror):
    named_for = urls(checked)
    assert named_for.pop(DIGEST) == (f"{mirror.url}{DIGEST}",)
    assert set(named_for.values()) == {()}
    got = urllib3.request("GET", f"{mirror.url}{DIGEST}", retries=False)
    assert got.data == MODEL


def test_host_that_calls_is_sent_by_the_rates_of_its_network(bench):
    asked = []

    class Rates(dict):
        def get(self, network, _default=None):
            asked.append(network)
            return {ONE: 1.0, TWO: 9.0}

    bench.engine.mirrors.nodes = Known(
        Holders({DIGEST: frozenset({ONE, TWO})}, Rates())
    )
    bench.engine.mirrors._good = frozenset({ONE, TWO})
    reply = bench.request(1, cpu_req_instances=1.0, address="203.0.113.9")
    named_for = {info.name: info.mirrors for info in reply.files}
    assert {*named_for[DIGEST]} == {f"{ONE}{DIGEST}", f"{TWO}{DIGEST}"}
    assert asked == ["203.0.113.0/24"]


def test_mirror_that_lies_is_found_out_and_comes_back(checked, mirror):
    file = mirror.folder / DIGEST
    file.write_bytes(bytes(len(MODEL)))
    checked.engine._check_mirrors()
    assert set(urls(checked).values()) == {()}
    file.write_bytes(MODEL)
    checked.engine._check_mirrors()
    assert urls(checked, user=2)[DIGEST]


def outcome_of(bench, copy):
    table = schema.results
    with bench.engine._database.read() as connection:
        query = select(table.c.outcome, table.c.code).where(table.c.name == copy)
        return tuple(connection.execute(query).one())


def failures(copies):
    return tuple(failed(copy) for copy in copies)


@pytest.fixture
def many(checked):
    """Sixteen copies of a trusted host that was sent to a mirror for all of them."""
    specs = [make_spec(f"v_{number}", files=(SHARED,)) for number in range(16)]
    checked.engine.create_workunits(specs)
    checked.set_record(1, 10)
    reply = checked.request(1, cpu_req_instances=16.0)
    copies = [result.name for result in reply.results]
    assert len(copies) == 16
    return copies


@pytest.mark.parametrize("first", [16, 1, 8])
def test_no_copy_that_a_lying_mirror_failed_is_charged(checked, many, first):
    checked.request(1, results=failures(many[:first]))
    checked.pass_time(3600)
    if many[first:]:
        checked.request(1, results=failures(many[first:]))
    excused = (ResultOutcome.NOT_NEEDED.value, "STO-E021")
    assert {outcome_of(checked, copy) for copy in many} == {excused}
    assert checked.record(1) == 10
    checked.settle()
    assert len(checked.fetch(2, room=16)) == 16


def test_excuse_survives_a_transaction_that_is_done_again(checked, many, monkeypatch):
    def twice(database, work):
        with contextlib.suppress(ZeroDivisionError), database.write() as connection:
            work(connection)
            raise ZeroDivisionError
        with database.write() as connection:
            return work(connection)

    monkeypatch.setattr(type(checked.engine._database), "write_together", twice)
    checked.request(1, results=failures(many))
    assert {outcome_of(checked, copy)[1] for copy in many} == {"STO-E021"}
    assert checked.record(1) == 10


def test_liar_does_not_end_a_workunit(checked):
    for user in range(1, 31):
        reply = checked.request(user, cpu_req_instances=1.0)
        checked.request(user, results=failures(one.name for one in reply.results))
        checked.settle()
    assert checked.engine.status("w").outcome is None
    assert len(checked.fetch(40)) == 1


def test_copy_whose_download_failed_without_mirrors_is_an_error(bench):
    bench.set_record(1, 10)
    reply = bench.request(1, cpu_req_instances=1.0)
    (copy,) = (result.name for result in reply.results)
    bench.request(1, results=failures([copy]))
    assert bench.record(1) == 0
    assert outcome_of(bench, copy) == (ResultOutcome.CLIENT_ERROR.value, "STO-E021")
