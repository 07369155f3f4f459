"""The parts of a log as they lie on the disk, each perhaps damaged, and what was found."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from stoilo.audit.format.merkle import Checkpoint
from stoilo.audit.format.policy import SignedCheckpoint
from stoilo.audit.format.tiles import Tile, render_tile_path
from stoilo.audit.log.store import LogPaths, locate_log
from stoilo.audit.log.tile_directory import TileDirectory
from stoilo.core.errors import StoiloError, TrustError, UnreachableError, UsageError

# A disk that lost everything must not fill the memory with reports of it.
MAX_FINDINGS = 1000
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM})
Value = TypeVar("Value")


class Severity(StrEnum):
    """Whether something is wrong, or only worth knowing."""

    FAULT = "fault"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing found."""

    code: str  # the stable code, for `stoilo explain`
    severity: Severity  # a fault, or the harmless remains of a crash
    file: str  # the file, relative to the directory that was checked
    # the first place in the file (``leaf 17``, ``page 3``), empty for all of it
    place: str
    message: str  # what is there and what should be
    remedy: str  # which backup or other copy would help; empty for a notice

    def __str__(self) -> str:
        """Return one line: where, what, which code."""
        place = f", {self.place}" if self.place else ""
        return f"{self.file}{place}: {self.message} [{self.code}]"


@dataclass(frozen=True, slots=True)
class Anchor:
    """A checkpoint to measure the log by, and its file; `signed` None if unverified."""

    checkpoint: Checkpoint
    file: str
    signed: SignedCheckpoint | None = None


class LogParts:
    """Where the parts are, guarded ways to read them, and what was found about them.

    At most `MAX_FINDINGS` are kept in `findings`; the others are counted.
    """

    def __init__(
        self,
        log: Path,  # the log directory
        paths: LogPaths | None,  # of its data directory, None where there is none
    ) -> None:
        self.paths = paths
        self.files = TileDirectory(log)
        self.top = log if paths is None else paths.head.parent.parent
        self.findings: list[Fault] = []
        self.omitted = 0
        self.faults = 0
        self._known: set[Fault] = set()

    def fault(
        self, code: str, file: str, message: str, *, place: str = "", remedy: str = ""
    ) -> None:
        """Record something that is wrong; the plain remedy is the file's backup."""
        remedy = remedy or f"restore the newest backup of {file}"
        if self._keep(Fault(code, Severity.FAULT, file, place, message, remedy)):
            self.faults += 1

    def notice(self, code: str, file: str, message: str, *, place: str = "") -> None:
        """Record something worth knowing that is not wrong."""
        self._keep(Fault(code, Severity.NOTICE, file, place, message, ""))

    def _keep(self, finding: Fault) -> bool:
        if finding in self._known:  # some parts are read twice
            return False
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)
            self._known.add(finding)
        else:
            self.omitted += 1
        return True

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
        try:
            return read()
        except OSError as error:
            # Missing permission says nothing about the log: no fault of it.
            if error.errno in _FORBIDDEN:
                raise _no_permission(name, str(error.strerror)) from error
            code, text = "STO-L032", f"cannot be read: {error.strerror}"
        except (sqlite3.DatabaseError, UnicodeError) as error:
            code, text = "STO-L049", f"cannot be read: {error}"
        except StoiloError as error:
            code, text = error.code, error.message
        remedy = f"check the disk; restore {name} from the newest backup"
        self.fault(code, name, text, place=place, remedy=remedy)
        return None

    def demand_permission(self, path: Path) -> None:
        """Raise ``STO-L002`` for a file that is there and may not be read."""
        # SQLite would only say that it cannot open the file, which damage can cause too.
        if path.exists() and not os.access(path, os.R_OK):
            raise _no_permission(self.name(path), "permission denied")


def refuse_faults(findings: Iterable[Fault]) -> None:
    """Raise TrustError for the first fault, with its place; notices do not count."""
    for fault in findings:
        if fault.severity is Severity.FAULT:
            place = f", {fault.place}" if fault.place else ""
            text = f"{fault.file}{place}: {fault.message}"
            raise TrustError(fault.code, text, hint=fault.remedy)


def find_parts(location: Path) -> LogParts:
    """Return the parts of the log at a path; raises ``STO-L001`` when there is none."""
    log, paths = locate_log(location)
    begun = (log / "checkpoint").exists() or (log / "tile").exists()
    if paths is None and not begun:
        raise UsageError("STO-L001", f"there is no log in {location}")
    return LogParts(log, paths)


def _no_permission(name: str, reason: str) -> UnreachableError:
    return UnreachableError("STO-L002", f"{name} cannot be read: {reason}")
