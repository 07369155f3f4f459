"""Files that do not belong to a log, and what an interrupted write left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from stoilo.audit.tiles import parse_tile_path
from stoilo.core.errors import TrustError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stoilo.audit.fsck.parts import LogParts

__all__ = ["check_strays"]

_PUBLISHED = frozenset({"checkpoint", "policy.txt"})
_DATABASES = ("log.sqlite", "side.sqlite", "seen.sqlite", "head.sqlite")
_SUFFIXES = ("", "-wal", "-shm", "-journal")
_BESIDE = frozenset({"lock", *(a + b for a in _DATABASES for b in _SUFFIXES)})
_TEMPORARY = ".tmp"


def check_strays(parts: LogParts) -> None:
    """Take notice of files that nothing of the log is kept in."""
    for path in _files(parts.files.path):
        name = str(path.relative_to(parts.files.path))
        if name not in _PUBLISHED and not _is_tile(name):
            _notice(parts, path)
    if parts.paths is None:
        return
    for folder in (parts.paths.database.parent, parts.paths.head.parent):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name not in _BESIDE and path != parts.files.path:
                _notice(parts, path)


def _files(top: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(top):
        yield from (Path(folder, name) for name in sorted(names))


def _is_tile(name: str) -> bool:
    try:
        parse_tile_path(name)
    except TrustError:
        return False
    return True


def _notice(parts: LogParts, path: Path) -> None:
    name = parts.name(path)
    if path.name.startswith(".") and path.name.endswith(_TEMPORARY):
        parts.found.notice("STO-L096", name, "an interrupted write left it")
    else:
        parts.found.notice("STO-L097", name, "does not belong to the log")
