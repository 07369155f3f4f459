"""One stream for all that a connection waits for; polls where there is none."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import stoilo
from stoilo.client import waiting
from stoilo.client.session import Journal
from stoilo.core.errors import DeniedError
from stoilo.testing.service import FakeTaskService, Outcome, serve_fake

GREETING = 1  # `connect` polls for no task


def make_service(**options: Any) -> FakeTaskService:
    return FakeTaskService(lambda _r, _s: Outcome.of(5), **options)


def one(kwargs: dict[str, int]) -> int:
    return kwargs["x"]


async def submit_many(conn: stoilo.Connection, count: int = 20) -> list[Any]:
    staged = [conn.create_task(one, {"x": n}) for n in range(count)]
    return await asyncio.gather(*(task.submit() for task in staged))


@pytest.mark.parametrize("is_old", [False, True], ids=["stream", "control: polls"])
def test_many_tasks_are_waited_for_by_one_stream(
    with_fake: Any, *, is_old: bool
) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        tasks = await submit_many(conn)
        assert await asyncio.gather(*(t.result() for t in tasks)) == [5] * 20
        streams, polls = service.calls["WaitTasks"], service.calls["PollTask"]
        expected = (0, False) if is_old else (1, True)
        assert (streams, polls == GREETING) == expected

    with_fake(body, make_service(polls=3, is_old=is_old))


@pytest.mark.parametrize("how", ["map", "as_completed"])
def test_other_ways_to_wait_use_the_stream(with_fake: Any, how: str) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        if how == "map":
            service.answer = lambda r, _s: Outcome(items=(Outcome.of(5),) * r.map_items)
            assert await conn.map(one, [{"x": 1}] * 20, chunk_items=5) == [5] * 20
            assert (service.calls["CreateTasks"], len(service.tasks)) == (1, 4)
        else:
            tasks = await submit_many(conn)
            assert len([t async for t in stoilo.as_completed(tasks)]) == 20
        assert service.calls["PollTask"] == GREETING

    with_fake(body, make_service(polls=3))


def test_task_that_comes_later_is_waited_for_as_well(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        (slow,) = await submit_many(conn, 1)
        service.tasks[slow.task_id].polls_left = 10_000
        held = asyncio.ensure_future(slow.result())
        await asyncio.sleep(0.1)
        (quick,) = await submit_many(conn, 1)
        assert await quick.result() == 5
        assert not held.done()
        service.tasks[slow.task_id].polls_left = 0
        assert await held == 5
        assert service.calls["PollTask"] == GREETING

    with_fake(body)


def test_more_tasks_than_a_stream_may_have_are_waited_for(
    with_fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MOST_TASKS", 6)

    async def body(conn: Any, service: FakeTaskService) -> None:
        tasks = await submit_many(conn)
        assert await asyncio.gather(*(t.result() for t in tasks)) == [5] * 20
        assert service.calls["PollTask"] == GREETING

    with_fake(body)


def test_task_of_somebody_else_is_denied_and_the_others_come(with_fake: Any) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        foreign = conn.restore_task("f" * 32)
        (own,) = await submit_many(conn, 1)
        found = await asyncio.gather(
            foreign.result(), own.result(), return_exceptions=True
        )
        assert isinstance(found[0], DeniedError)
        assert found[1] == 5

    with_fake(body)


def test_nobody_waits_any_more_and_the_stream_ends(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        service.polls = 10_000
        (task,) = await submit_many(conn, 1)
        both = [asyncio.ensure_future(task.wait()) for _ in range(2)]
        await asyncio.sleep(0.1)
        both[0].cancel()
        await asyncio.sleep(0.1)
        following = conn.session.waiting._following
        assert not following.done()  # control: the other one still waits
        both[1].cancel()
        await asyncio.wait([following], timeout=5)
        assert following.done()

    with_fake(body)


def test_server_of_before_takes_the_place_of_one_with_streams() -> None:
    service = make_service(polls=5)

    async def main() -> None:
        async with serve_fake(service) as address:
            conn = await stoilo.connect(address, journal=Journal(None))
            tasks = await submit_many(conn, 3)
            held = [asyncio.ensure_future(t.result()) for t in tasks]
            await asyncio.sleep(0.05)
        service.is_old = True
        async with serve_fake(service, int(address.target.rpartition(":")[2])):
            assert await asyncio.wait_for(asyncio.gather(*held), 20) == [5] * 3
        await conn.close()

    asyncio.run(main())
    assert service.calls["PollTask"] > GREETING


def test_fake_answers_a_task_once_though_a_stream_is_opened_anew(
    with_fake: Any,
) -> None:
    answered: list[Any] = []

    def slowly(request: Any, _service: FakeTaskService) -> Outcome:
        answered.append(request)
        time.sleep(0.2)
        return Outcome.of(5)

    async def body(conn: Any, _service: FakeTaskService) -> None:
        first, second = await submit_many(conn, 2)
        waiting = asyncio.ensure_future(first.result())
        await asyncio.sleep(0.1)  # its stream is answering
        assert await second.result() == await waiting == 5

    with_fake(body, FakeTaskService(slowly, polls=0))
    assert len(answered) == 2
