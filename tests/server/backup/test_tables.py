"""Rows travel between databases unchanged, and hostile frames end in our errors."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, insert, select

from stoilo.core.errors import StoiloError
from stoilo.server.backup.tables import (
    free_references,
    read_rows,
    tables_of,
    write_rows,
)
from stoilo.server.db import schema
from stoilo.server.db.store import SERVER, Store
from stoilo.server.migrations import read_revision

NAME = schema.verdict.name
VALUES = (b"", b"\x00\xff" * 600, "Ünicode\u2028".encode())


def filled(url: str) -> Store:
    store = Store.open(url)
    rows = [
        {"key": f"{n:064x}", "body": body, "created_at": 2**40 + n}
        for n, body in enumerate(VALUES * 100)
    ]
    with store.write() as connection:
        connection.execute(insert(schema.verdict), rows)
    return store


def frames_of(store: Store) -> bytes:
    with store.read() as connection:
        assert read_revision(connection, SERVER)
        return b"".join(read_rows(connection, SERVER, NAME))


def test_rows_come_back_in_another_database(tmp_path: Path, url: str) -> None:
    source = filled(f"sqlite:///{tmp_path / 'source.sqlite'}")
    target = Store.open(url)
    data = frames_of(source)
    with target.write() as connection:
        free_references(connection, free=True)
        assert write_rows(connection, SERVER, NAME, io.BytesIO(data)) == 300
        free_references(connection, free=False)
    query = select(schema.verdict).order_by(schema.verdict.c.key)
    with source.read() as one, target.read() as other:
        assert one.execute(query).all() == other.execute(query).all()
    assert frames_of(target) == data
    source.close()
    target.close()


def test_tables_come_after_what_they_point_to() -> None:
    names = tables_of(SERVER)
    assert names.index("account") < names.index("task") < names.index("attempt")


def frame(value: object) -> bytes:
    data = msgspec.msgpack.encode(value)
    return len(data).to_bytes(4, "big") + data


NAMES = frame(["key", "body", "created_at"])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xff\xff\xff",
        NAMES[:-1],
        frame(["key", "nothing"]),
        frame([]),
        NAMES + frame([["only two", b""]]),
        NAMES + frame([["a", b"", {"a": 1}]]),
        NAMES + frame({"a": 1}),
    ],
)
def test_malformed_frames_are_refused(store: Store, data: bytes) -> None:
    refuse(store, data)


def refuse(store: Store, data: bytes) -> None:
    with pytest.raises(StoiloError, match="STO-B065"), store.write() as connection:
        write_rows(connection, SERVER, NAME, io.BytesIO(data))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    place = tmp_path_factory.mktemp("rows") / "server.sqlite"
    return Store.open(f"sqlite:///{place}")


@given(st.binary(min_size=1, max_size=60))
def test_any_bytes_end_in_our_error(store: Store, data: bytes) -> None:
    refuse(store, data)


def test_database_without_tables_has_no_revision(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'empty.sqlite'}")
    with engine.connect() as connection:
        assert read_revision(connection, SERVER) == ""
    engine.dispose()
