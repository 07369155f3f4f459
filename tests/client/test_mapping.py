from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoilo
from stoilo.client.mapping import WINDOW, ChunkSizer
from stoilo.core.limits import BOUNDS
from stoilo.core.skeleton import decode, encode
from stoilo.core.types import TaskState
from stoilo.testing.jailed import JailAnswerer
from stoilo.testing.service import FakeTaskService, Outcome


def square(kw: dict[str, Any]) -> Any:
    return kw["x"] ** 2


def reciprocal(kw: dict[str, Any]) -> Any:
    return 1 / kw["x"]


def test_results_come_in_the_order_of_the_items_from_few_tasks(
    with_fake: Any, in_jail: JailAnswerer
) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        run = conn.map(square, ({"x": x} for x in range(200)))
        assert await run == [x**2 for x in range(200)]
        assert run.progress.done == run.progress.sent == 200
        assert len(service.tasks) == run.progress.tasks < 60

    with_fake(body, FakeTaskService(in_jail, polls=0))


def test_items_have_their_own_outcomes(with_fake: Any, in_jail: JailAnswerer) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        results = await conn.map(reciprocal, [{"x": 1}, {"x": 0}, {"x": 2}])
        assert results[::2] == [1.0, 0.5]
        assert isinstance(results[1], stoilo.UserError)
        assert isinstance(results[1], ZeroDivisionError)

    with_fake(body, FakeTaskService(in_jail))


def test_iteration_gives_items_as_they_finish(
    with_fake: Any, in_jail: JailAnswerer
) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        run = conn.map(square, [{"x": x} for x in range(20)], chunk_items=3)
        found = {item.index: item.result async for item in run}
        assert found == {x: x**2 for x in range(20)}

    with_fake(body, FakeTaskService(in_jail))


def test_only_disagreeing_items_are_sent_again(with_fake: Any) -> None:
    seen: list[list[int]] = []

    def answer(request: Any, _service: FakeTaskService) -> Outcome:
        xs = [item["x"] for item in decode(request.arguments)]
        seen.append(xs)
        first = len(seen) == 1
        return Outcome(
            items=tuple(
                Outcome(TaskState.SYSTEM_ERROR, code="STO-R058")
                if first and x in {1, 3}
                else Outcome(value=encode(x))
                for x in xs
            )
        )

    async def body(conn: Any, _service: FakeTaskService) -> None:
        items = [{"x": x} for x in range(5)]
        assert await conn.map(square, items, chunk_items=5) == list(range(5))
        assert seen == [[0, 1, 2, 3, 4], [1, 3]]

    with_fake(body, FakeTaskService(answer))


def test_an_item_that_never_agrees_ends_after_one_more_try(with_fake: Any) -> None:
    def answer(request: Any, _service: FakeTaskService) -> Outcome:
        lost = Outcome(TaskState.SYSTEM_ERROR, code="STO-R058", error_text="no quorum")
        return Outcome(items=(lost,) * request.map_items)

    async def body(conn: Any, service: FakeTaskService) -> None:
        (result,) = await conn.map(square, [{"x": 1}])
        assert isinstance(result, stoilo.SystemError)
        assert len(service.tasks) == 2

    with_fake(body, FakeTaskService(answer))


def test_a_map_that_fails_as_a_whole_fails_each_item(with_fake: Any) -> None:
    async def body(conn: Any, _service: FakeTaskService) -> None:
        results = await conn.map(square, [{"x": 1}, {"x": 2}])
        assert [type(result) for result in results] == [stoilo.SystemError] * 2

    with_fake(body, FakeTaskService(lambda _r, _s: Outcome(TaskState.EXPIRED)))


def test_an_empty_map_sends_nothing(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        assert await conn.map(square, []) == []
        assert not service.tasks

    with_fake(body)


def test_a_timeout_keeps_what_is_there(with_fake: Any) -> None:
    def answer(request: Any, _service: FakeTaskService) -> Outcome:
        xs = [item["x"] for item in decode(request.arguments)]
        return Outcome(items=tuple(Outcome(value=encode(x)) for x in xs))

    async def body(conn: Any, service: FakeTaskService) -> None:
        service.polls = 100_000
        run = conn.map(square, [{"x": 1}])
        (late,) = await run.results(timeout=0.2)
        assert isinstance(late, stoilo.TimedOut)
        assert run.task_ids[0] in late.task_id
        await run.cancel()
        assert service.calls["CancelTask"] == 1

    with_fake(body, FakeTaskService(answer))


def test_a_refused_map_raises(with_fake: Any) -> None:
    async def body(conn: Any, service: FakeTaskService) -> None:
        service.refuse = stoilo.SourceRefused("STO-R020", "no", "", ())
        with pytest.raises(stoilo.StoiloError, match="STO-R020"):
            await conn.map(square, [{"x": 1}])
        with pytest.raises(stoilo.StoiloError, match="STO-R020"):
            async for _ in conn.map(square, [{"x": 1}]):
                pass
        await asyncio.sleep(0)

    with_fake(body)


@given(st.integers(1, 10**6), st.lists(st.floats(0, 1000), max_size=20))
def test_chunk_sizes_stay_within_bounds(waiting: int, times: list[float]) -> None:
    sizer = ChunkSizer()
    for took in times:
        size = sizer.next_size(waiting)
        assert 1 <= size <= BOUNDS.map_items
        sizer.note(size, took)


def test_chunks_grow_while_short_and_shrink_when_long() -> None:
    sizer = ChunkSizer()
    sizes = []
    for _ in range(4):
        sizes.append(sizer.next_size(100_000))
        sizer.note(sizes[-1], 0.1)
    assert sizes == sorted(sizes)
    assert sizes[-1] >= 8 * sizes[0]
    sizer.note(sizes[-1], 1000)
    assert sizer.next_size(100_000) < sizes[-1]
    assert sizer.next_size(3) <= 8
    assert ChunkSizer(7).next_size(100) == 7
    assert WINDOW > 1
