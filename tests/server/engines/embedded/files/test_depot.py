from __future__ import annotations

import hashlib
import os

import pytest

from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError, TrustError
from stoilo.server.engines.embedded.db.database import Database
from stoilo.server.engines.embedded.files.depot import Depot
from stoilo.server.engines.workunits import WorkunitFile

LARGE = bytes(range(256)) * 1024


@pytest.fixture
def database(tmp_path):
    made = Database(f"sqlite:///{tmp_path / 'engine.sqlite'}")
    made.upgrade()
    yield made
    made.close()


@pytest.fixture
def depot(tmp_path):
    return Depot(tmp_path / "files")


def file(data, source=None):
    return WorkunitFile("a", content_digest(data), data if source is None else source)


def store(depot, database, *files):
    with depot.hold(files) as stored, database.write() as connection:
        depot.add_rows(connection, stored)
    return stored


@pytest.mark.parametrize("data", [b"", b"small", LARGE])
def test_stored_file_has_size_and_checksums(depot, database, data):
    (stored,) = store(depot, database, file(data))
    assert (stored.size, stored.digest) == (len(data), content_digest(data))
    assert stored.md5 == hashlib.md5(data, usedforsecurity=False).hexdigest()


def test_file_from_a_path_outlives_its_source(depot, database, tmp_path):
    source = tmp_path / "blob"
    source.write_bytes(LARGE)
    store(depot, database, file(LARGE, source))
    source.unlink()
    assert (tmp_path / "files" / content_digest(LARGE)).read_bytes() == LARGE


def test_equal_files_are_stored_once_under_one_token(depot, database):
    store(depot, database, file(b"x"), file(b"x"))
    store(depot, database, file(b"x"))
    with database.read() as connection:
        rows = connection.exec_driver_sql("SELECT token FROM engine_file").all()
    assert len(rows) == 1
    assert len(rows[0].token) == 48


@pytest.mark.parametrize("data", [b"small", LARGE])
def test_wrong_digest_is_refused_and_nothing_stays(depot, tmp_path, data):
    wrong = WorkunitFile("a", "0" * 64, data)
    with pytest.raises(TrustError, match="STO-E002"), depot.hold([wrong]):
        pass
    assert list((tmp_path / "files").iterdir()) == []


def test_missing_source_is_our_error(depot, tmp_path):
    gone = WorkunitFile("a", "0" * 64, tmp_path / "gone")
    with pytest.raises(InternalError, match="STO-R030"), depot.hold([gone]):
        pass


def test_held_file_is_not_removed(depot, database, tmp_path):
    wanted = file(LARGE)
    with depot.hold([wanted]):
        with database.write() as connection:
            assert depot.remove_unused(connection, [wanted.digest], ()) == ()
        depot.unlink([wanted.digest])
        assert (tmp_path / "files" / wanted.digest).exists()
    depot.unlink([wanted.digest])
    assert not (tmp_path / "files" / wanted.digest).exists()


def test_sweep_removes_what_no_row_names(depot, database, tmp_path):
    store(depot, database, file(LARGE))
    (tmp_path / "files" / ("f" * 64)).write_bytes(b"left by a crash")
    with database.read() as connection:
        depot.sweep(connection)
    assert os.listdir(tmp_path / "files") == [content_digest(LARGE)]  # noqa: PTH208


def test_retained_file_stays_and_is_not_read_again(depot, database, tmp_path):
    wanted = file(LARGE)
    depot.retain([wanted.digest])
    store(depot, database, wanted)
    with database.write() as connection:
        assert depot.remove_unused(connection, [wanted.digest], ()) == ()
    (tmp_path / "files" / wanted.digest).write_bytes(b"not looked at")
    assert store(depot, database, wanted)[0].size == len(LARGE)


def test_file_that_is_retained_no_longer_may_go(depot, database):
    wanted = file(LARGE)
    depot.retain([wanted.digest])
    store(depot, database, wanted)
    assert depot.retain([]) == {wanted.digest}
    with database.write() as connection:
        gone = depot.remove_unused(connection, [wanted.digest], ())
    assert gone == (wanted.digest,)
