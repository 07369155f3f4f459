"""Parts of pages that are fetched again while somebody looks, and cost little unless changed.

A part is rendered once for all who look at it until its mark is another one. Whoever has it
already gets 304; a part that is final asks for nothing more.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from stoilo.web.console.asking import HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from stoilo.web.console.asking import Asked

MOST_PARTS: Final = 256  # kept; the one used least lately makes room
MOST_CHARS: Final = 65_536  # of one that is kept
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


class Parts:
    """The parts of all who look; safe for several threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[Hashable, Part]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: Hashable, mark: Hashable, make: Callable[[], Part]) -> Part:
        """Return the part of `key`, made anew where its mark is not the one it had."""
        with self._lock:
            before = self._kept.get(key)
            if before is not None and before[0] == mark:
                self._kept.move_to_end(key)
                return before[1]
        made = make()
        with self._lock:
            self._kept.pop(key, None)
            if len(made.text) <= MOST_CHARS:
                self._kept[key] = mark, made
            if len(self._kept) > MOST_PARTS:
                self._kept.popitem(last=False)
        return made


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
