from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette

from stoilo.audit.log.seen import SeenRow, SeenStore, parse_seen_page, result_commitment
from stoilo.core.digests import content_digest
from stoilo.server.http.log_files import seen_routes


class Face:
    """The route on a loopback port."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        app = Starlette(routes=seen_routes(SeenStore.below(data_dir)))
        config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def get(self, name: str) -> tuple[int, str, bytes]:
        port = self.server.servers[0].sockets[0].getsockname()[1]
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", f"/audit/seen/{name}")
        answer = connection.getresponse()
        found = answer.status, answer.getheader("cache-control", ""), answer.read()
        connection.close()
        return found

    def put(self, count: int) -> None:
        store, digest = SeenStore.below(self.data_dir), content_digest(b"t")
        for number in range(count):
            name = result_commitment(str(number))
            store.put(SeenRow(name, digest, 1, digest, "note\n"))
        store.close()


@pytest.fixture
def face(tmp_path: Path) -> Iterator[Face]:
    made = Face(tmp_path)
    yield made
    made.server.should_exit = True
    made.thread.join()


def test_full_page_is_cached_for_ever_and_the_last_is_not(face: Face) -> None:
    assert face.get("0")[0] == 404
    face.put(257)
    (_, full, page), (_, partial, last) = face.get("0"), face.get("1")
    assert ("immutable" in full, partial) == (True, "no-cache")
    assert [len(parse_seen_page(one)) for one in (page, last)] == [256, 1]


@pytest.mark.parametrize("name", ["2", "-1", "01", "x", "9" * 30, "", "%30%30"])
def test_other_names_are_not_found(face: Face, name: str) -> None:
    face.put(1)
    assert face.get(name)[0] == 404


def test_damaged_store_answers_503_without_its_text(face: Face) -> None:
    (face.data_dir / "audit").mkdir()
    (face.data_dir / "audit/seen.sqlite").write_bytes(b"no database" * 100)
    assert face.get("0") == (503, "no-cache", b"damaged or out of reach [STO-L049]\n")
