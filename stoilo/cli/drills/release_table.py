"""The drills of release keys, by name."""

from __future__ import annotations

from stoilo.cli.drills.release_rotation import (
    LOST_KEY,
    ROTATE_ONE_KEY,
    ROTATE_THRESHOLD,
)
from stoilo.cli.drills.release_thefts import STOLEN_OFFLINE_KEY, STOLEN_ONLINE_KEY
from stoilo.cli.drills.report import Drill, choose_drill

__all__ = ["RELEASE_DRILLS", "find_release_drill"]

RELEASE_DRILLS: tuple[Drill, ...] = (
    ROTATE_ONE_KEY,
    ROTATE_THRESHOLD,
    LOST_KEY,
    STOLEN_ONLINE_KEY,
    STOLEN_OFFLINE_KEY,
)


def find_release_drill(name: str) -> Drill:
    """Return the drill called `name`; raises ``STO-K084``."""
    return choose_drill(RELEASE_DRILLS, name, "STO-K084")
