"""Immutable blobs by SHA-256 on disk, readable only with a grant.

Whether somebody else uploaded the same bytes is never revealed: every upload is read to
its end, and what has no grant is `not found`, the same as what does not exist. Files
are renamed into place after fsync, so a name never stands for half of its bytes.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from sqlalchemy import insert, select

from stoilo.core.digests import Digest, check_digest, content_digest
from stoilo.core.errors import DeniedError, InternalError, TrustError, UsageError
from stoilo.core.files import sync_directory
from stoilo.core.types import BOUNDS
from stoilo.server.admission.quotas import BlobRoom
from stoilo.server.admission.value_facts import read_blob
from stoilo.server.db import schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Connection

    from stoilo.policies.policy import Quota
    from stoilo.server.db.store import Store


@contextmanager
def _our_disk() -> Iterator[None]:
    """Tell of a disk that refuses without any paths."""
    try:
        yield
    except OSError as error:
        raise InternalError(
            "STO-R030",
            f"the server's disk refuses: {os.strerror(error.errno or 0)}",
            hint="nothing was stored half; retry when the operator has made room",
        ) from error


class BlobUpload:
    """One upload in progress; feed it untrusted chunks, then `finish`.

    Use as a context manager: leaving it removes the temporary file, and gives back the
    room that was set aside.
    """

    def __init__(
        self,
        store: BlobStore,
        account_id: int,
        digest: Digest,
        size: int,
        release: Callable[[], None],
    ) -> None:
        self.digest = digest
        self._release = release
        self._store = store
        self._account_id = account_id
        self._left = size
        self._size = size
        self._hash = hashlib.sha256()
        self.file = store.open_temporary()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._release()
        with suppress(OSError):  # a full disk refuses the rest of the buffer once more
            self.file.close()
        Path(self.file.name).unlink(missing_ok=True)

    def feed(self, data: bytes) -> None:
        """Write one chunk; raises ``STO-R010`` past the announced size."""
        self._left -= len(data)
        if self._left < 0:
            raise UsageError("STO-R010", "the upload is longer than it announced")
        self._hash.update(data)
        with _our_disk():
            self.file.write(data)

    def finish(self) -> Digest:
        """Make the blob durable and grant it to the uploader.

        Raises:
            UsageError: ``STO-R010`` when bytes are missing.
            TrustError: ``STO-R010`` when the content is not what its name says.
        """
        if self._left:
            raise UsageError("STO-R010", "the upload is shorter than it announced")
        if self._hash.hexdigest() != self.digest:
            raise TrustError("STO-R010", "the bytes do not have the digest they claim")
        self._store.adopt(self.file, self.digest, self._size, self._account_id)
        return self.digest


class BlobStore:
    """Blobs under `directory`, grants in the database."""

    def __init__(
        self, directory: Path, store: Store, now: int, room: BlobRoom | None = None
    ) -> None:
        self._room = room or BlobRoom()
        self._directory = directory
        self._store = store
        self._started = now
        self._temporary = directory / "incoming"
        self._temporary.mkdir(mode=0o700, parents=True, exist_ok=True)
        for leftover in self._temporary.iterdir():  # of a killed server
            leftover.unlink()

    def path(self, digest: str) -> Path:
        """Return where the blob lies once stored."""
        return self._directory / digest[:2] / digest

    def open_temporary(self) -> BinaryIO:
        """Return a new file that only we can read."""
        with _our_disk():
            handle, name = tempfile.mkstemp(dir=self._temporary)
        os.close(handle)
        return open(name, "wb")  # noqa: PTH123 - closed by BlobUpload

    def begin(
        self, account_id: int, digest: str, size: int, quota: Quota | None = None
    ) -> BlobUpload:
        """Start an upload; `quota` None is for bytes of our own making (results).

        Raises:
            PolicyRefusal: ``STO-R006``.
            UsageError: ``STO-R010``; TrustError: ``STO-D002``.
        """
        name, held = check_digest(digest), 0
        if not 0 <= size <= BOUNDS.blob_bytes:
            raise UsageError(
                "STO-R010",
                f"a blob may have up to {BOUNDS.blob_bytes} bytes, not {size}",
                hint="split the value into several",
            )
        if quota is not None:
            with self._store.read() as connection:
                self._room.reserve(connection, account_id, size, quota)
            held = size

        def release() -> None:
            self._room.release(account_id, held)

        try:
            return BlobUpload(self, account_id, name, size, release)
        except BaseException:
            release()
            raise

    def adopt(self, file: BinaryIO, digest: Digest, size: int, account_id: int) -> None:
        """Move a complete temporary file into place, then grant it; durable."""
        target = self.path(digest)
        with _our_disk():
            file.flush()
            types = read_blob(Path(file.name), size)
            os.fsync(file.fileno())
            target.parent.mkdir(mode=0o700, exist_ok=True)
        # In the transaction: retention removes files without a row under the same lock.
        with self._store.write() as connection:
            with _our_disk():
                Path(file.name).replace(target)
                sync_directory(target.parent)
            grant_blob(connection, digest, size, types, account_id, self._started)

    def put(self, account_id: int, data: bytes) -> Digest:
        """Store bytes of our own making (a large result) for an account."""
        digest = content_digest(data)
        with self.begin(account_id, digest, len(data)) as upload:
            with _our_disk():
                upload.file.write(data)
            self.adopt(upload.file, digest, len(data), account_id)
        return digest

    def open_granted(self, account_id: int, digest: str) -> BinaryIO:
        """Open a blob for its owner, or raise ``STO-R003``."""
        with self._store.read() as connection:
            granted = granted_blobs(connection, account_id, [check_digest(digest)])
        if not granted:
            raise DeniedError("STO-R003", "no such blob", hint="upload it first")
        with _our_disk():
            return self.path(digest).open("rb")


def granted_blobs(
    connection: Connection, account_id: int, digests: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return those of `digests` that the account may name, with the types in them."""
    blobs, grants = schema.blob, schema.blob_grant
    rows = connection.execute(
        select(blobs.c.digest, blobs.c.types)
        .join(grants, grants.c.digest == blobs.c.digest)
        .where(grants.c.account_id == account_id, blobs.c.digest.in_(list(digests)))
    )
    return {
        row.digest: tuple(name for name in row.types.split(",") if name) for row in rows
    }


def grant_blob(
    connection: Connection,
    digest: str,
    size: int,
    types: tuple[str, ...],
    account_id: int,
    now: int,
) -> None:
    """Record that the account may name the blob; repeats change nothing."""
    blobs, grants = schema.blob, schema.blob_grant
    if connection.scalar(select(blobs.c.size).where(blobs.c.digest == digest)) is None:
        connection.execute(
            insert(blobs).values(
                digest=digest, size=size, types=",".join(types), created_at=now
            )
        )
    held = select(grants.c.digest).where(
        grants.c.digest == digest, grants.c.account_id == account_id
    )
    if connection.scalar(held) is None:
        connection.execute(insert(grants).values(digest=digest, account_id=account_id))
