"""Uploads that are interrupted, resumed, repeated, forged; over real sockets."""

from __future__ import annotations

import hashlib
import socket
from dataclasses import replace

import pytest
import urllib3
from engine_bench import EmbeddedBench
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.boinc.messages import UploadInfo
from stoilo.core.errors import TrustError, UsageError
from stoilo.executor.volunteer.transfer import (
    parse_upload_reply,
    render_size_query,
    render_upload_head,
)
from stoilo.server.engines.embedded.web.app import HttpOptions
from stoilo.server.engines.embedded.web.body_limit import BodyPace
from stoilo.server.engines.embedded.web.requests import parse_upload
from stoilo.server.engines.embedded.workunits import uploads
from stoilo.server.engines.embedded.workunits.uploads import UploadHead
from tests.support.engine import ProjectServer, make_spec

DATA = bytes(range(256)) * 256
MOST = 100_000


def md5_of(data):
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


@pytest.fixture
def bench(tmp_path, clock):
    made = EmbeddedBench(tmp_path / "engine", clock)
    made.engine.create_workunits([make_spec("w_1", result_max_bytes=MOST)])
    yield made
    made.engine.close()


@pytest.fixture
def copy(bench):
    (name,) = bench.fetch(1)
    return name


def serve(bench, pause_s=30.0):
    options = HttpOptions(bodies=BodyPace(pause_s=pause_s))
    return ProjectServer(bench.engine, options=options)


def path_of(bench, copy):
    return "upload/" + bench.uploads[copy].url.rpartition("/")[2]


def post(server, path, body):
    """Return status, size held and message of one upload request."""
    answer = urllib3.request("POST", server.url + path, body=body, retries=False)
    assert answer.status == 200
    return parse_upload_reply(answer.data)


def send(server, bench, copy, data=DATA, *, offset=0, md5="", nbytes=None, path=""):
    upload = bench.uploads[copy]
    nbytes = len(data) if nbytes is None else nbytes
    head = render_upload_head(
        upload, nbytes=nbytes, checksum=md5 or md5_of(data), offset=offset
    )
    return post(server, path or path_of(bench, copy), head + data[offset:])


def sha_of(data):
    return hashlib.sha256(data).hexdigest()


def count_held(server, bench, copy):
    query = render_size_query(bench.uploads[copy].name)
    return post(server, path_of(bench, copy), query)[1]


def interrupt(server, bench, copy, sent):
    """Send the first `sent` bytes of the file, then hang up."""
    upload = bench.uploads[copy]
    body = render_upload_head(upload, nbytes=len(DATA), checksum=md5_of(DATA), offset=0)
    path = "/" + path_of(bench, copy)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        length = len(body) + len(DATA)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
        connection.sendall(head.encode() + body + DATA[:sent])


def file_of(bench, copy):
    return bench.directory / "uploads" / bench.uploads[copy].name


def wholes_in_the_room(bench):
    return [held.whole for held in bench.engine.uploads._room._held.values()]


class Meanwhile:
    """Stands for `UploadDesk._alone`: before its first turn something else happens."""

    def __init__(self, desk, what):
        self.turn, self.what = desk._alone, what

    def __call__(self, name):
        what, self.what = self.what, None
        if what is not None:
            what()
        return self.turn(name)


def test_part_of_an_upload_outlives_a_restart_and_is_resumed(bench, copy, wait_until):
    with serve(bench) as server:
        interrupt(server, bench, copy, 40_000)
        wait_until(lambda: count_held(server, bench, copy) == 40_000)
    bench.restart()
    with serve(bench) as server:
        assert count_held(server, bench, copy) == 40_000
        assert send(server, bench, copy, offset=40_000)[0] == 0
    assert file_of(bench, copy).read_bytes() == DATA
    bench.report(1, copy)
    assert bench.engine.status("w_1").results[0].code == ""


def test_resume_with_other_bytes_is_caught_by_the_checksum(bench, copy, wait_until):
    other = b"x" * len(DATA)
    with serve(bench) as server:
        interrupt(server, bench, copy, 40_000)
        wait_until(lambda: count_held(server, bench, copy) == 40_000)
        status, _, message = send(server, bench, copy, other, offset=40_000)
        assert (status, "STO-E034" in message) == (1, True)
        assert count_held(server, bench, copy) == 0  # from the start, next time
        assert send(server, bench, copy)[0] == 0


def test_resume_behind_what_is_held_is_tried_again(bench, copy):
    with serve(bench) as server:
        status, _, message = send(server, bench, copy, offset=10)
    assert (status, "STO-E034" in message) == (1, True)


def test_earlier_offset_takes_the_place_of_what_was_there(bench, copy, wait_until):
    with serve(bench) as server:
        interrupt(server, bench, copy, 40_000)
        wait_until(lambda: count_held(server, bench, copy) == 40_000)
        assert send(server, bench, copy, offset=10_000)[0] == 0
    assert file_of(bench, copy).read_bytes() == DATA


def test_size_query_of_a_whole_upload_needs_no_bytes(bench, copy):
    with serve(bench) as server:
        assert send(server, bench, copy)[0] == 0
        assert count_held(server, bench, copy) == len(DATA)


def test_neighbours_token_opens_nothing_of_mine(bench, copy):
    (other,) = bench.fetch(2)
    theirs = path_of(bench, other)
    with serve(bench) as server:
        status, _, message = send(server, bench, copy, path=theirs)
        assert (status, "STO-E014" in message) == (-1, True)
        assert send(server, bench, other)[0] == 0  # the negative control
    assert not file_of(bench, copy).exists()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"data": b"x" * (MOST + 1)}, "STO-E030"),
        ({"nbytes": MOST + 1}, "STO-E030"),
        ({"nbytes": 10}, "STO-E030"),
    ],
)
def test_upload_that_is_too_long_is_refused_for_good(bench, copy, fields, code):
    with serve(bench) as server:
        status, _, message = send(server, bench, copy, **fields)
    assert (status, code in message) == (-1, True)
    assert list((bench.directory / "uploads").iterdir()) == []


@pytest.mark.parametrize("known", [True, False])
def test_refusal_of_a_large_body_reaches_its_sender(bench, copy, known):
    data = b"x" * 8_000_000  # more than any socket buffers
    path = "" if known else "upload/" + "0" * 48
    with serve(bench) as server:
        status, _, message = send(server, bench, copy, data, path=path)
    assert (status, "[STO-E0" in message) == (-1, True)


def test_whole_upload_sent_again_is_read_to_its_end(bench, copy):
    with serve(bench) as server:
        assert [send(server, bench, copy)[0] for _ in range(2)] == [0, 0]


def test_slow_upload_ends_and_hurts_nobody(bench, copy):
    (other,) = bench.fetch(2)
    head = f"POST /{path_of(bench, copy)} HTTP/1.1\r\nHost: x\r\nContent-Length: 99999"
    body = render_upload_head(
        bench.uploads[copy], nbytes=len(DATA), checksum=md5_of(DATA), offset=0
    )
    with serve(bench, pause_s=2.0) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            slow.settimeout(60)
            slow.sendall(head.encode() + b"\r\n\r\n" + body + b"slow")
            assert send(server, bench, other)[0] == 0
            answer = b""
            while b"</data_server_reply>" not in answer and (more := slow.recv(4096)):
                answer += more
        assert b"<status>1</status>" in answer
        assert b"STO-E034" in answer
        assert send(server, bench, copy)[0] == 0


def test_two_at_once_for_one_file_do_not_mix(bench, copy):
    body = render_upload_head(
        bench.uploads[copy], nbytes=len(DATA), checksum=md5_of(DATA), offset=0
    )
    token = path_of(bench, copy).rpartition("/")[2]
    head = parse_upload(body)
    with bench.engine.uploads.receive(token, head) as first, serve(bench) as server:
        status, _, message = send(server, bench, copy)
        assert (status, "STO-E034" in message) == (1, True)
        first.write(DATA)
    assert file_of(bench, copy).read_bytes() == DATA


def test_upload_with_its_sha256_counts_once_and_again(bench, copy):
    with serve(bench) as server:
        assert send(server, bench, copy, md5=sha_of(b"other"))[0] == 1
        assert not file_of(bench, copy).exists()
        assert [send(server, bench, copy, md5=sha_of(DATA))[0] for _ in range(2)] == [
            0,
            0,
        ]
        status, _, message = send(server, bench, copy, md5=sha_of(b"other"))
    assert (status, "STO-E030" in message) == (-1, True)
    assert file_of(bench, copy).read_bytes() == DATA


class Reads:
    """Counts how often a file is read."""

    def __init__(self):
        self.count = 0

    def __call__(self, path, **_):
        self.count += 1
        data = path.read_bytes()
        return len(data), "", md5_of(data)


def test_upload_sent_again_and_again_is_read_once_at_most(bench, copy, monkeypatch):
    with serve(bench) as server:
        assert send(server, bench, copy)[0] == 0
    bench.restart()
    monkeypatch.setattr(uploads, "measure", reads := Reads())
    with serve(bench) as server:
        for _ in range(5):
            assert send(server, bench, copy)[0] == 0
        status, _, message = send(server, bench, copy, b"x" * len(DATA))
    assert (status, "STO-E030" in message) == (-1, True)
    assert reads.count == 1


def test_file_that_a_crash_left_before_its_commit_is_no_upload(bench, copy, wait_until):
    file_of(bench, copy).write_bytes(DATA)
    bench.restart()
    with serve(bench) as server:
        interrupt(server, bench, copy, 1000)
        wait_until(lambda: count_held(server, bench, copy) == 1000)
    assert wholes_in_the_room(bench) == [False]
    with serve(bench) as server:
        assert send(server, bench, copy)[0] == 0
    assert file_of(bench, copy).read_bytes() == DATA


def test_upload_that_ended_while_another_was_about_to_begin_stays(bench, copy):
    desk, upload = bench.engine.uploads, bench.uploads[copy]
    token = upload.url.rpartition("/")[2]
    head = UploadHead(upload.name, len(DATA), md5_of(DATA), 0)
    late = desk.receive(token, replace(head, checksum=md5_of(b"other")))
    desk._alone = Meanwhile(desk, lambda: bench.upload(copy, DATA))
    with pytest.raises(UsageError, match="STO-E030"), late:
        pass
    assert file_of(bench, copy).read_bytes() == DATA


@given(st.binary(max_size=400), st.integers(0, 300), st.booleans())
def test_any_head_ends_in_a_value_or_our_error(junk, place, cut):
    upload = UploadInfo("w_1_0_r1_0", "http://127.0.0.1/upload/x", MOST)
    sound = render_upload_head(upload, nbytes=9, checksum=md5_of(b""), offset=0)
    try:
        parse_upload(sound[:place] + junk + (b"" if cut else sound[place:]))
    except TrustError as error:
        assert error.code == "STO-X030"
