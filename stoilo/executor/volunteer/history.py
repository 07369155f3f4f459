"""What ran on this computer lately: one JSON object a line, for its person alone.

Bounded, never flushed: a full disk or a crash loses rows and nothing else.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from stoilo.executor.verifier.installation import replace_file


class PastRun(msgspec.Struct, frozen=True):
    """One task that ran here, or did not come so far."""

    at: int  # when it ended, s since 1970
    workunit: str  # its workunit's name
    app: str  # BOINC app
    outcome: str  # how it ended here; what it is worth only the project knows
    code: str = ""  # our code where it did not end well
    elapsed_s: float = 0.0  # what the run took, s
    function: str = ""  # its entry, as the admission says; empty: unread
    level: str = ""  # likewise


HISTORY_FILE: Final = "history.jsonl"
MOST_PAST: Final = 1000  # rows that are shown
MAX_HISTORY_BYTES: Final = 512 * 1024  # then the older half goes


def read_history(directory: Path) -> list[PastRun]:
    """Return what ran lately, the oldest first; what cannot be read is left out."""
    try:
        lines = (directory / HISTORY_FILE).read_bytes().splitlines()[-MOST_PAST:]
    except OSError:
        return []
    found = []
    for line in lines:
        with suppress(msgspec.MsgspecError):
            found.append(msgspec.json.decode(line, type=PastRun))
    return found


def note_run(directory: Path, run: PastRun) -> None:
    """Add a row to the history in a volunteer's project directory."""
    path, line = directory / HISTORY_FILE, msgspec.json.encode(run) + b"\n"
    with suppress(OSError):
        with path.open("ab") as file:
            file.write(line)
            is_long = file.tell() > MAX_HISTORY_BYTES
        if is_long:
            lines = path.read_bytes().splitlines(keepends=True)
            replace_file(path, b"".join(lines[len(lines) // 2 :]))
