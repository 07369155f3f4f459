"""Where BOINC's fan-out rule puts a file, and whose result a file's name says it is.

Below download and upload a file lies in a folder named by a hash of its own name, so that
no folder grows large. Names from outside are matched whole before they become a path.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from stoilo.core.errors import TrustError

__all__ = ["OutputName", "fan_out", "output_of", "place"]

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,190}")
_OUTPUT: Final = re.compile(
    r"(?P<result>[A-Za-z0-9_][A-Za-z0-9_.-]{0,150}_\d{1,9})_r\d{1,20}_0"
)
_LONGEST_PATH: Final = 4096


@dataclass(frozen=True, slots=True)
class OutputName:
    """The file that a host uploads for a result.

    Attributes:
        name: of the file; its random part keeps hosts from uploading others' results.
        result: BOINC's name of the result.
    """

    name: str
    result: str


def fan_out(name: str, fanout: int) -> str:
    """Return the folder of a file, empty where there are none (``fanout`` 0)."""
    if not fanout:
        return ""
    digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
    return f"{int(digest[1:8], 16) % fanout:x}"


def place(root: Path, name: str, fanout: int) -> Path:
    """Return where the file called `name` lies below `root`.

    Raises:
        TrustError: ``STO-B003`` for what is no file name.
    """
    if not _NAME.fullmatch(name) or ".." in name:
        raise TrustError("STO-B003", "that is no name of a project's file")
    return root / fan_out(name, fanout) / name


def output_of(path: str) -> OutputName:
    """Return whose result a path that BOINC's daemons gave us is.

    Only the last part counts: where the file lies follows from it.

    Raises:
        TrustError: ``STO-B003``.
    """
    name = PurePosixPath(path[:_LONGEST_PATH]).name
    match = _OUTPUT.fullmatch(name)
    if match is None or len(path) > _LONGEST_PATH:
        raise TrustError("STO-B003", "that is no name of a result's file")
    return OutputName(name, match["result"])
