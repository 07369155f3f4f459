"""The drills, by name."""

from __future__ import annotations

from stoilo.cli.drills.lost_log import LOST_LOG
from stoilo.cli.drills.report import Drill, choose_drill
from stoilo.cli.drills.restored_backup import RESTORED_BACKUP
from stoilo.cli.drills.second_writer import SECOND_WRITER
from stoilo.cli.drills.split_view import SPLIT_VIEW
from stoilo.cli.drills.stolen_gate_key import STOLEN_GATE_KEY

__all__ = ["DRILLS", "find_drill"]

DRILLS: tuple[Drill, ...] = (
    STOLEN_GATE_KEY,
    RESTORED_BACKUP,
    SPLIT_VIEW,
    SECOND_WRITER,
    LOST_LOG,
)


def find_drill(name: str) -> Drill:
    """Return the drill called `name`; raises ``STO-L166``."""
    return choose_drill(DRILLS, name, "STO-L166")
