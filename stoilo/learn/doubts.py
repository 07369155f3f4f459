"""What a run does about volunteers in doubt: checks their claims, and reports them."""

from __future__ import annotations

import asyncio
import contextlib

from stoilo.client.results import UserError
from stoilo.core.errors import StoiloError
from stoilo.learn.acceptance import refuse_answer
from stoilo.learn.backends.interface import Backend
from stoilo.learn.data import Part
from stoilo.learn.models import Model
from stoilo.learn.probing import runs_here
from stoilo.learn.work import Order

__all__ = ["Doubts"]


class Doubts:
    """Claims that a function fails, and answers that the place is still to hear of."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._sound: set[str] = set()  # keys whose orders run here without an error
        self._reports: list[tuple[str, str]] = []

    async def check(self, order: Order, part: Part, error: Exception) -> None:
        """Compute an order here, once, of which a volunteer says that the function fails.

        Raises:
            TrustError: ``STO-T010`` when it does not fail here.
        """
        if not isinstance(error, UserError):
            return
        if order.key not in self._sound:
            if not await asyncio.to_thread(runs_here, self._model, order, part):
                return
            self._sound.add(order.key)
        raise refuse_answer(f"it says {error}, which does not happen here")

    def forget(self, key: str) -> None:
        """Note that a piece of work is done."""
        self._sound.discard(key)

    def note(self, job_id: str, reason: str) -> None:
        """Note a wrong answer, to be reported once the run is saved."""
        self._reports.append((job_id, reason))

    async def report(self, backend: Backend) -> None:
        """Tell the place whose answers were wrong; it may be away just now."""
        while self._reports:
            job_id, reason = self._reports.pop(0)
            with contextlib.suppress(StoiloError):
                await backend.refuse(job_id, reason)
