"""A gate epoch's rate: at most so many signatures in any minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from stoilo.core.errors import TrustError

__all__ = ["RateLimit"]

WINDOW_S = 60


class RateLimit:
    """Counts signatures in the last minute, by whole seconds."""

    def __init__(self, max_per_minute: int, clock: Callable[[], int]) -> None:
        self._max = max_per_minute
        self._clock = clock
        self._spent: deque[tuple[int, int]] = deque()
        self._total = 0

    def take(self, count: int) -> None:
        """Spend `count` signatures or raise ``STO-K023``, spending none."""
        now = self._clock()
        while self._spent and self._spent[0][0] <= now - WINDOW_S:
            self._total -= self._spent.popleft()[1]
        if self._total + count > self._max:
            raise TrustError("STO-K023", f"the epoch allows {self._max} a minute")
        self._total += count
        if self._spent and self._spent[-1][0] == now:
            count += self._spent.pop()[1]
        self._spent.append((now, count))
