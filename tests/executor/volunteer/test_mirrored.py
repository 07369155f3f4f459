"""The volunteer's downloads with mirrors that lie, are slow, are dead: nothing is lost."""

from __future__ import annotations

import hashlib
import socket

import pytest

from stoilo.core.boinc.messages import FileInfo
from stoilo.core.errors import TrustError
from stoilo.executor.volunteer.addresses import may_ask
from stoilo.executor.volunteer.scheduler_rpc import parse_reply
from stoilo.executor.volunteer.transfer import Transfer
from tests.support.scripted import Scripted, ScriptedProject

DATA = bytes(range(256)) * 400
DIGEST = hashlib.sha256(DATA).hexdigest()
MD5 = hashlib.md5(DATA, usedforsecurity=False).hexdigest()
PATH = f"/{DIGEST}"
LIES = b"x" * len(DATA)


@pytest.fixture
def mirror():
    with ScriptedProject() as made:
        yield made


@pytest.fixture
def project():
    with ScriptedProject() as made:
        made.answer("/d", Scripted(DATA))
        yield made


@pytest.fixture
def fetch(project, tmp_path):
    """Return what downloads the file by way of some mirrors and gives its bytes."""
    opened = []

    def download(*mirrors, **pace):
        transfer = Transfer(project.url, timeout_s=60, **pace)
        opened.append(transfer)
        urls = tuple(f"{url}{DIGEST}" for url in mirrors)
        url = f"{project.url}d"
        file = FileInfo(DIGEST, url, len(DATA), MD5, mirrors=urls)
        transfer.download(file, tmp_path / "file")
        return (tmp_path / "file").read_bytes()

    yield download
    for transfer in opened:
        transfer.close()


def dead_url():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    return f"http://127.0.0.1:{port}/"


def test_mirror_spares_the_project(fetch, mirror, project):
    mirror.answer(PATH, Scripted(DATA))
    assert fetch(mirror.url) == DATA
    assert project.asked == []


@pytest.mark.parametrize(
    "answer",
    [
        Scripted(LIES),
        Scripted(LIES, cut_after=1000),
        Scripted(DATA[:-1]),
        Scripted(DATA + b"more than that"),
        Scripted(status=404),
        Scripted(status=503),
        Scripted(status=301, headers={"location": "http://127.0.0.1:1/"}),
    ],
    ids=["lies", "lies and dies", "short", "long", "gone", "trouble", "moved"],
)
def test_mirror_in_trouble_leaves_the_project(fetch, mirror, answer):
    mirror.answer(PATH, answer)
    assert fetch(mirror.url) == DATA


def test_dead_mirror_leaves_the_next_one(fetch, mirror, project):
    mirror.answer(PATH, Scripted(DATA))
    assert fetch(dead_url(), mirror.url) == DATA
    assert project.asked == []


@pytest.mark.slow
def test_mirror_that_never_answers_is_given_up(fetch, project):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        assert fetch(url, answer_s=0.1) == DATA
    assert [one.path for one in project.asked] == ["/d"]


def test_part_of_a_mirror_goes_on_at_the_project(fetch, mirror, project):
    headers = {"content-range": f"bytes 1000-{len(DATA) - 1}/{len(DATA)}"}
    mirror.answer(PATH, Scripted(DATA, cut_after=1000))
    project.answer("/d", Scripted(DATA[1000:], 206, headers))
    assert fetch(mirror.url) == DATA
    assert [one.range for one in project.asked] == ["bytes=1000-"]


def test_project_that_lies_is_no_better_than_a_mirror(fetch, mirror, project):
    mirror.answer(PATH, Scripted(LIES))
    project.answer("/d", Scripted(LIES))
    with pytest.raises(TrustError, match="STO-X005"):
        fetch(mirror.url)


MASTER = "https://project.example/"
OTHER_SPELLINGS = (  # of addresses, as the resolver takes them
    *("127.1", "0x7f.1", "0177.0.0.1", "10.1", "2130706433", "0x7f000001"),
    *("127.0.0.1.", "127.0.0.0x1", "127.0.0.0X1", "010.0.0.1", "8.8.2056"),
)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        (f"https://m.example/f/{DIGEST}", True),
        (f"https://m.example:8443/{DIGEST}", True),
        (f"http://m.example/{DIGEST}", False),  # the project speaks TLS
        (f"https://192.168.1.1/{DIGEST}", False),
        (f"https://127.0.0.1/{DIGEST}", False),
        (f"https://169.254.169.254/{DIGEST}", False),
        (f"https://router/{DIGEST}", False),
        (f"https://printer.local/{DIGEST}", False),
        *((f"https://{host}/{DIGEST}", False) for host in OTHER_SPELLINGS),
        (f"https://8.8.8.8/{DIGEST}", True),
        (f"https://127.0.0.1.example/{DIGEST}", True),  # a name like any other
        (f"https://0x7f.0xm.example/{DIGEST}", True),
        (f"https://user@m.example/{DIGEST}", False),
        (f"https://m.example/a?x=/{DIGEST}", False),
        (f"https://m.example/../{DIGEST}", False),
        ("https://m.example/", False),
        (f"ftp://m.example/{DIGEST}", False),
    ],
)
def test_project_cannot_send_a_volunteer_anywhere(url, allowed):
    assert may_ask(MASTER, url, DIGEST) is allowed


def test_project_inside_may_name_neighbours_but_no_odd_spelling():
    inside = "http://127.0.0.1:8080/"
    assert may_ask(inside, f"http://127.0.0.1:8081/{DIGEST}", DIGEST)
    assert not may_ask(inside, f"http://127.1:8081/{DIGEST}", DIGEST)


def test_file_that_is_not_named_by_its_digest_has_no_mirror():
    assert not may_ask(MASTER, "https://m.example/launcher", "launcher")


def test_reply_names_mirrors_first_and_the_project_last():
    urls = (f"https://m.example/{DIGEST}", f"https://10.0.0.1/{DIGEST}", f"{MASTER}d")
    info = "".join(f"<url>{url}</url>" for url in urls)
    reply = parse_reply(
        f"<scheduler_reply><file_info><name>{DIGEST}</name>{info}<nbytes>5</nbytes>"
        f"<md5_cksum>{MD5}</md5_cksum></file_info></scheduler_reply>".encode(),
        MASTER,
    )
    assert (reply.files[0].mirrors, reply.files[0].url) == (urls[:1], urls[2])
