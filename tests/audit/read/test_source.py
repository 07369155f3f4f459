"""Records and sources as readers get them: data directory, exported files, a hostile web."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from stoilo.audit.format.facts import PolicyRecord
from stoilo.audit.format.proof import parse_leaf
from stoilo.audit.format.records import record_leaf, render_record
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.log.side import ObjectKind, SideObject, SideStore, render_records
from stoilo.audit.read.source import DirectorySource, open_source
from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError, TrustError, UnreachableError

SOURCE = b"def task(kwargs):\n    return 1\n"
NAME = content_digest(SOURCE)
TEXTS = [
    render_record(PolicyRecord("log.test/t", n, "in_force", "a" * 64))
    for n in range(300)
]
LEAVES = [record_leaf(text, "1") for text in TEXTS]
DIGEST = parse_leaf(LEAVES[5]).digest
Answers = dict[str, bytes]


@pytest.fixture
def data(tmp_path: Path, open_log: Callable[..., Sequencer]) -> Path:
    """Return a data directory with 300 leaves, their records and one source."""
    with open_log(tmp_path / "data") as log:
        log.append_many(LEAVES)
        log.wait_published(len(LEAVES) - 1, 60)
    side = SideStore.open(tmp_path / "data")
    side.put([SideObject(ObjectKind.RECORD, text) for text in TEXTS], 1)
    side.put([SideObject(ObjectKind.SOURCE, SOURCE)], 1)
    side.close()
    return tmp_path / "data"


@pytest.fixture
def exported(data: Path) -> Path:
    """Return the same as static files: log, and one file an object beside it."""
    audit = data / "audit"
    (audit / "side.sqlite").unlink()
    for folder in ("records", "source"):
        (audit / folder).mkdir()
    for leaf, text in zip(LEAVES, TEXTS, strict=True):
        (audit / "records" / parse_leaf(leaf).digest).write_bytes(text)
    (audit / "source" / NAME).write_bytes(SOURCE)
    return audit / "log"


def check(source: DirectorySource) -> None:
    assert source.record(DIGEST) == TEXTS[5]
    assert source.record("0" * 64) is None
    assert source.published_source(NAME) == SOURCE
    assert source.records_of(0, LEAVES[:256]) == TEXTS[:256]
    assert source.records_of(1, LEAVES[256:]) == TEXTS[256:]


def test_data_directory_gives_records_and_sources(data: Path) -> None:
    for place in (data, data / "audit", data / "audit" / "log"):
        check(DirectorySource(place))


def test_exported_files_give_the_same(exported: Path) -> None:
    check(DirectorySource(exported))


def test_changed_file_is_refused(exported: Path) -> None:
    (exported.parent / "source" / NAME).write_bytes(SOURCE + b"#")
    (exported.parent / "records" / DIGEST).write_bytes(b"{}")
    source = DirectorySource(exported)
    for ask in (lambda: source.published_source(NAME), lambda: source.record(DIGEST),
                lambda: source.records_of(0, LEAVES[:256])):  # fmt: skip
        with pytest.raises(TrustError, match="STO-L141"):
            ask()


def test_name_that_is_no_digest_never_reaches_the_disk(exported: Path) -> None:
    with pytest.raises(TrustError, match="STO-D002"):
        DirectorySource(exported).record("../log/checkpoint")


@pytest.fixture
def serve() -> Iterator[Callable[[Answers], str]]:
    """Return a function that serves these answers, 404 for the rest."""
    servers: list[tuple[HTTPServer, threading.Thread]] = []

    def start(answers: Answers) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = answers.get(self.path)
                self.send_response(404 if body is None else 200)
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *given: object) -> None:
                del given

        server = HTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}/"

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def test_server_s_addresses_are_below_audit(serve: Callable[[Answers], str]) -> None:
    answers = {
        "/audit/log/checkpoint": b"c",
        f"/audit/records/{DIGEST}": TEXTS[5],
        "/audit/records/tile/0": render_records([None, TEXTS[5]]),
        f"/audit/source/{NAME}": SOURCE,
    }
    url = serve(answers)
    for place in (url, f"{url}audit/log"):
        source = open_source(place)
        assert source.record(DIGEST) == TEXTS[5]
        assert source.records_of(0, LEAVES[4:7]) == [None, TEXTS[5], None]
        assert source.published_source(NAME) == SOURCE
        assert source.records_of(1, LEAVES[:1]) == [None]
        assert source.published_source(DIGEST) is None


def test_bare_log_s_records_lie_below_it(serve: Callable[[Answers], str]) -> None:
    answers = {"/checkpoint": b"c", f"/records/{DIGEST}": TEXTS[5]}
    assert open_source(serve(answers)).record(DIGEST) == TEXTS[5]


@pytest.mark.parametrize("body", [b"", b"{}", TEXTS[4], b"x" * 20_000])
def test_lying_server_is_found_out(
    serve: Callable[[Answers], str], body: bytes
) -> None:
    answers = {
        "/checkpoint": b"c",
        f"/records/{DIGEST}": body,
        f"/source/{NAME}": body,
        "/records/tile/0": b"\xff\xff" + body,
    }
    source = open_source(serve(answers))
    for ask in (lambda: source.record(DIGEST), lambda: source.published_source(NAME),
                lambda: source.records_of(0, LEAVES[:256])):  # fmt: skip
        with pytest.raises(TrustError, match=r"STO-L(141|010)"):
            ask()


def test_unreachable_server_is_no_verdict(serve: Callable[[Answers], str]) -> None:
    source = open_source(serve({"/checkpoint": b"c"}))
    source._beside = "http://127.0.0.1:1/"  # type: ignore[attr-defined]  # gone meanwhile
    with pytest.raises(UnreachableError, match="STO-L002"):
        source.record(DIGEST)


def test_errors_are_ours(data: Path) -> None:
    (data / "audit" / "side.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(StoiloError, match="STO-L049"):
        DirectorySource(data).record(DIGEST)


def test_pipe_in_a_directory_of_strangers_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "checkpoint")
    with pytest.raises(UnreachableError, match="STO-L002"):
        open_source(tmp_path).checkpoint()
