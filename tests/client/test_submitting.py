"""Submissions of one moment are one call, and each hears its own answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stoilo.client import submitting
from stoilo.core.errors import StoiloError, UsageError
from stoilo.testing.service import FakeTaskService, Outcome


def one(kwargs: dict[str, int]) -> int:
    return kwargs["x"]


def other(kwargs: dict[str, int]) -> int:
    return -kwargs["x"]


def make_service(**options: Any) -> FakeTaskService:
    return FakeTaskService(lambda _r, _s: Outcome.of(5), **options)


def stage(conn: Any, count: int = 10, func: Any = one) -> list[Any]:
    return [conn.create_task(func, {"x": n}) for n in range(count)]


async def submit_all(staged: list[Any]) -> list[Any]:
    works = (task.submit() for task in staged)
    return await asyncio.gather(*works, return_exceptions=True)


@pytest.mark.parametrize("is_old", [False, True], ids=["now", "control: old server"])
def test_tasks_of_one_moment_are_one_call(with_fake: Any, *, is_old: bool) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        made = await submit_all(stage(conn))
        assert len({task.task_id for task in made}) == 10
        calls = service.calls["CreateTasks"], service.calls["CreateTask"]
        assert calls == ((0, 10) if is_old else (1, 0))

    with_fake(body, make_service(is_old=is_old))


def test_each_task_has_the_id_of_its_own_request(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        staged = stage(conn)
        for task, made in zip(staged, await submit_all(staged), strict=True):
            asked = service.tasks[made.task_id].request
            assert asked.arguments == task._captured.arguments

    with_fake(body)


def test_one_after_another_are_calls_of_their_own(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        for task in stage(conn, 3):
            await task.submit()
        assert (service.calls["CreateTasks"], service.calls["CreateTask"]) == (0, 3)

    with_fake(body)


def test_tasks_of_another_source_do_not_share_a_call(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        await submit_all([*stage(conn), *stage(conn, func=other)])
        assert service.calls["CreateTasks"] == 2

    with_fake(body)


@pytest.mark.parametrize(("name", "bound"), [("MOST_TASKS", 4), ("MOST_BYTES", 700)])
def test_calls_are_bounded(
    with_fake: Any, monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    monkeypatch.setattr(submitting, name, bound)

    async def body(conn: Any, service: FakeTaskService) -> None:
        await submit_all(stage(conn, 12))
        assert service.calls["CreateTasks"] >= 3
        assert len(service.tasks) == 12

    with_fake(body)


def test_lost_answer_makes_no_second_tasks(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        service.lose_answers("CreateTasks", 2)
        await submit_all(stage(conn))
        assert (service.calls["CreateTasks"], len(service.tasks)) == (3, 10)

    with_fake(body)


class Picky(FakeTaskService):
    """Refuses what a rule names."""

    def _create(self, request: Any) -> Any:
        if request.label == "bad":
            return UsageError("STO-R010", "it is refused")
        return super()._create(request)


@pytest.mark.parametrize("bad", [1, 9, 10])
def test_refused_task_hears_its_own_error_and_the_others_go(
    with_fake: Any, bad: int
) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        labels = ["bad"] * bad + ["good"] * (10 - bad)
        staged = [conn.create_task(one, {"x": 1}, label=label) for label in labels]
        made = await submit_all(staged)
        failed = [one for one in made if isinstance(one, StoiloError)]
        assert [error.code for error in failed] == ["STO-R010"] * bad
        assert len(service.tasks) == 10 - bad

    with_fake(body, Picky(lambda _r, _s: Outcome.of(5)))


def test_caller_who_went_away_does_not_hold_up_the_others(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        works = [asyncio.ensure_future(task.submit()) for task in stage(conn, 3)]
        await asyncio.sleep(0)
        works[0].cancel()
        made = await asyncio.gather(*works, return_exceptions=True)
        assert isinstance(made[0], asyncio.CancelledError)
        assert len({task.task_id for task in made[1:]}) == 2
        assert service.calls["CreateTasks"] == 1

    with_fake(body)
