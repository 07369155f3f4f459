"""One shard: values by name in memory, and each acknowledged update in a file.

What a file promises: when a push is applied, its changes outlast the process (SQLite, WAL,
flushed at every commit), and a push that comes again, before or after a crash, changes
nothing. Value and mark are written in one transaction, so a process that is killed at any
moment leaves both or neither. A cell carries its own marks: it may move to another shard and
takes along what it has seen. Vectors of a batch optimiser lie beside the cells (`vectors`): in
the file only when they are saved.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from stoilo.audit.log.sqlite import connect, damaged, transaction
from stoilo.client.capture.arguments import StoredValue
from stoilo.core.errors import TrustError, UsageError
from stoilo.learn.core.checkpoint import lock_file
from stoilo.learn.store import protocol as p
from stoilo.learn.store import values
from stoilo.learn.store.functions import UpdateFunction, advance, built_in, check_value
from stoilo.learn.store.protocol import Cell, Change, Push
from stoilo.learn.store.values import Value
from stoilo.learn.store.vectors import SCHEMA, Spaces

_SCHEMA = """
CREATE TABLE IF NOT EXISTS cell (key TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS function (
    name TEXT PRIMARY KEY, digest TEXT NOT NULL
) STRICT;
"""
RUNS = 4  # of how many runs, those that pushed last, a cell remembers the pushes
T = TypeVar("T")
Updater = UpdateFunction | p.ShardOptimizer  # what a push may name


class Shard(ABC):
    """Cells by key and vectors by space, wherever they are.

    Every call on cells may be repeated without harm.
    """

    @abstractmethod
    def ask(self, command: p.Command[T]) -> T:
        """Return the answer to a command, or raise what the shard refuses.

        Raises:
            UsageError: ``STO-T074`` for an unknown key or function, for a
                function that fails, ``STO-T068`` for a result that is no value. Nothing is
                changed.
            UnreachableError: ``STO-L002``, the file cannot be written. Nothing is
                changed; the same push may be tried again.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the file; all that was acknowledged is in it."""

    def list_keys(self) -> tuple[str, ...]:
        """Return the keys, sorted."""
        return tuple(self.ask(p.ListKeys()))

    def read(self, keys: Iterable[str]) -> dict[str, Cell]:
        """Return cells."""
        return self.ask(p.ReadCells(list(dict.fromkeys(keys))))

    def read_tagged(self, known: Mapping[str, str]) -> dict[str, p.Tagged]:
        """Return versions by their tags; without the value where `known` has the tag."""
        return self.ask(p.ReadTagged(dict(known)))

    def create(self, given: Mapping[str, Value]) -> None:
        """Make the cells that are not there yet."""
        self.ask(p.CreateCells(dict(given)))

    def apply(self, push: Push) -> int:
        """Apply what is new of a push; return how many cells that changed."""
        return self.ask(p.ApplyPush(push))

    def accept(self, cells: Mapping[str, Cell]) -> None:
        """Take over cells from another shard."""
        self.ask(p.AcceptCells(dict(cells)))

    def drop(self, keys: Iterable[str]) -> None:
        """Forget cells that another shard has taken over."""
        self.ask(p.DropCells(sorted(keys)))


class LocalShard(Shard):
    """A shard in memory and (with a path) in a file; any thread may call."""

    def __init__(
        self,
        path: Path | None = None,
        functions: Iterable[Updater] = (),
        *,
        is_shared: bool = False,  # clients bring their functions later: `admit`
    ) -> None:
        """Open or make the shard.

        Raises:
            UsageError: ``STO-T012``, the file was used with another function of the same
                name; ``STO-T023``, another server has it open: both would keep values in
                memory and write over each other's.
            TrustError: ``STO-L049``, it is damaged.
        """
        self._functions: dict[str, Updater] = {
            **built_in(),
            **{f.name: f for f in functions},
        }
        self._lock = threading.Lock()
        self._cells: dict[str, Cell] = {}
        # What was asked for: hashed once a version
        self._tags: dict[str, tuple[Cell, StoredValue]] = {}
        self._spaces = Spaces()
        self._file: sqlite3.Connection | None = None
        self._held = -1
        if path is not None:
            self._open(path, is_shared=is_shared)

    def admit(self, functions: Iterable[Updater]) -> None:
        """Let pushes name these, too; raises ``STO-T012`` for another one of a name."""
        with self._lock:
            fresh = {f.name: f for f in functions}
            known = {name: f.digest for name, f in self._functions.items()}
            if self._file is not None:
                known |= _digests(self._file)
            for name, one in fresh.items():
                _check_same(name, one, known.get(name, one.digest))
            if self._file is not None:
                _note_functions(self._file, fresh.values())
            self._functions |= fresh

    def close(self) -> None:
        """Close the file; all that was acknowledged is in it."""
        with self._lock:
            if self._file is not None:
                self._file.close()
            if self._held >= 0:
                os.close(self._held)
                self._held = -1

    def leave(self, space: str) -> None:
        """Forget a space of vectors; what was saved of it stays in the file."""
        with self._lock:
            self._spaces.leave(space)

    def ask(self, command: p.Command[T]) -> T:
        """Do a command; see `Shard.ask`."""
        with self._lock:
            return cast("T", self._do(command))

    def _do(self, command: object) -> object:
        if isinstance(command, p.OfSpace):
            return self._spaces.do(command)
        match command:
            case p.ListKeys():
                return sorted(self._cells)
            case p.ReadCells(keys):
                return {key: self._cell(key) for key in keys}
            case p.ReadTagged(known):
                return {key: self._read_tagged(key, tag) for key, tag in known.items()}
            case p.CreateCells(given):
                # Those that are there keep what they have: two trainings may begin at once.
                fresh = sorted(given.keys() - self._cells.keys())
                self._store({key: Cell(given[key]) for key in fresh})
            case p.ApplyPush(push):
                return self._apply(push)
            case p.AcceptCells(cells):
                self._store(cells)
            case p.DropCells(keys):
                self._drop(keys)
            case _:
                raise TrustError("STO-T038", "a shard does no such thing")
        return None

    def _apply(self, push: Push) -> int:
        changed = {}
        for change in push.changes:
            cell = self._cell(change.key)
            # Seen before: after a crash the same push comes again.
            if cell.marks.get(push.source, -1) < push.sequence:
                changed[change.key] = self._next(cell, change, push)
        self._store(changed)
        return len(changed)

    def _drop(self, keys: Iterable[str]) -> None:
        gone = sorted(set(keys) & self._cells.keys())
        if gone and self._file is not None:
            rows = [(key,) for key in gone]
            with damaged("parameter shard"), transaction(self._file):
                self._file.executemany("DELETE FROM cell WHERE key = ?", rows)
        for key in gone:
            del self._cells[key]
            self._tags.pop(key, None)

    def _cell(self, key: str) -> Cell:
        cell = self._cells.get(key)
        if cell is None:
            raise UsageError("STO-T074", f"the server keeps no {key[:60]!r}")
        return cell

    def _read_tagged(self, key: str, known: str) -> p.Tagged:
        cell = self._cell(key)
        held = self._tags.get(key)
        if held is None or held[0] is not cell:
            held = self._tags[key] = (cell, StoredValue.of(cell.value)[0])
        tag, size = held[1].digest, held[1].size
        return p.Tagged(tag, size, None if tag == known else cell.value)

    def _next(self, cell: Cell, change: Change, push: Push) -> Cell:
        function = self._functions.get(change.function)
        if function is None:
            raise UsageError(
                "STO-T074", f"no update function is called {change.function[:40]!r}"
            )
        values.check_kind(change.change)
        if isinstance(function, p.ShardOptimizer):
            after = advance(function, cell, change, push)
        else:
            found = _call(function, cell.value, change)
            value = check_value(function.name, cell.value, found)
            after = msgspec.structs.replace(cell, value=value)
        marks = note_push(cell.marks, push.source, push.sequence)
        return msgspec.structs.replace(after, version=cell.version + 1, marks=marks)

    def _store(self, changed: Mapping[str, Cell]) -> None:
        # Encoded also without a file: what is too large is refused everywhere.
        rows = [(key, _encode(cell)) for key, cell in changed.items()]
        # Written first, then seen by readers.
        if rows and self._file is not None:
            self._write(self._file, rows)
        self._cells.update(changed)

    def _write(self, file: sqlite3.Connection, rows: list[tuple[str, bytes]]) -> None:
        with damaged("parameter shard"), transaction(file):
            file.executemany("INSERT OR REPLACE INTO cell VALUES (?, ?)", rows)

    def _open(self, path: Path, *, is_shared: bool) -> None:
        self._held = lock_file(path.with_suffix(".lock"))
        try:
            with damaged("parameter shard"):
                self._file = self._spaces.file = connect(path)
                self._load(self._file, is_shared=is_shared)
        except BaseException:
            self.close()
            raise

    def _load(self, file: sqlite3.Connection, *, is_shared: bool) -> None:
        file.executescript(_SCHEMA + SCHEMA)
        for name, digest in _digests(file).items():
            if name in self._functions or not is_shared:
                _check_same(name, self._functions.get(name), digest)
        _note_functions(file, self._functions.values())
        for key, body in file.execute("SELECT key, body FROM cell"):
            self._cells[key] = values.decode(body, Cell)


def _digests(file: sqlite3.Connection) -> dict[str, str]:
    return dict(file.execute("SELECT name, digest FROM function"))


def _note_functions(file: sqlite3.Connection, functions: Iterable[Updater]) -> None:
    with damaged("parameter shard"), transaction(file):
        file.executemany(
            "INSERT OR IGNORE INTO function VALUES (?, ?)",
            [(f.name, f.digest) for f in functions],
        )


def _check_same(name: str, known: Updater | None, digest: str) -> None:
    if known is None or known.digest != digest:
        raise UsageError(
            "STO-T012",
            f"the shard was made with another update function {name[:40]!r}",
        )


def _encode(cell: Cell) -> bytes:
    values.check_kind(cell.value)
    body = values.encode(cell)
    if len(body) > values.MOST_BYTES:
        raise UsageError("STO-T068", f"{len(body)} bytes are too many for one name")
    return body


def _call(function: UpdateFunction, value: Value, change: Change) -> object:
    try:
        return function.apply(value, change.change)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:200]
        raise UsageError(
            "STO-T074", f"{function.name[:40]!r} failed on {change.key[:60]!r}: {why}"
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
