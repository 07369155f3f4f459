"""The newest revocation statement that this volunteer has ever seen, on its own disk.

It lies in the volunteer's state directory, outside of what a project writes (I4), and is
replaced atomically before any work is judged by it. A damaged file refuses: without its
memory the host could be led back to a time before a withdrawal.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import msgspec

from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError, TrustError
from stoilo.core.revocation import RevocationStatement
from stoilo.executor.ledger import replace_file
from stoilo.executor.release import TrustedRelease
from stoilo.executor.revocation import (
    SeenRevocations,
    newest_seen,
    open_revocations,
)

__all__ = ["RevocationMemory"]

MAX_BYTES = 128 * 1024


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is on the disk."""

    statement: RevocationStatement
    keys: Annotated[tuple[str, ...], msgspec.Meta(max_length=8)]


class RevocationMemory:
    """The memory in `path`; one process, any thread."""

    def __init__(self, path: Path) -> None:
        """Remember where; the file is read when first needed."""
        self._path = path
        self._lock = threading.Lock()
        self._seen: SeenRevocations | None = None
        self._read = False
        self._known: tuple[str, int] | None = None

    def learn(self, data: bytes, trust: TrustedRelease) -> SeenRevocations:
        """Return the newest statement seen, a workunit's file (hostile) included.

        Raises:
            TrustError: the codes of `open_revocations` and `newest_seen`.
            InternalError: STO-A082 the memory is damaged, STO-X008 the disk refuses.
        """
        known = (content_digest(data), trust.timestamp_version)
        with self._lock:
            seen = self._load()
            if seen is not None and known == self._known:
                return seen
            newest = newest_seen(seen, open_revocations(data, trust).statement, trust)
            if newest != seen:
                file = _File(newest.statement, newest.keys)
                replace_file(self._path, msgspec.json.encode(file))
            self._seen, self._known = newest, known
            return newest

    def _load(self) -> SeenRevocations | None:
        """Return what the disk holds; raises ``STO-A082``."""
        if self._read:
            return self._seen
        try:
            with self._path.open("rb") as file:
                row = msgspec.json.decode(file.read(MAX_BYTES), type=_File)
            self._seen = SeenRevocations(row.statement, row.keys)
        except FileNotFoundError:
            self._seen = None
        except (OSError, msgspec.MsgspecError, TrustError) as error:
            raise InternalError(
                "STO-A082",
                "this host's memory of revocations cannot be read",
                hint="attach to the project anew, in an empty state directory",
            ) from error
        self._read = True
        return self._seen
