"""How a training goes, told to the place where its tasks run: a server's console shows it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import StoiloError
from stoilo.core.rpc import progress_pb2 as pb
from stoilo.learn.trainers.watching import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.learn.backends import Backend

EVERY_S: Final = 5.0  # between two reports
MOST_POINTS: Final = 256  # of one report; while nobody takes them the oldest go
LOGGER = logging.getLogger(__name__)


class Reports(Numbers):
    """A watcher that sends each version's loss, some seconds' worth at a time.

    It works beside the training and ends none: what could not be sent goes with the next.

    Args:
        backend: where the tasks run.
        label: of its tasks, the number at the end aside.
        clock: s, never set.
    """

    def __init__(
        self,
        backend: Backend,
        label: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._backend, self._label, self._clock = backend, label[:128], clock
        self._points: dict[int, pb.ProgressPoint] = {}
        self._counts: dict[str, int] = {}
        self._next_s = -math.inf
        self._sending: asyncio.Task[None] | None = None

    def log(self, row: Mapping[str, float], version: int) -> None:
        """Note a version's row, and send what there is when it is time."""
        fresh = pb.ProgressPoint(version=version, loss=math.nan, held_out=math.nan)
        point = self._points.setdefault(version, fresh)
        point.loss = row.get("loss", point.loss)
        point.held_out = row.get("held_out/loss", point.held_out)
        point.answers = int(row.get("answers", point.answers))
        names = [one for one in ("refused", "failed", "stragglers") if one in row]
        self._counts |= {name: int(row[name]) for name in names}
        if len(self._points) > MOST_POINTS:
            del self._points[min(self._points)]
        is_free = self._sending is None or self._sending.done()
        if is_free and self._clock() >= self._next_s:
            self._next_s = self._clock() + EVERY_S
            self._sending = asyncio.create_task(self._send())

    async def close(self) -> None:
        """Send the rest; nothing that began is told of once more."""
        if self._sending is not None:
            await self._sending
            await self._send(ended=True)

    async def _send(self, *, ended: bool = False) -> None:
        sent = {version: str(one) for version, one in self._points.items()}
        points = self._points.values()
        request = pb.ReportProgressRequest(
            label=self._label, points=points, ended=ended, **self._counts
        )
        try:
            await self._backend.report(request)
        except StoiloError as error:  # the training does not depend on it
            LOGGER.debug("the console is not told of a training: %s", error)
            return
        newest = max(
            sent
        )  # it stays: the epoch that it ends may have more to say of it
        for version, text in sent.items():
            # Nor what has changed meanwhile.
            if version != newest and str(self._points.get(version)) == text:
                del self._points[version]
