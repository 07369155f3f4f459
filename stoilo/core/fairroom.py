"""Room that accounts share: who may hold how much of it, without clock or thread.

An account may take more while what it then holds is no more than what is free. So one
that is alone may have half of the room; of several that want all, each ends up with an
equal part, and as much as one of their parts stays free for the next. Nothing has to be
taken back from anybody for that.

Sizes are of any one unit.
"""

from __future__ import annotations

from collections import Counter


class FairRoom:
    """How much each account holds. Not thread-safe.

    Args:
        size: of the whole room.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.held = 0
        self._of: Counter[int] = Counter()

    def of(self, account: int) -> int:
        """Return what an account holds."""
        return self._of.get(account, 0)

    def fits(self, account: int, size: int) -> bool:
        """Say whether an account may take `size` more."""
        return self.of(account) + size <= self.size - self.held

    def take(self, account: int, size: int) -> bool:
        """Take `size` for an account if it may; returns whether it did."""
        if not self.fits(account, size):
            return False
        self._of[account] += size
        self.held += size
        return True

    def give(self, account: int, size: int) -> None:
        """Give back what was taken."""
        self.held -= size
        self._of[account] -= size
        if not self._of[account]:
            del self._of[account]
