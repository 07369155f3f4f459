"""How many request bodies are in memory at the same time, and whose.

What one account may have in hand is bounded, and so is what all large bodies take together.
Strangers who made an account over the web and have helped with nothing yet get a part of
the places for large bodies, so that they cannot take them from those who have. For the event
loop: nothing here waits or is called from two threads.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LARGE_BYTES", "LARGE_OF_NEWCOMERS", "LARGE_PLACES", "BodiesInHand"]

LARGE_BYTES: Final = 128 * 1024
"""A body of more is large."""

LARGE_PLACES: Final = 8
"""Large bodies that are read, or wait to be parsed: each up to some MiB."""

LARGE_OF_NEWCOMERS: Final = 4
"""How many of these places newcomers may have, all together."""

BODIES_OF_ACCOUNT: Final = 64
"""Bodies of one account's computers that are read, or wait to be parsed."""


class BodiesInHand:
    """The bodies that are being read or wait to be parsed, by whose they are."""

    def __init__(self) -> None:
        self._bodies: Counter[str] = Counter()
        self._large: dict[str, bool] = {}  # newcomer or not

    @contextmanager
    def body(self, account: str) -> Iterator[bool]:
        """Yield whether an account may have one more body in hand; meanwhile it has."""
        if self._bodies[account] >= BODIES_OF_ACCOUNT:
            yield False
            return
        self._bodies[account] += 1
        try:
            yield True
        finally:
            self._bodies[account] -= 1
            if not self._bodies[account]:
                del self._bodies[account]

    @contextmanager
    def large(self, account: str, *, newcomer: bool) -> Iterator[bool]:
        """Yield whether an account may have a large body in hand; it has one at most."""
        if not self._has_place(account, newcomer=newcomer):
            yield False
            return
        self._large[account] = newcomer
        try:
            yield True
        finally:
            del self._large[account]

    def _has_place(self, account: str, *, newcomer: bool) -> bool:
        """Say whether there is a place for a large body."""
        if account in self._large or len(self._large) >= LARGE_PLACES:
            return False
        return not newcomer or sum(self._large.values()) < LARGE_OF_NEWCOMERS
