"""Who trains in a folder: one process, and in it the run that came last.

A process that dies lets its folder go. In one process a run that was forgotten (a notebook's
cell that was interrupted) is no reason to refuse the next one, so that one takes the folder
over, and the one before may not write there any more.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from stoilo.core.errors import UsageError

__all__ = ["FolderLock"]

_TURN = threading.Lock()
_HOLDERS: dict[Path, FolderLock] = {}


class FolderLock:
    """The right to write in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._descriptor = -1
        self._is_lost = False

    def take(self) -> None:
        """Lock the folder; a run of this process that held it has lost it.

        Raises:
            UsageError: ``STO-T023`` when another process trains there.
        """
        with _TURN:
            before = _HOLDERS.pop(self._folder.resolve(), None)
            if before is not None:
                before.close(is_lost=True)
            self._descriptor, self._is_lost = _lock(self._folder), False
            _HOLDERS[self._folder.resolve()] = self

    def check(self) -> None:
        """Make sure that the folder was not lost.

        Raises:
            UsageError: ``STO-T023`` when it was.
        """
        if self._is_lost:
            raise _taken("another run of this process", self._folder)

    def free(self) -> None:
        """Let the folder go, if it is held."""
        with _TURN:
            if _HOLDERS.get(self._folder.resolve()) is self:
                del _HOLDERS[self._folder.resolve()]
            self.close()

    def close(self, *, is_lost: bool = False) -> None:
        """Close the file, and with it the lock; `is_lost`: another run has it now."""
        self._is_lost = self._is_lost or is_lost
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _lock(folder: Path) -> int:
    """Return the descriptor that keeps other processes out; -1 where none can be kept."""
    try:
        import fcntl  # noqa: PLC0415 - not on every system
    except ImportError:
        return -1
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise _taken("another process", folder) from None
    return lock


def _taken(by: str, folder: Path) -> UsageError:
    return UsageError(
        "STO-T023",
        f"{by} trains in {folder.name}",
        hint="wait for it or end it, or give another folder",
    )
