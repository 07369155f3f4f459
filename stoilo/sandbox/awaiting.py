"""A run in a jail, for asyncio. Apart, so that a volunteer's verifier has no event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoilo.core.limits import RunLimits
    from stoilo.sandbox.exchange import Exchange
    from stoilo.sandbox.report import JailReport
    from stoilo.sandbox.supervisor import Jail

__all__ = ["run_async"]


async def run_async(
    jail: Jail, request: bytes, limits: RunLimits, wall_s: float | None = None
) -> JailReport:
    """Do as `Jail.run` does, in a thread, for asyncio; cancelling kills the child."""
    running: list[Exchange] = []
    try:
        return await asyncio.to_thread(
            jail.run, request, limits, wall_s, watch=running.append
        )
    except asyncio.CancelledError:
        for exchange in running:
            exchange.cancel()
        raise
