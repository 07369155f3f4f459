"""Pauses that grow after failures in a row, shortened at random so that crowds spread."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable


class Backoff:
    """One run through growing pauses.

    Args:
        first_s: first pause, s.
        most_s: longest pause, s.
        factor: growth from one pause to the next.
        jitter: largest share by which a pause is shortened.
        draw: a random number from 0 to 1.
    """

    def __init__(
        self,
        first_s: float,
        most_s: float,
        *,
        factor: float = 2.0,
        jitter: float = 0.5,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._first = first_s
        self._most = most_s
        self._factor = factor
        self._jitter = jitter
        self._draw = draw
        self._next = first_s

    def next_pause(self) -> float:
        """Return the pause after one more failure, s."""
        pause = min(self._most, self._next)
        self._next = min(self._most, self._next * self._factor)
        return pause * (1 - self._jitter * self._draw())

    def reset(self) -> None:
        """Start over after a success."""
        self._next = self._first


RECONNECTING = functools.partial(Backoff, 0.2, 30.0, factor=1.7, jitter=0.2)
"""Between attempts to reach a server that does not answer."""
