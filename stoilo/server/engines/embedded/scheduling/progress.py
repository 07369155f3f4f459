"""What hosts say of results that they have not finished: shown to owners, believed by nobody.

In memory only: a host says it again with its next call.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from stoilo.core.boinc.messages import OtherResult

MOST_REMEMBERED: Final = 100_000  # results; what was said longest ago makes room


class Progress:
    """What was said last of unfinished results; safe for several threads."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._said: OrderedDict[str, OtherResult] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, said: Iterable[OtherResult], own: Collection[str]) -> None:
        """Remember what a host says (bounded numbers, untrusted) of its `own` results."""
        with self._lock:
            for one in said:
                if one.name in own and (one.fraction_done or one.cpu_s):
                    self._said[one.name] = one
                    self._said.move_to_end(one.name)
            while len(self._said) > self._most:
                self._said.popitem(last=False)

    def find(self, name: str) -> OtherResult | None:
        """Return what was said of a result, None for nothing."""
        return self._said.get(name)
