"""The project over real sockets: what clients and attackers send."""

from __future__ import annotations

import hashlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import urllib3
from engine_bench import EmbeddedBench
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoilo.core.boinc.messages import ReportedResult, ResultState, SchedulerRequest
from stoilo.core.rate_limit import TokenBuckets
from stoilo.executor.volunteer.addresses import find_scheduler
from stoilo.executor.volunteer.scheduler_rpc import parse_reply, render_request
from stoilo.server.engines.embedded.web.app import HttpOptions
from stoilo.server.engines.embedded.web.body_limit import BodyPace
from stoilo.server.engines.embedded.web.rate_limit import CallLimits
from stoilo.server.engines.interface import ResultProgress
from tests.support.engine import ProjectServer, make_spec
from tests.support.server import ManualClock

MD5 = hashlib.md5(b"", usedforsecurity=False).hexdigest()


@contextmanager
def serve(directory):
    bench = EmbeddedBench(directory / "engine", ManualClock(1_800_000_000))
    options = HttpOptions(
        bodies=BodyPace(pause_s=0.5), calls=CallLimits(account_calls=1000)
    )
    with ProjectServer(bench.engine, options=options) as server:
        bench.server = server
        bench.pool = urllib3.PoolManager(retries=False)
        yield bench
        bench.pool.clear()
    bench.engine.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("http")) as bench:
        yield bench


def get(world, path, **headers):
    return world.pool.request("GET", world.server.url + path, headers=headers)


def post(world, path, body):
    return world.pool.request("POST", world.server.url + path, body=body)


def alive(world):
    return get(world, "").status == 200


def request_xml(world, user=1, extra="", key=None):
    account = world.engine.accounts.ensure(f"u{user}@example.org", world.clock())
    return (
        f"<scheduler_request><authenticator>{key or account.weak_key}</authenticator>"
        f"<hostid>0</hostid><rpc_seqno>1</rpc_seqno><stoilo_own_program/>"
        f"<host_info><host_cpid>{user:032x}</host_cpid></host_info>{extra}"
        "</scheduler_request>"
    ).encode()


_numbers = iter(range(10_000))


@pytest.fixture
def copy(world):
    """One copy on the host of a user of its own: (user, name, upload)."""
    return give_copy(world)


def give_copy(world):
    number = next(_numbers)
    user = 1000 + number
    name = f"x{number}_1"
    world.engine.create_workunits([make_spec(name, result_max_bytes=50_000)])
    found = [one for one in world.fetch(user, room=16) if one.startswith(name)]
    return user, found[0], world.uploads[found[0]]


def upload_body(upload, data, *, name=None, nbytes=None, md5=None, offset=0):
    md5 = md5 or hashlib.md5(data, usedforsecurity=False).hexdigest()
    nbytes = len(data) if nbytes is None else nbytes
    head = (
        "<data_server_request>\n<core_client_major_version>7</core_client_major_version>"
        f"\n<file_upload>\n<file_info>\n<name>{name or upload.name}</name>\n"
        "<xml_signature>\n</xml_signature>\n<max_nbytes>1</max_nbytes>\n</file_info>\n"
        f"<nbytes>{nbytes}</nbytes>\n<md5_cksum>{md5}</md5_cksum>\n"
        f"<offset>{offset}</offset>\n<data>\n"
    )
    return head.encode() + data[offset:]


def send(world, upload, data, **changes):
    path = upload.url.rpartition("/")[2]
    body = post(world, f"upload/{path}", upload_body(upload, data, **changes)).data
    return int(body.split(b"<status>")[1].split(b"<")[0]), body.decode()


# ------------------------------------------------------------------ held answers


@pytest.fixture
def quiet(tmp_path):
    """A project without other work: (world, user, name of the copy that it has computed)."""
    with serve(tmp_path) as world:
        user, name, upload = give_copy(world)
        send(world, upload, b"value")
        yield world, user, name


def begin_held_call(world, pool, user, report, wait_s):
    """Call as the host of `user`, who reports and asks for work, in a thread."""
    account = world.engine.accounts.ensure(f"u{user}@example.org", world.clock())
    with world.engine._database.read() as connection:
        host = world.host_id(connection, user)
    world.seqno += 1
    reports = (ReportedResult(report, ResultState.UPLOADED, 0),) if report else ()
    body = render_request(
        SchedulerRequest(
            account.weak_key, host, world.seqno, f"{user:032x}", own_program=True,
            ncpus=64, cpu_req_instances=1.0, results=reports, wait_s=wait_s,
        )
    )  # fmt: skip
    return pool.submit(
        lambda: parse_reply(post(world, "sched", body).data, world.server.url)
    )


def wait_reported(world, name):
    limit = time.monotonic() + 20
    workunit = name.rpartition("_")[0]
    while world.engine.status(workunit).results[0].state is not ResultProgress.OVER:
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_report_is_stored_while_its_answer_waits_for_work(quiet):
    world, user, name = quiet
    with ThreadPoolExecutor(1) as pool:
        call = begin_held_call(world, pool, user, name, wait_s=4.0)
        wait_reported(world, name)
        held = not call.done()
        world.engine.create_workunits([make_spec(f"next{user}_1")])
        reply = call.result(3.0)
    assert held
    assert (reply.acks, [one.workunit for one in reply.results]) == (
        (name,),
        [f"next{user}_1"],
    )


def test_report_of_a_host_that_does_not_wait_is_answered_at_once(quiet):
    world, user, name = quiet
    with ThreadPoolExecutor(1) as pool:
        reply = begin_held_call(world, pool, user, name, wait_s=0.0).result(3.0)
    assert (reply.acks, reply.results) == ((name,), ())


def test_held_answer_without_work_comes_when_its_time_is_over(quiet):
    world, user, name = quiet
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        reply = begin_held_call(world, pool, user, name, wait_s=0.3).result(20.0)
    assert time.monotonic() - began >= 0.3
    assert reply.acks == (name,)


# ------------------------------------------------------------------ plain pages


def test_master_page_names_the_scheduler(world):
    page = get(world, "").data
    assert find_scheduler(page, world.server.url) == f"{world.server.url}sched"
    line = next(line for line in page.splitlines() if b"boinc_scheduler" in line)
    assert line.startswith(b'<link rel="boinc_scheduler" href="')


def test_project_config_names_the_master_url(world):
    assert world.server.url.encode() in get(world, "get_project_config.php").data


def test_account_is_made_and_found_with_the_same_key(world):
    query = "email_addr=New%40example.org&passwd_hash=" + "a" * 32
    made = get(world, f"create_account.php?{query}&user_name=x").data
    found = get(world, f"lookup_account.php?{query}").data
    assert b"<authenticator>" in made
    assert made == found


@pytest.mark.parametrize(
    ("page", "query", "number"),
    [
        ("lookup_account.php", "", -206),
        ("lookup_account.php", "email_addr=nobody@example.org&passwd_hash=x", -206),
        ("create_account.php", "email_addr=no-address&passwd_hash=" + "a" * 32, -205),
        ("create_account.php", "email_addr=a@example.org&passwd_hash=short", -206),
        ("create_account.php", "email_addr=%3Cx%3E@example.org", -205),
        ("lookup_account.php", "&".join(f"a{n}=1" for n in range(100)), None),
    ],
)
def test_bad_account_call_ends_in_an_error_number(world, page, query, number):
    answer = get(world, f"{page}?{query}")
    assert answer.status < 500
    assert b"<authenticator>" not in answer.data
    if number is not None:
        assert f"<error_num>{number}<".encode() in answer.data


def test_wrong_password_does_not_open_an_account(world):
    first = "email_addr=own@example.org&passwd_hash=" + "a" * 32
    other = "email_addr=own@example.org&passwd_hash=" + "b" * 32
    assert b"<authenticator>" in get(world, f"create_account.php?{first}").data
    for page in ("create_account.php", "lookup_account.php"):
        assert b"<authenticator>" not in get(world, f"{page}?{other}").data


def test_account_calls_are_limited_per_address_and_recover():
    now = [0.0]
    limit = TokenBuckets(3, names=2, clock=lambda: now[0])
    assert [limit.allow("a") for _ in range(4)] == [True, True, True, False]
    assert limit.allow("b")
    now[0] = 20.0
    assert [limit.allow("a") for _ in range(2)] == [True, False]


# ------------------------------------------------------------------ scheduler

HOSTILE = {
    "empty": b"",
    "not xml": b"hello",
    "cut": b"<scheduler_request><authenticator>",
    "other root": b"<x></x>",
    "two roots": b"<scheduler_request/><scheduler_request/>",
    "wrong nesting": b"<scheduler_request><a><b></a></b></scheduler_request>",
    "doctype": b"<!DOCTYPE x [<!ENTITY a 'b'>]><scheduler_request/>",
    "entity bomb": b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aa">'
    b'<!ENTITY b "&a;&a;">]><scheduler_request>&b;</scheduler_request>',
    "external entity": b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><scheduler_request/>',
    "processing instruction": b"<scheduler_request><?php x?></scheduler_request>",
    "nul": b"<scheduler_request>\0</scheduler_request>",
    "deep": b"<a>" * 5000,
    "many": b"<scheduler_request>" + b"<a/>" * 15_000,
    "long tag": b"<" + b"a" * 50_000 + b"/>",
    "no cpid": b"<scheduler_request></scheduler_request>",
    "nan": b"<scheduler_request><hostid>nan</hostid></scheduler_request>",
    "huge number": b"<scheduler_request><hostid>1e999</hostid></scheduler_request>",
    "negative": b"<scheduler_request><hostid>-1</hostid><host_info><host_cpid>a"
    b"</host_cpid></host_info></scheduler_request>",
    "path as name": b"<scheduler_request><host_info><host_cpid>a</host_cpid>"
    b"</host_info><result><name>../../etc/x</name></result></scheduler_request>",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_scheduler_request_is_refused_with_its_code(world, name):
    answer = post(world, "sched", HOSTILE[name])
    assert answer.status == 400
    assert b"[STO-X030]" in answer.data
    assert b"Traceback" not in answer.data
    assert alive(world)


@pytest.mark.parametrize(
    "inside",
    [b"<a/>" * 60_000, b"<a>" * 5000, b"<authenticator>other</authenticator>\0"],
)
def test_hostile_request_of_an_account_is_refused_with_its_code(world, inside):
    whole = request_xml(world).replace(b"</scheduler_request>", inside)
    answer = post(world, "sched", whole + b"</scheduler_request>")
    assert answer.status == 400
    assert b"[STO-X030]" in answer.data
    assert alive(world)


def test_oversized_scheduler_request_is_refused_unread(world):
    answer = post(world, "sched", b"<a>" + b" " * (5 * 1024 * 1024))
    assert answer.status == 413
    assert b"STO-E012" in answer.data


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_mutated_scheduler_request_never_breaks_the_server(world, data):
    body = bytearray(request_xml(world, extra="<result><name>a_0</name></result>"))
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place : place + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=4)
        )
    answer = post(world, "sched", bytes(body))
    assert answer.status in {200, 400}


def test_unknown_key_is_told_and_gets_nothing(world):
    answer = post(world, "sched", request_xml(world, key="1" * 32))
    reply = parse_reply(answer.data, world.server.url)
    assert reply.bad_key
    assert reply.results == ()


def test_unknown_key_waits_for_no_writer(world):
    body = request_xml(world, key="2" * 32)
    with world.engine._database.write():
        answer = world.pool.request(
            "POST", f"{world.server.url}sched", body=body, timeout=30
        )
    assert parse_reply(answer.data, world.server.url).bad_key


def test_reply_is_what_our_volunteer_reads(world):
    extra = "<cpu_req_instances>1</cpu_req_instances>"
    world.engine.create_workunits([make_spec("shape_1")])
    answer = post(world, "sched", request_xml(world, user=77, extra=extra))
    reply = parse_reply(answer.data, world.server.url)
    assert reply.results
    assert answer.data.startswith(b"<scheduler_reply>\n<project_name>")
    assert answer.data.endswith(b"</scheduler_reply>\n")


def test_slow_body_is_cut_off(world):
    with socket.create_connection(("127.0.0.1", world.server.port)) as connection:
        connection.sendall(
            b"POST /sched HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n<a>"
        )
        connection.settimeout(
            60
        )  # without a limit of its own the server waits for ever
        answer = connection.recv(4096)
    assert b" 503 " in answer.splitlines()[0] or b" 400 " in answer.splitlines()[0]
    assert alive(world)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "GET"])
def test_other_methods_are_refused(world, method):
    assert world.pool.request(method, f"{world.server.url}sched").status == 405


# ------------------------------------------------------------------ downloads


@pytest.fixture
def file(world, copy):
    user, _, _ = copy
    reply = world.request(user, dont_send_work=True)
    return reply.files[0]


def test_download_is_the_announced_file(world, file):
    path = "download/" + file.url.rpartition("/")[2]
    answer = get(world, path)
    assert (answer.status, len(answer.data)) == (200, file.nbytes)
    assert hashlib.sha256(answer.data).hexdigest() == file.name
    head = world.pool.request("HEAD", world.server.url + path)
    assert (head.status, head.headers["content-length"]) == (200, str(file.nbytes))


@pytest.mark.parametrize("large", [False, True])
def test_download_resumes_by_range(world, large):
    data = bytes(range(256)) * (1024 if large else 1)
    name = f"range{int(large)}_1"
    world.engine.create_workunits([make_spec(name, data=data)])
    reply = world.request(4000 + large, cpu_req_instances=16.0)
    digest = hashlib.sha256(data).hexdigest()
    (info,) = (info for info in reply.files if info.name == digest)
    path = "download/" + info.url.rpartition("/")[2]
    answer = get(world, path, Range="bytes=100-")
    assert (answer.status, answer.data) == (206, data[100:])
    assert get(world, path, Range="bytes=10-19").data == data[10:20]
    assert get(world, path, Range=f"bytes={len(data)}-").status == 416


@pytest.mark.parametrize(
    "token",
    ["", "x", "0" * 48, "../engine.sqlite", "%2e%2e/account.secret", "a" * 9999],
)
def test_unknown_download_is_not_found(world, token):
    assert get(world, f"download/{token}").status == 404
    assert alive(world)


def test_digest_of_a_file_is_no_address(world, file):
    assert get(world, f"download/{file.name}").status == 404


# ------------------------------------------------------------------ uploads


def test_upload_and_report_make_a_success(world, copy):
    user, name, upload = copy
    assert send(world, upload, b"result")[0] == 0
    world.report(user, name)
    assert (world.directory / "uploads" / upload.name).read_bytes() == b"result"


def test_size_query_then_resume(world, copy, wait_until):
    _, _, upload = copy
    data = bytes(range(256)) * 100
    path = "upload/" + upload.url.rpartition("/")[2]
    cut = upload_body(upload, data)[:-20_000]
    with socket.create_connection(("127.0.0.1", world.server.port)) as connection:
        head = f"POST /{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(cut) + 20000}"
        connection.sendall(head.encode() + b"\r\n\r\n" + cut)
    query = f"<data_server_request><get_file_size>{upload.name}</get_file_size>"

    def count_held():
        answer = post(world, path, query.encode() + b"</data_server_request>").data
        return int(answer.split(b"<file_size>")[1].split(b"<")[0])

    held = len(data) - 20_000
    wait_until(lambda: count_held() == held)
    assert send(world, upload, data, offset=held)[0] == 0


def test_complete_upload_may_be_repeated_but_not_replaced(world, copy):
    _, _, upload = copy
    assert send(world, upload, b"one")[0] == 0
    assert send(world, upload, b"one")[0] == 0
    assert send(world, upload, b"two")[0] == -1
    assert (world.directory / "uploads" / upload.name).read_bytes() == b"one"


BAD_UPLOADS = {
    "wrong checksum": ({"md5": "0" * 32}, 1, "STO-E034"),
    "larger than allowed": ({"nbytes": 50_001}, -1, "STO-E030"),
    "longer than announced": ({"nbytes": 3}, -1, "STO-E030"),
    "shorter than announced": ({"nbytes": 100}, 1, "STO-E034"),
    "beyond what is held": ({"nbytes": 10, "offset": 5}, 1, "STO-E034"),
    "offset past the end": ({"offset": 10_000}, -1, "STO-E030"),
    "other name": ({"name": "other_0_r0_0"}, -1, "STO-E014"),
    "path as name": ({"name": "../../x"}, -1, "STO-E030"),
    "checksum no hex": ({"md5": "<"}, -1, "STO-E030"),
    "negative size": ({"nbytes": -1}, -1, "STO-E030"),
    "huge size": ({"nbytes": 10**30}, -1, "STO-E030"),
}


@pytest.mark.parametrize("name", BAD_UPLOADS)
def test_bad_upload_is_refused_and_nothing_counts(world, copy, name):
    changes, status, code = BAD_UPLOADS[name]
    user, copy_name, upload = copy
    got, text = send(world, upload, b"0123456789", **changes)
    assert (got, code in text) == (status, True), text
    assert not (world.directory / "uploads" / upload.name).exists()
    world.report(user, copy_name)
    status = world.engine.status(copy_name.rpartition("_")[0])
    assert status.results[0].code == "STO-E021"


HOSTILE_UPLOADS = {
    "empty": b"",
    "no head": b"x" * 20_000,
    "endless head": b"<data_server_request>" + b"<a>" * 8000,
    "doctype": b"<!DOCTYPE x><data_server_request/>",
    "no file": b"<data_server_request></data_server_request>",
    "only data": b"<data>\nabc",
    "other root": b"<x/>",
}


@pytest.mark.parametrize("name", HOSTILE_UPLOADS)
def test_hostile_upload_is_refused_for_good(world, name):
    answer = post(world, "upload/" + "0" * 48, HOSTILE_UPLOADS[name])
    assert b"<status>-1</status>" in answer.data
    assert b"STO-E030" in answer.data
    assert alive(world)


def test_upload_with_anothers_token_is_refused(world, copy):
    _, _, upload = copy
    stolen = upload.url.rpartition("/")[0] + "/" + "0" * 48
    other = type(upload)(upload.name, stolen, upload.max_nbytes)
    status, text = send(world, other, b"x")
    assert (status, "STO-E014" in text) == (-1, True)


def test_upload_after_the_end_is_refused(world, copy):
    _, name, upload = copy
    world.engine.cancel(name.rpartition("_")[0])
    status, text = send(world, upload, b"x")
    assert (status, "STO-E014" in text) == (-1, True)


def test_upload_of_a_reported_copy_is_refused(world, copy):
    user, name, upload = copy
    world.fail(user, name)
    assert send(world, upload, b"x")[0] == -1


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_mutated_upload_never_breaks_the_server(world, copy, data):
    _, _, upload = copy
    body = bytearray(upload_body(upload, b"result"))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place : place + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=3)
        )
    path = "upload/" + upload.url.rpartition("/")[2]
    answer = post(world, path, bytes(body))
    assert answer.status == 200
    assert b"<status>" in answer.data
