"""What a volunteer remembers of time: the newest that a witness ever vouched for here.

A host's clock may be wrong, or be set back by whoever wants an old admission to run again;
a verified cosignature cannot. The file lies in the volunteer's own state, outside what
a project writes, is replaced at once or not at all, and only ever rises.
Source: signing-audit §3.6 (g).
"""

from __future__ import annotations

import fcntl
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from stoilo.core.errors import InternalError, TrustError
from stoilo.executor.ledger import replace_file

__all__ = ["TIME_FILE", "TimeMemory"]

TIME_FILE: Final = "newest-time"
MAX_FILE_BYTES: Final = 64
_LINE = re.compile(rb"stoilo-time/v1 (0|[1-9][0-9]{0,15})\n")


class TimeMemory:
    """The newest verified time, in a file; thread-safe, and safe beside other processes.

    Args:
        directory: this host's own, made if needed.

    Raises:
        TrustError: ``STO-L118`` when the file is not one that was written here.
        InternalError: ``STO-X008`` when it cannot be read or written.
    """

    def __init__(self, directory: Path) -> None:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _disk(error) from error
        self._path = directory / TIME_FILE
        self._guard = threading.Lock()
        self._newest = self._read()

    @property
    def newest(self) -> int:
        """POSIX seconds of the newest cosignature verified here, 0 before the first."""
        return self._newest

    def learn(self, time: int | None) -> None:
        """Remember a *verified* cosignature's time, durably, if it is newer.

        Args:
            time: POSIX s, of an admission that passed every check; None is ignored.
        """
        if time is None or time <= self._newest:
            return
        with self._guard, self._locked():
            newest = max(self._read(), time)
            replace_file(self._path, b"stoilo-time/v1 %d\n" % newest)
            self._newest = newest

    def _read(self) -> int:
        try:
            with self._path.open("rb") as file:
                text = file.read(MAX_FILE_BYTES)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise _disk(error) from error
        match = _LINE.fullmatch(text)
        if match is None:
            raise TrustError(
                "STO-L118",
                f"{TIME_FILE} is damaged",
                hint="look at it in the project's state directory",
            )
        return int(match[1])

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes of this host out."""
        try:
            lock = self._path.with_suffix(".lock").open("ab")
        except OSError as error:
            raise _disk(error) from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _disk(error: OSError) -> InternalError:
    """Return ``STO-X008``."""
    return InternalError(
        "STO-X008",
        f"{TIME_FILE} or its directory cannot be used (errno {error.errno})",
        hint="make room on the disk, or make it writable",
    )
