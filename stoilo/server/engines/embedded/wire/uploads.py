"""Result files on their way in: bounded, resumable, durable before they count.

An upload is accepted only for an outstanding copy, by who holds the copy's secret
upload URL, and never beyond the workunit's size limit. Bytes go straight to a ``.part``
file; when all are there, size and MD5 are checked, the file is made durable under its
final name and then named in the database. What is complete never changes again.

Room is set aside for what is announced before a byte of it is taken (`uploadroom`); what
stops coming is removed after some hours, and its client begins again.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from sqlalchemy import select, update

from stoilo.core.errors import DeniedError, InternalError, TrustError, UsageError
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.rules.transitioner import can_receive
from stoilo.server.engines.embedded.views import copy_of, load_view
from stoilo.server.engines.embedded.wire.uploadroom import (
    Owner,
    UploadLimits,
    UploadRoom,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Connection, Row

    from stoilo.server.engines.embedded.database import Database
    from stoilo.server.engines.embedded.wire.xml import UploadHead

__all__ = ["Incoming", "UploadDesk", "free_bytes"]

CHUNK = 1024 * 1024
NOTED_BYTES = 4 * CHUNK
"""So much of an upload comes before its part of the reserved room is noted again."""

LOOK_EVERY_S = 600
"""How often parts that stopped coming are looked for, s."""


@dataclass(slots=True)
class Incoming:
    """One upload in progress; `missing` raw bytes are still to come.

    Attributes:
        name: of the file.
        head: what was announced.
        stream: where bytes go.
        missing: bytes that are still to come.
        on_progress: called with `missing` after some bytes were written.
        noted: what it was called with last.
    """

    name: str
    head: UploadHead
    stream: BinaryIO
    missing: int
    on_progress: Callable[[int], object]
    noted: int = 0

    def write(self, chunk: bytes) -> None:
        """Append raw bytes.

        Raises:
            UsageError: ``STO-E030`` for more than announced.
            InternalError: ``STO-E003`` when the disk refuses.
        """
        if len(chunk) > self.missing:
            raise UsageError("STO-E030", "the upload is longer than announced")
        try:
            self.stream.write(chunk)
        except OSError as error:
            raise _disk(error) from error
        self.missing -= len(chunk)
        if self.noted - self.missing >= NOTED_BYTES:
            self.noted = self.missing
            self.on_progress(self.missing)


class UploadDesk:
    """Uploads of one project, files under `directory`.

    Args:
        database: where copies are.
        directory: of the files.
        limits: how much of the disk they may take.
        clock: s since 1970.
        free: says how many bytes are free on the disk of a directory.
    """

    def __init__(
        self,
        database: Database,
        directory: Path,
        *,
        limits: UploadLimits | None = None,
        clock: Callable[[], float] = time.time,
        free: Callable[[Path], int] | None = None,
    ) -> None:
        self._database = database
        self._directory = directory
        self._clock = clock
        self._free = free or free_bytes
        self._room = UploadRoom(limits or UploadLimits())
        self._looked_at = 0
        self._busy: set[str] = set()
        self._lock = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def size_held(self, token: str, name: str) -> int:
        """Return how many bytes of an outstanding upload are here.

        Raises:
            DeniedError: ``STO-E031`` when it is not expected from this caller.
        """
        with self._database.read() as connection:
            row = self._expected(connection, token, name)
        if row.upload_size is not None:
            return int(row.upload_size)
        return _size(self._part(name))

    @contextlib.contextmanager
    def receive(self, token: str, head: UploadHead) -> Iterator[Incoming | None]:
        """Yield where to write the bytes; None when the file is complete already.

        The upload counts when the block ends without an exception; when it does not,
        the part stays for a later resume, except after a refusal for good.

        Raises:
            DeniedError: ``STO-E031``.
            UsageError: ``STO-E030`` or ``STO-E032`` (too large): never try again.
            InternalError: ``STO-E034`` (busy), ``STO-E003`` or ``STO-E110`` (no room):
                try again later.
            TrustError: ``STO-E033`` for a wrong checksum: try again from the start.
        """
        with self._database.read() as connection:
            row = self._expected(connection, token, head.name)
        if head.nbytes > row.result_max_bytes or head.offset > head.nbytes:
            raise UsageError("STO-E032", "the upload is larger than the task allows")
        if row.upload_size is not None:
            self._check_same(row, head)
            yield None
            return
        with (
            self._alone(head.name),
            self._reserved(Owner(row.user_id, row.host_id), head),
        ):
            stream = self._open(head)
            missing = head.nbytes - head.offset

            def note(left: int) -> None:
                self._room.note(head.name, head.nbytes - left, left, self._now())

            incoming = Incoming(head.name, head, stream, missing, note, missing)
            try:
                with stream:
                    yield incoming
                    _sync(stream)
            except UsageError:
                self._part(head.name).unlink(missing_ok=True)
                raise
            except OSError as error:  # closing writes what was buffered
                raise _disk(error) from error
            if incoming.missing:
                raise InternalError("STO-E034", "the upload ended in the middle")
            self._complete(head)

    def forget(self, name: str) -> None:
        """Remove an upload, whole or in part, that no copy needs any more."""
        (self._directory / name).unlink(missing_ok=True)
        self._part(name).unlink(missing_ok=True)
        self._room.release(name)

    def expire(self) -> None:
        """Remove the parts that stopped coming hours ago; looks now and then only."""
        now = self._now()
        if abs(now - self._looked_at) < LOOK_EVERY_S:
            return
        self._looked_at = now
        for name in self._room.stale(now):
            with contextlib.suppress(InternalError), self._alone(name):
                self._part(name).unlink(missing_ok=True)
                self._room.release(name)

    def sweep(self) -> None:
        """Remove files that belong to no outstanding copy (left by a crash).

        What stays is counted as its owner's.
        """
        table = schema.copies
        with self._database.read() as connection:
            query = (
                select(table.c.upload_name, table.c.user_id, table.c.host_id)
                .join(
                    schema.workunits,
                    schema.workunits.c.id == schema.copies.c.workunit_id,
                )
                .outerjoin(
                    schema.outbox,
                    schema.outbox.c.workunit_id == schema.workunits.c.id,
                )
                .outerjoin(
                    schema.lingering,
                    schema.lingering.c.workunit_id == schema.workunits.c.id,
                )
                .where(
                    schema.workunits.c.outcome.is_(None)
                    | schema.outbox.c.workunit_id.is_not(None)
                    | schema.lingering.c.workunit_id.is_not(None)
                )
            )
            wanted = {
                row.upload_name: Owner(row.user_id, row.host_id)
                for row in connection.execute(query)
            }
        for path in self._directory.iterdir():
            name = path.name.removesuffix(".part")
            if name not in wanted:
                path.unlink(missing_ok=True)
                continue
            size, whole = _size(path), path.name == name
            self._room.load(name, wanted[name], size, self._now(), whole=whole)

    def _expected(self, connection: Connection, token: str, name: str) -> Row:  # type: ignore[type-arg]  # copy and workunit columns
        """Return the outstanding copy behind token and name, or ``STO-E031``."""
        table = schema.copies
        row = connection.execute(
            select(table, schema.workunits.c.result_max_bytes)
            .join(schema.workunits, schema.workunits.c.id == table.c.workunit_id)
            .where(table.c.upload_name == name)
        ).first()
        if row is None or not hmac.compare_digest(
            row.upload_token.encode(), token.encode()
        ):
            raise DeniedError("STO-E031", "this upload is not expected")
        if not can_receive(load_view(connection, row.workunit_id), copy_of(row)):
            raise DeniedError("STO-E031", "this upload is not expected any more")
        return row

    def _check_same(self, row: Row, head: UploadHead) -> None:  # type: ignore[type-arg]  # copy and workunit columns
        """Raise unless a repeated upload is the file that is here already."""
        path = self._directory / row.upload_name
        if head.nbytes != row.upload_size or _md5(path) != head.md5:
            raise UsageError("STO-E030", "a complete upload cannot be replaced")

    @contextlib.contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Keep a second upload of the same file out."""
        with self._lock:
            if name in self._busy:
                raise InternalError("STO-E034", "this upload is in progress already")
            self._busy.add(name)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(name)

    @contextlib.contextmanager
    def _reserved(self, owner: Owner, head: UploadHead) -> Iterator[None]:
        """Keep room for an upload while it comes; afterwards count what is here.

        What it has on the disk beyond its announced offset is cut off first, so it is
        counted as free.
        """
        name = head.name
        part = self._part(name)
        try:
            free = self._free(self._directory) + max(0, _size(part) - head.offset)
        except OSError as error:
            raise _disk(error) from error
        size, now = head.nbytes, self._now()
        self._room.reserve(name, owner, size, head.offset, free, now)
        try:
            yield
        finally:
            whole = (self._directory / name).exists()
            here = size if whole else _size(part)
            if here:
                self._room.load(name, owner, here, self._now(), whole=whole)
            else:
                self._room.release(name)

    def _now(self) -> int:
        """Return the time, s since 1970."""
        return int(self._clock())

    def _open(self, head: UploadHead) -> BinaryIO:
        """Open the part for writing at the announced offset."""
        part = self._part(head.name)
        if head.offset > _size(part):
            raise InternalError("STO-E034", "the upload starts behind what is here")
        try:
            stream = part.open("r+b" if part.exists() else "w+b")
            stream.seek(head.offset)
            stream.truncate()
        except OSError as error:
            raise _disk(error) from error
        return stream

    def _complete(self, head: UploadHead) -> None:
        """Check the finished part, give it its name, then tell the database."""
        part, path = self._part(head.name), self._directory / head.name
        if _size(part) != head.nbytes or _md5(part) != head.md5:
            part.unlink(missing_ok=True)
            raise TrustError("STO-E033", "the upload does not have its checksum")
        digest = _sha256(part)
        try:
            part.replace(path)
            _sync_directory(self._directory)
        except OSError as error:
            raise _disk(error) from error
        table = schema.copies
        with self._database.write() as connection:
            row = connection.execute(
                select(table).where(table.c.upload_name == head.name)
            ).one()
            if can_receive(load_view(connection, row.workunit_id), copy_of(row)):
                connection.execute(
                    update(table)
                    .where(table.c.id == row.id)
                    .values(upload_size=head.nbytes, upload_digest=digest)
                )
                return
        path.unlink(missing_ok=True)
        raise DeniedError("STO-E031", "this upload is not expected any more")

    def _part(self, name: str) -> Path:
        """Return where an unfinished upload lies."""
        return self._directory / f"{name}.part"


def free_bytes(directory: Path) -> int:
    """Return how many bytes are free on a directory's disk."""
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize


def _size(path: Path) -> int:
    """Return a file's size, 0 when there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _md5(path: Path) -> str:
    """Return the MD5 of a file (BOINC's transport check, not a security one)."""
    return _digest(path, hashlib.md5(usedforsecurity=False))


def _sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return _digest(path, hashlib.sha256())


def _digest(path: Path, state: hashlib._Hash) -> str:
    """Return the hex digest of a file, read in pieces."""
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                state.update(chunk)
    except OSError as error:
        raise _disk(error) from error
    return state.hexdigest()


def _sync(stream: BinaryIO) -> None:
    """Make what was written durable."""
    try:
        stream.flush()
        os.fsync(stream.fileno())
    except OSError as error:
        raise _disk(error) from error


def _sync_directory(directory: Path) -> None:
    """Make a rename in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _disk(error: OSError) -> InternalError:
    """Return our error for the disk's."""
    return InternalError(
        "STO-E003", f"a result file could not be stored (errno {error.errno})"
    )
