"""A task's input files: opened once, never through links, hashed from what was opened.

Trust: names and contents come from the server by way of BOINC's directories. The digest is
taken over the very bytes that are handed on, so there is no moment in which a file could
be exchanged between check and use.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

from stoilo.core.errors import TrustError

__all__ = ["InputFile", "Source"]

Source = bytes | Path

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class InputFile:
    """One opened input of known size; close it or use it in a ``with`` statement."""

    def __init__(self, source: Source, *, max_bytes: int, what: str) -> None:
        """Open `source` (bytes stay as they are).

        Raises:
            TrustError: STO-A057 when it is missing, no plain file, or too large.
        """
        self._what = what
        self._data = source if isinstance(source, bytes) else None
        self._descriptor = -1
        if isinstance(source, Path):
            self._descriptor = _open(source, what)
        self.size = self._measure()
        if self.size > max_bytes:
            self.close()
            raise TrustError("STO-A057", f"{what} is larger than {max_bytes} bytes")

    def _measure(self) -> int:
        """Return the size in bytes, of what is open."""
        if self._data is not None:
            return len(self._data)
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise TrustError("STO-A057", f"{self._what} is not a plain file")
        return status.st_size

    def read(self) -> bytes:
        """Return exactly the bytes that were there when the file was opened."""
        if self._data is None:
            with open(self._descriptor, "rb", closefd=False) as file:
                self._data = file.read(self.size + 1)
            if len(self._data) != self.size:
                raise TrustError("STO-A057", f"{self._what} changed while being read")
        return self._data

    def close(self) -> None:
        """Close the descriptor, if one is open."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the descriptor."""
        self.close()


def _open(path: Path, what: str) -> int:
    """Return a descriptor of `path`, not following a final link."""
    try:
        return os.open(path, _FLAGS)
    except OSError as error:
        raise TrustError("STO-A057", f"{what} cannot be opened") from error
