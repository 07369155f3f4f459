"""Result files on their way in: bounded, resumable, durable before they count.

An upload is accepted only for an outstanding result, by who holds the result's secret
upload URL, and never beyond the workunit's size limit. Bytes go straight to a ``.part``
file; when all are there, size and checksum are checked, the file is made durable under its
final name and then named in the database. What is complete never changes again.

Room is set aside for what is announced before a byte of it is taken (`upload_quota`); what
stops coming is removed after some hours, and its client begins again.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, BinaryIO

from sqlalchemy import select, update

from stoilo.core.errors import DeniedError, InternalError, TrustError, UsageError
from stoilo.core.files import sync_directory
from stoilo.server.engines.embedded.accounts.accounts import is_newcomer
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import (
    WorkunitState,
    counts,
    joined_results,
)
from stoilo.server.engines.embedded.files.depot import (
    disk_error,
    free_bytes,
    remove,
    size_of,
)
from stoilo.server.engines.embedded.workunits.upload_quota import (
    LARGEST_RESULT,
    Owner,
    UploadLimits,
    UploadRoom,
)
from stoilo.server.engines.workunits import CHUNK, measure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stoilo.server.engines.embedded.db.database import Database
    from stoilo.server.engines.embedded.db.schema import AnyRow

SHA256_DIGITS = 64
# So much of an upload comes before its part of the reserved room is noted again
NOTED_BYTES = 4 * CHUNK
# What says whether an account is a newcomer's
_STANDING = (schema.users.c.password_hash, schema.users.c.total_credit)
# How often parts that stopped coming are looked for, s
LOOK_EVERY_S = 600


@dataclass(frozen=True, slots=True)
class UploadHead:
    """What precedes an upload's raw bytes; `nbytes` is the whole file's size."""

    name: str
    nbytes: int
    checksum: str  # its MD5 or, of a volunteer of ours, its SHA-256
    offset: int

    @property
    def is_sha256(self) -> bool:
        """Whether the checksum is the SHA-256, which is measured in any case."""
        return len(self.checksum) == SHA256_DIGITS


@dataclass(slots=True)
class Incoming:
    """One upload in progress; `missing` raw bytes are still to come."""

    stream: BinaryIO  # where bytes go
    missing: int  # bytes that are still to come
    # called with `missing` after some bytes were written
    on_progress: Callable[[int], object]
    noted: int = 0  # what it was called with last

    def write(self, chunk: bytes) -> None:
        """Append raw bytes.

        Raises:
            UsageError: ``STO-E030`` for more than announced.
            InternalError: ``STO-R030`` when the disk refuses.
        """
        if len(chunk) > self.missing:
            raise UsageError("STO-E030", "the upload is longer than announced")
        try:
            self.stream.write(chunk)
        except OSError as error:
            raise disk_error(error) from error
        self.missing -= len(chunk)
        if self.noted - self.missing >= NOTED_BYTES:
            self.noted = self.missing
            self.on_progress(self.missing)


class UploadDesk:
    """Uploads of one project, files under `directory`."""

    def __init__(
        self,
        database: Database,  # where results are
        directory: Path,  # of the files
        *,
        limits: UploadLimits | None = None,  # how much of the disk they may take
        clock: Callable[[], float] = time.time,  # s since 1970
        # says how many bytes are free on the disk of a directory
        free: Callable[[Path], int] | None = None,
    ) -> None:
        self._database = database
        self._directory = directory
        self._clock = clock
        self._free = free or free_bytes
        self._room = UploadRoom(limits or UploadLimits(one_bytes=LARGEST_RESULT))
        self._looked_at = 0
        self._busy: set[str] = set()
        self._lock = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def size_held(self, token: str, name: str) -> int:
        """Return how many bytes of an outstanding upload are here.

        Raises:
            DeniedError: ``STO-E014`` when it is not expected from this caller.
        """
        row = self._expected(token, name)
        if row.upload_size is not None:
            return int(row.upload_size)
        return size_of(self._part(name))

    @contextlib.contextmanager
    def receive(self, token: str, head: UploadHead) -> Iterator[Incoming | None]:
        """Yield where to write the bytes; None when the file is complete already.

        The upload counts when the block ends without an exception; when it does not,
        the part stays for a later resume, except after a refusal for good.

        Raises:
            DeniedError: ``STO-E014``.
            UsageError: ``STO-E030``: never try again.
            InternalError: ``STO-E034`` (busy), ``STO-R030`` or ``STO-E110`` (no room):
                try again later.
            TrustError: ``STO-E034`` for a wrong checksum: try again from the start.
        """
        row = self._expected(token, head.name)
        if head.nbytes > row.result_max_bytes or head.offset > head.nbytes:
            raise UsageError("STO-E030", "the upload is larger than the task allows")
        with self._alone(head.name):
            row = self._expected(token, head.name)  # another may have ended meanwhile
            if row.upload_size is not None:
                self._check_same(row, head)
                yield None
                return
            with self._reserved(_owner_of(row), head):
                incoming = self._open(head)
                try:
                    with incoming.stream as stream:
                        yield incoming
                        stream.flush()
                        os.fsync(stream.fileno())
                except UsageError:
                    self._part(head.name).unlink(missing_ok=True)
                    raise
                except OSError as error:  # flushing or closing found no room
                    raise disk_error(error) from error
                if incoming.missing:
                    raise InternalError("STO-E034", "the upload ended in the middle")
                self._complete(head)

    def forget(self, name: str) -> None:
        """Remove an upload, whole or in part, that no result needs any more.

        What the disk does not let go is counted on, and removed at the next start.
        """
        if not self._room.holds(name):
            return
        every = [remove(path) for path in (self._directory / name, self._part(name))]
        if all(every):
            self._room.release(name)

    def expire(self) -> None:
        """Remove the parts that stopped coming hours ago; looks now and then only."""
        now = self._now()
        if abs(now - self._looked_at) < LOOK_EVERY_S:
            return
        self._looked_at = now
        for name in self._room.stale(now):
            with contextlib.suppress(InternalError), self._alone(name):
                if remove(self._part(name)):
                    self._room.release(name)

    def sweep(self) -> None:
        """Remove files that belong to no outstanding result (left by a crash).

        What stays is counted as its owner's.
        """
        table, of, users = schema.results, schema.workunits, schema.users
        wanted_of = (of.c.state != WorkunitState.OVER.value) | of.c.tell_at.is_not(None)
        query = (
            select(table.c.upload_name, table.c.user_id, table.c.host_id, *_STANDING)
            .join(of, of.c.id == table.c.workunit_id)
            .outerjoin(users, users.c.id == table.c.user_id)
            .where(wanted_of)
        )
        with self._database.read() as connection:
            wanted = {
                row.upload_name: _owner_of(row) for row in connection.execute(query)
            }
        for path in self._directory.iterdir():
            name = path.name.removesuffix(".part")
            if name not in wanted:
                remove(path)
                continue
            size, whole = size_of(path), path.name == name
            self._room.load(name, wanted[name], size, self._now(), whole=whole)

    def _expected(self, token: str, name: str) -> AnyRow:
        """Return the outstanding result behind token and name, or ``STO-E014``."""
        table, of, users = schema.results, schema.workunits, schema.users
        query = (
            select(
                table, of.c.state.label("wu_state"), of.c.result_max_bytes, *_STANDING
            )
            .join(of, of.c.id == table.c.workunit_id)
            .outerjoin(users, users.c.id == table.c.user_id)
            .where(table.c.upload_name == name)
        )
        with self._database.read() as connection:
            row = connection.execute(query).first()
        if row is None or not hmac.compare_digest(
            row.upload_token.encode(), token.encode()
        ):
            raise DeniedError("STO-E014", "this upload is not expected")
        if not counts(row):
            raise DeniedError("STO-E014", "this upload is not expected any more")
        return row

    def _check_same(self, row: AnyRow, head: UploadHead) -> None:
        """Raise unless a repeated upload is the file that is here already.

        The file is read once at most: to ask costs its host next to nothing.
        """
        name, same = row.upload_name, head.nbytes == row.upload_size
        if same and head.is_sha256:
            same = row.upload_digest == head.checksum
        elif same:
            same = _md5_of_complete(self._directory / name) == head.checksum
        if not same:
            raise UsageError("STO-E030", "a complete upload cannot be replaced")

    @contextlib.contextmanager
    def _alone(self, name: str) -> Iterator[None]:
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
            free = self._free(self._directory) + max(0, size_of(part) - head.offset)
        except OSError as error:
            raise disk_error(error) from error
        size, now = head.nbytes, self._now()
        self._room.reserve(name, owner, size, head.offset, free, now)
        try:
            yield
        finally:
            whole = (self._directory / name).exists()
            here = size if whole else size_of(part)
            if here or whole:
                self._room.load(name, owner, here, self._now(), whole=whole)
            else:
                remove(part)
                self._room.release(name)

    def _now(self) -> int:
        return int(self._clock())

    def _open(self, head: UploadHead) -> Incoming:
        """Open the part for writing at the announced offset.

        A whole file that the database does not know, left by a crash before the commit,
        goes: it would count as this upload's end.
        """
        part = self._part(head.name)
        if head.offset > size_of(part):
            raise InternalError("STO-E034", "the upload starts behind what is here")
        try:
            (self._directory / head.name).unlink(missing_ok=True)
            stream = part.open("r+b" if part.exists() else "w+b")
            stream.seek(head.offset)
            stream.truncate()
        except OSError as error:
            raise disk_error(error) from error

        def note(left: int) -> None:
            self._room.note(head.name, head.nbytes - left, left, self._now())

        missing = head.nbytes - head.offset
        return Incoming(stream, missing, note, missing)

    def _complete(self, head: UploadHead) -> None:
        """Check the finished part, give it its name, then tell the database."""
        part, path = self._part(head.name), self._directory / head.name
        try:
            size, digest, md5 = measure(part, with_md5=not head.is_sha256)
            found = digest if head.is_sha256 else md5
            if (size, found) != (head.nbytes, head.checksum):
                part.unlink(missing_ok=True)
                raise TrustError("STO-E034", "the upload does not have its checksum")
            part.replace(path)
            sync_directory(self._directory)
        except OSError as error:
            raise disk_error(error) from error
        table = schema.results
        with self._database.write() as connection:
            mine = table.c.upload_name == head.name
            row = connection.execute(joined_results().where(mine)).one()
            if counts(row):
                connection.execute(
                    update(table)
                    .where(table.c.id == row.id)
                    .values(upload_size=head.nbytes, upload_digest=digest)
                )
                return
        path.unlink(missing_ok=True)
        raise DeniedError("STO-E014", "this upload is not expected any more")

    def _part(self, name: str) -> Path:
        return self._directory / f"{name}.part"


# A complete file never changes and its name never comes again, so that what was read once
# holds: to ask for it again and again costs its host next to nothing.
@lru_cache(maxsize=16_384)
def _md5_of_complete(path: Path) -> str:
    try:
        return measure(path)[2]
    except OSError as error:
        raise disk_error(error) from error


def _owner_of(row: AnyRow) -> Owner:
    return Owner(row.user_id, row.host_id, is_newcomer(row))
