"""All drills, by name: those of a running project, then those of release keys."""

from __future__ import annotations

from tests.drills.lost_log import LOST_LOG
from tests.drills.release_rotation import LOST_KEY, ROTATE_ONE_KEY, ROTATE_THRESHOLD
from tests.drills.release_thefts import STOLEN_OFFLINE_KEY, STOLEN_ONLINE_KEY
from tests.drills.report import Drill
from tests.drills.restored_backup import RESTORED_BACKUP
from tests.drills.second_writer import SECOND_WRITER
from tests.drills.split_view import SPLIT_VIEW
from tests.drills.stolen_gate_key import STOLEN_GATE_KEY

__all__ = ["DRILLS", "PROJECT_DRILLS", "RELEASE_DRILLS"]

PROJECT_DRILLS = (STOLEN_GATE_KEY, RESTORED_BACKUP, SPLIT_VIEW, SECOND_WRITER, LOST_LOG)
RELEASE_DRILLS = (
    ROTATE_ONE_KEY,
    ROTATE_THRESHOLD,
    LOST_KEY,
    STOLEN_ONLINE_KEY,
    STOLEN_OFFLINE_KEY,
)
DRILLS: dict[str, Drill] = {one.name: one for one in PROJECT_DRILLS + RELEASE_DRILLS}
