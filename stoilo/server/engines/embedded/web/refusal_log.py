"""What the project refused, in the operator's log: who called, for what, which code.

Callers decide how often they are refused, so lines are bounded in number and in length;
how many were left out is said with the next one. Nothing that a caller sent is repeated
but its path.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from typing import TYPE_CHECKING, Final

from stoilo.core.rate_limit import TokenBuckets

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from stoilo.core.boinc.messages import SchedulerReply

log = logging.getLogger(__name__)

# At once; afterwards one more each second
LINES: Final = 60
PATH_CHARS: Final = 16
UNKNOWN_KEY: Final = "STO-E016"
# Codes in messages of a scheduler's reply; others tell an honest host something
ABUSE: Final = frozenset({"STO-E017", "STO-E041", "STO-E068"})
_CODE: Final = re.compile(r"\[(STO-[A-Z][0-9]{3})\]")
_PLAIN: Final = re.compile(r"[a-z_./]*")


class RefusalLog:
    """Writes one line for a refusal, while it has lines left. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._guard = threading.Lock()
        self._lines = TokenBuckets(LINES, clock=clock)  # for all together
        self._dropped = 0

    def note(self, request: Request, *codes: str) -> None:
        """Log that a request was refused, once for each code."""
        address = request.client.host if request.client else "?"
        match = _PLAIN.match(request.url.path[:PATH_CHARS])
        path = match[0] if match else ""
        for code in codes:
            dropped = self._take()
            if dropped is not None:
                more = f"; {dropped} more before" if dropped else ""
                log.warning("refused %s from %s [%s]%s", path, address, code, more)

    def note_reply(self, request: Request, reply: SchedulerReply) -> None:
        """Log what a scheduler's reply refuses, if anything."""
        self.note(request, *([UNKNOWN_KEY] if reply.bad_key else ()))
        named = set(_CODE.findall("\n".join(reply.messages)))
        self.note(request, *sorted(named & ABUSE))

    def _take(self) -> int | None:
        """Return how many lines were left out before this one; None to leave it out."""
        with self._guard:
            if not self._lines.allow(""):
                self._dropped += 1
                return None
            dropped, self._dropped = self._dropped, 0
            return dropped
