"""Growing pauses between polls, and how long a lost server is waited for."""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["POLLING", "RECONNECTING", "Backoff", "Pauses"]


@dataclass(frozen=True, slots=True)
class Pauses:
    """A schedule of pauses.

    Attributes:
        first_s: first pause, s.
        factor: growth from one pause to the next.
        cap_s: longest pause, s.
        jitter: random share by which each pause is shortened, so that many clients do
            not ask at once.
    """

    first_s: float
    factor: float
    cap_s: float
    jitter: float = 0.2


POLLING = Pauses(0.1, 1.4, 30.0)
"""Between polls of a task that is not finished (thesis: 15 to 60 s)."""

RECONNECTING = Pauses(0.2, 1.7, 30.0)
"""Between attempts to reach a server that does not answer."""

LEAST_ADVICE_S, MOST_ADVICE_S = 0.02, 120.0


class Backoff:
    """One run through a schedule."""

    def __init__(self, pauses: Pauses) -> None:
        self.pauses = pauses
        self._next = pauses.first_s

    def next_pause(self, advice_s: float = 0.0) -> float:
        """Return the next pause, s; the server's advice wins within sane bounds."""
        pause = self._next
        self._next = min(self.pauses.cap_s, self._next * self.pauses.factor)
        if advice_s > 0:
            return min(MOST_ADVICE_S, max(LEAST_ADVICE_S, advice_s))
        return pause * (1 - self.pauses.jitter * random.random())  # noqa: S311 - spread only

    def reset(self) -> None:
        """Start over after a success."""
        self._next = self.pauses.first_s
