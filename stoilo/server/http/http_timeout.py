"""HTTP connections: bounded in number, and a request's head has to come in a bounded time.

uvicorn bounds a head in bytes and an idle connection in time, but waits for ever for one
whose head comes a byte at a time, and takes any number, each with up to 128 KiB of what
nobody has asked for yet. Bodies have bounds of their own where they are read.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

log = logging.getLogger(__name__)

# From the connection, or the head's first byte on a used one, to its last, s
HEAD_S: Final = 20.0

MOST_CONNECTIONS: Final = 2048
MOST_OF_ADDRESS: Final = 256  # Not for the trusted proxy's, from which everybody comes


class TimedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1; a connection that owes a head for `head_s` is closed.

    So is a new one of which there are `most` already, or `most_of_address` of its address.
    """

    head_s = HEAD_S
    most = MOST_CONNECTIONS
    most_of_address = MOST_OF_ADDRESS

    def __init__(self, *arguments: Any, **words: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*arguments, **words)
        self._overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Begin to wait for the first head."""
        super().connection_made(transport)
        if self._is_one_too_many():
            log.info("a connection too many from %s [STO-E012]", self._address(self))
            transport.close()
            return
        self._wait_for_head()

    def _is_one_too_many(self) -> bool:
        if len(self.connections) > self.most:
            return True
        mine = self._address(self)
        if not mine or mine in str(self.config.forwarded_allow_ips).split(","):
            return False
        same = sum(self._address(one) == mine for one in self.connections)
        return same > self.most_of_address

    @staticmethod
    def _address(connection: Any) -> str:  # noqa: ANN401 - uvicorn's protocols
        client = getattr(connection, "client", None)
        return str(client[0]) if client else ""

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
