"""What a running server does again and again, each for itself: one failing harms no other."""

from __future__ import annotations

import logging
import sqlite3
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stoilo.core.errors import StoiloError

if TYPE_CHECKING:
    from collections.abc import Callable


LOGGER = logging.getLogger(__name__)
AGAIN_S = 60.0


@dataclass(slots=True)
class Chore:
    """One thing to do, at its own pace; trouble is told when it changes or lasts."""

    name: str  # for people
    # raises one of our errors, the system's or a database's, while it cannot be done
    work: Callable[[], object]
    # shortest time between two times that it was done, s; 0 for each call
    every_s: float = 0.0
    clock: Callable[[], float] = time.monotonic  # monotonic seconds
    _done_at: float = field(default=float("-inf"), init=False)
    _trouble: str = field(default="", init=False)
    _told_at: float = field(default=float("-inf"), init=False)

    def do_if_due(self) -> bool:
        """Do it if it is due; returns whether it was done."""
        now = self.clock()
        if now - self._done_at < self.every_s:
            return False
        try:
            self.work()
        except (StoiloError, OSError, sqlite3.Error) as error:
            self._tell(str(error), now)
            return False
        self._done_at, self._trouble = now, ""
        return True

    def _tell(self, trouble: str, now: float) -> None:
        if trouble != self._trouble or now - self._told_at >= AGAIN_S:
            LOGGER.warning("%s: upkeep waits: %s", self.name, trouble)
            self._trouble, self._told_at = trouble, now
