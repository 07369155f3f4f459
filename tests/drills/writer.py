"""A writer of a drill's log, as a process: appends a leaf for each line of its input.

    python -m tests.drills.writer DATA NAME [--blind]

``--blind`` takes the defence away: it moves the head without comparing, and publishes
without looking at what is there. Only a drill does that, to a log of its own.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.log.store import DiskStore, TreeHead
from stoilo.core.errors import StoiloError
from tests.drills.second_writer import ORIGIN, drill_leaf
from tests.support.faulty_log import LogKey

__all__ = ["main"]


class BlindStore(DiskStore):
    """A store that moves the head whoever has moved it before."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self._head_file = data_dir / "audit-head" / "head.sqlite"
        self.swap_head = self._overwrite

    def _overwrite(self, old: TreeHead, new: TreeHead) -> None:
        """Overwrite the head; `old` is not looked at."""
        del old
        connection = sqlite3.connect(self._head_file)
        with connection:
            connection.execute(
                "UPDATE head SET size = ?, root = ? WHERE id = 1", (new.size, new.root)
            )
        connection.close()


def main(arguments: Sequence[str]) -> int:
    """Write until the input ends; prints ``ready``, then a place or code a line."""
    data, name = Path(arguments[0]), arguments[1]
    store = BlindStore(data) if "--blind" in arguments else None
    try:
        log = Sequencer.open(data, ORIGIN, LogKey(ORIGIN).sign, store=store)
    except StoiloError as error:
        _say(error.code)
        return error.exit_code
    _say("ready")
    for line in sys.stdin:
        try:
            _say(str(log.append(drill_leaf(f"{name} {line.strip()}"))))
        except StoiloError as error:
            _say(error.code)
    log.close()
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
