"""One shard: values by name in memory, and each acknowledged update in a file.

What a file promises: when `LocalShard.apply` has returned, its changes outlast the process
(SQLite, WAL, flushed at every commit), and a push that comes again, before or after a
crash, changes nothing. Value and mark are written in one transaction, so a process that
is killed at any moment leaves both or neither. A cell carries its own marks: it may move
to another shard and takes along what it has seen.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoilo.audit.log.sqlite import connect, damaged, transaction
from stoilo.core.errors import TrustError, UnreachableError, UsageError
from stoilo.learn.store.functions import UpdateFunction, built_in, check_value
from stoilo.learn.store.values import Encoded, Value, decode_value, encode_value

_SCHEMA = """
CREATE TABLE IF NOT EXISTS cell (
    key TEXT PRIMARY KEY, form TEXT NOT NULL, body BLOB NOT NULL,
    version INTEGER NOT NULL, marks TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS function (
    name TEXT PRIMARY KEY, digest TEXT NOT NULL
) STRICT;
"""
RUNS = 4  # of how many runs, those that pushed last, a cell remembers the pushes
_WRITE = "INSERT OR REPLACE INTO cell VALUES (?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a push: ``value = function(value, change)``."""

    key: str
    function: str
    change: Any


@dataclass(frozen=True, slots=True)
class Push:
    """Changes that come together, from one source."""

    source: str  # who pushes, ``run/worker``; a worker is a part of the data
    # Grows with each push of that source; the same in a repetition. A source begins a
    # push only when the one before is acknowledged.
    sequence: int
    changes: Sequence[Change]  # at most one of each key

    def __post_init__(self) -> None:
        if len({change.key for change in self.changes}) < len(self.changes):
            raise UsageError("STO-T072", "a push changes a key twice")


@dataclass(frozen=True, slots=True)
class Cell:
    """A value and its history."""

    value: Value  # not to be changed in place
    version: int = 0  # how many updates it has had
    # Per source, the last push that is in
    marks: Mapping[str, int] = field(default_factory=dict)


class LocalShard:
    """Cells by key, in memory and (with a path) in a file.

    Every call may be repeated without harm, and any thread may call.
    """

    def __init__(
        self, path: Path | None = None, functions: Iterable[UpdateFunction] = ()
    ) -> None:
        """Open or make the shard.

        Raises:
            TrustError: ``STO-T073``, the file was used with another function of the same
                name; ``STO-L049``, it is damaged.
            UnreachableError: ``STO-T077``, another server has it open: both would keep
                values in memory and write over each other's.
        """
        self._functions = {**built_in(), **{f.name: f for f in functions}}
        self._lock = threading.Lock()
        self._cells: dict[str, Cell] = {}
        self._file: sqlite3.Connection | None = None
        self._held = -1
        if path is not None:
            self._open(path)

    def close(self) -> None:
        """Close the file; all that was acknowledged is in it."""
        with self._lock:
            if self._file is not None:
                self._file.close()
            if self._held >= 0:
                os.close(self._held)
                self._held = -1

    def list_keys(self) -> tuple[str, ...]:
        """Return the keys, sorted."""
        with self._lock:
            return tuple(sorted(self._cells))

    def read(self, keys: Iterable[str]) -> dict[str, Cell]:
        """Return cells, all of one moment, or raise ``STO-T074`` for an unknown key."""
        with self._lock:
            return {key: self._cell(key) for key in keys}

    def create(self, values: Mapping[str, Value]) -> None:
        """Make the cells that are not there yet; the others stay as they are."""
        with self._lock:
            # Those that are there keep what they have: two trainings may begin at once.
            fresh = values.keys() - self._cells.keys()
            self._store({key: Cell(values[key]) for key in sorted(fresh)})

    def apply(self, push: Push) -> int:
        """Apply what is new of a push, all of it or nothing; return how many cells.

        Raises:
            UsageError: ``STO-T074`` for an unknown key, ``STO-T075`` for an unknown
                function, ``STO-T039`` for one that fails, ``STO-T068`` for a result that
                is no value. Nothing is changed.
            UnreachableError: ``STO-L002``, the file cannot be written. Nothing is
                changed; the same push may be tried again.
        """
        with self._lock:
            changed = {}
            for change in push.changes:
                cell = self._cell(change.key)
                # Seen before: after a crash the same push comes again.
                if cell.marks.get(push.source, -1) < push.sequence:
                    changed[change.key] = self._next(cell, change, push)
            self._store(changed)
            return len(changed)

    def accept(self, cells: Mapping[str, Cell]) -> None:
        """Take over cells from another shard, history included."""
        with self._lock:
            self._store(dict(cells))

    def drop(self, keys: Iterable[str]) -> None:
        """Forget cells that another shard has taken over.

        Raises:
            UnreachableError: ``STO-L002``, the file cannot be written. Nothing is
                forgotten.
        """
        with self._lock:
            gone = sorted(set(keys) & self._cells.keys())
            if gone and self._file is not None:
                rows = [(key,) for key in gone]
                with damaged("parameter shard"), transaction(self._file):
                    self._file.executemany("DELETE FROM cell WHERE key = ?", rows)
            for key in gone:
                del self._cells[key]

    def _cell(self, key: str) -> Cell:
        cell = self._cells.get(key)
        if cell is None:
            raise UsageError("STO-T074", f"the server keeps no {key[:60]!r}")
        return cell

    def _next(self, cell: Cell, change: Change, push: Push) -> Cell:
        function = self._functions.get(change.function)
        if function is None:
            raise UsageError(
                "STO-T075", f"no update function is called {change.function[:40]!r}"
            )
        after = _call(function, cell.value, change)
        value = check_value(function.name, cell.value, after)
        marks = note_push(cell.marks, push.source, push.sequence)
        return Cell(value, cell.version + 1, marks)

    def _store(self, changed: Mapping[str, Cell]) -> None:
        # Written first, then seen by readers.
        rows = [_row(key, cell) for key, cell in changed.items()]
        if rows and self._file is not None:
            self._write(self._file, rows)
        self._cells.update(changed)

    def _write(self, file: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        with damaged("parameter shard"), transaction(file):
            file.executemany(_WRITE, rows)

    def _open(self, path: Path) -> None:
        self._held = take_lock(path.with_suffix(".lock"))
        try:
            with damaged("parameter shard"):
                self._file = connect(path)
                self._load(self._file)
        except BaseException:
            self.close()
            raise

    def _load(self, file: sqlite3.Connection) -> None:
        file.executescript(_SCHEMA)
        for name, digest in file.execute("SELECT name, digest FROM function"):
            known = self._functions.get(name)
            if known is None or known.digest != digest:
                raise TrustError(
                    "STO-T073",
                    f"the shard was made with another update function {name[:40]!r}",
                )
        with transaction(file):
            file.executemany(
                "INSERT OR IGNORE INTO function VALUES (?, ?)",
                [(f.name, f.digest) for f in self._functions.values()],
            )
        for row in file.execute("SELECT * FROM cell"):
            self._cells[row[0]] = _parse_row(row)


def _call(function: UpdateFunction, value: Value, change: Change) -> object:
    try:
        return function.apply(value, change.change)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:200]
        raise UsageError(
            "STO-T039", f"{function.name[:40]!r} failed on {change.key[:60]!r}: {why}"
        ) from error


def note_push(marks: Mapping[str, int], source: str, sequence: int) -> dict[str, int]:
    """Return the marks with one more; those of all but the last `RUNS` runs are gone."""
    found = {name: mark for name, mark in marks.items() if name != source}
    found[source] = sequence  # at the end: a dict keeps the order of the last pushes
    runs = dict.fromkeys(run for run in map(_run, reversed(found)) if run)
    if len(runs) <= RUNS:
        return found
    kept = {"", *list(runs)[:RUNS]}
    return {name: mark for name, mark in found.items() if _run(name) in kept}


def _run(source: str) -> str:
    return source.rpartition("/")[0]


def take_lock(path: Path) -> int:
    """Return the descriptor that keeps other servers out while it is open."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UnreachableError(
            "STO-L002", f"the parameter shard cannot be opened: {error}"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise UnreachableError(
            "STO-T077", f"{path.stem} is in use by another parameter server"
        ) from error
    return descriptor


def _row(key: str, cell: Cell) -> tuple[Any, ...]:
    encoded = encode_value(cell.value)
    marks = json.dumps(dict(cell.marks))
    return (key, encoded.form, encoded.body, cell.version, marks)


def _parse_row(row: tuple[Any, ...]) -> Cell:
    _, form, body, version, text = row
    try:
        marks = {str(source): int(mark) for source, mark in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise TrustError(
            "STO-T069", "a shard's file holds marks that are none"
        ) from error
    return Cell(decode_value(Encoded(form, body)), int(version), marks)
