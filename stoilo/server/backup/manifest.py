"""What a backup says of itself: each file with its digest, and where the log stood.

``manifest.json`` is read before anything else and believed only as far as digests go:
whoever can write a backup can write its manifest. What cannot be forged is the log inside
(its checkpoint is signed), and that is checked separately.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from stoilo.core.errors import TrustError, UsageError

FORMAT: Final = "stoilo-backup/1"
MANIFEST_FILE: Final = "manifest.json"
MAX_MANIFEST_BYTES: Final = 256 * 1024 * 1024

_PATH = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,199}){0,15}"
)
_DIGEST = re.compile(r"[0-9a-f]{64}")


class BackupFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file below the data directory: path, bytes, SHA-256."""

    path: str
    size: int
    sha256: str


class TableFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table's rows, for a database that is no file.

    Attributes:
        branch: whose tables: ``server`` or ``engine``.
        revision: of the branch's schema when the rows were read.
        table: its name.
        size: bytes of the file ``tables/BRANCH/TABLE``.
        sha256: its digest.
    """

    branch: Literal["server", "engine"]
    revision: str
    table: str
    size: int
    sha256: str

    @property
    def path(self) -> str:
        """Return where its rows lie in the backup."""
        return f"tables/{self.branch}/{self.table}"


class LogPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the log stood: name, acknowledged leaves and their root (hex), published."""

    origin: str
    size: int
    root: str
    published: int


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole backup.

    Attributes:
        format: `FORMAT`.
        version: of stoilo.
        taken_at: the moment that everything in it is of, s since 1970.
        offline_keys: whether ``keys/offline`` is in it.
        development: whether the server cannot start without them.
        log: where the log stood.
        files: below the data directory.
        tables: of databases that are no files.
    """

    format: str
    version: str
    taken_at: int
    offline_keys: bool
    development: bool
    log: LogPlace
    files: tuple[BackupFile, ...]
    tables: tuple[TableFile, ...] = ()


def render_manifest(manifest: Manifest) -> bytes:
    """Return the file's bytes."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def parse_manifest(data: bytes) -> Manifest:
    """Return the manifest in (untrusted) bytes.

    Raises:
        UsageError: ``STO-B064`` it is none, or of another version.
        TrustError: ``STO-B065`` a path in it leaves the directory.
    """
    try:
        found = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            "STO-B064", f"manifest.json is no backup's: {error}"
        ) from error
    if found.format != FORMAT:
        raise UsageError(
            "STO-B064", f"this is a backup of format {found.format[:40]!r}"
        )
    seen: set[str] = set()
    every: list[BackupFile | TableFile] = [*found.files, *found.tables]
    for one in every:
        good = _PATH.fullmatch(one.path) and _DIGEST.fullmatch(one.sha256)
        if not good or one.size < 0 or one.path in seen:
            raise TrustError("STO-B065", f"the manifest names {one.path[:80]!r}")
        seen.add(one.path)
    return found
