"""Records and sources over HTTP: hashed, cached for as long as they hold, never executed."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette

from stoilo.audit.format.facts import PolicyRecord
from stoilo.audit.format.proof import Leaf, LeafKind, parse_leaf, render_leaf
from stoilo.audit.format.records import record_leaf, render_record
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.log.side import ObjectKind, SideObject, SideStore, parse_records
from stoilo.core.digests import content_digest
from stoilo.server.http.log_files import FOREVER, REVALIDATE, log_routes, side_routes
from tests.support.faulty_log import LogKey

KEY = LogKey("log.test/t")
SOURCE = b"<script>alert(1)</script>\n"
NAME = content_digest(SOURCE)
TEXTS = [
    render_record(PolicyRecord(KEY.origin, n, "in_force", "a" * 64)) for n in range(300)
]
LEAVES = [record_leaf(text, "1") for text in TEXTS]
LEAVES[7] = render_leaf(Leaf(LeafKind.ADMISSION, content_digest(b"7"), "1", 7))


@pytest.fixture
def side(tmp_path: Path) -> SideStore:
    store = SideStore.open(tmp_path)
    store.put([SideObject(ObjectKind.RECORD, text) for text in TEXTS], 1)
    store.put([SideObject(ObjectKind.SOURCE, SOURCE)], 1)
    return store


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Web:
    """The routes on a loopback port."""

    def __init__(self, app: Starlette) -> None:
        config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def get(self, path: str, known: str = "") -> Answer:
        port = self.server.servers[0].sockets[0].getsockname()[1]
        with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            connection.request(
                "GET", f"/audit/{path}", headers={"If-None-Match": known}
            )
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.headers), answer.read())


@pytest.fixture
def web(tmp_path: Path, side: SideStore) -> Iterator[Web]:
    """Serve a log of 300 leaves, one of them an admission, and its side store."""
    with Sequencer.open(tmp_path, KEY.origin, KEY.sign, policy=KEY.policy) as log:
        log.append_many(LEAVES)
        log.wait_published(len(LEAVES) - 1, 60)
    folder = tmp_path / "audit" / "log"
    made = Web(Starlette(routes=log_routes(folder) + side_routes(folder, side)))
    yield made
    made.server.should_exit = True
    made.thread.join()


def digest(place: int) -> str:
    return parse_leaf(LEAVES[place]).digest


def test_record_is_served_for_ever_under_its_digest(web: Web) -> None:
    answer = web.get(f"records/{digest(3)}")
    assert (answer.status, answer.body) == (200, TEXTS[3])
    assert answer.headers["cache-control"] == FOREVER
    assert answer.headers["etag"] == f'"{digest(3)}"'


def test_reader_that_has_it_gets_no_bytes(web: Web) -> None:
    for path in (f"records/{digest(3)}", "log/checkpoint", "records/tile/0"):
        mark = web.get(path).headers["etag"]
        again = web.get(path, known=f"W/{mark}, *x")
        assert (again.status, again.body) == (304, b"")


def test_full_tile_s_records_are_for_ever_and_the_last_ones_are_not(
    web: Web,
) -> None:
    full, last = (web.get(f"records/tile/{n}") for n in (0, 1))
    wanted = [None if n == 7 else TEXTS[n] for n in range(300)]
    assert parse_records(full.body) + parse_records(last.body) == wanted
    caches = [one.headers["cache-control"] for one in (full, last)]
    assert caches == [FOREVER, REVALIDATE]


def test_damaged_record_is_a_gap_that_nobody_may_keep(
    web: Web, side: SideStore
) -> None:
    side._connection.execute(
        "UPDATE object SET data = ? WHERE digest = ?",
        (b"{}", bytes.fromhex(digest(3))),
    )
    assert web.get(f"records/{digest(3)}").status == 503
    answer = web.get("records/tile/0")
    assert parse_records(answer.body)[3] is None
    assert answer.headers["cache-control"] == REVALIDATE


def test_source_is_plain_text_whatever_it_says(web: Web) -> None:
    answer = web.get(f"source/{NAME}")
    assert answer.body == SOURCE
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == REVALIDATE


def test_deleted_source_is_gone_and_an_unknown_one_is_not_found(
    web: Web, side: SideStore
) -> None:
    side.delete([NAME], 5)
    assert web.get(f"source/{NAME}").status == 410
    assert web.get(f"source/{digest(1)}").status == 404


@pytest.mark.parametrize(
    "path",
    ["records/x", "records/" + "A" * 64, "records/tile/2", "records/tile/-1",
     "records/tile/00", "records/tile/9999999999999999", "source/..%2f..%2fside.sqlite",
     "records/", "source/" + "0" * 65],
)  # fmt: skip
def test_anything_else_is_not_found_and_may_come_later(web: Web, path: str) -> None:
    answer = web.get(path)
    assert (answer.status, answer.headers.get("cache-control")) in {
        (404, REVALIDATE),
        (404, None),
    }
