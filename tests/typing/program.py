"""What a researcher writes; `test_program.py` has mypy check it. Never run."""

from __future__ import annotations

from typing import Any, assert_type

import stoilo
from stoilo.low_level import SystemError as NoQuorum
from stoilo.low_level import TaskResult, TimedOut, UserError

Outcome = float | UserError | NoQuorum | TimedOut


def halve(kw: dict[str, Any]) -> float:
    return float(kw["x"]) / 2


def area(width: int, height: int = 1) -> int:
    return width * height


async def asynchronous() -> None:
    async with stoilo.connect("connection.json") as conn:
        staged = conn.create_task(halve, {"x": 1})
        submitted = await staged.submit()
        assert_type(submitted, stoilo.SubmittedTask[float])
        assert_type(await submitted.result(timeout=5), Outcome)
        assert_type(await conn.map(halve, [{"x": 1}]), list[Outcome])
        async for item in conn.map(halve, [{"x": 1}]):
            assert_type(item, stoilo.MapItem[float])
        restored: TaskResult = await conn.restore_task(submitted.task_id).result()
        print(restored)
        conn.create_task(kwargs={"a": 2}, func=lambda kw: kw["a"] + 1)
        conn.create_task(halve, redundancy_options=stoilo.CreateOptions(min_quorum=3))


def synchronous() -> float:
    with stoilo.connect_sync() as conn:
        outcome = conn.create_task(halve, {"x": 1}).result()
        assert_type(outcome, Outcome)
        for item in conn.map(halve, [{"x": 1}]):
            assert_type(item.result, Outcome)
        if isinstance(outcome, UserError | NoQuorum | TimedOut):
            raise outcome
        return outcome


def futures() -> int:
    with stoilo.Executor() as pool:
        future = pool.submit(area, 2, height=3)
        assert_type(future, stoilo.TaskFuture[int])
        return future.result() + sum(pool.map(area, [1, 2]))


async def trains(conn: stoilo.Connection) -> None:
    fitted = await stoilo.learn.fit("fedavg", None, None, conn)
    assert_type(fitted, stoilo.learn.Trained)
    assert_type(stoilo.ml.VCASGDTrainer(conn, None, None), stoilo.ml.VCASGDTrainer)
    assert_type(stoilo.ddl.TrainerOptions(), stoilo.learn.TrainerOptions)
