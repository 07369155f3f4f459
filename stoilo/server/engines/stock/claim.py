"""One server for one project: a lock while it runs, its name for when it does not.

Two servers would deliver each other's outcomes, each to an assimilator that knows nothing
of them. The lock is the kernel's, so that it ends with the process, however that ends. A
copy of a data directory has its original's name and is kept out by the lock; a server of
another project's log is kept out by the name also while the first is away.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import InternalError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from stoilo.server.engines.stock.settings import Settings

__all__ = ["FolderLock", "claim_project", "owner_name"]

_LOCK: Final = "lock"
_OWNER: Final = "owner"
_FOLDER_MODE: Final = 0o750


class FolderLock:
    """A project's folder ``stoilo``, made if needed, held until `release`.

    Args:
        folder: it.

    Raises:
        InternalError: ``STO-B095`` when another server works on the project;
            ``STO-B007`` when the folder cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            self._number = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o640)
        except OSError as error:
            raise _unusable(error) from error
        try:
            fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise InternalError(
                "STO-B095", "another server works on this BOINC project"
            ) from error
        except OSError as error:
            self.release()
            raise _unusable(error) from error

    def release(self) -> None:
        """Let another server have the project; again: nothing."""
        if self._number >= 0:
            os.close(self._number)
            self._number = -1


def owner_name(log_key: str) -> str:
    """Return the name of the server with an audit log's verifier key; empty without."""
    return hashlib.sha256(log_key.encode()).hexdigest() if log_key else ""


def claim_project(settings: Settings, owner: str) -> None:
    """Note whose project it is, at the first start.

    Args:
        settings: the project's.
        owner: names a server for good; empty: one that leaves no name.

    Raises:
        UsageError: ``STO-B096`` when it is another's.
    """
    known = settings.read(_OWNER)
    if known not in {"", owner}:
        raise UsageError(
            "STO-B096", "this BOINC project has tasks of another stoilo server"
        )
    if owner:
        settings.write(_OWNER, owner)


def _unusable(error: OSError) -> InternalError:
    return InternalError(
        "STO-B007", f"the project's folder stoilo cannot be used (errno {error.errno})"
    )
