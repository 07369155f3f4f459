"""How one volunteer works, and how long it waits after failures."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from stoilo.executor.messages import Wishes

__all__ = ["Backoff", "Retries", "Settings"]


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
        own_program: copies run by what is installed here, not by app versions.
    """

    project: str
    key: str
    slots: int = 1
    cache_bytes: int = 2 * 1024**3
    idle_s: float = 5.0
    backoff_s: tuple[float, float] = (0.5, 60.0)
    wishes: Wishes = field(default_factory=Wishes)
    own_program: bool = True


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


class Retries:
    """When each copy may be tried again. For one thread.

    Args:
        backoff_s: first and longest pause, s.
        clock: s, monotonic: a computer whose time is set waits neither more nor less.
    """

    def __init__(
        self,
        backoff_s: tuple[float, float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bounds = backoff_s
        self._clock = clock
        self._pauses: dict[str, Backoff] = {}
        self._at: dict[str, float] = {}

    def put_off(self, result: str, at_least_s: float = 0.0) -> None:
        """Try a copy again later: growing pauses, not before `at_least_s`."""
        pauses = self._pauses.setdefault(result, Backoff(*self._bounds))
        self._at[result] = self._clock() + max(at_least_s, pauses.fail())

    def is_ready(self, result: str) -> bool:
        """Say whether a copy may be tried now."""
        return self.at(result) <= self._clock()

    def at(self, result: str) -> float:
        """Return when a copy may be tried, on the clock."""
        return self._at.get(result, 0.0)

    def forget(self, result: str) -> None:
        """Note that a copy went well, or away."""
        self._at.pop(result, None)
        self._pauses.pop(result, None)

    def clear(self) -> None:
        """Let everything be tried at once, pauses starting small again."""
        self._at.clear()
        self._pauses.clear()
