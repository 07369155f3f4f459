"""Words of ours that a browser brings back: for one purpose, for minutes, and once."""

from __future__ import annotations

import hmac
import secrets
import threading
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import DeniedError, PolicyRefusal

if TYPE_CHECKING:
    from collections.abc import Callable

LIFE_S: Final = 600
MOST_SPENT: Final = 65_536  # that would still be good; more wait until some are not
_HEAD: Final = 24  # bytes: 16 at random, then the second in which it ends


class Tickets:
    """Nothing is kept of a ticket until it is spent: strangers cannot push others' out.

    Thread-safe. A restart of the server ends them all.
    """

    def __init__(
        self,
        steady: Callable[[], float],  # s, a clock that is never set
        most: int = MOST_SPENT,
    ) -> None:
        self._key, self._steady, self._most = secrets.token_bytes(32), steady, most
        self._spent: dict[bytes, int] = {}
        self._lock = threading.Lock()

    def make(self, purpose: str) -> bytes:
        """Return a new ticket for a purpose, which names its holder too."""
        until = int(self._steady()) + LIFE_S
        head = secrets.token_bytes(16) + until.to_bytes(8, "big")
        return head + self.seal(purpose, head)

    def check(self, ticket: bytes, purpose: str) -> None:
        """Raise ``STO-E016`` unless an (untrusted) ticket is good for a purpose."""
        head, seal = ticket[:_HEAD], ticket[_HEAD:]
        ours = hmac.compare_digest(seal, self.seal(purpose, head))
        if not ours or self._end(head) <= self._steady() or ticket in self._spent:
            raise _too_old()

    def spend(self, ticket: bytes, purpose: str) -> None:
        """Use a ticket up; raises ``STO-E016``, and ``STO-E068`` when too many are."""
        self.check(ticket, purpose)
        with self._lock:
            now = self._steady()
            if len(self._spent) >= self._most:
                self._spent = {
                    one: end for one, end in self._spent.items() if end > now
                }
            if ticket in self._spent:
                raise _too_old()
            if len(self._spent) >= self._most:
                raise PolicyRefusal("STO-E068", "too many sign in now", hint="wait")
            self._spent[ticket] = self._end(ticket)

    def seal(self, purpose: str, data: bytes) -> bytes:
        """Return what only this server makes of both."""
        text = purpose.encode(errors="replace")
        return hmac.digest(
            self._key, len(text).to_bytes(4, "big") + text + data, "sha256"
        )

    @staticmethod
    def _end(ticket: bytes) -> int:
        return int.from_bytes(ticket[16:_HEAD], "big")


def _too_old() -> DeniedError:
    return DeniedError(
        "STO-E016",
        "this page is too old, was used before, or is of another session",
        hint="open it again",
    )
