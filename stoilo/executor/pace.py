"""How one volunteer works, and how long it waits after failures."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from stoilo.executor.messages import Wishes

__all__ = ["Backoff", "Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How one volunteer works.

    Attributes:
        project: master URL with final slash.
        key: account key. Secret.
        slots: copies run at the same time.
        cache_bytes: most that sticky inputs may take, bytes.
        idle_s: longest pause between two calls when the project names none, s.
        backoff_s: first and longest pause after a failed call, s.
        wishes: what the project is asked not to send, since it would be refused.
    """

    project: str
    key: str
    slots: int = 1
    cache_bytes: int = 2 * 1024**3
    idle_s: float = 5.0
    backoff_s: tuple[float, float] = (0.5, 60.0)
    wishes: Wishes = field(default_factory=Wishes)


class Backoff:
    """Growing pauses with jitter after failures in a row."""

    def __init__(
        self, first_s: float, most_s: float, draw: Callable[[], float] = random.random
    ) -> None:
        self._first = first_s
        self._most = most_s
        self._draw = draw
        self._failures = 0

    def fail(self) -> float:
        """Note one more failure; returns the pause, s."""
        pause = min(self._most, self._first * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return pause * (0.5 + self._draw() / 2)

    def reset(self) -> None:
        """Note a success."""
        self._failures = 0
