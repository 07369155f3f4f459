"""Rows of tables as bytes: for databases that are no file, and to move from one to another.

A file is a row of frames: length (4 bytes, big-endian), then msgpack: first the columns'
names, then lists of rows. Values are int, float, str, bytes or None, as the schema has
them; the same bytes go into SQLite and into MariaDB.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, Final

import msgspec
from sqlalchemy import column, delete, insert, select, table, text

from stoilo.core.errors import TrustError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection

    from stoilo.server.migrations import Branch


HEAD_BYTES: Final = 4
BATCH_ROWS: Final = 256
BATCH_BYTES: Final = 8 * 1024 * 1024
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024

Value = int | float | str | bytes | None
_KINDS: Final = frozenset({int, float, str, bytes, type(None)})
_ROWS: Final = msgspec.msgpack.Decoder(list[list[Any]])  # kinds are checked apart
_NAMES: Final = msgspec.msgpack.Decoder(list[str])


def tables_of(branch: Branch) -> Sequence[str]:
    """Return the branch's tables, those that others point to first."""
    return [str(one.name) for one in branch.models.sorted_tables]


def read_rows(connection: Connection, branch: Branch, name: str) -> Iterator[bytes]:
    """Yield the frames of one table's rows, in the order of their keys."""
    model = branch.models.tables[name]
    columns = [str(one.name) for one in model.columns]
    yield _frame(msgspec.msgpack.encode(columns))
    source = table(name, *(column(one) for one in columns))
    ordered = select(source).order_by(
        *(source.c[one.name] for one in model.primary_key)
    )
    found = connection.execution_options(stream_results=True).execute(ordered)
    batch: list[list[Value]] = []
    size = 0
    for row in found:
        values = [bytes(v) if isinstance(v, bytearray | memoryview) else v for v in row]
        batch.append(values)
        size += sum(len(v) if isinstance(v, bytes | str) else 16 for v in values)
        if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield _frame(msgspec.msgpack.encode(batch))
            batch, size = [], 0
    if batch:
        yield _frame(msgspec.msgpack.encode(batch))


def write_rows(
    connection: Connection, branch: Branch, name: str, frames: IO[bytes]
) -> int:
    """Make these the rows of a table; returns how many there are.

    Raises:
        TrustError: ``STO-B065`` when the frames are none of ours.
    """
    model = branch.models.tables[name]
    connection.execute(delete(model))
    try:
        names = _NAMES.decode(_next(frames) or b"")
        known = {one.name for one in model.columns}
        if not names or not set(names) <= known:
            raise TrustError("STO-B065", f"the rows of {name} have unknown columns")
        target = table(name, *(column(one) for one in names))
        total = 0
        while data := _next(frames):
            rows = _ROWS.decode(data)
            if not all(_is_row(row, len(names)) for row in rows):
                raise TrustError("STO-B065", f"a row of {name} has another shape")
            given = [dict(zip(names, row, strict=True)) for row in rows]
            connection.execute(insert(target), given)
            total += len(rows)
    except msgspec.MsgspecError as error:
        raise TrustError("STO-B065", f"the rows of {name} cannot be read") from error
    return total


def free_references(connection: Connection, *, free: bool) -> None:
    """Let rows come before what they point to, within this session (MariaDB)."""
    if connection.dialect.name in {"mysql", "mariadb"}:
        connection.execute(text(f"SET SESSION foreign_key_checks = {int(not free)}"))


def _is_row(row: Sequence[object], width: int) -> bool:
    return len(row) == width and all(type(value) in _KINDS for value in row)


def _frame(data: bytes) -> bytes:
    return len(data).to_bytes(HEAD_BYTES, "big") + data


def _next(frames: IO[bytes]) -> bytes | None:
    head = frames.read(HEAD_BYTES)
    if not head:
        return None
    size = int.from_bytes(head, "big")
    data = (
        frames.read(size)
        if len(head) == HEAD_BYTES and size <= MAX_FRAME_BYTES
        else b""
    )
    if len(data) != size:
        raise TrustError("STO-B065", "a table's rows end in the middle")
    return data
