"""How often something may happen: token buckets for many callers, a window for one rule."""

from __future__ import annotations

import functools
import random
from collections import OrderedDict, deque
from collections.abc import Callable


class TokenBuckets:
    """Token buckets, one a name (an address, an account); those used last are kept.

    Args:
        per_minute: tokens that a bucket gains in a minute, and holds at most.
        names: buckets in memory: strangers who make names up push out each other.
        clock: s, monotonic.
    """

    def __init__(
        self, per_minute: int, *, names: int = 4096, clock: Callable[[], float]
    ) -> None:
        self._rate = per_minute / 60.0
        self._most = float(per_minute)
        self._names = names
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, name: str) -> bool:
        """Take one token of `name`; False when it has none left."""
        now = self._clock()
        level, since = self._buckets.pop(name, (self._most, now))
        level = min(self._most, level + (now - since) * self._rate)
        allowed = level >= 1.0
        self._buckets[name] = (level - 1.0 if allowed else level, now)
        if len(self._buckets) > self._names:
            self._buckets.popitem(last=False)
        return allowed


class WindowLimit:
    """At most so many in any window of time: exact, where a bucket would allow twice.

    Args:
        most: in any window.
        window_s: its length, whole s.
        clock: whole s.
    """

    def __init__(self, most: int, window_s: int, clock: Callable[[], int]) -> None:
        self._most = most
        self._window_s = window_s
        self._clock = clock
        self._spent: deque[tuple[int, int]] = deque()  # (second, how many in it)
        self._total = 0

    def take(self, count: int) -> bool:
        """Spend `count`; False, and nothing spent, when that is too many now."""
        now = self._clock()
        while self._spent and self._spent[0][0] <= now - self._window_s:
            self._total -= self._spent.popleft()[1]
        if self._total + count > self._most:
            return False
        self._total += count
        if self._spent and self._spent[-1][0] == now:
            count += self._spent.pop()[1]
        self._spent.append((now, count))
        return True


class Backoff:
    """One run through growing pauses."""

    def __init__(
        self,
        first_s: float,  # first pause, s
        most_s: float,  # longest pause, s
        *,
        factor: float = 2.0,  # growth from one pause to the next
        jitter: float = 0.5,  # largest share by which a pause is shortened
        draw: Callable[[], float] = random.random,  # a random number from 0 to 1
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


# Between attempts to reach a server that does not answer
RECONNECTING = functools.partial(Backoff, 0.2, 30.0, factor=1.7, jitter=0.2)
