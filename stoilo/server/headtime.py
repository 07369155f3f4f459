"""HTTP connections whose request's head has to come in a bounded time.

uvicorn bounds a head in bytes and an idle connection in time, but waits for ever for one
whose head comes a byte at a time. Bodies have bounds of their own where they are read.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

__all__ = ["HEAD_S", "TimedProtocol"]

log = logging.getLogger(__name__)

HEAD_S: Final = 20.0
"""From the connection, or the head's first byte on a used one, to its last, s."""


class TimedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1; a connection that owes a head for `head_s` is closed."""

    head_s = HEAD_S

    def __init__(self, *arguments: Any, **words: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*arguments, **words)
        self._overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Take bytes; a whole head ends the wait."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self._wait_for_head()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self._overdue is None:
            self._overdue = self.loop.call_later(self.head_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _give_up(self) -> None:
        log.info("a request's head did not come in %.0f s [STO-E012]", self.head_s)
        self.transport.close()
