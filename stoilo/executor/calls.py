"""When a volunteer calls its project's scheduler, and what a failed call costs.

Pauses grow with jitter up to a bound, and a call that failed looks the scheduler up on the
master page again: projects move. All waiting is on the monotonic clock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from stoilo.core.errors import DeniedError, TrustError, UnreachableError
from stoilo.executor.ledger import HostRecord, Ledger
from stoilo.executor.messages import SchedulerReply, SchedulerRequest
from stoilo.executor.pace import Backoff, Settings
from stoilo.executor.transfer import Transfer

__all__ = ["Caller"]

log = logging.getLogger(__name__)

AGAIN_S = 0.02  # pause between calls whose answers are held
LONGEST_DELAY_S = 24 * 3600.0
"""No project silences its volunteers for longer."""


class Caller:
    """The scheduler calls of one host. For one thread."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        transfer: Transfer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._transfer = transfer
        self._clock = clock
        self._backoff = Backoff(*settings.backoff_s)
        self._next = 0.0
        self._not_before = 0.0

    def is_due(self, *, reports: bool) -> bool:
        """Say whether to call now; `reports`: something waits to be reported."""
        now = self._clock()
        return now >= self._not_before and (reports or now >= self._next)

    def due_in(self, *, reports: bool) -> float:
        """Return how long no call is due, s."""
        at = self._not_before if reports else max(self._next, self._not_before)
        return max(0.0, at - self._clock())

    def hurry(self) -> None:
        """Call as soon as the project allows."""
        self._next = 0.0

    def insist(self) -> None:
        """Call now, whatever was said: a person asked for it."""
        self._next = self._not_before = 0.0
        self._backoff.reset()

    def fail(self) -> float:
        """Note a failure; returns the pause, s."""
        pause = self._backoff.fail()
        self._not_before = self._clock() + pause
        return pause

    def call(
        self, make_request: Callable[[HostRecord], SchedulerRequest]
    ) -> tuple[SchedulerRequest, SchedulerReply]:
        """Make one call; the new sequence number is on the disk before it leaves.

        Raises:
            UnreachableError: no answer, or the project says that it is down; the next
                call looks the scheduler up again.
            TrustError: an answer that cannot be read, likewise.
            DeniedError: ``STO-X003``, the key is unknown.
        """
        try:
            request, reply = self._exchange(make_request)
        except (UnreachableError, TrustError) as error:
            log.info("%s; next call in %.1f s", error, self.fail())
            host = self._ledger.host
            self._ledger.save_host(msgspec.structs.replace(host, scheduler=""))
            raise
        if reply.bad_key:
            raise DeniedError(
                "STO-X003",
                "the project does not know this account key",
                hint="make one with `stoilo boinc account`",
            )
        self._backoff.reset()
        return request, reply

    def plan(self, reply: SchedulerReply, *, idle: bool) -> None:
        """Take the project's word on when to call again; `idle`: nothing is held."""
        now = self._clock()
        self._not_before = now + min(reply.request_delay, LONGEST_DELAY_S)
        pause = min(reply.next_rpc_delay or self._settings.idle_s, LONGEST_DELAY_S)
        self._next = now + (min(AGAIN_S, pause) if idle and reply.waits else pause)

    def _exchange(
        self, make_request: Callable[[HostRecord], SchedulerRequest]
    ) -> tuple[SchedulerRequest, SchedulerReply]:
        """Ask the scheduler once."""
        host = self._ledger.host
        scheduler = host.scheduler or self._transfer.scheduler_url()
        host = msgspec.structs.replace(
            host, scheduler=scheduler, rpc_seqno=host.rpc_seqno + 1
        )
        self._ledger.save_host(host)
        request = make_request(host)
        reply = self._transfer.call(scheduler, request)
        if reply.down:
            raise UnreachableError("STO-X001", "the project is down for maintenance")
        return request, reply
