"""Whether the log's published checkpoint follows its leaves, and how far it is behind."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogFigures:
    """One moment of the log."""

    leaves: int  # acknowledged
    published: int  # leaves under the newest checkpoint
    lag_s: float  # for how long, at least, a leaf has waited for a checkpoint, s
    trouble: str = ""  # what keeps the log from publishing; empty for nothing known


class HeadFreshness:
    """Remembers since when leaves have been waiting; thread-safe.

    An idle log publishes nothing, so the checkpoint's own age says nothing. What counts is
    how long ago the oldest leaf was seen here that no checkpoint covers yet.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mark: tuple[int, float] | None = None

    def lag(self, leaves: int, published: int, now: float) -> float:
        """Return for how long leaves have waited, s; `now` is monotonic."""
        with self._lock:
            if self._mark is not None and published >= self._mark[0]:
                self._mark = None
            if self._mark is None and published < leaves:
                self._mark = (leaves, now)
            return 0.0 if self._mark is None else max(0.0, now - self._mark[1])
