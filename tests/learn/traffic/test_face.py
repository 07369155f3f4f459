"""A node's face to volunteers: versions by digest, ranges, bounds, what it measures."""

import asyncio
import hashlib
import socket
from datetime import UTC, datetime

import pytest
import urllib3

from stoilo.core.errors import UsageError
from stoilo.learn.traffic import wire
from stoilo.learn.traffic.face import Downloads, VolunteerFace, versions_app
from stoilo.learn.traffic.holdings import Holdings
from stoilo.server.tls import LOCAL_NAMES, ensure_tls
from tests.support.watched import put

MODEL = bytes(range(256)) * 1024
DIGEST = hashlib.sha256(MODEL).hexdigest()


@pytest.fixture
def holdings(tmp_path):
    made = Holdings(tmp_path / "held")
    put(made, 1, MODEL)
    return made


@pytest.fixture
def reports():
    return []


@pytest.fixture
def face(holdings, reports):
    made = VolunteerFace("127.0.0.1:0")
    made.start(holdings, reports.append)
    yield made
    made.stop()


def ask(face, path, method="GET", **headers):
    return urllib3.request(method, f"{face.url}{path}", headers=headers, retries=False)


def test_version_comes_by_its_digest_whole_or_in_part(face):
    whole = ask(face, DIGEST)
    assert (whole.status, whole.data) == (200, MODEL)
    part = ask(face, DIGEST, Range="bytes=1000-1999")
    assert (part.status, part.data) == (206, MODEL[1000:2000])
    rest = ask(face, DIGEST, Range="bytes=262000-")
    assert rest.data == MODEL[262000:]
    head = ask(face, DIGEST, "HEAD")
    assert (head.headers["content-length"], head.data) == (str(len(MODEL)), b"")
    assert ask(face, DIGEST, Range=f"bytes={len(MODEL)}-").status == 416


def test_version_of_a_training_is_not_for_volunteers(face, holdings):
    held = wire.Item(2, hashlib.sha256(b"1").hexdigest(), 1, training="t")
    holdings.hold(held, [b"1"])
    assert ask(face, held.digest).status == 404


@pytest.mark.parametrize(
    "path",
    ["", "0" * 64, DIGEST.upper(), f"..%2F{DIGEST}", f"{DIGEST}/", f"x/{DIGEST}"],
)
def test_whoever_does_not_name_a_version_gets_nothing(face, path):
    assert ask(face, path).status == 404


def test_nothing_else_than_reading_is_answered(face):
    assert ask(face, DIGEST, "POST").status == 405
    assert ask(face, DIGEST, "DELETE").status == 405


def test_parts_of_a_round_and_forgotten_versions_are_not_given(face, holdings):
    part = put(holdings, 1, bytes(64), ("a",))
    assert ask(face, part.digest).status == 404
    holdings.drop(1, sums=False)
    assert ask(face, DIGEST).status == 404


def test_head_without_end_is_cut_off(face):
    host = urllib3.util.parse_url(face.url)
    with socket.create_connection((host.host, host.port), 60) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nX-Long: ")
        with pytest.raises(ConnectionError):  # noqa: PT012 - until it is refused
            while True:
                peer.sendall(b"x" * 65536)


def test_download_is_told_with_its_network_and_no_address(face, reports, wait_until):
    assert ask(face, DIGEST).data == MODEL
    wait_until(lambda: reports)
    ((network, (size, seconds)),) = reports[0].downloads.items()
    assert (network, size) == ("127.0.0.0/24", len(MODEL))
    assert seconds > 0


def test_face_with_a_certificate_speaks_tls(holdings, tmp_path):
    ca = ensure_tls(tmp_path, datetime.now(UTC), LOCAL_NAMES).ca
    (tmp_path / "ca.pem").write_bytes(ca)
    files = (str(tmp_path / "server.pem"), str(tmp_path / "server.key"))
    made = VolunteerFace("127.0.0.1:0", "", *files)
    made.start(holdings, print)
    with urllib3.PoolManager(ca_certs=str(tmp_path / "ca.pem")) as pool:
        assert pool.request("GET", f"{made.url}{DIGEST}", retries=False).data == MODEL
    assert made.url.startswith("https://")
    made.stop()


async def converse(app, receive, send):
    headers = [(b"host", b"x")]
    scope = {"type": "http", "method": "GET", "path": f"/{DIGEST}", "headers": headers}
    scope |= {"query_string": b"", "root_path": "", "client": ("203.0.113.9", 1)}
    await app(scope, receive, send)


def test_client_that_takes_nothing_is_given_up_and_not_measured(holdings):
    noted = []
    app = versions_app(holdings, lambda *what: noted.append(what), lambda _: 0.05)

    async def never(*_):
        await asyncio.Event().wait()

    asyncio.run(asyncio.wait_for(converse(app, never, never), 60))
    assert noted == []


def test_client_that_hangs_up_costs_no_reading_and_is_not_measured(holdings):
    noted, sent = [], []
    app = versions_app(holdings, lambda *what: noted.append(what))

    async def gone():
        return {"type": "http.disconnect"}

    async def take(message):
        sent.append(message)

    asyncio.run(converse(app, gone, take))
    assert (noted, sent) == ([], [])


def test_report_has_no_more_networks_than_a_report_may():
    served, told = Downloads(), []
    for number in range(2 * wire.MOST_NETWORKS):
        served.note(f"10.{number // 256}.{number % 256}.1", 1, 1.0)
    served.report(told.append)
    served.report(told.append)
    assert [len(one.downloads) for one in told] == [wire.MOST_NETWORKS]


@pytest.mark.parametrize(
    "words",
    [
        ("0.0.0.0:0",),
        ("192.0.2.1:0", "https://n1.example/"),
        ("127.0.0.1:0", "https://n1.example"),
        ("127.0.0.1:0", "ftp://n1.example/"),
        ("127.0.0.1",),
        ("0.0.0.0:0", "", "c.pem", "k.pem"),
    ],
)
def test_face_that_makes_no_sense_is_refused(words):
    with pytest.raises(UsageError, match="STO-R090"):
        VolunteerFace(*words)
