from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stoilo
from stoilo.client import wire
from stoilo.client.address import Address
from stoilo.client.session import Journal
from stoilo.core.errors import StoiloError, UnreachableError, UsageError
from stoilo.core.rate_limit import Backoff
from stoilo.testing.deployment import Deployment
from stoilo.testing.service import FakeTaskService, Outcome

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


def one(_kwargs: dict[str, int]) -> int:
    return 1


def ended(_request: object, _service: object) -> Outcome:
    return Outcome.of(1)


def trace_of(call: Callable[[], object]) -> str:
    """Return what a person sees when `call` fails with an error of ours."""
    with pytest.raises(StoiloError) as caught:
        call()
    return "".join(traceback.format_exception(caught.value))


def assert_short(trace: str, message: str) -> None:
    """One error, no cause or context, no frame of gRPC's or of the event loop's."""
    assert message in trace
    assert trace.count("Traceback") == 1
    assert "grpc/" not in trace
    assert "concurrent/futures" not in trace
    assert len(trace.splitlines()) < 30


CLOSED_WAYS: dict[str, Callable[[Any, Any], object]] = {
    "create": lambda conn, _task: conn.create_task(one).submit(),
    "result": lambda _conn, task: task.result(),
    "status": lambda _conn, task: task.status(),
    "list": lambda conn, _task: conn.list_tasks(),
    "put": lambda conn, _task: conn.put([1]),
    "map": lambda conn, _task: conn.map(one, [{}]).results(),
    "items": lambda conn, _task: next(iter(conn.map(one, [{}]))),
}


@pytest.mark.parametrize("way", CLOSED_WAYS)
def test_closed_connection_says_so_in_few_lines(fake_thread: Any, way: str) -> None:
    fake = fake_thread(FakeTaskService(ended))
    conn = stoilo.connect_sync(fake.address, journal=Journal(None))
    task = conn.create_task(one).submit()
    conn.close()
    trace = trace_of(lambda: CLOSED_WAYS[way](conn, task))
    assert_short(trace, f"{conn.target} is closed [STO-C042]")


def test_a_waiter_hears_that_its_connection_was_closed(with_fake: Any) -> None:
    async def body(conn: stoilo.Connection, _service: FakeTaskService) -> None:
        waiter = asyncio.ensure_future((await conn.create_task(one).submit()).result())
        await asyncio.sleep(0.2)
        await conn.close()
        with pytest.raises(UsageError, match="is closed"):
            await waiter

    with_fake(body, FakeTaskService(ended, polls=10_000))


def test_cancelled_waiter_is_cancelled_and_not_told_of_closing(with_fake: Any) -> None:
    async def body(conn: stoilo.Connection, _service: FakeTaskService) -> None:
        waiter = asyncio.ensure_future((await conn.create_task(one).submit()).result())
        await asyncio.sleep(0.2)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter

    with_fake(body, FakeTaskService(ended, polls=10_000))


def test_server_that_goes_away_is_one_short_error(tmp_path: Path) -> None:
    with Deployment(tmp_path / "data") as server:
        assert server.line is not None
        conn = stoilo.connect_sync(
            server.line.connection, journal=Journal(None), patience=0.5
        )
        task = conn.create_task(one).submit()
        assert not task.done()
    for call in (task.status, lambda: conn.create_task(one).submit(), conn.list_tasks):
        assert_short(trace_of(call), f"no answer from {conn.target}")
    conn.close()
