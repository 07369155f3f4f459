"""The parts of a log as they lie on the disk, read one by one; each may be damaged."""

from __future__ import annotations

import errno
import os
import sqlite3
from typing import TYPE_CHECKING, TypeVar

from stoilo.audit.store import locate_log
from stoilo.audit.tiledir import TileDirectory
from stoilo.audit.tiles import Tile, render_tile_path
from stoilo.core.errors import StoiloError, UnreachableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stoilo.audit.fsck.findings import FindingList

__all__ = ["LogParts"]

_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM})
Value = TypeVar("Value")


class LogParts:
    """Where the parts are, and guarded ways to read them.

    Args:
        location: a data directory, its ``audit`` directory or a log directory.
        found: where to say what cannot be read.

    Raises:
        UsageError: ``STO-L001`` when there is no log.
    """

    def __init__(self, location: Path, found: FindingList) -> None:
        log, self.paths = locate_log(location)
        begun = (log / "checkpoint").exists() or (log / "tile").exists()
        if self.paths is None and not begun:
            raise UsageError("STO-L001", f"there is no log in {location}")
        self.found = found
        self.files = TileDirectory(log)
        self.top = log if self.paths is None else self.paths.head.parent.parent

    def name(self, path: Path) -> str:
        """Return a path as reports name it."""
        return os.path.relpath(path, self.top)

    def published(self, name: str) -> str:
        """Return the reported name of a published file."""
        return self.name(self.files.path / name)

    def tile_name(self, tile: Tile) -> str:
        """Return the reported name of a tile."""
        return self.published(render_tile_path(tile))

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a published file; None when it is absent, or unreadable (reported)."""
        return self.guard(self.published(name), lambda: self.files.read(name, limit))

    def read_tile(self, tile: Tile) -> bytes | None:
        """Return a tile; None when it is absent, or unreadable (reported)."""
        return self.read(render_tile_path(tile), tile.max_bytes)

    def tiles(self) -> list[Tile]:
        """Return every stored tile."""
        name = self.published("tile")
        return self.guard(name, lambda: list(self.files.tiles())) or []

    def guard(
        self, name: str, read: Callable[[], Value], place: str = ""
    ) -> Value | None:
        """Read something; None when the machine refuses (reported).

        Raises:
            UnreachableError: ``STO-L002`` when permission is missing.
        """
        remedy = f"check the disk; restore {name} from the newest backup"
        try:
            return read()
        except OSError as error:
            if error.errno in _FORBIDDEN:
                raise UnreachableError(
                    "STO-L002", f"{name} cannot be read: {error.strerror}"
                ) from error
            text = f"cannot be read: {error.strerror}"
            self.found.fault("STO-L098", name, text, place=place, remedy=remedy)
        except (sqlite3.DatabaseError, UnicodeError) as error:
            text = f"cannot be read: {error}"
            self.found.fault("STO-L092", name, text, place=place, remedy=remedy)
        except StoiloError as error:
            self.found.fault(
                error.code, name, error.message, place=place, remedy=remedy
            )
        return None
