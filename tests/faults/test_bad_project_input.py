"""Bad input to a running project: scheduler XML, uploads, downloads, account calls."""

from __future__ import annotations

import re
import socket
import time
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoilo.core.rpc import tasks_pb2 as pb
from tests.support.attackers import ENTITY_BOMB, resident_kib, take_copy
from tests.support.wire import BoincPeer

pytestmark = pytest.mark.usefixtures("copy", "trudys_copy", "eve", "harmless")
THREE = pb.RedundancyOptions(
    min_quorum=3,
    target_results=3,
    max_error=3,
    max_total=6,
    max_success=4,
    delay_bound_s=600,
)


@contextmanager
def one_copy_held(target, peer, wait_until):
    """Take one copy of a fresh task that needs three hosts, on a host of `peer`."""
    task_id = target.client.submit(redundancy=THREE)

    def ask():
        time.sleep(0.2)  # who asks all the time is refused
        return take_copy(peer)

    yield wait_until(ask)
    target.client.cancel(task_id)


@pytest.fixture(scope="module")
def copy(target, wait_until):
    target.peer.schedule()
    peer = BoincPeer(target.project, target.deployment.account("mallory@example.org"))
    with one_copy_held(target, peer, wait_until) as held:
        yield held


@pytest.fixture(scope="module")
def trudy(target):
    return BoincPeer(target.project, target.deployment.account("trudy@example.org"))


@pytest.fixture(scope="module")
def trudys_copy(target, trudy, wait_until, copy):  # noqa: ARG001 - after the first
    """Taken before any honest task is there to be taken instead."""
    with one_copy_held(target, trudy, wait_until) as held:
        yield held


@pytest.fixture(scope="module")
def eve(target):
    peer = BoincPeer(target.project, target.deployment.account("eve@example.org"))
    peer.schedule()
    return peer


# ------------------------------------------------------------------ scheduler XML


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe\x00<",
        b"<scheduler_request>",
        b"<scheduler_request/>",
        b"<html></html>",
        b"<scheduler_request></scheduler_reply>",
        f"<!DOCTYPE x [{ENTITY_BOMB}]><scheduler_request>&a8;</scheduler_request>".encode(),
        b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><scheduler_request/>',
        b'<?xml version="1.0"?><!ENTITY x "y"><scheduler_request/>',
        b"<a>" * 20_000,
        b"<a/>" * 15_000,
        b"<scheduler_request>" + b"<!--" * 15_000,
        b"<scheduler_request x=" + b"'" * 60_000,
        (
            b"<scheduler_request><host_info><host_cpid>../..</host_cpid></host_info>"
            b"</scheduler_request>"
        ),
    ],
    ids=lambda body: repr(body[:30]),
)
def test_broken_or_hostile_xml_is_refused(target, body):
    answer = target.peer.send("POST", "/sched", body)
    assert answer.status == 400
    assert b"STO-X030" in answer.body


def test_large_body_without_a_key_at_its_beginning_is_refused_unread(target):
    answer = target.peer.send("POST", "/sched", b"<a>" * 100_000)
    assert answer.status == 413
    assert b"STO-E012" in answer.body


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        ("rpc_seqno", "-1"),
        ("rpc_seqno", "1e400"),
        ("hostid", "nan"),
        ("hostid", "9" * 63),
        ("cpu_req_instances", "inf"),
        ("authenticator", "k" * 300),
    ],
)
def test_hostile_number_or_length_is_refused(target, tag, value):
    body = target.peer.request().decode()
    body = re.sub(f"<{tag}>[^<]*<", f"<{tag}>{value}<", body)
    answer = target.peer.send("POST", "/sched", body.encode())
    assert (answer.status, b"STO-X030" in answer.body) == (400, True)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "..", "a/b", "", "x" * 250, "&#0;"]
)
def test_path_trick_as_a_result_name_is_refused(target, name):
    answer = target.peer.report(name)
    assert (answer.status, b"STO-X030" in answer.body) == (400, True)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.binary(max_size=400))
def test_any_bytes_get_an_answer(target, data):
    assert target.peer.send("POST", "/sched", data).status == 400


@pytest.mark.parametrize("key", ["", "0" * 32, "' or 1=1 --", "k" * 255, "é"])
def test_wrong_key_gets_no_work_and_makes_no_host(target, key):
    answer = target.peer.schedule(key=key, instances=8)
    assert answer.status == 200
    assert b"stoilo_bad_key" in answer.body
    assert b"<result>" not in answer.body


@pytest.mark.parametrize(
    "path", ["/sched", "/upload/" + "0" * 48, "/lookup_account.php"]
)
def test_body_of_100_mb_is_refused_and_not_held(target, path):
    before = resident_kib(target.deployment.pid)

    def body():
        for _ in range(100):
            yield bytes(1024 * 1024)

    headers = {"Content-Length": str(100 * 1024 * 1024)}
    answer = target.peer.send("POST", path, body(), headers)
    refused = answer.status in {0, 400, 413} or answer.field("status") == "-1"
    refused |= answer.field("error_num") == "-112"
    assert refused, answer
    assert resident_kib(target.deployment.pid) - before < 60 * 1024


def test_endless_chunked_body_is_cut_off(target):
    def body():
        for _ in range(200):
            yield b"<a>" * 50_000

    assert target.peer.send("POST", "/sched", body()).status in {0, 413}


@pytest.mark.parametrize(
    "raw",
    [
        b"\0" * 100 + b"\r\n\r\n",
        b"POST /sched HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        (
            b"POST /sched HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
            b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
        ),
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /download/%ff%00%2e%2e HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /download/\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /upload/\xd0\x9f HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=lambda raw: repr(raw[:40]),
)
def test_broken_http_hurts_nobody(target, raw):
    host, _, port = target.project.removeprefix("http://").strip("/").partition(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        try:
            while more := connection.recv(4096):
                answer += more
        except ConnectionError:
            pass
    assert b" 200 " not in answer.partition(b"\r\n")[0] or b"-1" in answer


def test_connection_lost_in_the_middle_of_a_body_hurts_nobody(target, copy):
    for path in ("/sched", copy.path):
        host, _, port = target.project.removeprefix("http://").strip("/").partition(":")
        connection = socket.create_connection((host, int(port)), timeout=60)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n"
        connection.sendall(head.encode() + b"<scheduler_request>")
        connection.close()


@pytest.mark.slow
def test_body_that_stops_coming_is_given_up(target):
    """Six connections that send one byte and nothing more; others are served meanwhile."""
    host, _, port = target.project.removeprefix("http://").strip("/").partition(":")
    head = b"POST /sched HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n<"
    open_ones = [socket.create_connection((host, int(port)), 40) for _ in range(6)]
    for connection in open_ones:
        connection.sendall(head)
    assert target.peer.schedule().status == 200
    for connection in open_ones:
        answer = b""  # head and body may come one by one
        while b"STO-E034" not in answer and (more := connection.recv(4096)):
            answer += more
        connection.close()
        assert b"STO-E034" in answer


# ---------------------------------------------------------------- others' results


def test_report_about_another_hosts_copy_changes_nothing(target, copy, eve):
    before = target.copy_row(copy.name)
    for state, status in ((5, 0), (3, 1), (6, 200)):
        assert eve.report(copy.name, state=state, exit_status=status).status == 200
    assert target.copy_row(copy.name) == before


def test_another_hosts_copy_looks_like_none(copy, eve):
    known = eve.schedule(
        reports=f"<other_results><other_result><name>{copy.name}</name></other_result>"
        "<other_result><name>nobody_1_0</name></other_result></other_results>"
    )
    assert known.body.count(b"<result_abort>") == 2


# ------------------------------------------------------------------------ uploads


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ({"nbytes": 3}, "-1"),
        ({"nbytes": 10**15}, "-1"),
        ({"nbytes": -1}, "-1"),
        ({"md5": "0" * 32}, "1"),
        ({"md5": "../../x"}, "-1"),
        ({"nbytes": 500}, "1"),
        ({"offset": 7}, "1"),
        ({"offset": 10**9}, "-1"),
    ],
    ids=str,
)
def test_upload_that_lies_is_refused(target, copy, words, status):
    answer = target.peer.upload(copy.path, copy.upload, b"0123456789", **words)
    assert answer.field("status") == status
    assert "[STO-E0" in answer.field("message")
    assert not (target.data / "engine" / "uploads" / copy.upload).exists()
    for part in (target.data / "engine" / "uploads").glob("*.part"):
        part.unlink()


@pytest.mark.parametrize(
    "name",
    ["../../../etc/x", "..", "nobody", "x" * 300, "a/b", "&#46;&#46;/x", "%2e%2e%2fx"],
)
def test_upload_under_another_name_is_refused(target, copy, name):
    answer = target.peer.upload(copy.path, name, b"data")
    assert answer.field("status") == "-1"
    assert "[STO-E0" in answer.field("message")


@pytest.mark.parametrize("token", ["0" * 48, "x", "%2e%2e", "0" * 5000, "é"])
def test_upload_with_another_token_is_refused(target, copy, token):
    path = "/upload/" + token.encode("utf-8", "replace").decode("ascii", "ignore")
    answer = target.peer.upload(path, copy.upload, b"data")
    assert answer.status in {0, 400, 404} or "STO-E014" in answer.field("message")


@pytest.mark.parametrize("head", [b"", b"<data>\n", b"<a>" * 9000, b"\xff" * 20_000])
def test_upload_without_a_head_is_refused(target, copy, head):
    answer = target.peer.send("POST", copy.path, head)
    assert answer.field("status") == "-1"


def test_nothing_can_be_uploaded_or_reported_after_the_report(
    target, trudy, trudys_copy, wait_until
):
    name, upload, path = trudys_copy.name, trudys_copy.upload, trudys_copy.path
    for data, status in ((b"forged", "0"), (b"forged", "0"), (b"better", "-1")):
        assert trudy.upload(path, upload, data).field("status") == status
    assert trudy.report(name).status == 200
    wait_until(lambda: target.copy_row(name)[2])
    row = target.copy_row(name)
    assert row[1:] == ("invalid", "STO-X020")
    assert trudy.upload(path, upload, b"better").field("status") == "-1"
    assert trudy.report(name).status == 200
    assert target.copy_row(name) == row


# ---------------------------------------------------------- downloads and accounts


@pytest.mark.parametrize(
    "token", ["0" * 48, "..%2f..%2fconnection.json", "%2e%2e", "x" * 5000, ""]
)
def test_download_of_what_is_not_there_is_404(target, token):
    assert target.peer.send("GET", f"/download/{token}").status in {400, 404}


@pytest.mark.parametrize(
    "query",
    [
        "email_addr=%00&passwd_hash=%00",
        "email_addr=x" + "&a=b" * 200,
        "email_addr[]=1",
        "%ff=%ff",
        "email_addr=" + "x" * 60_000,
    ],
)
def test_hostile_account_call_makes_no_account(target, query):
    answer = target.peer.send("GET", f"/create_account.php?{query}")
    assert answer.status in {0, 400, 414, 429, 431} or b"<error_num>" in answer.body
