"""Input files of workunits: stored once by digest, fetched under an unguessable token.

Small files lie in the database, so that creating a workunit is one durable step; larger
ones are files named by their digest, linked or copied in before the transaction that
names them. A file that no workunit needs any more is removed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import threading
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sqlalchemy import delete, exists, select

from stoilo.core.errors import InternalError, TrustError
from stoilo.core.files import sync_directory
from stoilo.server.db.bulk import draw_tokens, insert_many, select_in
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.workunits import measure

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from sqlalchemy import Connection

    from stoilo.server.engines.workunits import WorkunitFile


log = logging.getLogger(__name__)


def free_bytes(directory: Path) -> int:
    """Return how many bytes are free on a directory's disk."""
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize


def size_of(path: Path) -> int:
    """Return a file's size, 0 when there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def remove(path: Path) -> bool:
    """Remove a file, if there is one; say whether it is gone."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s could not be removed (errno %s)", path.name, error.errno)
        return False
    return True


def disk_error(error: OSError) -> InternalError:
    """Return our error for the disk's."""
    return InternalError(
        "STO-R030", f"a result file could not be stored (errno {error.errno})"
    )


_TOKEN_BYTES = 24


@dataclass(frozen=True, slots=True)
class StoredFile:
    """What the database shall know about a file; `content` None: it lies on disk."""

    size: int
    digest: str
    md5: str
    content: bytes | None


@dataclass(frozen=True, slots=True)
class Download:
    """A file as handed to a volunteer: inline bytes or a path."""

    digest: str
    content: bytes | None
    path: Path


class Depot:
    """The files under `directory` and their rows."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pins: Counter[str] = Counter()
        self._measured: dict[str, StoredFile] = {}
        self._retained: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, digest: str) -> Path:
        """Return where the file of a digest lies, where it is large and there."""
        return self._directory / digest

    def retain(self, digests: Iterable[str]) -> frozenset[str]:
        """Keep files of exactly these digests also while no workunit names them.

        They stay measured, so that a large file that task after task needs is read once.

        Returns:
            those that are retained no longer, to be removed if nothing names them.
        """
        with self._lock:
            before, self._retained = self._retained, frozenset(digests)
        return before - self._retained

    def shared(
        self,
        connection: Connection,  # of the engine's database
        most: int,  # how many; which ones nobody can say
        among: Collection[str] = (),  # look for these only; untrusted
    ) -> dict[str, Path]:
        """Return where files lie that many tasks share, never one task's arguments."""
        table, needs = schema.files, schema.workunit_files
        sticky = exists().where(needs.c.digest == table.c.digest, needs.c.sticky == 1)
        query = select(table.c.digest).where(
            table.c.content.is_(None), sticky | table.c.digest.in_(self._retained)
        )
        if among:
            query = query.where(table.c.digest.in_(among))
        found = connection.scalars(query.limit(most))
        return {one: self.path(one) for one in found}

    @contextlib.contextmanager
    def hold(self, files: Iterable[WorkunitFile]) -> Iterator[tuple[StoredFile, ...]]:
        """Yield `files` checked and, where large, durable on disk; not removed inside.

        Raises:
            TrustError: ``STO-E002`` for a wrong digest.
            InternalError: ``STO-R030`` when the disk refuses.
        """
        distinct = {file.digest: file for file in files}
        with self._lock:
            self._pins.update(distinct.keys())
        try:
            yield tuple(self._take(file) for file in distinct.values())
        except OSError as error:
            raise InternalError(
                "STO-R030", f"an input file could not be stored (errno {error.errno})"
            ) from error
        finally:
            with self._lock:
                self._pins.subtract(distinct.keys())
                self._pins += Counter()

    def add_rows(self, connection: Connection, files: Iterable[StoredFile]) -> None:
        """Insert the files that the database does not know yet."""
        wanted = {file.digest: file for file in files}
        table = schema.files
        found = select_in(connection, [table.c.digest], table.c.digest, wanted)
        known = {row[0] for row in found}
        fresh = [file for file in wanted.values() if file.digest not in known]
        tokens = draw_tokens(len(fresh), _TOKEN_BYTES)
        rows = [
            asdict(file) | {"token": token}
            for file, token in zip(fresh, tokens, strict=True)
        ]
        insert_many(connection, table, rows)

    def find(self, connection: Connection, token: str) -> Download | None:
        """Return the file behind an (untrusted) token."""
        table = schema.files
        row = connection.execute(select(table).where(table.c.token == token)).first()
        if row is None:
            return None
        return Download(row.digest, row.content, self._directory / row.digest)

    def remove_unused(
        self, connection: Connection, digests: Iterable[str], keep: Iterable[str]
    ) -> tuple[str, ...]:
        """Delete rows of `digests` that nothing names; return those, for `unlink`."""
        table, used = schema.files, schema.workunit_files.c.digest
        with self._lock:
            pinned = {*self._pins, *self._retained, *keep}
        gone = []
        for digest in sorted(set(digests) - pinned):
            unused = (table.c.digest == digest, ~exists().where(used == digest))
            if connection.execute(delete(table).where(*unused)).rowcount:
                gone.append(digest)
        return tuple(gone)

    def unlink(self, digests: Iterable[str]) -> None:
        """Remove files whose rows are gone; pinned ones stay.

        What the disk does not let go is removed at the next start.
        """
        with self._lock:
            for digest in digests:
                if not self._pins[digest]:
                    self._measured.pop(digest, None)
                    remove(self._directory / digest)

    def sweep(self, connection: Connection) -> None:
        """Remove files that no row names (left by a crash between two steps)."""
        known = set(connection.scalars(select(schema.files.c.digest)))
        self.unlink(
            path.name for path in self._directory.iterdir() if path.name not in known
        )

    def _take(self, file: WorkunitFile) -> StoredFile:
        """Return one file checked; a large one is on disk afterwards."""
        if isinstance(file.source, bytes) and len(file.source) <= schema.INLINE_BYTES:
            return StoredFile(*measure(file.source, file.digest), file.source)
        target = self._directory / file.digest
        known = self._measured.get(file.digest)
        if known is not None and target.exists():
            return known
        if not target.exists():
            self._place(file, target)
        try:
            stored = StoredFile(*measure(target, file.digest), None)
        except TrustError:
            target.unlink(missing_ok=True)
            raise
        self._measured[file.digest] = stored
        return stored

    def _place(self, file: WorkunitFile, target: Path) -> None:
        """Bring the bytes to `target`, durably; linked where the disk allows."""
        part = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
        try:
            _copy(file.source, part)
            with part.open("rb") as stream:
                os.fsync(stream.fileno())
            part.replace(target)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        sync_directory(self._directory)


def _copy(source: Path | bytes, target: Path) -> None:
    if isinstance(source, bytes):
        target.write_bytes(source)
        return
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
