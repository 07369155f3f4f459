"""Parts of pages that are fetched again while somebody looks, and cost little unless changed.

A part is rendered once for all who look at it until its mark is another one, and not every
moment. Whoever has it already gets 304; a part that is final asks for nothing more. Each
answer says when to come again: the more look on, the later, so that tasks go before.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from stoilo.web.console.asking import HEADERS
from stoilo.web.language import language

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from stoilo.web.console.asking import Asked

FRESH_S: Final = 2.0  # so old a part may be
MOST_PARTS: Final = 512  # kept; the one looked after least lately makes room
MOST_CHARS: Final = 65_536  # of one that is kept
A_SECOND: Final = 5.0  # so often all together ask: a few hundredths of one processor
LEAST_S, MOST_S = 5.0, 60.0  # between two times that a page asks
AGAIN: Final = (
    "live-again-s"  # the header that says in how many seconds; `live.js` reads it
)
# Scripts of ours, which may make elements of text and nothing that runs.
SCRIPTED: Final = {
    **HEADERS,
    "content-security-policy": f"{HEADERS['content-security-policy']}; script-src 'self'; "
    "connect-src 'self'; trusted-types default",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A rendered part: `goes_on` says whether there may be another one."""

    text: str
    said: str  # what a screen reader is told when it is another one
    goes_on: bool

    @property
    def tag(self) -> str:
        """What it is told apart by, ASCII."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]


class Pace:
    """When the next one is to ask again; safe for several threads."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady, self._lock = steady, threading.Lock()  # s, never set
        self._next = 0.0  # when the one told last comes

    def next_s(self) -> float:
        """Return in how many seconds: after the one before, in turn."""
        with self._lock:
            now = self._steady()
            turn = max(now + LEAST_S, self._next + 1 / A_SECOND)
            self._next = min(turn, now + MOST_S)
            return self._next - now


_NONE: Final[tuple[float, Hashable, Part | None]] = (0.0, None, None)


class Parts:
    """The parts of all who look; safe for several threads."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady  # s, never set
        self._kept: OrderedDict[Hashable, tuple[float, Hashable, Part]] = OrderedDict()
        self._lock = threading.Lock()

    def find(
        self, key: Hashable, mark: Callable[[], Hashable], make: Callable[[], Part]
    ) -> Part:
        """Return the part of `key`, made anew where its mark is not the one it had.

        Neither is asked for more often than every `FRESH_S`, however many look.
        """
        key = (language(), key)
        now, (at, known, part) = self._steady(), self._kept.get(key, _NONE)
        if part is None or now - at >= FRESH_S:
            found = mark()
            if part is None or found != known:
                part = make()
            self._keep(key, (now, found, part))
        return part

    def _keep(self, key: Hashable, entry: tuple[float, Hashable, Part]) -> None:
        with self._lock:
            self._kept.pop(key, None)
            if len(entry[2].text) <= MOST_CHARS:
                self._kept[key] = entry
            if len(self._kept) > MOST_PARTS:
                self._kept.popitem(last=False)


def answer_live(
    asked: Asked, part: Part, template: str, values: Callable[[], Mapping[str, object]]
) -> Response:
    """Return the part alone to who asks for that, 304 if he has it; else the whole page."""
    if not asked.live:
        return asked.render(template, part=part, path=asked.path, **values())
    headers = SCRIPTED | {"etag": f'"{part.tag}"'}
    if part.tag in asked.request.headers.get("if-none-match", "")[:256]:
        return Response(status_code=304, headers=headers)
    return asked.render(
        "console/live.html", headers=headers, part=part, path=asked.path
    )
