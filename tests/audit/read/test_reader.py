import functools
import http.server
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.read.reader import verify_log
from stoilo.core.errors import TrustError, UnreachableError, UsageError
from tests.support.faulty_log import LogKey

Opener = Callable[..., Sequencer]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *values: object) -> None:
        del values


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """Serve a directory on loopback; returns its URL."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def start(folder: Path) -> str:
        handler = functools.partial(QuietHandler, directory=str(folder))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def log_files(data_dir: Path) -> list[Path]:
    return sorted(
        path for path in (data_dir / "audit/log").rglob("*") if path.is_file()
    )


@pytest.mark.parametrize("below", ["", "audit", "audit/log"])
def test_log_verifies_from_every_directory(
    filled: Path, key: LogKey, below: str
) -> None:
    report = verify_log(filled / below, key.policy)
    assert (report.origin, report.size, report.own_policy) == ("log.test/t", 600, False)


def test_log_without_given_policy_says_that_it_used_its_own(filled: Path) -> None:
    assert verify_log(filled).own_policy is True


def test_log_verifies_over_http(
    filled: Path, key: LogKey, serve: Callable[[Path], str]
) -> None:
    assert verify_log(serve(filled / "audit/log"), key.policy).size == 600
    assert verify_log(serve(filled)).size == 600


def test_verifying_changes_no_file(filled: Path) -> None:
    def snapshot() -> dict[Path, tuple[int, bytes]]:
        files = [path for path in filled.rglob("*") if path.is_file()]
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = snapshot()
    verify_log(filled)
    assert snapshot() == before


def test_log_verifies_beside_its_busy_writer(open_log: Opener, tmp_path: Path) -> None:
    log = open_log()
    log.wait_published(log.append(b"first"), 60)
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            log.append_many([b"%d" % (number + at) for at in range(20)])
            number += 20

    writer = threading.Thread(target=write)
    writer.start()
    try:
        sizes = [verify_log(tmp_path / "data").size for _ in range(15)]
        deadline = time.monotonic() + 60
        while sizes[-1] < 300 and time.monotonic() < deadline:
            sizes.append(verify_log(tmp_path / "data").size)
    finally:
        stop.set()
        writer.join()
    assert sizes == sorted(sizes)
    assert sizes[-1] >= 300


def test_flipped_bit_in_any_published_file_is_found(filled: Path) -> None:
    files = log_files(filled)
    assert len(files) >= 9
    for path in files:
        good = path.read_bytes()
        for place in (0, len(good) // 2, len(good) - 1):
            bad = bytearray(good)
            bad[place] ^= 1
            path.write_bytes(bad)
            for where in (filled, filled / "audit/log"):
                with pytest.raises(TrustError):
                    verify_log(where)
        path.write_bytes(good)
    verify_log(filled)


def test_truncated_or_longer_tile_is_found(filled: Path) -> None:
    for path in log_files(filled):
        if path.parent.name == "log":
            continue
        good = path.read_bytes()
        for bad in (good[:-1], good + b"\0", b""):
            path.write_bytes(bad)
            with pytest.raises(TrustError):
                verify_log(filled / "audit/log")
        path.write_bytes(good)


def test_removed_tile_of_the_checkpoint_is_found(filled: Path) -> None:
    for name in ("tile/entries/001", "tile/0/000", "tile/1/000.p/2"):
        path = filled / "audit/log" / name
        path.rename(filled / "aside")
        with pytest.raises(TrustError, match="STO-L032"):
            verify_log(filled)
        (filled / "aside").rename(path)


def test_superseded_partial_tile_may_be_gone(filled: Path) -> None:
    (filled / "audit/log/tile/entries/002.p").joinpath("88").stat()
    partial = filled / "audit/log/tile/0/001.p"
    assert not partial.exists()  # removed when the full one was published


def test_removed_checkpoint_is_found(filled: Path) -> None:
    (filled / "audit/log/checkpoint").unlink()
    with pytest.raises(TrustError, match="STO-L032"):
        verify_log(filled)


def test_rolled_back_publication_is_found(
    open_log: Opener, filled: Path, tmp_path: Path
) -> None:
    shutil.copytree(filled / "audit/log", tmp_path / "old")
    with open_log() as log:
        log.append(b"one more")
    shutil.rmtree(filled / "audit/log")
    shutil.copytree(tmp_path / "old", filled / "audit/log")
    assert verify_log(filled / "audit/log").size == 600  # consistent in itself
    with pytest.raises(TrustError, match="STO-L041"):
        verify_log(filled)


@pytest.mark.parametrize("name", ["audit/log.sqlite", "audit-head/head.sqlite"])
def test_lost_database_is_found(filled: Path, name: str) -> None:
    (filled / name).unlink()
    with pytest.raises(TrustError, match=r"STO-L04[12]"):
        verify_log(filled)


def test_changed_database_row_is_found(filled: Path) -> None:
    with closing(sqlite3.connect(filled / "audit/log.sqlite")) as base, base:
        base.execute("UPDATE leaves SET leaf = x'00' WHERE idx = 7")
    with pytest.raises(TrustError, match="STO-L049"):
        verify_log(filled)


def test_whole_log_rewritten_with_another_key_is_found(
    open_log: Opener, filled: Path, tmp_path: Path, key: LogKey
) -> None:
    thief = LogKey("log.test/t", seed=b"\3" * 32)
    with open_log(tmp_path / "fake", sign=thief.sign, policy=thief.policy) as log:
        log.append_many([b"fake %d" % number for number in range(600)])
    assert verify_log(tmp_path / "fake").size == 600
    with pytest.raises(TrustError, match="STO-L011"):
        verify_log(tmp_path / "fake", key.policy)
    assert verify_log(filled, key.policy).size == 600


def test_directory_without_a_log_is_a_usage_error(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "absent", "ftp://127.0.0.1/"):
        with pytest.raises(UsageError, match="STO-L001"):
            verify_log(place)


def test_log_without_leaves_is_sound_in_its_data_directory(
    open_log: Opener, tmp_path: Path
) -> None:
    open_log().close()
    assert verify_log(tmp_path / "data").size == 0
    with pytest.raises(UsageError, match="STO-L001"):
        verify_log(tmp_path / "data/audit/log")


def test_acknowledged_leaves_without_a_checkpoint_are_told(
    open_log: Opener, tmp_path: Path
) -> None:
    def sign(body: bytes) -> bytes:
        raise UnreachableError("STO-L058", body.decode())

    with open_log(sign=sign) as log:
        log.append_many([b"a", b"b"])
    assert verify_log(tmp_path / "data").unpublished == 2


def test_log_without_any_policy_asks_for_one(filled: Path, key: LogKey) -> None:
    (filled / "audit/log/policy.txt").unlink()
    with pytest.raises(UsageError, match="STO-L005"):
        verify_log(filled)
    assert verify_log(filled, key.policy).size == 600


def test_silent_server_is_unreachable() -> None:
    with pytest.raises(UnreachableError, match="STO-L002"):
        verify_log("http://127.0.0.1:9/")


def test_web_server_without_a_log_is_a_usage_error(
    tmp_path: Path, serve: Callable[[Path], str]
) -> None:
    with pytest.raises(UsageError, match="STO-L001"):
        verify_log(serve(tmp_path))
