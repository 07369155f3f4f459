"""The project behind a path, and HTTP as BOINC's client speaks it."""

from __future__ import annotations

import hashlib
import socket

import pytest
import urllib3
from engine_bench import EmbeddedBench

from stoilo.executor.volunteer.addresses import find_scheduler
from stoilo.executor.volunteer.scheduler_rpc import parse_reply
from tests.support.engine import ProjectServer, make_spec
from tests.support.programs import LINUX, ProgramSigner
from tests.support.server import ManualClock


@pytest.fixture(params=["", "lab/stoilo/"])
def project(request, tmp_path):
    """A project at the root or behind a path, with a program and one workunit."""
    bench = EmbeddedBench(tmp_path / "engine", ManualClock(1_800_000_000))
    signer = ProgramSigner()
    bench.engine.set_programs([signer.program()], signer.key)
    bench.engine.create_workunits([make_spec("w_1")])
    with ProjectServer(bench.engine, prefix=request.param) as server:
        bench.server = server
        yield bench
    bench.engine.close()


def scheduler_request(bench):
    account = bench.engine.accounts.ensure("v@example.org", bench.clock())
    return (
        f"<scheduler_request><authenticator>{account.weak_key}</authenticator>"
        "<core_client_major_version>7</core_client_major_version>"
        f"<cpu_req_secs>1.0</cpu_req_secs><platform_name>{LINUX}</platform_name>"
        f"<host_info><host_cpid>{'a' * 32}</host_cpid></host_info></scheduler_request>"
    ).encode()


def test_client_finds_its_way_from_the_master_url(project):
    with urllib3.PoolManager(retries=False) as pool:
        page = pool.request("GET", project.server.url).data
        scheduler = find_scheduler(page, project.server.url)
        answer = pool.request("POST", scheduler, body=scheduler_request(project))
        reply = parse_reply(answer.data, project.server.url)
        for info in (*reply.files, *(f.info for f in reply.app_versions[0].files)):
            data = pool.request("GET", info.url).data
            assert hashlib.md5(data, usedforsecurity=False).hexdigest() == info.md5
        (upload,) = reply.uploads
        head = (
            f"<data_server_request><file_upload><file_info><name>{upload.name}</name>"
            "</file_info><nbytes>1</nbytes><md5_cksum>"
            f"{hashlib.md5(b'x', usedforsecurity=False).hexdigest()}</md5_cksum>"
            "<offset>0</offset><data>\nx"
        )
        answer = pool.request("POST", upload.url, body=head)
        assert b"<status>0</status>" in answer.data


def test_proxy_may_take_the_prefix_off(project):
    root = f"http://127.0.0.1:{project.server.port}/"
    for url in (root, project.server.url):
        page = urllib3.request("GET", url, retries=False).data
        assert find_scheduler(page, project.server.url).startswith(project.server.url)


def test_neighbouring_path_is_not_the_project(tmp_path, clock):
    bench = EmbeddedBench(tmp_path / "engine", clock)
    with ProjectServer(bench.engine, prefix="lab/") as server:
        near = f"{server.url.removesuffix('/')}oratory/get_project_config.php"
        status = urllib3.request("GET", near, retries=False).status
    bench.engine.close()
    assert status == 404


def test_project_config_names_platforms_and_rules(project):
    url = f"{project.server.url}get_project_config.php"
    page = urllib3.request("GET", url, retries=False).data.decode()
    assert f"<platform_name>{LINUX}</platform_name>" in page
    assert "<min_passwd_length>10</min_passwd_length>" in page
    assert f"<master_url>{project.server.url}</master_url>" in page


def read_answer(connection):
    """Return status line and body of one answer with a length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(4096)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(4096)
    return head.split(b"\r\n")[0], body


def test_connection_serves_several_requests(project):
    path = f"/{project.server.url.split('/', 3)[3]}"
    with socket.create_connection(("127.0.0.1", project.server.port)) as connection:
        connection.settimeout(30)
        for _ in range(3):
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            status, body = read_answer(connection)
            assert status.startswith(b"HTTP/1.1 200")
            assert b"boinc_scheduler" in body


def expect_continue(project, length):
    """Send a request's head that asks whether to go on; return what comes."""
    path = f"/{project.server.url.split('/', 3)[3]}sched"
    connection = socket.create_connection(("127.0.0.1", project.server.port))
    connection.settimeout(30)
    connection.sendall(
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n"
        "Expect: 100-continue\r\n\r\n".encode()
    )
    return connection, connection.recv(4096)


def test_client_that_asks_first_is_told_to_go_on(project):
    body = scheduler_request(project)
    connection, first = expect_continue(project, len(body))
    with connection:
        assert first.startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        status, _ = read_answer(connection)
    assert status.startswith(b"HTTP/1.1 200")


def test_client_that_asks_first_is_spared_a_body_that_is_too_large(project):
    connection, first = expect_continue(project, 100_000_000)
    connection.close()
    assert first.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("length", ["-1", "1e9", "9" * 40, "5, 6"])
def test_length_that_makes_no_sense_is_refused(project, length):
    with socket.create_connection(("127.0.0.1", project.server.port)) as connection:
        connection.settimeout(30)
        connection.sendall(
            f"POST /sched HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()
        )
        assert connection.recv(4096)[9:12] in {b"400", b"413"}
