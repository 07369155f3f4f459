"""A project with mirrors: who may pull, who is named, who is found out."""

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

from stoilo.core.boinc.messages import ReportedResult
from stoilo.core.errors import DeniedError, TrustError, UnreachableError
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.engine import EngineOptions
from stoilo.server.engines.embedded.people.accounts import load_secret
from stoilo.server.engines.interface import CopyOutcome, WorkunitFile
from stoilo.server.engines.mirrorboard import DOWNLOAD_FAILED, MirrorBoard
from stoilo.server.engines.mirrors import Mirror
from stoilo.server.mirror.listing import Listed
from stoilo.server.mirror.pull import Origin, sync
from stoilo.server.mirror.serving import create_mirror_app
from stoilo.server.mirror.shelf import Shelf
from stoilo.server.mirrorwatch import CheckPace, MirrorWatch, check_mirror
from tests.support.engine import ProjectServer, make_spec
from tests.support.mirrors import serve_app
from tests.support.scripted import Scripted, ScriptedProject
from tests.support.server import ManualClock

MODEL = random.Random(1).randbytes(200_000)
DIGEST = hashlib.sha256(MODEL).hexdigest()
PRIVATE = random.Random(2).randbytes(200_000)
SHARED = WorkunitFile("model", DIGEST, MODEL, sticky=True)
PACE = CheckPace(seconds=60.0, pieces=3)


@pytest.fixture
def place(tmp_path):
    """The folder of a mirror and its URL."""
    folder = tmp_path / "mirror"
    Shelf(folder).write_index()
    with serve_app(create_mirror_app(folder)) as url:
        yield folder, url


@pytest.fixture
def bench(tmp_path, place):
    options = EngineOptions(mirrors=(Mirror(place[1]),))
    made = EmbeddedBench(tmp_path / "engine", ManualClock(1_800_000_000), options)
    private = hashlib.sha256(PRIVATE).hexdigest()
    files = (
        SHARED,
        WorkunitFile("arguments", private, PRIVATE),
    )
    made.engine.create_workunits([make_spec("w", files=files)])
    yield made
    made.engine.close()


def pull(bench, tmp_path, key=None):
    if key is None:
        key = load_secret(tmp_path / "engine" / "mirror.secret").hex()
    with ProjectServer(bench.engine) as server, Origin(server.url, key) as origin:
        return sync(origin, Shelf(tmp_path / "mirror"), 10**9)


def check(bench):
    MirrorWatch(bench.engine.mirrors, bench.engine.mirror_desk, PACE).check_due()


def urls(bench, user=1):
    reply = bench.request(user, cpu_req_instances=1.0)
    return {info.name: info.mirrors for info in reply.files}


def test_mirror_gets_what_tasks_share_and_nothing_of_one_task(bench, tmp_path):
    assert pull(bench, tmp_path).fetched == 1
    assert Shelf(tmp_path / "mirror").held() == {DIGEST: len(MODEL)}


@pytest.mark.parametrize("key", ["", "0" * 64])
def test_stranger_gets_nothing(bench, tmp_path, key):
    load_secret(tmp_path / "engine" / "mirror.secret")
    with pytest.raises(DeniedError, match="STO-B057"):
        pull(bench, tmp_path, key or "x")


@pytest.mark.parametrize("secret", [b"", b"k", b"k" * 31, b"k" * 33])
def test_key_file_that_holds_no_key_opens_nothing(bench, tmp_path, secret):
    (tmp_path / "engine" / "mirror.secret").write_bytes(secret)
    assert not bench.engine.mirror_desk.is_key(secret.hex())
    with ProjectServer(bench.engine) as server:
        got = urllib3.request(
            "GET",
            f"{server.url}mirror/list",
            headers={"Authorization": f"Bearer {secret.hex()}"},
            retries=False,
        )
    assert got.status != 200


def test_project_without_a_key_gives_nobody_anything(bench, tmp_path):
    with pytest.raises(DeniedError, match="STO-B057"):
        pull(bench, tmp_path, "0" * 64)


def test_host_is_sent_to_a_checked_mirror_for_shared_files_only(bench, place, tmp_path):
    pull(bench, tmp_path)
    check(bench)
    named = urls(bench)
    assert named.pop(DIGEST) == (f"{place[1]}{DIGEST}",)
    assert set(named.values()) == {()}
    got = urllib3.request("GET", f"{place[1]}{DIGEST}", retries=False)
    assert got.data == MODEL


def test_mirror_that_lies_is_found_out_and_comes_back(bench, place, tmp_path):
    pull(bench, tmp_path)
    file = place[0] / DIGEST
    file.write_bytes(bytes(len(MODEL)))
    check(bench)
    assert set(urls(bench).values()) == {()}
    file.write_bytes(MODEL)
    bench.clock.now += 60
    check(bench)
    assert urls(bench, user=2)[DIGEST]


def test_copy_whose_download_failed_at_a_mirror_costs_nobody_anything(bench, tmp_path):
    pull(bench, tmp_path)
    check(bench)
    bench.set_record(1, 10)
    reply = bench.request(1, cpu_req_instances=1.0)
    (copy,) = (result.name for result in reply.results)
    bench.request(1, results=(ReportedResult(copy, 1, DOWNLOAD_FAILED),))
    assert bench.record(1) == 10
    assert outcome_of(bench, copy) == (CopyOutcome.NOT_NEEDED.value, "STO-B052")


def failures(copies):
    return tuple(ReportedResult(copy, 1, DOWNLOAD_FAILED) for copy in copies)


@pytest.fixture
def many(bench, tmp_path):
    """Sixteen copies of a trusted host that was sent to a mirror for all of them."""
    specs = [make_spec(f"v_{number}", files=(SHARED,)) for number in range(16)]
    bench.engine.create_workunits(specs)
    pull(bench, tmp_path)
    check(bench)
    bench.set_record(1, 10)
    reply = bench.request(1, cpu_req_instances=16.0)
    copies = [result.name for result in reply.results]
    assert len(copies) == 16
    return copies


@pytest.mark.parametrize("first", [16, 1, 8])
def test_no_copy_that_a_lying_mirror_failed_is_charged(bench, many, first):
    bench.request(1, results=failures(many[:first]))
    bench.pass_time(3600)
    if many[first:]:
        bench.request(1, results=failures(many[first:]))
    excused = (CopyOutcome.NOT_NEEDED.value, "STO-B052")
    assert {outcome_of(bench, copy) for copy in many} == {excused}
    assert bench.record(1) == 10
    bench.settle()
    assert len(bench.fetch(2, room=16)) == 16


def test_excuse_survives_a_transaction_that_is_done_again(bench, many, monkeypatch):
    def twice(database, work):
        with contextlib.suppress(ZeroDivisionError), database.write() as connection:
            work(connection)
            raise ZeroDivisionError
        with database.write() as connection:
            return work(connection)

    monkeypatch.setattr(type(bench.engine._database), "write_together", twice)
    bench.request(1, results=failures(many))
    assert {outcome_of(bench, copy)[1] for copy in many} == {"STO-B052"}
    assert bench.record(1) == 10


def test_liar_does_not_end_a_workunit(bench, tmp_path):
    pull(bench, tmp_path)
    check(bench)
    for user in range(1, 31):
        reply = bench.request(user, cpu_req_instances=1.0)
        bench.request(user, results=failures(one.name for one in reply.results))
        bench.settle()
    assert bench.engine.status("w").outcome is None
    assert len(bench.fetch(40)) == 1


def test_copy_whose_download_failed_without_mirrors_is_an_error(bench):
    bench.set_record(1, 10)
    reply = bench.request(1, cpu_req_instances=1.0)
    (copy,) = (result.name for result in reply.results)
    bench.request(1, results=(ReportedResult(copy, 1, DOWNLOAD_FAILED),))
    assert bench.record(1) == 0
    assert outcome_of(bench, copy) == (CopyOutcome.CLIENT_ERROR.value, "STO-E021")


def outcome_of(bench, copy):
    table = schema.copies
    with bench.engine._database.read() as connection:
        query = select(table.c.outcome, table.c.code).where(table.c.name == copy)
        return tuple(connection.execute(query).one())


@pytest.fixture
def known(tmp_path):
    path = tmp_path / DIGEST
    path.write_bytes(MODEL)
    return {DIGEST: path}


def test_dead_mirror_is_unreachable(known):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
    with pytest.raises(UnreachableError, match="STO-B056"):
        check_mirror(url, known, PACE)


def test_slow_mirror_is_unreachable(known):
    ticks = iter(range(0, 10**6, 100))
    with ScriptedProject() as mirror:
        mirror.answer("/index.txt", Scripted(f"{DIGEST}\n".encode()))
        with pytest.raises(UnreachableError, match="too slow"):
            check_mirror(mirror.url, known, PACE, lambda: next(ticks))


@pytest.fixture
def dripping():
    """Return what serves one byte now and then, after some of an answer was sent."""
    closing = threading.Event()
    with contextlib.ExitStack() as stack:
        stack.callback(closing.set)

        def serve(head):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            threading.Thread(target=drip, args=(listener, head), daemon=True).start()
            return f"http://127.0.0.1:{listener.getsockname()[1]}/"

        def drip(listener, head):
            with contextlib.suppress(OSError), listener.accept()[0] as peer:
                peer.sendall(head)
                while not closing.wait(0.05):
                    peer.sendall(b"0")

        yield serve


HEADS = {
    "in its headers": b"HTTP/1.1 200 OK\r\nX-Long: ",
    "in its body": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
}


@pytest.mark.parametrize("place", HEADS)
def test_mirror_that_drips_is_too_slow(known, dripping, place):
    begun = time.monotonic()
    with pytest.raises(UnreachableError, match="STO-B056"):
        check_mirror(dripping(HEADS[place]), known, CheckPace(seconds=0.5))
    assert time.monotonic() - begun < 60  # it never ends


def test_watch_ends_soon_though_a_check_goes_on(bench, dripping):
    board = MirrorBoard([Mirror(dripping(HEADS["in its body"]))], bench.clock)
    pace = CheckPace(seconds=200.0, stop_s=0.2)
    watch = MirrorWatch(board, bench.engine.mirror_desk, pace)
    watch.start()
    begun = time.monotonic()
    watch.stop()
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize(
    "index", [b"<html>welcome</html>", b"0" * 70, f"{'A' * 64}\n".encode()]
)
def test_mirror_without_a_readable_index_is_none(known, index):
    with ScriptedProject() as mirror:
        mirror.answer("/index.txt", Scripted(index))
        with pytest.raises(TrustError, match="STO-B053"):
            check_mirror(mirror.url, known, PACE)


def test_mirror_that_sends_whole_files_for_pieces_is_out(known):
    with ScriptedProject() as mirror:
        mirror.answer("/index.txt", Scripted(f"{DIGEST}\n".encode()))
        mirror.answer(f"/{DIGEST}", Scripted(MODEL))
        with pytest.raises(UnreachableError, match="HTTP 200"):
            check_mirror(mirror.url, known, PACE)


@pytest.mark.parametrize("name", ["..%2Fsecret", ".part", "a" * 63, f"{'A' * 64}"])
def test_mirror_serves_nothing_else_of_its_folder(place, name):
    folder, url = place
    (folder / ".part").write_bytes(b"x")
    (folder.parent / "secret").write_bytes(b"x")
    assert urllib3.request("GET", url + name, retries=False).status == 404


def test_file_that_has_not_its_digest_is_not_published(tmp_path):
    shelf = Shelf(tmp_path / "mirror")
    shelf.part_of(DIGEST).write_bytes(b"x")
    with pytest.raises(TrustError, match="STO-B054"):
        shelf.publish(Listed(DIGEST, 1))
    assert shelf.held() == {}
