from __future__ import annotations

import asyncio
import logging

import pytest

from stoilo.client import wire
from stoilo.client.address import Address
from stoilo.core.errors import UnreachableError
from stoilo.core.rate_limit import Backoff

CALLS = 20


async def wait_for_nobody(each_its_own: bool) -> None:
    """Let many calls of one connection, or of one each, wait for a server that is away."""
    here = Address("127.0.0.1:1", "", None, "test")
    made = [wire.Wire(here) for _ in range(CALLS if each_its_own else 1)]

    async def fail() -> None:
        raise UnreachableError("STO-C050", "no answer")

    calls = [made[n % len(made)].be_patient(fail, patience_s=0.5) for n in range(CALLS)]
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(end, UnreachableError) for end in ends)
    for one in made:
        await one.close()


@pytest.mark.parametrize(
    ("each_its_own", "notices"), [(False, 1), (True, CALLS)], ids=["one", "control"]
)
def test_lost_server_is_told_once_a_connection(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    each_its_own: bool,
    notices: int,
) -> None:
    monkeypatch.setattr(wire, "WARN_EVERY_S", 0.3)
    monkeypatch.setattr(wire, "RECONNECTING", lambda: Backoff(0.02, 0.02))
    with caplog.at_level(logging.WARNING, "stoilo.client"):
        asyncio.run(wait_for_nobody(each_its_own))
    told = [one for one in caplog.records if "still trying" in one.message]
    assert len(told) == notices
