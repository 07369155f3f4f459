"""The order in which results go out: fair by share, and within a share by age.

Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996, section 2): a workunit's rank is
where the last one of its share ends, or where the app is by now if that is later. It ends
later than it starts by its cost over its share's weight. So whoever asks for much stands
behind himself, and who comes after him does not stand behind all of it.

What was last is in memory: after a restart a share's new workunits stand beside its old ones.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stoilo.server.engines.embedded.db.schema import AnyRow
    from stoilo.server.engines.workunits import WorkunitSpec

FLOP_A_STEP: Final = 1e6  # of all results of a workunit, for a weight of 1
MOST_STEPS: Final = 10**12
SHARES_KEPT: Final = 4096  # those that are not ahead are forgotten above that


class Ranks:
    """Where each app and each share is; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: dict[str, int] = {}
        self._ends: dict[tuple[str, str], int] = {}

    def knows(self, app: str) -> bool:
        """Say whether results of an app have been placed since the start."""
        return app in self._now

    def place(self, spec: WorkunitSpec, first: int = 0) -> int:
        """Return a new workunit's rank; `first` is the lowest that waits of a new app."""
        cost = spec.fpops_est * spec.redundancy.target_results / FLOP_A_STEP
        steps = max(1, int(min(cost, MOST_STEPS) / spec.weight))
        key = (spec.app, spec.share)
        with self._lock:
            now = self._now.setdefault(spec.app, first)
            rank = max(now, self._ends.get(key, 0))
            self._ends[key] = rank + steps
            if len(self._ends) > SHARES_KEPT:
                ends = self._ends.items()
                self._ends = {one: end for one, end in ends if end > self._now[one[0]]}
        return rank

    def note_sent(self, rows: Iterable[AnyRow]) -> None:
        """Take it that these results of one call have gone out; the first says how far."""
        lowest: dict[str, int] = {}
        for row in rows:
            lowest[row.wu_app] = min(row.rank, lowest.get(row.wu_app, row.rank))
        with self._lock:
            for app, rank in lowest.items():
                self._now[app] = max(rank, self._now.get(app, 0))
