"""How a person steers a volunteer that runs: a small file in its state directory.

    {"suspended": false, "updates": 3}

`suspended` holds over restarts, as under BOINC's manager; `updates` grows with every wish
to call the project now. A file needs no listening process, no permission but the
directory's own, and cannot be spoken to from elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from stoilo.core.errors import InternalError
from stoilo.executor.ledger import replace_file

__all__ = ["Control", "ControlFile", "read_control", "write_control"]

NAME: Final = "control.json"
MAX_BYTES: Final = 4096


class Control(msgspec.Struct, frozen=True):
    """What the person said last.

    Attributes:
        suspended: nothing shall run.
        updates: how often a call to the project was asked for.
    """

    suspended: bool = False
    updates: int = 0


class ControlFile:
    """The running volunteer's view: the newest control, read when the file changes."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self._seen: tuple[int, int] | None = None
        self.control = Control()
        self.look()

    def look(self) -> Control:
        """Return the newest control; one that cannot be read changes nothing."""
        try:
            status = self._path.stat()
        except OSError:
            return self.control
        seen = (status.st_mtime_ns, status.st_ino)
        if seen != self._seen:
            self._seen = seen
            try:
                self.control = read_control(self._path.parent)
            except InternalError:
                pass
        return self.control


def read_control(directory: Path) -> Control:
    """Return what is asked of the volunteer in `directory`; raises ``STO-X008``."""
    try:
        with (directory / NAME).open("rb") as file:
            return msgspec.json.decode(file.read(MAX_BYTES), type=Control)
    except FileNotFoundError:
        return Control()
    except (OSError, msgspec.MsgspecError) as error:
        raise InternalError(
            "STO-X008", f"{NAME} of the state directory cannot be read"
        ) from error


def write_control(directory: Path, control: Control) -> None:
    """Ask something of the volunteer in `directory`; raises ``STO-X008``."""
    replace_file(directory / NAME, msgspec.json.encode(control))
